/** The number of workers that a tier needs: the rule behind the metric that autoscalers follow. */

interface TierLoad {
  /** Calls that could run now and wait for a worker. */
  readonly waiting: number;
  readonly running: number;
  readonly oldestWaitMs: number;
  readonly workers: number;
  /** Attempts that these workers run at a time. */
  readonly slots: number;
  /** The mean of recent attempts; undefined before the first one. */
  readonly meanAttemptMs: number | undefined;
}

/** The time within which waiting calls should start. */
const TARGET_WAIT_MS = 5_000;
/** The slots of a worker before one is running: `pawl worker` without `--concurrency`. */
const DEFAULT_SLOTS = 32;

/**
 * Counts the busy slots, and as many more as start all waiting calls within the target, if each slot is free again after the mean attempt;
 * divides by the slots of one worker. If a call has waited beyond the target while every slot was busy, one worker more is needed. An empty
 * tier needs none.
 */
export function neededWorkers(load: TierLoad): number {
  const { waiting, running, oldestWaitMs, workers, slots, meanAttemptMs = TARGET_WAIT_MS } = load;
  const slotsPerWorker = workers === 0 ? DEFAULT_SLOTS : slots / workers;
  const share = Math.min(1, meanAttemptMs / TARGET_WAIT_MS);
  const needed = Math.ceil((running + waiting * share) / slotsPerWorker);
  const isLate = waiting > 0 && oldestWaitMs > TARGET_WAIT_MS && running >= slots;
  return isLate ? Math.max(needed, workers + 1) : needed;
}
