/**
 * Ends a process whose event loop is blocked. A tool or a hook that blocks it (an endless loop, a catastrophic pattern, a synchronous
 * program) stops all calls of the process, and no timer of the process can detect it.
 */
import { once } from 'node:events';
import { url as inspectorUrl } from 'node:inspector';
import { Worker } from 'node:worker_threads';
import type { Settings } from '../../shared/config/config.ts';
import { escapeLines } from '../../shared/util/text/visible-text.ts';
import { processPause } from '../../workers/attempt/running-attempts.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import type { LoadingData, WatchdogAnswer, WatchdogData, WatchdogListen } from './watchdog-thread.ts';

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
/** The thread's own heartbeats, of which a process that stands still as a whole has none. */
const PULSES_PER_BEAT = 4;
/** They reach back to the last renewal of a lease before the silence. */
const KEPT_PULSES = 10;

/** Slow machines need a minute for a large file. */
const LOADING_LIMITS = { reportedAfterMs: 10_000, endedAfterMs: 300_000 };

/**
 * Loads a file of the user, whose code may block the event loop or wait for ever. The thread reports a slow one, and ends the process with
 * exit code 2 in the end.
 */
export async function watchLoading<T>(file: string, load: () => Promise<T>, limits = LOADING_LIMITS): Promise<T> {
  if (inspectorUrl() !== undefined) return await load();
  const workerData: LoadingData = { file: escapeLines(file), ...limits, exitCode: EXIT_CODES.usage.code };
  const thread = new Worker(THREAD, { workerData, name: 'loading' });
  thread.unref();
  try {
    return await load();
  } finally {
    void thread.terminate();
  }
}

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

interface ServerCode {
  readonly hooks: readonly unknown[];
  readonly toolsets: readonly unknown[];
}

/** Watches this front door from now on, if it runs code of tools files. */
export function watchServer({ lockDurationMs }: Settings, { hooks, toolsets }: ServerCode): void {
  if (hooks.length > 0 || toolsets.length > 0) startWatchdog(lockDurationMs, 'server').begin();
}

export function startWatchdog(leaseMs: number, process: WatchdogData['process'] = 'worker'): Watchdog {
  const { limitMs, beatMs } = silenceLimits(leaseMs);
  const beats = new SharedArrayBuffer(12);
  const counters = new Int32Array(beats);
  const pulseMs = beatMs / PULSES_PER_BEAT;
  const checks = { checkEveryMs: beatMs, stalledAfterMs: limitMs / 2, killedAfterMs: limitMs };
  const workerData: WatchdogData = { process, beats, pulseMs, ...checks };
  const thread = new Worker(THREAD, { workerData, name: 'watchdog' });
  thread.unref();
  const pulses = [{ atMs: performance.now(), count: 0 }];
  const timer = setInterval(() => {
    Atomics.add(counters, 0, 1);
    pulses.push({ atMs: performance.now(), count: Atomics.load(counters, 2) });
    if (pulses.length > KEPT_PULSES) pulses.shift();
  }, beatMs / 2).unref();
  processPause.stoodStill = (silentMs) => {
    const sinceMs = performance.now() - silentMs;
    const { count = 0 } = pulses.findLast(({ atMs }) => atMs <= sinceMs) ?? {};
    return count > 0 && Atomics.load(counters, 2) - count < silentMs / pulseMs / 2;
  };
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
      processPause.stoodStill = () => false;
      await thread.terminate();
    },
  };
}
