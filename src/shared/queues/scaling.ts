/** How many workers a tier needs: the rule behind the metric that autoscalers follow. */

export interface TierLoad {
  /** Calls that could run now and wait for a worker. */
  readonly waiting: number;
  readonly running: number;
  readonly oldestWaitMs: number;
  readonly workers: number;
  /** Attempts that these workers run at a time. */
  readonly slots: number;
  /** Of late; undefined before the first attempt. */
  readonly meanAttemptMs: number | undefined;
}

/** The time within which what waits should have begun. */
export const TARGET_WAIT_MS = 5_000;
/** Of a worker that is not there yet: `pawl worker` without `--concurrency`. */
const DEFAULT_SLOTS = 32;

/**
 * The slots that are busy, and as many more as begin all that waits within the target, each being used again after one attempt's
 * time; in workers of the present size. A call that has waited beyond the target while every slot is busy asks for one worker more.
 * Nothing waits and nothing runs: none is needed.
 */
export function neededWorkers(load: TierLoad): number {
  const { waiting, running, oldestWaitMs, workers, slots, meanAttemptMs = TARGET_WAIT_MS } = load;
  const slotsEach = workers === 0 ? DEFAULT_SLOTS : slots / workers;
  const share = Math.min(1, meanAttemptMs / TARGET_WAIT_MS);
  const needed = Math.ceil((running + waiting * share) / slotsEach);
  const late = waiting > 0 && oldestWaitMs > TARGET_WAIT_MS && running >= slots;
  return late ? Math.max(needed, workers + 1) : needed;
}
