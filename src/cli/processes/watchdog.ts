/**
 * Ends a worker process whose event loop stands still: a tool that never gives it back (an endless loop, a catastrophic pattern, a
 * synchronous program) takes all calls of the process with it, and no timer of the process can tell.
 */
import { once } from 'node:events';
import { url as inspectorUrl } from 'node:inspector';
import { Worker } from 'node:worker_threads';
import { WATCHDOG_THREAD, type WatchdogData, type WatchdogListen, type WatchdogListens } from './watchdog-thread.ts';

/** After so many leases without a sign of life, other workers have taken over all that the process ran. */
const SILENT_LEASES = 2;
/** A busy machine can keep a process waiting for so long. */
const SHORTEST_SILENCE_MS = 5_000;
/** So many signs of life are expected within a silence that ends a process. */
const BEATS = 10;

/** How long a worker process may be silent before it is killed, and how often it gives a sign of life. */
export function silenceOf(leaseMs: number): { readonly limitMs: number; readonly beatMs: number } {
  const limitMs = Math.max(SILENT_LEASES * leaseMs, SHORTEST_SILENCE_MS);
  return { limitMs, beatMs: limitMs / BEATS };
}

export interface Watchdog {
  /** Answers `/healthz` at that address from its own thread, and has the rest answered at `mainPort`. Throws why it cannot. */
  listen(listen: WatchdogListen): Promise<number>;
  /** From now on a process that stands still is ended. Where a debugger may halt it, it is not. */
  begin(): void;
  stop(): Promise<void>;
}

export function startWatchdog(leaseMs: number): Watchdog {
  const { limitMs, beatMs } = silenceOf(leaseMs);
  const beats = new SharedArrayBuffer(8);
  const numbers = new Int32Array(beats);
  const workerData: WatchdogData = { beats, everyMs: beatMs, stalledAfterMs: limitMs / 2, killedAfterMs: limitMs };
  const thread = new Worker(WATCHDOG_THREAD, { workerData, name: 'watchdog' });
  thread.unref();
  const timer = setInterval(() => Atomics.add(numbers, 0, 1), beatMs / 2);
  timer.unref();
  return {
    listen: async (listen) => {
      thread.ref();
      thread.postMessage(listen);
      const [answer] = (await once(thread, 'message')) as [WatchdogListens];
      thread.unref();
      if ('error' in answer) throw new Error(answer.error);
      return answer.port;
    },
    begin: () => void Atomics.store(numbers, 1, inspectorUrl() === undefined ? 1 : 0),
    stop: async () => {
      clearInterval(timer);
      await thread.terminate();
    },
  };
}
