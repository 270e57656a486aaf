/**
 * What running calls asks of the records, whatever keeps them: Redis for a fleet, one process for runs without a fleet.
 */
import type { ToolCallEnvelope } from '../envelope.ts';
import type { Approvals } from './approvals.ts';
import type { Breakers } from './breakers.ts';
import type { CallRecord, StoredRequest } from './call-record.ts';
import type { Ledger } from './ledger.ts';
import type { Turns } from './turns.ts';

export interface CallLedger
  extends Pick<
      Ledger,
      'claim' | 'begin' | 'settle' | 'postpone' | 'tell' | 'cancel' | 'outcome' | 'now' | 'spendTime' | 'wholeRequest'
    >,
    Partial<Pick<Ledger, 'ended' | 'reachCode'>> {
  /** Reads a call; with an inbox, its owner is told when the call settles. */
  read(callId: string, inboxId?: string): Promise<KnownCall | undefined>;
}

/** As much of a call's record as whoever waits for it, or cancels it, must know. */
export interface KnownCall extends Pick<CallRecord, 'callId' | 'state' | 'outcome' | 'createdAtMs' | 'readAtMs'> {
  readonly request: {
    readonly envelope: Pick<ToolCallEnvelope, 'requestId' | 'toolName'> & Partial<Pick<ToolCallEnvelope, 'control'>>;
    readonly tool?: Pick<StoredRequest['tool'], 'effects'>;
  };
  readonly attempts: readonly unknown[];
}

export type TurnRecords = Pick<Turns, 'take' | 'renew' | 'leave'>;

export type CircuitRecords = Pick<Breakers, 'addFailure' | 'change' | 'read' | 'list' | 'window'> &
  Partial<Pick<Breakers, 'addSuccessApart'>>;

export type ApprovalRecords = Pick<
  Approvals,
  'read' | 'readBrief' | 'idOfCall' | 'list' | 'addPreview' | 'markAnnounced' | 'decide' | 'expire'
>;
