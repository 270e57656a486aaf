/**
 * Long polling: requests that wait for a call's end. The wait ends with the call, at the request's time limit, when the client
 * disconnects, or when the server closes. Only the wait ends, not the call.
 */
import type { PendingSubmission } from '../../calls/submission.ts';

/** The most calls that are followed for the metrics after their requests have ended. */
const MAX_FOLLOWED = 2_000;

export class LongPolls {
  readonly #endWaits = new Set<() => void>();
  readonly #followed = new Set<PendingSubmission>();
  #closed = false;

  /** The call's result, or undefined when the wait ended first. `onWaiting` receives a function that ends the wait early. */
  async waitForResult(
    submission: PendingSubmission,
    waitMs: number,
    onWaiting: (end: () => void) => void,
  ): Promise<Awaited<PendingSubmission['result']> | undefined> {
    const result = await this.waitFor(submission.result, waitMs, onWaiting);
    if (result === undefined) this.follow(submission);
    return result;
  }

  /** The promise's value, or undefined when the wait ended first. */
  async waitFor<T>(pending: Promise<T>, waitMs: number, onWaiting: (end: () => void) => void): Promise<T | undefined> {
    // The promise may reject after the wait has ended, when the connection to Redis closes. That is no defect.
    pending.catch(() => {});
    if (waitMs === 0 || this.#closed) return undefined;
    const { promise, resolve, reject } = Promise.withResolvers<T | undefined>();
    const end = () => resolve(undefined);
    const timer = setTimeout(end, waitMs);
    this.#endWaits.add(end);
    onWaiting(end);
    pending.then(resolve, reject);
    try {
      return await promise;
    } finally {
      clearTimeout(timer);
      this.#endWaits.delete(end);
    }
  }

  /** Follows the call for the metrics; at the limit, the oldest followed call is dropped. */
  follow(submission: PendingSubmission): void {
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

  /** Ends all waits. Later requests do not wait at all. */
  close(): void {
    this.#closed = true;
    for (const end of this.#endWaits) end();
    for (const submission of this.#followed) submission.stop();
    this.#followed.clear();
  }
}
