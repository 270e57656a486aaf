/**
 * The life of a call.
 *
 * inflight  claimed            recorded, and queued in the same step
 *           awaiting-approval  waits for a person, without a worker slot
 *           delayed            waits for the time at which its caller wants it to start
 *           queued             waits for a worker
 *           running            an attempt holds the newest fence
 *           pending            an outside system completes the call; no worker holds it
 *           waiting-retry      an attempt failed; the next one is in the queue's delayed set
 * done      a success, which is replayed to every later request
 * failed    an error, which is replayed until its key is free again; also an unknown outcome
 * cancelled by a caller; nothing runs under this record again, unless it is in doubt and resolved as retry
 */
import { type Failure, PawlError } from '../errors/failure.ts';
import type { FailureCode } from '../errors/failure-codes.ts';
import type { Effects } from '../retries/effects.ts';

export const CALL_STATES = ['inflight', 'done', 'failed', 'cancelled'] as const;
export type CallState = (typeof CALL_STATES)[number];
export const PHASES = [
  'claimed',
  'awaiting-approval',
  'delayed',
  'queued',
  'running',
  'pending',
  'waiting-retry',
] as const;
export type Phase = (typeof PHASES)[number];

/** The states by which calls can be searched. `unresolved`: the outcome is unknown, and an operator should resolve it. */
export const SEARCHABLE_STATES = [...CALL_STATES, ...PHASES, 'unresolved'] as const;
export type SearchableState = (typeof SEARCHABLE_STATES)[number];

export type CallStatus = Phase | Exclude<CallState, 'inflight'>;

/** The legal transitions and the reason that each one carries. Everything else is refused. */
export const TRANSITIONS: Readonly<Record<CallStatus, Partial<Readonly<Record<CallStatus, string>>>>> = {
  claimed: {
    queued: 'enqueued',
    delayed: 'starts later',
    'awaiting-approval': 'needs approval',
    cancelled: 'cancelled by a caller',
  },
  'awaiting-approval': {
    queued: 'approved',
    delayed: 'approved before its start',
    done: 'a plan was approved',
    failed: 'denied or expired',
    cancelled: 'cancelled by a caller',
  },
  delayed: { queued: 'its time has come', cancelled: 'cancelled by a caller' },
  queued: { running: 'an attempt began', failed: 'refused before an attempt', cancelled: 'cancelled by a caller' },
  running: {
    running: 'the attempt was lost and another began',
    pending: 'the tool waits for an outside system',
    'waiting-retry': 'the attempt failed and may be repeated',
    queued: 'the job was released without consuming an attempt',
    done: 'the attempt succeeded',
    failed: 'the attempt failed for good, or its outcome is unknown',
    cancelled: 'cancelled by a caller',
  },
  pending: {
    done: 'completed with an output',
    failed: 'completed with an error, or expired',
    cancelled: 'cancelled by a caller',
    'waiting-retry': 'expired, and may be repeated',
  },
  'waiting-retry': {
    running: 'an attempt began',
    failed: 'refused before an attempt',
    cancelled: 'cancelled by a caller',
  },
  done: {},
  failed: {
    'awaiting-approval': 'to run again, which a person must approve',
    queued: 'resolved as retry, redriven, or asked again with bestEffort',
    done: 'resolved as succeeded',
    failed: 'resolved as failed',
  },
  cancelled: {
    'awaiting-approval': 'to run again, which a person must approve',
    queued: 'in doubt, and resolved as retry',
    done: 'in doubt, and resolved as succeeded',
    failed: 'in doubt, and resolved as failed',
  },
};

/** The reason of a transition; throws for one that is not in the table. */
export function transition(from: CallStatus, to: CallStatus): string {
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
 * Decides about a call whose attempt began and left no record. `isPoison`: the call is proven to crash each worker that runs it.
 * `supportsProbe`: its tool has a probe.
 */
export function decideRecovery(
  effects: Effects,
  isPoison: boolean,
  supportsProbe = false,
): { readonly kind: 'run-again' | 'probe' } | { readonly kind: 'stop'; readonly code: FailureCode } {
  if (effects === 'once' && !supportsProbe) return { kind: 'stop', code: 'OUTCOME_UNKNOWN' };
  if (isPoison) return { kind: 'stop', code: 'POISONED' };
  return { kind: effects === 'probe' || effects === 'once' ? 'probe' : 'run-again' };
}

const CODES_AFTER_EFFECT: readonly string[] = [
  'TIMEOUT',
  'CANCELLED',
  'OUTCOME_UNKNOWN',
  'RESULT_TOO_LARGE',
  'RESULT_INVALID',
  'CHECKPOINT_INVALID',
  'MCP_PROTOCOL',
] satisfies FailureCode[];

/** Whether a failed attempt may have had its effect. A tool that fails for good thereby states that it did not do its work. */
export function isInDoubt(effects: Effects, { code, retriable, nothingHappened, afterEffect }: Failure): boolean {
  return (
    effects !== 'none' && !nothingHappened && (retriable || afterEffect === true || CODES_AFTER_EFFECT.includes(code))
  );
}

/** Whether a second run of such a tool's call can never do harm, so that its calls never end in doubt. */
export function isHarmless(effects: Effects | undefined): boolean {
  return effects === 'none' || effects === 'idempotent';
}

/**
 * Whether a call with these attempts is in doubt when it ends without a success: it may have had its effect, and a second run could
 * do harm. A `keyed` tool runs again without harm under the same key, so only a cancellation leaves its call in doubt.
 */
export function endsInDoubt(
  effects: Effects,
  attempts: readonly Pick<AttemptRecord, 'status' | 'inDoubt' | 'resolved'>[],
  settlement?: Settlement,
): boolean {
  if (isHarmless(effects)) return false;
  return settlement === 'unsettled' || (effects !== 'keyed' && hasAttemptInDoubt(attempts));
}

/**
 * Whether one of these attempts may have had its effect, and no operator has resolved it. An attempt that left its call pending counts: it
 * started work in an outside system.
 */
export function hasAttemptInDoubt(
  attempts: readonly Pick<AttemptRecord, 'status' | 'inDoubt' | 'resolved'>[],
): boolean {
  return attempts.some(
    ({ status, inDoubt, resolved }) =>
      resolved !== true && (inDoubt === true || status === 'lost' || status === 'pending'),
  );
}

/** Whether a cancelled attempt may have had its effect. */
export function abortedSettlement(effects: Effects, nothingHappened: boolean): Settlement {
  return effects === 'none' || nothingHappened ? 'cancelled' : 'unsettled';
}

export interface AttemptRecord {
  readonly attempt: number;
  readonly fence: number;
  readonly worker: string;
  readonly startedAtMs: number;
  readonly finishedAtMs: number;
  /** `pending`: the attempt ended, and an outside system is to complete the call. The completion replaces it. */
  readonly status: 'success' | 'error' | 'lost' | 'pending';
  readonly retriable: boolean;
  readonly errorCode?: string;
  /** When an outside system completed the call that this attempt had left pending. */
  readonly completedAtMs?: number;
  /** The attempt failed, and may have had its effect all the same. */
  readonly inDoubt?: true;
  /** The digest of the attempt's result, where workers must agree. */
  readonly vote?: string;
  /** Milliseconds until the next attempt, when one follows. */
  readonly delayMs?: number;
  /** The trace context of the attempt's span, where traces are on. */
  readonly traceparent?: string;
  /** An operator has found out since that the attempt had no effect. */
  readonly resolved?: true;
  /** An earlier round of the call, from 1: it was redriven since. Absent for the present round. */
  readonly round?: number;
}

/** The attempts that count as tries: votes do not, and each round of a call has its own. */
export function triesOf<Attempt extends Pick<AttemptRecord, 'vote' | 'round'>>(
  attempts: readonly Attempt[],
): Attempt[] {
  return attempts.filter(({ vote, round }) => vote === undefined && round === undefined);
}

/** The times for which outcomes are replayed, in milliseconds. */
export interface LedgerTtls {
  readonly doneMs: number;
  /** The key of a failed call is free again after this time; its record stays for longer. */
  readonly failedMs: number;
  /** How long the record of a failed call is kept: a dead letter can be redriven until then. Default: as long as that of a success. */
  readonly failedKeptMs?: number | undefined;
  readonly cancelledMs: number;
}

/** The lifetime of a record, and the time after which its key is free to run again, where that is sooner. */
export interface RecordLifetime {
  readonly ttlMs: number;
  readonly freeAfterMs?: number;
}

export function failedLifetime({ doneMs, failedMs, failedKeptMs = doneMs }: LedgerTtls): RecordLifetime {
  return { ttlMs: Math.max(failedKeptMs, failedMs), freeAfterMs: failedMs };
}

/** The lifetime of the record of a call whose outcome is unknown: its key must not be free sooner than that of a success. */
export function unresolvedLifetime(ttls: LedgerTtls): RecordLifetime {
  return { ttlMs: Math.max(ttls.doneMs, failedLifetime(ttls).ttlMs) };
}

/**
 * The lifetime of a call that was cancelled before anything happened. A compensation's key is free again as soon as that of a failed
 * call, because a second try has no other key.
 */
export function unstartedLifetime({ cancelledMs, failedMs }: LedgerTtls, isCompensation: boolean): RecordLifetime {
  return { ttlMs: cancelledMs, ...(isCompensation ? { freeAfterMs: failedMs } : {}) };
}

export const DEFAULT_TTLS: LedgerTtls = { doneMs: 24 * 3_600_000, failedMs: 5 * 60_000, cancelledMs: 24 * 3_600_000 };

/** The phase of a call within its state. The phase of a call that has ended is its state. */
export function phaseOf({ state, phase }: { readonly state: CallState; readonly phase?: string }): string {
  return state === 'inflight' ? (phase ?? 'claimed') : state;
}
