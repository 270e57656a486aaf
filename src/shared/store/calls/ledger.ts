/**
 * The ledger: the durable record of every call (R11 to R16). Each method is one Lua script that checks before it writes.
 */
import type { ApprovalRequest } from '../../approvals/approval.ts';
import { isMerged, placeOf, type RequestNaming, requestNameOf } from '../../calls/call-id.ts';
import type { AttemptRecord, RecordLife } from '../../calls/call-state.ts';
import type { Outcome } from '../../calls/outcome.ts';
import { PawlError } from '../../errors/failure.ts';
import type { Limits } from '../../limits/budget.ts';
import type { RetryAllowance } from '../../retries/retry-budget.ts';
import { Signatures } from '../../signing/signatures.ts';
import { uuidv7 } from '../../util/time.ts';
import type { AuditWriter } from '../audit/audit-writer.ts';
import { DispatchReader, type DispatchReaderOptions } from '../dispatch/direct-dispatch.ts';
import {
  Endings,
  type FetchedJob,
  type Finished,
  type FinishedJob,
  type SkippedWorker,
  skipWorkerForJob,
  type Taken,
  takeJobs,
} from '../dispatch/fetch-jobs.ts';
import { spendTime, spent } from '../limits/budgets.ts';
import { type CallJob, ENQUEUE_LUA, enqueueArguments, jobIdOf } from '../queues/jobs.ts';
import type { InboxEvent, SettledEvent } from '../queues/result-inbox.ts';
import { broadcastChannel } from '../redis/broadcasts.ts';
import { type Redis, Script } from '../redis/connection.ts';
import type { Partition, PartitionKeys } from '../redis/keys.ts';
import { type BeginAttempt, type BeginResult, beginAttempt } from './begin-attempt.ts';
import { CallIndex, type Flushed, type Selection } from './call-index.ts';
import {
  type CallRecord,
  formatAttempts,
  type KeptProgress,
  type ProgressReport,
  recordOf,
  resolutionOf,
  type StoredRequest,
} from './call-record.ts';
import { type Claim, type ClaimAnswer, Claims } from './claim.ts';
import { type FinishedCall, FinishedCalls, type ReplayedCall } from './finished-call.ts';
import { LedgerAccess, type StoredOutcome } from './ledger-context.ts';
import { type Settle, settleCall, type WriteAnswer } from './settle.ts';
import {
  FORGED_OUTCOME,
  isVerifiedOutcome,
  refuseMergedCall,
  signApproval,
  signRequest,
  verifiedOutcome,
  verifyRequest,
} from './signed-records.ts';

const postponeScript = new Script(new URL('./postpone.lua', import.meta.url));
const tellScript = new Script(new URL('./renew-lease.lua', import.meta.url));
const cancelScript = new Script(new URL('./cancel.lua', import.meta.url));
const reachCodeScript = new Script(new URL('./reach-code.lua', import.meta.url));
const watchScript = new Script(new URL('./read-call.lua', import.meta.url));
const resolveScript = new Script(new URL('./resolve.lua', import.meta.url));
const requeueScript = new Script(new URL('./requeue.lua', import.meta.url), ENQUEUE_LUA);

/** Longer than the calls of a stopped worker wait to be taken over. */
const STOPPED_KEPT_MS = 3_600_000;

export class Ledger {
  readonly #access: LedgerAccess;
  readonly #index: CallIndex;
  readonly #claims: Claims;
  readonly #finishedCalls: FinishedCalls;
  readonly #endings: Endings;

  /** `records` of the audit trail travel with the calls that they tell of. */
  constructor(redis: Redis, prefix: string, retentionMs: number, signatures = new Signatures(), records?: AuditWriter) {
    this.#access = new LedgerAccess(redis, prefix, retentionMs, signatures, records);
    this.#index = new CallIndex(this.#access);
    this.#claims = new Claims(this.#access);
    this.#finishedCalls = new FinishedCalls(this.#access);
    this.#endings = new Endings(this.#access);
  }

  keys(partition: Partition): PartitionKeys {
    return this.#access.keys(partition);
  }

  /** Claims a call and queues it in one step, or says what became of it. */
  claim(claim: Claim): Promise<ClaimAnswer> {
    return this.#claims.claim(claim);
  }

  /** Says what became of a call that has most likely ended; undefined when only a claim can tell. */
  ended(replay: ReplayedCall): Promise<FinishedCall | undefined> {
    return this.#finishedCalls.ended(replay);
  }

  /** Starts an attempt, or says why there is none. */
  begin(job: CallJob, attempt: BeginAttempt): Promise<BeginResult> {
    return beginAttempt(this.#access, job, attempt);
  }

  /** Writes the outcome, once. Only the newest fence may. */
  settle(settle: Settle): Promise<WriteAnswer> {
    return settleCall(this.#access, settle);
  }

  /**
   * Takes the next jobs of a place's queue, at least one if there is any, and starts their attempts where a lost answer can do no
   * harm. The last answer may be BullMQ's code for none.
   */
  take(partition: Partition, fetched: FetchedJob, most?: number): Promise<Taken[]> {
    return takeJobs(this.#access, partition, fetched, most);
  }

  /** Leaves a job to workers that have what its call needs; false when none of them has it any more, so that it stays where it is. */
  skipWorker(partition: Partition, passed: SkippedWorker): Promise<boolean> {
    return skipWorkerForJob(this.#access, partition, passed);
  }

  /** Ends a call together with its job, and takes the next one. */
  finish(settle: Settle, job: FinishedJob, fetched: FetchedJob): Promise<Finished> {
    return this.#endings.finish(settle, job, fetched);
  }

  /** Hears of the jobs that are pushed to a worker. */
  dispatches(options: DispatchReaderOptions): DispatchReader {
    return new DispatchReader(this.#access, options);
  }

  /** Takes the time of an attempt from the budgets that count it. */
  spendTime(names: readonly string[], timeMs: number): Promise<void> {
    return spendTime(this.#access, names, timeMs);
  }

  /** What was taken from a budget. */
  spent(name: string): Promise<Required<Limits>> {
    return spent(this.#access, name);
  }

  /** An event as it may be believed: one whose outcome is not authentic is only a reason to look at the record. */
  verified(event: InboxEvent): InboxEvent {
    if (event.type !== 'settled' || event.outcome === undefined || !this.#access.signatures.present) return event;
    const { outcome, signature, ...rest } = event;
    return isVerifiedOutcome(this.#access.signatures, {
      ...event,
      text: JSON.stringify(outcome),
      signature: signature ?? '',
    })
      ? event
      : rest;
  }

  /**
   * The signature of a stored request under a further generation; none when the stored one is not authentic, so that nobody has a
   * forged request signed by having its call queued again.
   */
  async resigned(
    callId: string,
    generation: string,
    because?: 'resolved' | 'missing',
  ): Promise<
    'gone' | 'forged' | { readonly request: string; readonly signature: string; readonly resolution: string }
  > {
    const record = this.#access.placed(callId).record(callId);
    const [request, signature, before, resolved] = await this.#access.redis.hmget(
      record,
      'request',
      'signature',
      'generation',
      'resolution',
    );
    if (typeof request !== 'string') return 'gone';
    const nowMs = await this.now();
    const stored = { callId, generation: before ?? '', resolution: resolved ?? '', text: request };
    if (!verifyRequest(this.#access.signatures, stored, signature ?? '', nowMs)) return 'forged';
    const next = because === 'resolved' ? resolutionOf(generation, stored) : stored.resolution;
    const signed = signRequest(this.#access.signatures, { callId, generation, resolution: next, text: request });
    return { request, signature: signed, resolution: next };
  }

  /**
   * Ends an attempt, not the call: `waiting-retry` spends it, `queued` hands it back, `unstarted` does and lets its time not count
   * either. With an allowance the next attempt is a retry that takes from it; `exhausted` when there is nothing to take.
   */
  async postpone(
    callId: string,
    fence: number,
    phase: 'waiting-retry' | 'queued' | 'unstarted' | 'running',
    attempts: readonly AttemptRecord[],
    delayMs: number,
    event?: object,
    allowance?: RetryAllowance,
  ): Promise<WriteAnswer> {
    const keys = this.#access.placed(callId);
    this.#access.records?.send();
    const [code] = await postponeScript.run(
      this.#access.redis,
      [keys.record(callId), this.#access.home(keys).retries(allowance?.bucket ?? '')],
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

  /** Says that the attempt of a call that runs alone comes to the tool's code. */
  async reachCode(callId: string, fence: number): Promise<void> {
    await reachCodeScript.run(this.#access.redis, [this.#access.placed(callId).record(callId)], [fence]);
  }

  /** Says that a worker was stopped: the calls that it still ran are not to blame for its end. */
  async markStopped(partitions: readonly Partition[], workerId: string): Promise<void> {
    const { redis } = this.#access;
    const keys = partitions.map((partition) => this.#access.keys(partition).stoppedWorker(workerId));
    await Promise.all(keys.map((key) => redis.set(key, '1', 'PX', STOPPED_KEPT_MS)));
  }

  /** Renews a running attempt's lease and tells those who wait, if there is something to tell. */
  async tell(
    callId: string,
    fence: number,
    leaseMs: number,
    event?: object,
  ): Promise<{ readonly held: boolean; readonly cancelRequested: boolean }> {
    const keys = this.#access.placed(callId);
    const [code, cancelRequested] = await tellScript.run(
      this.#access.redis,
      [keys.record(callId), keys.progress(callId)],
      [fence, leaseMs, keys.inboxes, event === undefined ? '' : JSON.stringify(event)],
    );
    return { held: code === 'told', cancelRequested: cancelRequested === '1' };
  }

  /** Ends a call that waits, or asks the worker of a running one to stop. */
  async cancel(
    callId: string,
    endings: RecordLife & {
      readonly state: 'cancelled' | 'failed';
      readonly beforeStart: Outcome;
      readonly betweenAttempts: Outcome;
      /** Of a call with an attempt that may have had its effect, when that is another one. */
      readonly inDoubt?: { readonly outcome: Outcome; readonly ttlMs: number };
      readonly inboxId?: string;
    },
  ): Promise<
    { readonly kind: 'cancelled'; readonly jobId: string } | { readonly kind: 'requested' | 'too-late' | 'gone' }
  > {
    const keys = this.#access.placed(callId);
    const beforeStart = JSON.stringify(endings.beforeStart);
    const betweenAttempts = JSON.stringify(endings.betweenAttempts);
    const { outcome: doubtful, ttlMs: doubtfulMs } = endings.inDoubt ?? {
      outcome: endings.betweenAttempts,
      ttlMs: endings.ttlMs,
    };
    const inDoubt = JSON.stringify(doubtful);
    const [code, , generation] = await cancelScript.run(
      this.#access.redis,
      [keys.record(callId), keys.inflight, keys.inDoubt, keys.job('')],
      [
        callId,
        beforeStart,
        betweenAttempts,
        endings.state,
        endings.ttlMs,
        endings.inboxId ?? '',
        keys.inboxes,
        broadcastChannel(this.#access.redis, this.#access.fleet.prefix),
        this.#access.signatures.sign('outcome', [callId, endings.state], beforeStart),
        this.#access.signatures.sign('outcome', [callId, endings.state], betweenAttempts),
        keys.approvals,
        this.#access.retentionMs,
        uuidv7(),
        inDoubt,
        this.#access.signatures.sign('outcome', [callId, endings.state], inDoubt),
        doubtfulMs,
        endings.freeAfterMs ?? '',
      ],
    );
    if (code !== 'cancelled') return { kind: code as 'requested' | 'too-late' | 'gone' };
    return { kind: 'cancelled', jobId: jobIdOf(callId, generation as string) };
  }

  /** Reads a call; with an inbox, its owner is told when the call settles. */
  async read(callId: string, inboxId?: string): Promise<CallRecord | undefined> {
    return this.#read(callId, inboxId ?? '', true);
  }

  /** Reads a call; from now on the inbox's owner hears of everything that becomes of it, attempts that begin included. */
  async follow(callId: string, inboxId: string): Promise<CallRecord | undefined> {
    return this.#read(callId, inboxId, true, true);
  }

  /** Progress that was reported after `position` (`fence-number`; from the beginning without one), as far as it is kept. */
  async progress(callId: string, position?: string): Promise<readonly KeptProgress[]> {
    const from = position === undefined ? '-' : `(${position}`;
    const entries = await this.#access.redis.xrange(this.#access.placed(callId).progress(callId), from, '+');
    return entries.map(([id, [, event]]) => {
      const [fence, number] = id.split('-').map(Number);
      return { fence: fence ?? 0, number: number ?? 0, event: JSON.parse(event ?? '{}') as ProgressReport };
    });
  }

  /**
   * A request as it was handed in, when its parameters are kept apart. Throws `PARAMS_LOST` when they are not there any more, and
   * `SIGNATURE_INVALID` when they are not what was written.
   */
  wholeRequest(callId: string, request: StoredRequest): Promise<StoredRequest> {
    return this.#access.wholeRequest(callId, request);
  }

  /** Reads a call without what is large of it: its parameters, its outcome. */
  async glance(callId: string): Promise<CallRecord | undefined> {
    return this.#read(callId, '', false);
  }

  async #read(callId: string, inboxId: string, whole: boolean, following = false): Promise<CallRecord | undefined> {
    const partition = placeOf(callId);
    if (partition === undefined) return undefined;
    const keys = this.keys(partition);
    const [nowMs, ...flat] = await watchScript.run(
      this.#access.redis,
      [keys.record(callId)],
      [inboxId, keys.records, following ? '1' : '0'],
    );
    if (flat.length === 0) return undefined;
    const fields: Record<string, string> = {};
    for (let index = 0; index < flat.length; index += 2) fields[flat[index] as string] = flat[index + 1] as string;
    if (fields['state'] === undefined) return undefined;
    const id = fields['callId'] ?? callId;
    const { state, outcome: inline, outcomeAt: at, outcomeParts: parts, outcomeSignature: signature = '' } = fields;
    let request = JSON.parse(fields['request'] ?? '{}') as StoredRequest;
    if (id !== callId && this.#access.signatures.present && !wasMerged(callId, id, fields, request))
      return recordOf(callId, ended(fields), request, refuseMergedCall(this.#access.signatures, callId), Number(nowMs));
    // Who waits for the end asks again and again, and not for the parameters.
    if (request.largeParams !== undefined && whole && inboxId === '')
      request = await this.#access.wholeRequest(id, request).catch(unlessLost(request));
    let outcome: Outcome | undefined;
    if (inline !== undefined)
      outcome = verifiedOutcome(this.#access.signatures, { callId: id, state, text: inline, signature });
    else if (at !== undefined && (whole || parts === undefined))
      outcome = await this.#access.largeOutcome(id, { state, at, parts, signature });
    return recordOf(id, fields, request, outcome, Number(nowMs));
  }

  /** The outcome alone, when the event that announced it did not carry it. What that says saves a look at the record. */
  async outcome(callId: string, event?: SettledEvent): Promise<Outcome | undefined> {
    const told = await this.#toldOutcome(callId, event);
    if (told !== undefined) return told;
    const stored = await this.#storedOutcome(callId);
    if (stored === undefined || typeof stored.inline !== 'string')
      return stored === undefined ? undefined : this.#access.largeOutcome(callId, stored);
    return verifiedOutcome(this.#access.signatures, { ...stored, callId, text: stored.inline });
  }

  async #toldOutcome(callId: string, event: SettledEvent | undefined): Promise<Outcome | undefined> {
    if (event?.textId === undefined) return undefined;
    const text = await this.#access.redis.get(this.#access.placed(callId).outcome(callId, event.textId));
    const verified =
      text !== null &&
      isVerifiedOutcome(this.#access.signatures, {
        callId,
        state: event.state,
        text,
        signature: event.signature ?? '',
      });
    return verified ? (JSON.parse(text) as Outcome) : undefined;
  }

  /**
   * The content of a call's output as JSON, part by part; undefined when there is none. The parts throw `UNKNOWN_CALL` and
   * `SIGNATURE_INVALID` as those of a large text do (`LargeTexts`).
   */
  async output(callId: string): Promise<AsyncGenerator<Buffer, void, undefined> | undefined> {
    const stored = await this.#storedOutcome(callId);
    if (stored?.parts !== undefined) {
      const reference = this.#access.verifiedReference(callId, stored);
      if (reference === undefined) throw new PawlError('SIGNATURE_INVALID', FORGED_OUTCOME.error?.message);
      if (reference.content !== undefined)
        return this.#access.outcomeParts(callId, stored.at, reference, reference.content);
    }
    const output = (await this.outcome(callId))?.output;
    return output === undefined ? undefined : textParts(JSON.stringify(output.content));
  }

  async #storedOutcome(callId: string): Promise<(StoredOutcome & { readonly inline: string | null }) | undefined> {
    const [state, inline = null, signature, at, parts] = await this.#access.redis.hmget(
      this.#access.placed(callId).record(callId),
      ...['state', 'outcome', 'outcomeSignature', 'outcomeAt', 'outcomeParts'],
    );
    // What is still in flight has no outcome, whatever somebody announced.
    if (typeof state !== 'string' || state === 'inflight' || (inline ?? at ?? null) === null) return undefined;
    return { state, inline, signature: signature ?? '', at: at ?? '', parts: parts ?? undefined };
  }

  /** Gives a call with an unknown outcome a known one. */
  async resolve(
    callId: string,
    state: 'done' | 'failed',
    outcome: Outcome,
    ttlMs: number,
    freeAfterMs?: number,
  ): Promise<'resolved' | 'refused' | 'gone'> {
    const text = JSON.stringify(outcome);
    const keys = this.#access.placed(callId);
    const [code] = await resolveScript.run(
      this.#access.redis,
      [keys.record(callId), keys.inDoubt],
      [
        state,
        text,
        ttlMs,
        this.#access.signatures.sign('outcome', [callId, state], text),
        callId,
        uuidv7(),
        freeAfterMs ?? '',
      ],
    );
    return code as 'resolved' | 'refused' | 'gone';
  }

  /** Queues a call again: `resolved` one with an unknown outcome, `missing` one whose job is gone. With an approval, people are asked first. */
  async requeue(
    record: CallRecord,
    because: 'resolved' | 'missing',
    generation: string,
    inboxId?: string,
    approval?: ApprovalRequest,
  ): Promise<'queued' | 'refused' | 'gone'> {
    const keys = this.#access.placed(record.callId);
    const job: CallJob = { callId: record.callId, generation, session: record.request.envelope.target.sessionKey };
    const signed = await this.resigned(record.callId, generation, because);
    if (typeof signed === 'string') return signed === 'gone' ? 'gone' : 'refused';
    const [code] = await requeueScript.run(
      this.#access.redis,
      [keys.record(record.callId), keys.inflight, keys.job(jobIdOf(record.callId, record.generation)), keys.inDoubt],
      [
        record.callId,
        generation,
        because === 'resolved' ? '1' : '0',
        inboxId ?? '',
        signed.request,
        signed.signature,
        signed.resolution,
        record.generation,
        keys.approvals,
        ...(approval === undefined ? ['', '', '', '', ''] : this.#approvalArguments(approval)),
        ...enqueueArguments(keys, record.request.envelope.toolName, job),
      ],
    );
    return code as 'queued' | 'refused' | 'gone';
  }

  #approvalArguments(approval: ApprovalRequest): (string | number)[] {
    const request = JSON.stringify(approval);
    const { signatures, retentionMs } = this.#access;
    return [request, signApproval(signatures, approval, request), approval.id, approval.expiresAtMs, retentionMs];
  }

  /** IDs of calls of one place, the newest first; of one session when given. */
  list(partition: Partition, options: Selection): Promise<string[]> {
    return this.#index.list(partition, options);
  }

  /** IDs of calls in flight that were claimed before a time, the oldest first, without the `passed` oldest. */
  inflightBefore(partition: Partition, beforeMs: number, limit: number, passed = 0): Promise<string[]> {
    return this.#index.inflightBefore(partition, beforeMs, limit, passed);
  }

  /** Takes calls whose record may have expired out of the index; claims do the same on the way, while there are any. */
  prune(partition: Partition, nowMs: number): Promise<void> {
    return this.#index.prune(partition, nowMs);
  }

  /**
   * Forgets the calls of one place that have ended, of one session or one tool (`namespace.name`) when given (R25, R34). Those in
   * flight stay, and those that may have had their effect.
   */
  flush(partition: Partition, select: { readonly sessionKey?: string; readonly tool?: string }): Promise<Flushed> {
    return this.#index.flush(partition, select);
  }

  /** Forgets one call that has ended, or that was cancelled (R11); undefined when there is none. One of unknown outcome stays. */
  async forget(callId: string): Promise<Flushed | undefined> {
    // What was merged is the call that it was merged into.
    const record = await this.glance(callId);
    return record && this.#index.forget(record.callId);
  }

  /** How many calls of each tool (`namespace.name`) were claimed within the retention, to about a 24th part of it. */
  sizes(partition: Partition): Promise<ReadonlyMap<string, number>> {
    return this.#index.sizes(partition);
  }

  counts(partition: Partition): Promise<{ readonly inflight: number; readonly calls: number }> {
    return this.#index.counts(partition);
  }

  /** Redis' clock, milliseconds. */
  now(): Promise<number> {
    return this.#access.now();
  }
}

/** `fields` of another call's record, beside what the record of this one says of itself, which anybody may have written. */
function wasMerged(
  callId: string,
  leadingId: string,
  { sameRequest = '', paramsDigest = '' }: Readonly<Record<string, string>>,
  { envelope }: StoredRequest,
): boolean {
  const asked = requestNamed(sameRequest);
  return asked !== undefined && isMerged(callId, asked, { callId: leadingId, envelope, paramsDigest });
}

function requestNamed(stored: string): string | undefined {
  try {
    return requestNameOf(JSON.parse(stored) as RequestNaming);
  } catch {
    return undefined;
  }
}

function ended({ phase: _, ...fields }: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return { ...fields, state: 'failed' };
}

/** A record without its parameters is still one. */
function unlessLost(request: StoredRequest): (error: unknown) => StoredRequest {
  return (error) => {
    if (error instanceof PawlError && (error.code === 'PARAMS_LOST' || error.code === 'SIGNATURE_INVALID'))
      return request;
    throw error;
  };
}

async function* textParts(text: string): AsyncGenerator<Buffer, void, undefined> {
  yield Buffer.from(text);
}
