/** A clock that a test advances, for tests of backoff, time limits, cooldowns and TTLs. */
import { invalidArgument } from '../shared/schema/known-members.ts';
import { quoteValue } from '../shared/util/text/quote-value.ts';
import type { Clock, Schedule } from '../shared/util/time.ts';

export interface FakeClock extends Clock {
  readonly schedule: Schedule;
  /** Advances time, and runs each due timer at its own time. */
  advance(ms: number): Promise<void>;
  /**
   * Advances from one timer to the next until the promise settles. For code that waits for this clock, files and child processes that
   * started after the clock. Code that waits for the network would hit its own time limit first.
   */
  until<T>(promise: Promise<T>): Promise<T>;
}

interface Timer {
  readonly atMs: number;
  readonly run: () => void;
}

/** Turns of the event loop after which code counts as settled. */
const MAX_TURNS = 5;
/** How long to wait for files and child processes, in real time: a machine may be suspended for seconds. */
const MAX_SETTLE_MS = 20_000;

export function fakeClock(startMs = Date.UTC(2026, 0, 1)): FakeClock {
  let nowMs = startMs;
  const timers = new Set<Timer>();
  const isBusy = busyCheck();
  const settle = () => waitUntilSettled(isBusy);
  const schedule: Schedule = (run, afterMs) => {
    if (typeof run !== 'function') throw invalidArgument('run', `must be a function; got ${quoteValue(run)}`);
    checkMs('afterMs', afterMs);
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
      checkMs('ms', ms);
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
      if (typeof promise?.then !== 'function')
        throw invalidArgument('promise', `must be a promise; got ${quoteValue(promise)}`);
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

/** A time that is no number would stop the clock for good. */
function checkMs(path: string, ms: number): void {
  if (!Number.isFinite(ms))
    throw invalidArgument(path, `must be a finite number of milliseconds; got ${quoteValue(ms)}`);
}

/** Between two requests, or after a program's end, nothing is pending for a moment. Only a longer idle time counts as settled. */
const REST_MS = 25;

/** Resolves when code has settled, and is busy with neither files nor child processes. */
async function waitUntilSettled(isBusy: () => boolean): Promise<void> {
  const deadlineMs = performance.now() + MAX_SETTLE_MS;
  await yieldTurns();
  // Nothing may be pending at either end of the idle time.
  for (let rests = isBusy() ? 2 : 0; rests > 0 && performance.now() < deadlineMs; ) {
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    await yieldTurns();
    rests = isBusy() ? 2 : rests - 1;
  }
}

async function yieldTurns(): Promise<void> {
  for (let turn = 0; turn < MAX_TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/**
 * Returns whether file or DNS requests are active, or programs that were started since. Older programs, such as a test's server, do not
 * belong to the calls. Sockets do not count: an idle one looks like one in use.
 */
function busyCheck(): () => boolean {
  let otherPrograms = programsIn(process.getActiveResourcesInfo());
  return () => {
    const active = process.getActiveResourcesInfo();
    const programs = programsIn(active);
    otherPrograms = Math.min(otherPrograms, programs);
    return programs > otherPrograms || active.some((name) => name.includes('Req'));
  };
}

function programsIn(active: readonly string[]): number {
  return active.filter((name) => name === 'ProcessWrap').length;
}
