/**
 * The life of a call (R11; DESIGN, "Call lifecycle").
 *
 * inflight  claimed            recorded, and queued in the same step
 *           awaiting-approval  waits for a person, without a worker slot
 *           queued             waits for a worker
 *           running            an attempt holds the newest fence
 *           waiting-retry      an attempt failed; the next one is in the queue's delayed set
 * done      a success, replayed to whoever asks again
 * failed    an error, replayed for a shorter time; also an outcome that is not known
 * cancelled by a caller; nothing runs under this record again
 */
import { type Failure, type FailureCode, PawlError } from './failure.ts';
import type { Effects } from './tool.ts';

export const CALL_STATES = ['inflight', 'done', 'failed', 'cancelled'] as const;
export type CallState = (typeof CALL_STATES)[number];
export const PHASES = ['claimed', 'awaiting-approval', 'queued', 'running', 'waiting-retry'] as const;
export type Phase = (typeof PHASES)[number];

/** What calls are looked for by; `unresolved`: the outcome is unknown, and somebody should find it out. */
export const SOUGHT_STATES = [...CALL_STATES, ...PHASES, 'unresolved'] as const;
export type SoughtState = (typeof SOUGHT_STATES)[number];

/** Where a call stands: its end state, or the phase it is in. */
export type Standing = Phase | Exclude<CallState, 'inflight'>;

/** The legal transitions and the reason that each one carries. Everything else is refused. */
export const TRANSITIONS: Readonly<Record<Standing, Partial<Readonly<Record<Standing, string>>>>> = {
  claimed: { queued: 'enqueued', 'awaiting-approval': 'needs approval', cancelled: 'cancelled by a caller' },
  'awaiting-approval': { queued: 'approved', failed: 'denied or expired', cancelled: 'cancelled by a caller' },
  queued: { running: 'an attempt began', failed: 'refused before an attempt', cancelled: 'cancelled by a caller' },
  running: {
    running: 'the attempt was lost and another began',
    'waiting-retry': 'the attempt failed and may be repeated',
    queued: 'the attempt was handed back unspent',
    done: 'the attempt succeeded',
    failed: 'the attempt failed for good, or its outcome is unknown',
    cancelled: 'cancelled by a caller',
  },
  'waiting-retry': {
    running: 'an attempt began',
    failed: 'refused before an attempt',
    cancelled: 'cancelled by a caller',
  },
  done: {},
  failed: {
    'awaiting-approval': 'to run again, which a person must approve',
    queued: 'resolved as retry, or asked again with bestEffort',
    done: 'resolved as succeeded',
    failed: 'resolved as failed',
  },
  cancelled: {},
};

/** The reason of a transition; throws for one that is not in the table. */
export function transition(from: Standing, to: Standing): string {
  const reason = TRANSITIONS[from][to];
  if (reason === undefined)
    throw new PawlError(
      'CALL_NOT_RESOLVABLE',
      `A call cannot go from ${from} to ${to}. From ${from} it can go to: ${Object.keys(TRANSITIONS[from]).join(', ') || 'nothing'}.`,
    );
  return reason;
}

/** How a cancellation ended. */
export const SETTLEMENTS = ['cancelled-before-start', 'cancelled', 'unsettled', 'too-late'] as const;
export type Settlement = (typeof SETTLEMENTS)[number];

/**
 * What to do with a call whose attempt began and left no record (DESIGN, decision 5). `isPoison`: the call is proven to take down each
 * worker that runs it. `isAnswerable`: it can be asked for.
 */
export function recovery(
  effects: Effects,
  isPoison: boolean,
  isAnswerable = false,
): { readonly kind: 'run-again' | 'probe' } | { readonly kind: 'stop'; readonly code: FailureCode } {
  if (effects === 'once' && !isAnswerable) return { kind: 'stop', code: 'OUTCOME_UNKNOWN' };
  if (isPoison) return { kind: 'stop', code: 'POISONED' };
  return { kind: effects === 'probe' || effects === 'once' ? 'probe' : 'run-again' };
}

/** Error codes that leave open what happened: such a call can be resolved, and is kept as long as a success. */
export const UNKNOWN_CODES: readonly string[] = ['OUTCOME_UNKNOWN', 'POISONED'] satisfies FailureCode[];

const AFTER_THE_EFFECT: readonly string[] = ['TIMEOUT', 'RESULT_TOO_LARGE', 'RESULT_INVALID'] satisfies FailureCode[];

/** Whether an attempt that failed so may have had its effect. A tool that fails for good says itself that it did not do its work. */
export function isInDoubt(effects: Effects, { code, retriable, nothingHappened, afterEffect }: Failure): boolean {
  return (
    effects !== 'none' && !nothingHappened && (retriable || afterEffect === true || AFTER_THE_EFFECT.includes(code))
  );
}

/** Whether a call that failed, asked for again under its key, must not run again any sooner than a success. */
export function isKeptLong(effects: Effects, attempts: readonly Pick<AttemptRecord, 'status' | 'inDoubt'>[]): boolean {
  return (effects === 'once' || effects === 'probe') && leftInDoubt(attempts);
}

/** Whether one of these attempts may have had its effect. */
export function leftInDoubt(attempts: readonly Pick<AttemptRecord, 'status' | 'inDoubt'>[]): boolean {
  return attempts.some(({ status, inDoubt }) => inDoubt === true || status === 'lost');
}

/** Whether a cancelled attempt may have had its effect. */
export function settlementOfAborted(effects: Effects, nothingHappened: boolean): Settlement {
  return effects === 'none' || nothingHappened ? 'cancelled' : 'unsettled';
}

/** One attempt, as the record keeps it (R14, I4). */
export interface AttemptRecord {
  readonly attempt: number;
  readonly fence: number;
  readonly worker: string;
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  readonly status: 'success' | 'error' | 'lost';
  readonly retriable: boolean;
  readonly errorCode?: string;
  /** It failed, and may have had its effect all the same. */
  readonly inDoubt?: true;
  /** Digest of what it found, where workers have to agree (I11). */
  readonly vote?: string;
  /** Milliseconds until the next attempt, when one follows. */
  readonly delayMs?: number;
  /** Of the attempt's span, where traces are on. */
  readonly traceparent?: string;
}

/** How long records live, milliseconds (R16). */
export interface LedgerTtls {
  readonly doneMs: number;
  readonly failedMs: number;
  readonly cancelledMs: number;
}
export const DEFAULT_TTLS: LedgerTtls = { doneMs: 24 * 3_600_000, failedMs: 5 * 60_000, cancelledMs: 24 * 3_600_000 };
