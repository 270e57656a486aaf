/**
 * Lets one attempt have a worker process to itself: a call that was running in two workers that were lost is a suspect, and only a
 * process that runs nothing else proves that it is to blame. The worker takes no jobs meanwhile, and those that arrive all the same go back.
 */
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import type { RunningAttempt, RunningAttempts } from '../attempt/running-attempts.ts';

/** The calls beside it have so long to end. One of them may wait for a call that only this worker could take. */
const ALONE_WITHIN_MS = 10_000;

export interface SolitudeParts {
  readonly running: Pick<RunningAttempts, 'size' | 'onRemoved'>;
  /** Takes no jobs until it is resumed. */
  pause(): void;
  resume(): void;
  readonly schedule?: Schedule;
}

export class Solitude {
  readonly #parts: SolitudeParts;
  #holder: RunningAttempt | undefined;
  #isAlone = false;

  constructor(parts: SolitudeParts) {
    this.#parts = parts;
  }

  /** Whether an attempt has the process to itself, or waits for that. */
  get isTaken(): boolean {
    return this.#holder !== undefined;
  }

  isOf(running: RunningAttempt): boolean {
    return this.#isAlone && this.#holder === running;
  }

  /** Waits until nothing else runs here. False when that takes too long, or the attempt is ended; then jobs are taken again. */
  async enter(running: RunningAttempt): Promise<boolean> {
    const { running: attempts, pause, schedule = systemSchedule } = this.#parts;
    if (this.#holder !== undefined) return false;
    this.#holder = running;
    pause();
    const { promise: alone, resolve } = Promise.withResolvers<boolean>();
    const look = () => {
      if (attempts.size <= 1) resolve(true);
    };
    const stopLooking = attempts.onRemoved(look);
    const stopTimer = schedule(() => resolve(false), ALONE_WITHIN_MS);
    const giveUp = () => resolve(false);
    running.signal.addEventListener('abort', giveUp, { once: true });
    look();
    if (running.signal.aborted) giveUp();
    this.#isAlone = await alone;
    stopLooking();
    stopTimer();
    running.signal.removeEventListener('abort', giveUp);
    if (!this.#isAlone) this.leave(running);
    return this.#isAlone;
  }

  leave(running: RunningAttempt): void {
    if (this.#holder !== running) return;
    this.#holder = undefined;
    this.#isAlone = false;
    this.#parts.resume();
  }
}
