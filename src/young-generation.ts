/**
 * Bounds the young generation of V8. Node lets it grow to 128 MiB in a busy process; a worker takes no more CPU time with a quarter of
 * that. A producer does: it keeps its calls until they end.
 */
import { PerformanceObserver } from 'node:perf_hooks';
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { isMainThread } from 'node:worker_threads';

/** A worker with many attempts at a time collects too often with less. */
const BOUND_BYTES = 32 * 1_024 * 1_024;
const GROWS = '--semi-space-growth-factor=2';
const KEEPS_ITS_SIZE = '--semi-space-growth-factor=1';

let observer: PerformanceObserver | undefined;

/**
 * Keeps this process' young generation at the size that it has when it reaches the bound. V8 shrinks it in an idle process, and it may
 * then grow again. A program that sets the size itself (`--max-semi-space-size`) keeps what it set.
 *
 * To be called when most modules are loaded: V8 uses compiled code only under the flags that it was compiled with.
 */
export function boundYoungGeneration(environment: NodeJS.ProcessEnv): void {
  if (observer !== undefined || !isMainThread || isSetByProgram(environment)) return;
  let current = GROWS;
  const set = (flag: string) => {
    if (flag === current) return;
    current = flag;
    setFlagsFromString(flag);
  };
  const look = () => set(youngBytes() < BOUND_BYTES ? GROWS : KEEPS_ITS_SIZE);
  observer = new PerformanceObserver(look);
  observer.observe({ entryTypes: ['gc'] });
  look();
  // Node writes its compile cache when the process ends.
  process.on('exit', () => set(GROWS));
}

function isSetByProgram(environment: NodeJS.ProcessEnv): boolean {
  return [...process.execArgv, environment['NODE_OPTIONS'] ?? ''].some((option) => /semi[-_]space/.test(option));
}

function youngBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space')?.space_size ?? 0;
}
