/**
 * The ledger: the durable record of every call. Each step of a call is one Lua script that checks before it writes. This class is the
 * ledger that running calls need (`CallLedger`) and what is built on it; the steps are in the files beside it.
 */
import type { ApprovalRequest } from '../../approvals/approval.ts';
import type { AttemptRecord } from '../../calls/call-state.ts';
import type { Outcome } from '../../calls/outcome.ts';
import type { RetryAllowance } from '../../retries/retry-budget.ts';
import { Signatures } from '../../signing/signatures.ts';
import type { AuditWriter } from '../audit/audit-writer.ts';
import { spendTime } from '../limits/budgets.ts';
import type { CallJob } from '../queues/jobs.ts';
import type { SettledEvent } from '../queues/result-inbox.ts';
import type { Redis } from '../redis/connection.ts';
import type { Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { asLost } from '../segments/segments.ts';
import { type BeginAttempt, type BeginResult, beginAttempt } from './begin-attempt.ts';
import { CallIndex } from './call-index.ts';
import { type CallRecord, formatAttempts, type KeptProgress, type StoredRequest } from './call-record.ts';
import { type CancelAnswer, type CancelOutcomes, writeCancellation } from './cancel-call.ts';
import { type Claim, type ClaimAnswer, ClaimWriter } from './claim.ts';
import { type FinishedCall, FinishedCalls, type ReplayedCall } from './finished-call.ts';
import { LedgerAccess } from './ledger-context.ts';
import { type CheckpointAnswer, writeCheckpoint } from './records/checkpoint.ts';
import { readCall, readOutcome, readOutputParts, readProgress } from './records/read-call.ts';
import { type RequeueReason, requeueCall, writeResolution } from './requeue-call.ts';
import { type Settle, settleCall, type WriteAnswer } from './settle.ts';

const postponeScript = new Script(new URL('./postpone.lua', import.meta.url));
const renewLeaseScript = new Script(new URL('./renew-lease.lua', import.meta.url));
const reachCodeScript = new Script(new URL('./reach-code.lua', import.meta.url));

/** Longer than the calls of a stopped worker wait until another worker recovers them. */
const STOPPED_KEPT_MS = 3_600_000;

/** How an attempt ends whose call goes on. */
export interface Postpone {
  /** `waiting-retry` consumes the attempt, `queued` releases it, `unstarted` releases it and takes back its start, too. */
  readonly phase: 'waiting-retry' | 'queued' | 'unstarted' | 'running';
  readonly attempts: readonly AttemptRecord[];
  readonly delayMs: number;
  /** For the callers that wait. */
  readonly event?: object | undefined;
  /** The next attempt is a retry that takes from it. */
  readonly allowance?: RetryAllowance | undefined;
}

export class Ledger {
  readonly access: LedgerAccess;
  readonly index: CallIndex;
  readonly #claimer: ClaimWriter;
  readonly #finishedCalls: FinishedCalls;

  /** `records` of the audit trail are written with the calls that they are about. */
  constructor(redis: Redis, prefix: string, retentionMs: number, signatures = new Signatures(), records?: AuditWriter) {
    this.access = new LedgerAccess(redis, prefix, retentionMs, signatures, records);
    this.index = new CallIndex(this.access);
    this.#claimer = new ClaimWriter(this.access);
    this.#finishedCalls = new FinishedCalls(this.access);
  }

  keys(partition: Partition): PartitionKeys {
    return this.access.keys(partition);
  }

  /** Redis' clock, milliseconds. */
  now(): Promise<number> {
    return this.access.now();
  }

  /** Claims a call and queues it in one step, or returns the state of the call that has its identity. */
  claim(claim: Claim): Promise<ClaimAnswer> {
    return this.#claimer.claim(claim);
  }

  /** The outcome of a call that has most likely ended; undefined when only a claim can decide. */
  ended(replay: ReplayedCall): Promise<FinishedCall | undefined> {
    return this.#finishedCalls.ended(replay);
  }

  /** Starts an attempt, or returns why there is none. */
  begin(job: CallJob, attempt: BeginAttempt): Promise<BeginResult> {
    return beginAttempt(this.access, job, attempt);
  }

  /** Writes the outcome, once. Only the newest fence may. */
  settle(settle: Settle): Promise<WriteAnswer> {
    return settleCall(this.access, settle);
  }

  /** Charges the time of an attempt to the budgets that count it. */
  spendTime(names: readonly string[], timeMs: number): Promise<void> {
    return spendTime(this.access, names, timeMs);
  }

  /** Ends an attempt, not the call. `exhausted` when there is nothing left of the allowance. */
  async postpone(
    callId: string,
    fence: number,
    { phase, attempts, delayMs, event, allowance }: Postpone,
  ): Promise<WriteAnswer> {
    const keys = this.access.placed(callId);
    this.access.records?.send();
    const [code] = await postponeScript.run(
      this.access.redis,
      [keys.record(callId), this.access.home(keys).retries(allowance?.bucket ?? '')],
      [
        fence,
        phase,
        formatAttempts(attempts),
        delayMs,
        keys.inboxes,
        event === undefined ? '' : JSON.stringify(event),
        allowance?.budget.floor ?? '',
        allowance?.budget.windowMs ?? 0,
      ],
    );
    return code as WriteAnswer;
  }

  /** Records that the attempt of a call that runs alone has reached the tool's code. */
  async reachCode(callId: string, fence: number): Promise<void> {
    await reachCodeScript.run(this.access.redis, [this.access.placed(callId).record(callId)], [fence]);
  }

  /** Records that a worker was stopped on purpose: the calls that it still ran did not crash it. */
  async markStopped(partitions: readonly Partition[], workerId: string): Promise<void> {
    const keys = partitions.map((partition) => this.access.keys(partition).stoppedWorker(workerId));
    await Promise.all(keys.map((key) => this.access.redis.set(key, '1', 'PX', STOPPED_KEPT_MS)));
  }

  /** Renews the lease of a running attempt, and notifies the producers that wait of the event, if there is one. */
  async renewLease(
    callId: string,
    fence: number,
    leaseMs: number,
    event?: object,
  ): Promise<{ readonly held: boolean; readonly cancelRequested: boolean }> {
    const keys = this.access.placed(callId);
    const [code, cancelRequested] = await renewLeaseScript.run(
      this.access.redis,
      [keys.record(callId), keys.progress(callId)],
      [fence, leaseMs, keys.inboxes, event === undefined ? '' : JSON.stringify(event)],
    );
    return { held: code === 'told', cancelRequested: cancelRequested === '1' };
  }

  /** Replaces what the next attempt of the call gets from this one (JSON). */
  checkpoint(callId: string, fence: number, text: string): Promise<CheckpointAnswer> {
    return writeCheckpoint(this.access, { callId, fence, text });
  }

  /** Ends a call that waits, or asks the worker of a running one to stop. */
  cancel(callId: string, cancellation: CancelOutcomes): Promise<CancelAnswer> {
    return writeCancellation(this.access, callId, cancellation);
  }

  /** Reads a call; with an inbox, its owner is notified when the call settles. */
  read(callId: string, inboxId?: string): Promise<CallRecord | undefined> {
    return readCall(this.access, callId, { inboxId });
  }

  /** Reads a call; from now on the inbox's owner is notified of everything that happens to it. */
  follow(callId: string, inboxId: string): Promise<CallRecord | undefined> {
    return readCall(this.access, callId, { inboxId, following: true });
  }

  /** Reads a call without its large parameters and its large outcome. Undefined for a call whose segment is lost, too. */
  glance(callId: string): Promise<CallRecord | undefined> {
    return readCall(this.access, callId, { brief: true }).catch((error: unknown) => void asLost(error));
  }

  progress(callId: string, position?: string): Promise<readonly KeptProgress[]> {
    return readProgress(this.access, callId, position);
  }

  wholeRequest(callId: string, request: StoredRequest): Promise<StoredRequest> {
    return this.access.wholeRequest(callId, request);
  }

  outcome(callId: string, event?: SettledEvent): Promise<Outcome | undefined> {
    return readOutcome(this.access, callId, event);
  }

  /** See `readOutputParts`. */
  output(callId: string): Promise<AsyncGenerator<Buffer, void, undefined> | undefined> {
    return readOutputParts(this.access, callId);
  }

  /** Gives a call of unknown outcome a known one. */
  resolve(
    callId: string,
    state: 'done' | 'failed',
    outcome: Outcome,
    ttlMs: number,
    freeAfterMs?: number,
  ): Promise<'resolved' | 'refused' | 'gone'> {
    return writeResolution(this.access, callId, { state, outcome, ttlMs, freeAfterMs });
  }

  /** Queues a call again. With an approval, it waits for people's decision first. */
  requeue(
    record: CallRecord,
    reason: RequeueReason,
    generation: string,
    inboxId?: string,
    approval?: ApprovalRequest,
  ): Promise<'queued' | 'refused' | 'gone'> {
    return requeueCall(this.access, record, { reason, generation, inboxId, approval });
  }
}
