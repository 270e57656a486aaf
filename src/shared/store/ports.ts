/** The store interfaces of running calls, with two implementations: Redis for a fleet, memory for local runs. */
import type { ToolCallEnvelope } from '../calls/envelope.ts';
import type { Approvals } from './approvals/approvals.ts';
import type { CallRecord, StoredRequest } from './calls/call-record.ts';
import type { Ledger } from './calls/ledger.ts';
import type { Breakers } from './circuits/circuits.ts';
import type { Completions } from './completions/completions.ts';
import type { GroupRecords } from './groups/groups.ts';
import type { ResourceLocks } from './limits/resource-locks.ts';

export interface CallLedger
  extends Pick<
      Ledger,
      | 'claim'
      | 'begin'
      | 'settle'
      | 'postpone'
      | 'renewLease'
      | 'checkpoint'
      | 'cancel'
      | 'outcome'
      | 'now'
      | 'spendTime'
      | 'requestWithParams'
    >,
    Partial<Pick<Ledger, 'ended' | 'reachCode'>> {
  /** Reads a call; with an inbox, its owner is notified when the call settles. */
  read(callId: string, inboxId?: string): Promise<CallView | undefined>;
}

/** The part of a call's record that waiting for it and cancelling it need. */
export interface CallView extends Pick<CallRecord, 'callId' | 'state' | 'outcome' | 'createdAtMs' | 'readAtMs'> {
  readonly request: {
    readonly envelope: Pick<ToolCallEnvelope, 'requestId' | 'toolNamespace' | 'toolName'> &
      Partial<Pick<ToolCallEnvelope, 'control' | 'payload'>>;
    readonly tool?: Pick<StoredRequest['tool'], 'effects'>;
  };
  readonly attempts: readonly unknown[];
}

/** The part of the store of pending calls that workers use. */
export type PendingRecords = Pick<Completions, 'issue' | 'pend' | 'expire' | 'resume'>;

/** The records of batches and plans, as their drivers and services use them. */
export type GroupStore = Pick<
  GroupRecords,
  'leaseMs' | 'create' | 'due' | 'take' | 'advance' | 'stepOf' | 'cancel' | 'read' | 'list'
>;

export type ResourceLockRecords = Pick<ResourceLocks, 'acquire' | 'renew' | 'release'>;

export type CircuitRecords = Pick<Breakers, 'addFailure' | 'change' | 'read' | 'list' | 'window'> &
  Partial<Pick<Breakers, 'addSuccessApart' | 'verified'>>;

export type ApprovalRecords = Pick<
  Approvals,
  'read' | 'readBrief' | 'idOfCall' | 'list' | 'beginPreview' | 'addPreview' | 'markAnnounced' | 'decide' | 'expire'
>;
