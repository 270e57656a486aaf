/**
 * The load of one producer: as a session makes it, so many calls in flight, each followed by the next as soon as it is
 * answered; or at a fixed rate, whatever is still in flight.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { cpuMs } from './child.ts';
import type { FixedRate, Lanes, Load, LoadReport } from './protocol.ts';
import { quantile } from './statistics.ts';

/** Keys of the calls that are repeated. Fewer than the finished jobs that the hand-written side keeps. */
const REPEATED_KEYS = 500;
const repeatedKeys = randomUUID();

/** Makes one call under a key, of a tool that takes `toolMs`, and resolves with the text of its result. */
export type Call = (key: string, resultBytes: number, toolMs: number) => Promise<string>;

export async function runLoad(call: Call, load: Load): Promise<LoadReport> {
  const { resultBytes, pace, toolMs = 0 } = load;
  const keyOf = keysOf(load);
  const latenciesMs: number[] = [];
  const one = async (number: number, sinceMs: number) => {
    const text = await call(keyOf(number), resultBytes, toolMs);
    latenciesMs.push(performance.now() - sinceMs);
    if (text.length !== resultBytes) throw new Error(`a result of ${resultBytes} B came back with ${text.length} B`);
  };
  await sleep(Math.max(0, load.startAtMs - Date.now()));
  const cpuAtStart = process.cpuUsage();
  const startedMs = performance.now();
  await ('perSecond' in pace ? atFixedRate(one, pace) : inLanes(one, pace));
  return {
    calls: latenciesMs.length,
    elapsedMs: performance.now() - startedMs,
    cpuMs: cpuMs(cpuAtStart),
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
  };
}

type One = (number: number, sinceMs: number) => Promise<unknown>;

/** Numbers the calls from 1. */
export async function inLanes(one: One, { inFlight, until }: Lanes): Promise<void> {
  const startedMs = performance.now();
  let made = 0;
  const mayGoOn = 'calls' in until ? () => made < until.calls : () => performance.now() - startedMs < until.durationMs;
  const lane = async () => {
    while (mayGoOn()) {
      made += 1;
      await one(made, performance.now());
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
}

/** What is late starts at once, and its latency counts from when it was due: a standstill must not hide behind itself. */
async function atFixedRate(one: One, { perSecond, durationMs }: FixedRate): Promise<void> {
  const startedMs = performance.now();
  const total = Math.max(1, Math.floor((perSecond * durationMs) / 1_000));
  const dueMs = (number: number) => startedMs + (1_000 * number) / perSecond;
  const calls: Promise<unknown>[] = [];
  while (calls.length < total) {
    const nowMs = performance.now();
    while (calls.length < total && dueMs(calls.length) <= nowMs) calls.push(one(calls.length, dueMs(calls.length)));
    // Not a look each millisecond: many producers would have the cores to themselves.
    if (calls.length < total) await sleep(Math.max(1, dueMs(calls.length) - performance.now()));
  }
  await Promise.all(calls);
}

const FILLING_LANES = 256;

/** Hands in calls as fast as they go, each under a key of its own. */
export async function fill(calls: number, handIn: (key: string) => Promise<unknown>): Promise<{ elapsedMs: number }> {
  const own = randomUUID();
  const startedMs = performance.now();
  await inLanes((number) => handIn(`${own}-${number}`), { inFlight: FILLING_LANES, until: { calls } });
  return { elapsedMs: performance.now() - startedMs };
}

function keysOf({ keys, sharedKey }: Load): (number: number) => string {
  if (keys === 'same') return () => sharedKey;
  if (keys === 'repeated') return (number) => `${repeatedKeys}-${number % REPEATED_KEYS}`;
  const own = randomUUID();
  return (number) => `${own}-${number}`;
}
