/**
 * Long polling: requests that wait for a call's end. The waiting ends with the call, at the request's own limit, when the client
 * disconnects or when the server closes. None of these ends the call.
 */
import type { Submission } from '../../calls/submission.ts';

type Pending = Extract<Submission, { readonly kind: 'pending' }>;

/** At most so many calls are followed for the metrics after their requests have ended. */
const MAX_FOLLOWED = 2_000;

export class LongPolls {
  readonly #ends = new Set<() => void>();
  readonly #followed = new Set<Pending>();
  #closed = false;

  /** The call's result, or undefined when the waiting ended first. `leave` receives a function that ends the waiting early. */
  async until(
    submission: Pending,
    waitMs: number,
    leave: (end: () => void) => void,
  ): Promise<Awaited<Pending['result']> | undefined> {
    const result = await this.within(submission.result, waitMs, leave);
    if (result === undefined) this.#follow(submission);
    return result;
  }

  /** The promise's value, or undefined when the waiting ended first. */
  async within<T>(awaited: Promise<T>, waitMs: number, leave: (end: () => void) => void): Promise<T | undefined> {
    // The promise may reject after the waiting has ended, when the connection to Redis closes. That is no defect.
    awaited.catch(() => {});
    if (waitMs === 0 || this.#closed) return undefined;
    const { promise, resolve, reject } = Promise.withResolvers<T | undefined>();
    const end = () => resolve(undefined);
    const timer = setTimeout(end, waitMs);
    this.#ends.add(end);
    leave(end);
    awaited.then(resolve, reject);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#ends.delete(end);
    }
  }

  /** Follows the call further; the oldest followed call gives way at the limit. */
  #follow(submission: Pending): void {
    if (this.#closed) {
      submission.stop();
      return;
    }
    this.#followed.add(submission);
    const forget = () => void this.#followed.delete(submission);
    submission.result.then(forget, forget);
    const oldest = this.#followed.values().next().value;
    if (this.#followed.size <= MAX_FOLLOWED || oldest === undefined) return;
    this.#followed.delete(oldest);
    oldest.stop();
  }

  get size(): number {
    return this.#ends.size;
  }

  /** Ends all waiting. Later requests do not wait at all. */
  close(): void {
    this.#closed = true;
    for (const end of this.#ends) end();
    for (const submission of this.#followed) submission.stop();
    this.#followed.clear();
  }
}
