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
import { type CallRecord, formatAttempts, type StoredProgress, type StoredRequest } from './call-record.ts';
import { type CancelAnswer, type CancelOutcomes, writeCancellation } from './cancel-call.ts';
import { type Claim, type ClaimAnswer, ClaimWriter } from './claim/claim.ts';
import { type FinishedCall, FinishedCalls, type ReplayRequest } from './finished-call.ts';
import { LedgerAccess } from './ledger-context.ts';
import { type CheckpointAnswer, writeCheckpoint } from './records/checkpoint.ts';
import { readCall, readOutcome, readOutputParts, readProgress } from './records/read-call.ts';
import { type Requeue, type ResolvedOutcome, requeueCall, writeResolution } from './requeue-call.ts';
import { type Settle, settleCall, type WriteAnswer } from './settle.ts';

const postponeScript = new Script(new URL('./postpone.lua', import.meta.url));
const renewLeaseScript = new Script(new URL('./renew-lease.lua', import.meta.url));
const excuseScript = new Script(new URL('./records/excuse-attempt.lua', import.meta.url));
const reachCodeScript = new Script(new URL('./reach-code.lua', import.meta.url));

/** Longer than the calls of a stopped worker wait until another worker recovers them. */
const STOPPED_TTL_MS = 3_600_000;

/** How an attempt ends when its call goes on. */
export interface Postpone {
  /** `waiting-retry` consumes the attempt, `queued` releases it, `unstarted` releases it and removes its start time. */
  readonly phase: 'waiting-retry' | 'queued' | 'unstarted' | 'running';
  readonly attempts: readonly AttemptRecord[];
  readonly delayMs: number;
  /** Sent to the producers that wait. */
  readonly event?: object | undefined;
  /** The retry budget of the next attempt. */
  readonly allowance?: RetryAllowance | undefined;
}

export class Ledger {
  readonly access: LedgerAccess;
  readonly index: CallIndex;
  readonly #claims: ClaimWriter;
  readonly #finishedCalls: FinishedCalls;

  /** `records`: the audit writer whose records are written in the same script as their calls. */
  constructor(redis: Redis, prefix: string, retentionMs: number, signatures = new Signatures(), records?: AuditWriter) {
    this.access = new LedgerAccess(redis, prefix, retentionMs, signatures, records);
    this.index = new CallIndex(this.access);
    this.#claims = new ClaimWriter(this.access);
    this.#finishedCalls = new FinishedCalls(this.access);
  }

  keys(partition: Partition): PartitionKeys {
    return this.access.keys(partition);
  }

  /** Redis' clock, milliseconds. */
  now(): Promise<number> {
    return this.access.now();
  }

  /** Claims a call and enqueues it in one step, or returns the state of the call that has its identity. */
  claim(claim: Claim): Promise<ClaimAnswer> {
    return this.#claims.claim(claim);
  }

  /** The outcome of a call that has probably ended; undefined when only a claim can decide. */
  ended(replay: ReplayRequest): Promise<FinishedCall | undefined> {
    return this.#finishedCalls.ended(replay);
  }

  /** Starts an attempt, or returns why it must not start. */
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

  /** Ends an attempt, not the call. `exhausted` when the retry budget is empty. */
  async postpone(
    callId: string,
    fence: number,
    { phase, attempts, delayMs, event, allowance }: Postpone,
  ): Promise<WriteAnswer> {
    const keys = this.access.callKeys(callId);
    this.access.auditWriter?.send();
    const [code] = await postponeScript.run(
      this.access.redis,
      [keys.record(callId), this.access.homeKeys(keys).retries(allowance?.bucket ?? '')],
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
    await reachCodeScript.run(this.access.redis, [this.access.callKeys(callId).record(callId)], [fence]);
  }

  /** Records that the worker of an attempt lives, and ended it because Redis did not answer: its call crashed no worker. */
  async excuse(callId: string, fence: number, workerId: string): Promise<void> {
    await excuseScript.run(this.access.redis, [this.access.callKeys(callId).record(callId)], [fence, workerId]);
  }

  /** Records that a worker was stopped on purpose: the calls that it still ran did not crash it. */
  async markStopped(partitions: readonly Partition[], workerId: string): Promise<void> {
    const keys = partitions.map((partition) => this.access.keys(partition).stoppedWorker(workerId));
    await Promise.all(keys.map((key) => this.access.redis.set(key, '1', 'PX', STOPPED_TTL_MS)));
  }

  /** Renews the lease of a running attempt, and sends an event to the producers that wait. */
  async renewLease(
    callId: string,
    fence: number,
    leaseMs: number,
    event?: object,
  ): Promise<{ readonly renewed: boolean; readonly cancelRequested: boolean }> {
    const keys = this.access.callKeys(callId);
    const [code, cancelRequested] = await renewLeaseScript.run(
      this.access.redis,
      [keys.record(callId), keys.progress(callId)],
      [fence, leaseMs, keys.inboxes, event === undefined ? '' : JSON.stringify(event)],
    );
    return { renewed: code === 'renewed', cancelRequested: cancelRequested === '1' };
  }

  /** Replaces the call's checkpoint (JSON), which the next attempt receives. */
  checkpoint(callId: string, fence: number, text: string): Promise<CheckpointAnswer> {
    return writeCheckpoint(this.access, { callId, fence, text });
  }

  /** Ends a call that waits, or requests that the worker of a running one stops. */
  cancel(callId: string, cancellation: CancelOutcomes): Promise<CancelAnswer> {
    return writeCancellation(this.access, callId, cancellation);
  }

  /** Reads a call; with an inbox, its owner is notified when the call settles. */
  read(callId: string, inboxId?: string): Promise<CallRecord | undefined> {
    return readCall(this.access, callId, { inboxId });
  }

  /** Reads a call; from now on the inbox's owner is notified of all its events. */
  follow(callId: string, inboxId: string): Promise<CallRecord | undefined> {
    return readCall(this.access, callId, { inboxId, following: true });
  }

  /** Reads a call without its large parameters and its large outcome. Undefined for a call whose segment is lost, too. */
  readBrief(callId: string): Promise<CallRecord | undefined> {
    return readCall(this.access, callId, { brief: true }).catch((error: unknown) => void asLost(error));
  }

  /** Reads the state alone. A call that was moved to a segment has ended, and its segment is not read. */
  async isInflight(callId: string): Promise<boolean> {
    return (await this.access.redis.hget(this.access.callKeys(callId).record(callId), 'state')) === 'inflight';
  }

  progress(callId: string, position?: string): Promise<readonly StoredProgress[]> {
    return readProgress(this.access, callId, position);
  }

  requestWithParams(callId: string, request: StoredRequest): Promise<StoredRequest> {
    return this.access.requestWithParams(callId, request);
  }

  outcome(callId: string, event?: SettledEvent): Promise<Outcome | undefined> {
    return readOutcome(this.access, callId, event);
  }

  /** See `readOutputParts`. */
  output(callId: string): Promise<AsyncGenerator<Buffer, void, undefined> | undefined> {
    return readOutputParts(this.access, callId);
  }

  /** Replaces the unknown outcome of a call by a known one. */
  resolve(callId: string, resolved: ResolvedOutcome): Promise<'resolved' | 'refused' | 'gone'> {
    return writeResolution(this.access, callId, resolved);
  }

  /** Enqueues a call again. With an approval, it waits for a person's decision first. */
  requeue(record: CallRecord, requeue: Requeue): Promise<'queued' | 'refused' | 'gone'> {
    return requeueCall(this.access, record, requeue);
  }
}
