/** Load as a session makes it: so many calls in flight, each followed by the next as soon as it is answered. */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { cpuMs } from './child.ts';
import type { Load, LoadReport } from './protocol.ts';
import { quantile } from './statistics.ts';

/** Keys of the calls that are repeated. Fewer than the finished jobs that the hand-written side keeps. */
const REPEATED_KEYS = 500;
const repeatedKeys = randomUUID();

/** Makes one call under a key and resolves with the text of its result. */
export type Call = (key: string, resultBytes: number) => Promise<string>;

export async function runLoad(call: Call, load: Load): Promise<LoadReport> {
  const { inFlight, resultBytes, until } = load;
  const keys = load.keys === 'fresh' ? randomUUID() : repeatedKeys;
  const latenciesMs: number[] = [];
  await sleep(Math.max(0, load.startAtMs - Date.now()));
  const cpuAtStart = process.cpuUsage();
  const startedMs = performance.now();
  let made = 0;
  const mayGoOn = 'calls' in until ? () => made < until.calls : () => performance.now() - startedMs < until.durationMs;
  const lane = async () => {
    while (mayGoOn()) {
      const number = made;
      made += 1;
      const calledMs = performance.now();
      const text = await call(`${keys}-${load.keys === 'fresh' ? number : number % REPEATED_KEYS}`, resultBytes);
      latenciesMs.push(performance.now() - calledMs);
      if (text.length !== resultBytes) throw new Error(`a result of ${resultBytes} B came back with ${text.length} B`);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  const elapsedMs = performance.now() - startedMs;
  const usedMs = cpuMs(cpuAtStart);
  return {
    calls: made,
    elapsedMs,
    cpuMs: usedMs,
    p50Ms: quantile(latenciesMs, 0.5),
    p99Ms: quantile(latenciesMs, 0.99),
  };
}
