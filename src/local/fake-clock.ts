/**
 * Time that passes when a test says so, for tests of what waits: backoff, time limits, cooldowns, times to live.
 */
import type { Clock, Schedule } from '../shared/util/time.ts';

export interface FakeClock extends Clock {
  readonly schedule: Schedule;
  /** Lets time pass, and what is due run, each at its own moment. */
  advance(ms: number): Promise<void>;
  /**
   * Goes from one timer to the next until the promise settles, however far they are apart. For code that waits for this clock,
   * files and child processes: what waits for the network is overtaken by its own time limit.
   */
  until<T>(promise: Promise<T>): Promise<T>;
}

interface Timer {
  readonly atMs: number;
  readonly run: () => void;
}

/** How often code gets a turn before nothing more is expected of it: promises first, then what Node does in between. */
const TURNS = 5;
/** How long files and child processes are waited for, in real time: a machine may stop for seconds. */
const PATIENCE_MS = 20_000;

export function fakeClock(startMs = Date.UTC(2026, 0, 1)): FakeClock {
  let nowMs = startMs;
  const timers = new Set<Timer>();

  const schedule: Schedule = (run, afterMs) => {
    const timer = { atMs: nowMs + Math.max(0, afterMs), run };
    timers.add(timer);
    return () => timers.delete(timer);
  };
  const next = (): Timer | undefined => {
    let first: Timer | undefined;
    for (const timer of timers) if (first === undefined || timer.atMs < first.atMs) first = timer;
    return first;
  };
  const fire = (timer: Timer) => {
    timers.delete(timer);
    nowMs = Math.max(nowMs, timer.atMs);
    timer.run();
  };

  return {
    now: () => nowMs,
    monotonic: () => nowMs - startMs,
    schedule,
    advance: async (ms) => {
      const endMs = nowMs + ms;
      await settle();
      for (let due = next(); due !== undefined && due.atMs <= endMs; due = next()) {
        fire(due);
        await settle();
      }
      nowMs = endMs;
      await settle();
    },
    until: async (promise) => {
      let settled = false;
      const end = () => {
        settled = true;
      };
      promise.then(end, end);
      await settle();
      while (!settled) {
        const due = next();
        if (due !== undefined) fire(due);
        await settle();
      }
      return promise;
    },
  };
}

/** Between two requests, or after a program's end, nothing is pending for a moment: only a longer rest is the end. */
const REST_MS = 25;

/** Resolves when code has had its turns and waits neither for files nor for child processes. */
async function settle(): Promise<void> {
  const deadlineMs = performance.now() + PATIENCE_MS;
  await locks();
  // Nothing may be pending at either end of a rest.
  for (let rests = isBusy() ? 2 : 0; rests > 0 && performance.now() < deadlineMs; ) {
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    await locks();
    rests = isBusy() ? 2 : rests - 1;
  }
}

async function locks(): Promise<void> {
  for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Requests of files and names, and programs. Sockets are left out: one that is kept for later looks like one that is waited for. */
function isBusy(): boolean {
  return process.getActiveResourcesInfo().some((name) => name.includes('Req') || name === 'ProcessWrap');
}
