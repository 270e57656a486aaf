/** Converts between a call's record in the dedupe store and the ledger of this process. */
import type { AttemptRecord } from '../shared/calls/call-state.ts';
import { DEDUPE_DEFAULTS, type DedupeAttempt, type DedupeRecord } from '../shared/calls/dedupe-store.ts';
import type { Outcome } from '../shared/calls/outcome.ts';
import type { Claim } from '../shared/store/calls/claim/claim.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';

export function recordFor(claim: Claim, nowMs: number, retentionMs: number): DedupeRecord {
  const { envelope, idempotencyKey } = claim.request;
  const { toolNamespace, toolName, requestId, toolCallId, target } = envelope;
  const { sessionKey, actorId } = target;
  return {
    key: claim.callId,
    tool: `${toolNamespace}.${toolName}`,
    idempotencyKey,
    state: 'inflight',
    createdAtMs: nowMs,
    updatedAtMs: nowMs,
    expiresAtMs: nowMs + retentionMs,
    ttlMs: retentionMs,
    request: { sessionKey, actorId, requestId, ...defined({ toolCallId }), paramsDigest: claim.paramsDigest },
    lockUntilMs: nowMs + DEDUPE_DEFAULTS.lockMs,
    version: 1,
  };
}

/** Whether `bestEffort` runs a call again: after a transient failure. */
export function mayRepeatCall(record: DedupeRecord, { mode, paramsDigest }: Claim): boolean {
  const mayPass = record.state === 'failed' && record.error?.shouldRetriable === true;
  return mode === 'bestEffort' && mayPass && record.request.paramsDigest === paramsDigest;
}

const LOST = 'LEASE_LOST';

export function executionOf(
  attempts: readonly AttemptRecord[],
  attemptCount: number,
): NonNullable<DedupeRecord['execution']> {
  return {
    attemptCount,
    attempts: attempts.map(({ startedAtMs, finishedAtMs, status, retriable, errorCode, inDoubt }) => ({
      startedAtMs,
      finishedAtMs,
      status: status === 'success' ? 'success' : 'error',
      retriable,
      ...(status === 'lost' ? { errorCode: LOST } : errorCode === undefined ? {} : { errorCode }),
      ...(inDoubt !== undefined && { inDoubt }),
    })),
  };
}

/** An attempt of another process, with the fields that the record has. */
export function attemptOf(attempt: DedupeAttempt, index: number): AttemptRecord {
  const status = attempt.errorCode === LOST ? 'lost' : attempt.status;
  return { ...attempt, status, attempt: index + 1, fence: index + 1, worker: '' };
}

export function lostAttempt(earlier: readonly AttemptRecord[], nowMs: number): AttemptRecord {
  const attempt = earlier.length + 1;
  const times = { startedAtMs: nowMs, finishedAtMs: nowMs };
  return { attempt, fence: attempt, worker: '', ...times, status: 'lost', retriable: false };
}

export function errorOf(error: NonNullable<Outcome['error']>): NonNullable<DedupeRecord['error']> {
  const { code, message, retriable: shouldRetriable, terminal } = error;
  return { code, message, terminal, shouldRetriable };
}

export function withLease(record: DedupeRecord, nowMs: number, lockMs: number = DEDUPE_DEFAULTS.lockMs): DedupeRecord {
  return { ...record, updatedAtMs: nowMs, expiresAtMs: nowMs + record.ttlMs, lockUntilMs: nowMs + lockMs };
}
