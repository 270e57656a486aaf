import type { Outcome } from '../../shared/calls/outcome.ts';
import type { Settle } from '../../shared/store/calls/settle.ts';
import type { ExpiryRule } from '../../shared/tools/pending.ts';

/** The end of a job: it tells the queue what to do with the job next. */
export type JobOutcome =
  /** The call has ended, and its outcome is written. */
  | { readonly kind: 'finished'; readonly outcome: Outcome }
  /** The call succeeded. The step that ends its job writes the outcome as well. */
  | { readonly kind: 'succeeded'; readonly outcome: Outcome; readonly settle: Settle }
  /** There is nothing left to do for this job. */
  | { readonly kind: 'dropped' }
  | { readonly kind: 'postponed'; readonly delayMs: number }
  /** The call waits for an outside system. The step that wrote this has delayed its job. */
  | { readonly kind: 'pending'; readonly expiresAtMs: number; readonly onExpiry: ExpiryRule }
  /** The call is parked for a resource lock, `delayMs` at most. The release of the lock resumes it. */
  | { readonly kind: 'waiting-for-lock'; readonly delayMs: number }
  /** The call is parked by its tool or a limit, `delayMs` at most. `isReady` is checked once more after its job was delayed. */
  | { readonly kind: 'waiting'; readonly delayMs: number; isReady(): Promise<boolean> }
  /** The job goes to workers that can run the call; `others` are their IDs. */
  | { readonly kind: 'skipped'; readonly need: string; readonly others: readonly string[] }
  /** The job goes back to its queue at once, without consuming an attempt. */
  | { readonly kind: 'released' }
  /** This worker must not touch the job again: another worker recovers it. `fenced`: a newer attempt holds the call. */
  | { readonly kind: 'abandoned'; readonly fenced?: boolean };

/** The result of a step: a value to go on with, or the end of the job. */
export type Step<T> = { readonly go: T } | { readonly end: JobOutcome };

/** The outcome of the call, when the end of the job is the end of the call. */
export function callOutcome(jobOutcome: JobOutcome): Outcome | undefined {
  return jobOutcome.kind === 'finished' || jobOutcome.kind === 'succeeded' ? jobOutcome.outcome : undefined;
}
