/**
 * Lets one attempt have a process to itself. A call that was running in two workers that were lost is a suspect, and only a process that
 * runs nothing else proves that it is to blame. All workers of the process take no jobs meanwhile; those that arrive all the same go back.
 */
import type { Schedule } from '../../shared/util/time.ts';
import { onAbort, withinMs } from '../../shared/util/wait.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';

/**
 * The other calls have this long to end. One of them may wait for a call that only this worker could run. After each time in vain they
 * have twice as long: a worker that always runs long calls would never run a suspect.
 */
const ALONE_WITHIN_MS = 10_000;
const LONGEST_WAIT_MS = 320_000;
/**
 * A process runs no suspect alone before it is this old. The first calls of a process are slow, and where workers are killed at random,
 * many die in them: a loss there says little about the call.
 */
const MIN_PROCESS_AGE_MS = 3_000;
/** The delay of a suspect's job while this worker runs another suspect. */
const ONE_SUSPECT_AT_A_TIME_MS = 500;
/** The delay of a job that has to run alone, when the other calls did not end in time. */
const NEXT_SOLITUDE_MS = 1_000;

/** A worker of the process. */
interface ProcessWorker {
  readonly running: Pick<RunningAttempts, 'size' | 'onRemoved'>;
  /** Stops fetching jobs until `resume()`. */
  pause(): void;
  resume(): void;
}

export class Solitude {
  readonly #schedule: Schedule | undefined;
  readonly #monotonic: () => number;
  #oldEnoughAtMs: number | undefined;
  readonly #workers = new Set<ProcessWorker>();
  #holder: RunningAttempt | undefined;
  #isAlone = false;
  #withinMs = ALONE_WITHIN_MS;

  constructor(schedule?: Schedule, monotonic = () => performance.now()) {
    this.#schedule = schedule;
    this.#monotonic = monotonic;
  }

  /** Adds a worker of this process. Returns the function that removes it, when it runs nothing any more. */
  join(worker: ProcessWorker): () => void {
    this.#workers.add(worker);
    this.#oldEnoughAtMs ??= this.#monotonic() + MIN_PROCESS_AGE_MS;
    if (this.isReserved) worker.pause();
    return () => void this.#workers.delete(worker);
  }

  /** Whether an attempt has the process to itself, or waits for that. */
  get isReserved(): boolean {
    return this.#holder !== undefined;
  }

  /** The time until this process is old enough for a suspect that runs alone. */
  get untilOldEnoughMs(): number {
    return Math.max(0, Math.ceil((this.#oldEnoughAtMs ?? 0) - this.#monotonic()));
  }

  isHeldBy(running: RunningAttempt): boolean {
    return this.#isAlone && this.#holder === running;
  }

  /** Waits until nothing else runs here. False when that takes too long, or the attempt is aborted; then jobs are fetched again. */
  async enter(running: RunningAttempt): Promise<boolean> {
    if (this.#holder !== undefined) return false;
    this.#holder = running;
    const workers = [...this.#workers];
    for (const worker of workers) worker.pause();
    const { promise: alone, resolve } = Promise.withResolvers<boolean>();
    const checkAlone = () => {
      if (workers.reduce((count, worker) => count + worker.running.size, 0) <= 1) resolve(true);
    };
    const stopListening = workers.map((worker) => worker.running.onRemoved(checkAlone));
    checkAlone();
    const stopWaiting = onAbort(running.signal, () => resolve(false));
    const isAlone = await withinMs(alone, this.#withinMs, this.#schedule);
    const isTimeOver = isAlone === undefined;
    this.#isAlone = isAlone === true;
    if (this.#isAlone) this.#withinMs = ALONE_WITHIN_MS;
    else if (isTimeOver) this.#withinMs = Math.min(2 * this.#withinMs, LONGEST_WAIT_MS);
    for (const stop of stopListening) stop();
    stopWaiting();
    if (!this.#isAlone) this.leave(running);
    return this.#isAlone;
  }

  leave(running: RunningAttempt): void {
    if (this.#holder !== running) return;
    this.#holder = undefined;
    this.#isAlone = false;
    for (const worker of this.#workers) worker.resume();
  }
}

/** A program may start several workers. */
export const processSolitude = new Solitude();

/**
 * Admits one suspect call of a worker at a time. When a worker dies, all of its calls come back at once. If they ran together again,
 * the call that killed it would crash the next worker with all of them, until all are quarantined.
 */
export class Suspects {
  readonly #solitude: Pick<Solitude, 'enter' | 'leave' | 'isHeldBy' | 'untilOldEnoughMs'> | undefined;
  #suspect: RunningAttempt | undefined;

  /** `solitude` is absent where nothing else runs beside an attempt. */
  constructor(solitude: Pick<Solitude, 'enter' | 'leave' | 'isHeldBy' | 'untilOldEnoughMs'> | undefined) {
    this.#solitude = solitude;
  }

  isSuspect(running: RunningAttempt): boolean {
    return this.#suspect === running;
  }

  /** Whether the attempt has the process to itself. */
  isAlone(running: RunningAttempt): boolean {
    return this.#solitude?.isHeldBy(running) === true;
  }

  /** Undefined when the attempt may begin; otherwise how long its job waits. */
  async admit(running: RunningAttempt, runsAlone: boolean): Promise<number | undefined> {
    if (this.#suspect !== undefined) return ONE_SUSPECT_AT_A_TIME_MS;
    const untilOldEnoughMs = runsAlone ? (this.#solitude?.untilOldEnoughMs ?? 0) : 0;
    if (untilOldEnoughMs > 0) return untilOldEnoughMs;
    this.#suspect = running;
    return runsAlone && (await this.#solitude?.enter(running)) === false ? NEXT_SOLITUDE_MS : undefined;
  }

  leave(running: RunningAttempt): void {
    if (this.#suspect === running) this.#suspect = undefined;
    this.#solitude?.leave(running);
  }
}
