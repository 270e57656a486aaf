import type { Outcome } from '../../shared/calls/outcome.ts';
import type { Settle } from '../../shared/store/calls/settle.ts';

/** What became of the job. The queue's part in it is the worker's business. */
export type JobOutcome =
  | {
      readonly kind: 'finished';
      readonly outcome: Outcome;
      /** Still to be written, together with the end of the job. */
      readonly unwritten?: Settle;
    }
  /** Nothing to do for this job any more. */
  | { readonly kind: 'dropped' }
  | { readonly kind: 'postponed'; readonly delayMs: number }
  /** It waits for its turn at a resource, `delayMs` at most: whoever gives up a turn wakes it. */
  | { readonly kind: 'waiting-for-lock'; readonly delayMs: number }
  /** It waits for what its tool waits for, `delayMs` at most. Once its job is put aside, it is asked again. */
  | { readonly kind: 'waiting'; readonly delayMs: number; isReady(): Promise<boolean> }
  /** For workers that have what the call needs, by their IDs. */
  | { readonly kind: 'skipped'; readonly need: string; readonly others: readonly string[] }
  /** Back to the queue at once, for another worker. */
  | { readonly kind: 'released' }
  /** This worker must not touch the job again: others will notice and recover it. `fenced`: a newer attempt holds the call. */
  | { readonly kind: 'abandoned'; readonly fenced?: boolean };

/** A step's answer: go on with a value, or the job's end. */
export type Step<T> = { readonly go: T } | { readonly end: JobOutcome };
