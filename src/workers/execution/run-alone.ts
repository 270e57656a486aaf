/**
 * Lets one attempt have a worker process to itself. A call that was running in two workers that were lost is a suspect, and only a
 * process that runs nothing else proves that it is to blame. The worker takes no jobs meanwhile; those that arrive all the same go back.
 */
import type { Schedule } from '../../shared/util/time.ts';
import { onAbort, withinMs } from '../../shared/util/wait.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';

/** The other calls have this long to end. One of them may wait for a call that only this worker could run. */
const ALONE_WITHIN_MS = 10_000;
/** The delay of a suspect's job while this worker runs another suspect. */
const ONE_SUSPECT_AT_A_TIME_MS = 500;
/** The delay of a job that has to run alone, when the other calls did not end in time. */
const NEXT_SOLITUDE_MS = 1_000;

export interface SolitudeDeps {
  readonly running: Pick<RunningAttempts, 'size' | 'onRemoved'>;
  /** Stops fetching jobs until `resume()`. */
  pause(): void;
  resume(): void;
  readonly schedule?: Schedule;
}

export class Solitude {
  readonly #deps: SolitudeDeps;
  #holder: RunningAttempt | undefined;
  #isAlone = false;

  constructor(deps: SolitudeDeps) {
    this.#deps = deps;
  }

  /** Whether an attempt has the process to itself, or waits for that. */
  get isReserved(): boolean {
    return this.#holder !== undefined;
  }

  isHeldBy(running: RunningAttempt): boolean {
    return this.#isAlone && this.#holder === running;
  }

  /** Waits until nothing else runs here. False when that takes too long, or the attempt is aborted; then jobs are fetched again. */
  async enter(running: RunningAttempt): Promise<boolean> {
    const { running: attempts, pause, schedule } = this.#deps;
    if (this.#holder !== undefined) return false;
    this.#holder = running;
    pause();
    const { promise: alone, resolve } = Promise.withResolvers<boolean>();
    const checkAlone = () => {
      if (attempts.size <= 1) resolve(true);
    };
    const stopListening = attempts.onRemoved(checkAlone);
    checkAlone();
    const stopWaiting = onAbort(running.signal, () => resolve(false));
    this.#isAlone = (await withinMs(alone, ALONE_WITHIN_MS, schedule)) === true;
    stopListening();
    stopWaiting();
    if (!this.#isAlone) this.leave(running);
    return this.#isAlone;
  }

  leave(running: RunningAttempt): void {
    if (this.#holder !== running) return;
    this.#holder = undefined;
    this.#isAlone = false;
    this.#deps.resume();
  }
}

/**
 * Admits one suspect call of a worker at a time. When a worker dies, all of its calls come back at once. If they ran together again,
 * the call that killed it would crash the next worker with all of them, until all are quarantined.
 */
export class Suspects {
  readonly #solitude: Pick<Solitude, 'enter' | 'leave' | 'isHeldBy'> | undefined;
  #suspect: RunningAttempt | undefined;

  /** `solitude` is absent where nothing else runs beside an attempt. */
  constructor(solitude: Pick<Solitude, 'enter' | 'leave' | 'isHeldBy'> | undefined) {
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
    this.#suspect = running;
    return runsAlone && (await this.#solitude?.enter(running)) === false ? NEXT_SOLITUDE_MS : undefined;
  }

  leave(running: RunningAttempt): void {
    if (this.#suspect === running) this.#suspect = undefined;
    this.#solitude?.leave(running);
  }
}
