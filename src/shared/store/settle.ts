/**
 * Settling a call: its outcome, written once, by the newest fence only.
 */
import type { AttemptRecord, CallState } from '../call.ts';
import type { Outcome } from '../outcome.ts';
import type { RetryAllowance } from '../retry-budget.ts';
import { formatAttempts } from './call-record.ts';
import type { LedgerAccess } from './ledger-access.ts';
import { Script } from './redis.ts';

/** Larger outcomes are stored once and fetched by those who want them. */
export const MAX_INLINE_OUTCOME_BYTES = 64 * 1_024;

/** Larger ones are not copied into the event that announces them: whoever waits reads the record. */
export const MAX_EVENT_OUTCOME_BYTES = 4 * 1_024;

export type WriteAnswer = 'settled' | 'postponed' | 'fenced' | 'ended' | 'gone' | 'cancelled' | 'exhausted';

export interface Settle {
  readonly callId: string;
  readonly fence: number;
  readonly state: Exclude<CallState, 'inflight'>;
  readonly outcome: Outcome;
  /** The outcome as it is stored. */
  readonly outcomeJson: string;
  readonly attempts: readonly AttemptRecord[];
  readonly ttlMs: number;
  /** Success to be added to a circuit's window. */
  readonly sample?: {
    readonly circuit: string;
    readonly epoch: number;
    readonly windowSize: number;
    readonly windowMs: number;
  };
  /** A success puts retries back. */
  readonly refill?: RetryAllowance;
}

const settleScript = new Script('settle', 6);

export async function settleCall(access: LedgerAccess, settle: Settle): Promise<WriteAnswer> {
  const [code] = await settleScript.run(access.redis, settleKeys(access, settle), settleArguments(access, settle));
  return code as WriteAnswer;
}

export function settleKeys(access: LedgerAccess, { callId, sample, refill }: Settle): string[] {
  const keys = access.placed(callId);
  return [
    keys.record(callId),
    keys.inflight,
    keys.circuits,
    keys.window(sample?.circuit ?? ''),
    keys.outcome(callId),
    keys.retries(refill?.bucket ?? ''),
  ];
}

export function settleArguments(access: LedgerAccess, settle: Settle): (string | number)[] {
  const { callId, sample, refill } = settle;
  return [
    settle.fence,
    settle.state,
    settle.outcomeJson,
    formatAttempts(settle.attempts),
    settle.ttlMs,
    settle.outcome.error?.retriable === true ? '1' : '0',
    callId,
    access.placed(callId).inboxes,
    MAX_INLINE_OUTCOME_BYTES,
    sample?.circuit ?? '',
    sample?.epoch ?? 0,
    sample?.windowSize ?? 0,
    sample?.windowMs ?? 0,
    MAX_EVENT_OUTCOME_BYTES,
    refill?.budget.ratio ?? '',
    refill?.budget.floor ?? 0,
    refill?.budget.capacity ?? 0,
    refill?.budget.windowMs ?? 0,
    access.seals.outcome(callId, settle.state, settle.outcomeJson),
    access.placed(callId).inDoubt,
  ];
}
