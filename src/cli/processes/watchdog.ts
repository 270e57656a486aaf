/**
 * Ends a worker process whose event loop is blocked. A tool that blocks it (an endless loop, a catastrophic pattern, a synchronous
 * program) stops all calls of the process, and no timer of the process can detect it.
 */
import { once } from 'node:events';
import { url as inspectorUrl } from 'node:inspector';
import { Worker } from 'node:worker_threads';
import type { WatchdogAnswer, WatchdogData, WatchdogListen } from './watchdog-thread.ts';

/** The thread's own file, which this process does not load. */
const THREAD = new URL(
  import.meta.url.endsWith('.ts') ? './watchdog-thread.ts' : './watchdog-thread.js',
  import.meta.url,
);

/** After this many leases without a heartbeat, other workers have recovered all calls of the process. */
const SILENT_LEASES = 2;
/** A busy machine may delay a process for this long. */
const MIN_SILENCE_MS = 5_000;
/** The number of heartbeats within the silence that ends the process. */
const BEATS = 10;

/** The silence after which a worker process is killed, and the interval of its heartbeats. */
export function silenceLimits(leaseMs: number): { readonly limitMs: number; readonly beatMs: number } {
  const limitMs = Math.max(SILENT_LEASES * leaseMs, MIN_SILENCE_MS);
  return { limitMs, beatMs: limitMs / BEATS };
}

export interface Watchdog {
  /** Answers `/healthz` at this address from the watchdog's thread, and forwards the rest to `mainPort`. Throws if it cannot listen. */
  listen(listen: WatchdogListen): Promise<number>;
  /** Starts to watch the process. A process that a debugger may halt is not watched. */
  begin(): void;
  stop(): Promise<void>;
}

export function startWatchdog(leaseMs: number): Watchdog {
  const { limitMs, beatMs } = silenceLimits(leaseMs);
  const beats = new SharedArrayBuffer(8);
  const counters = new Int32Array(beats);
  const workerData: WatchdogData = { beats, checkEveryMs: beatMs, stalledAfterMs: limitMs / 2, killedAfterMs: limitMs };
  const thread = new Worker(THREAD, { workerData, name: 'watchdog' });
  thread.unref();
  const timer = setInterval(() => Atomics.add(counters, 0, 1), beatMs / 2).unref();
  return {
    listen: async (listen) => {
      thread.ref();
      thread.postMessage(listen);
      const [answer] = (await once(thread, 'message')) as [WatchdogAnswer];
      thread.unref();
      if ('error' in answer) throw new Error(answer.error);
      return answer.port;
    },
    begin: () => void Atomics.store(counters, 1, inspectorUrl() === undefined ? 1 : 0),
    stop: async () => {
      clearInterval(timer);
      await thread.terminate();
    },
  };
}
