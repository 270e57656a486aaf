/**
 * The ledger of runs without a fleet: calls that this process runs, and their records in a dedupe store, which may be shared.
 *
 * The store holds what must outlive a call: who claimed it, how many attempts began, how it ended. What only the process that
 * runs it needs, the envelope, the phase, the fence, stands here. A record in flight that is not here belongs to another
 * process: it is followed until it ends, or until its lease does and it is taken over, which its tool's effects then judge.
 */

import { partitionFor } from '../shared/calls/call-id.ts';
import { type AttemptRecord, leftInDoubt, type Phase, type RecordLife } from '../shared/calls/call-state.ts';
import { DEDUPE_DEFAULTS, type DedupeRecord, type DedupeStore } from '../shared/calls/dedupe-store.ts';
import { type Outcome, resultError } from '../shared/calls/outcome.ts';
import { failureOf, PawlError } from '../shared/errors/failure.ts';
import type { RetryAllowance } from '../shared/retries/retry-budget.ts';
import type { BeginAttempt, BeginResult } from '../shared/store/calls/begin-attempt.ts';
import { type StoredRequest, withParams } from '../shared/store/calls/call-record.ts';
import type { Claim, ClaimAnswer } from '../shared/store/calls/claim.ts';
import type { Settle, WriteAnswer } from '../shared/store/calls/settle.ts';
import type { CallLedger, KnownCall } from '../shared/store/ports.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import { parsedParts } from '../shared/util/json/large-json.ts';
import type { Schedule } from '../shared/util/time.ts';
import { LocalBudgets } from './budgets.ts';
import { errorOf, executionOf, leased, lostAttempt, mayRunAnew, recordFor } from './call-record.ts';
import type { LocalCircuits } from './circuits.ts';
import { SubscribedCalls } from './followed-calls.ts';
import { KeyedQueue } from './keyed-queue.ts';
import { LocalLoops } from './loops.ts';
import { LocalRetryBudgets } from './retry-budgets.ts';

export interface LocalLedgerDeps {
  readonly store: DedupeStore;
  readonly circuits: LocalCircuits;
  readonly schedule: Schedule;
  /** How long a record in flight is kept after its process stopped renewing it. */
  readonly retentionMs: number;
  /** A call was claimed, or taken over: run it. */
  onJob(job: CallJob): void;
  /** Receives the events for the callers that wait. */
  onEvent(event: InboxEvent): void;
  /** A call that runs here must stop: cancelled, or no longer this process's. */
  onStop(callId: string, reason: PawlError): void;
  onError(error: Error): void;
}

/** A call that this process runs. */
interface OwnCall {
  readonly callId: string;
  readonly generation: string;
  readonly request: StoredRequest;
  readonly circuit: string;
  readonly paramsDigest: string;
  readonly mergeId: string | undefined;
  /** The record as last written; a replacement names its version. */
  record: DedupeRecord;
  phase: Phase;
  fence: number;
  attempts: readonly AttemptRecord[];
  /** The attempt before the next one began elsewhere and left no record. */
  leftNoRecord: boolean;
  firstStartedAtMs: number | undefined;
  cancelRequested: boolean;
}

/** A call is quarantined after this many processes were lost with it. */
const MAX_LOST_PROCESSES = 3;

/** Requests that were merged into another call, which is remembered for when they are repeated. */
const MAX_MERGED = 10_000;

export class LocalLedger implements CallLedger {
  readonly #parts: LocalLedgerDeps;
  readonly #own = new Map<string, OwnCall>();
  /** The call in flight for a merge ID. */
  readonly #leaders = new Map<string, string>();
  readonly #merged = new Map<string, string>();
  readonly #retries = new LocalRetryBudgets();
  readonly #loops = new LocalLoops();
  readonly #budgets = new LocalBudgets();
  readonly #locks = new KeyedQueue();
  readonly #followed: SubscribedCalls;

  constructor(parts: LocalLedgerDeps) {
    this.#parts = parts;
    const { store, schedule } = parts;
    this.#followed = new SubscribedCalls({
      store,
      schedule,
      isOwn: (callId) => this.#own.has(callId),
      onRecovered: (claim, record, attempts, leftNoRecord) => this.#run(claim, record, attempts, leftNoRecord),
      onEvent: (event) => parts.onEvent(event),
      onError: (error) => parts.onError(error),
    });
  }

  now(): Promise<number> {
    return this.#parts.store.now();
  }

  // Claims

  claim(claim: Claim): Promise<ClaimAnswer> {
    // No other claim may take from the same budgets between the check and the withdrawal.
    const paid = () =>
      claim.spends === undefined ? this.#claim(claim) : this.#locks.take('budgets', () => this.#claim(claim));
    return this.#locks.take(`claim ${claim.mergeId ?? claim.callId}`, paid);
  }

  async #claim(claim: Claim): Promise<ClaimAnswer> {
    const { store } = this.#parts;
    const nowMs = await store.now();
    const leader = await this.#leaderOf(claim);
    if (leader !== undefined && !mayRunAnew(leader, claim)) return this.#known(leader, claim, nowMs);
    this.#merged.delete(claim.callId);
    let repetitions: number | undefined;
    const fresh = recordFor(claim, nowMs, this.#parts.retentionMs);
    for (;;) {
      const present = await store.get(claim.callId);
      if (present === undefined || mayRunAnew(present, claim)) {
        const spent = this.#budgets.refusal(claim, nowMs);
        if (spent !== undefined) return spent;
        repetitions ??= this.#loops.count(claim.loop, nowMs);
        if (repetitions >= (claim.loop?.refuseAt ?? Number.POSITIVE_INFINITY))
          return { kind: 'loop', callId: claim.callId, repetitions, retryAfterMs: claim.loop?.windowMs ?? 0 };
      }
      const answer = await store.setIfNotExists(fresh);
      if (answer.created) return this.#take(claim, { ...fresh, version: 1 }, repetitions);
      const { existing } = answer;
      if (!mayRunAnew(existing, claim)) return this.#known(existing, claim, nowMs);
      const replaced = await store.compareAndSet(claim.callId, existing.version, fresh);
      if (replaced.swapped) return this.#take(claim, { ...fresh, version: replaced.version }, repetitions);
    }
  }

  /** The call that this request was merged into before, or is merged into now: one with the same parameters that is in flight. */
  async #leaderOf({ callId, mergeId, mode }: Claim): Promise<DedupeRecord | undefined> {
    if (mergeId === undefined) return undefined;
    const { store } = this.#parts;
    const before = this.#merged.get(callId);
    const merged = before === undefined ? undefined : await store.get(before);
    if (merged !== undefined) return merged;
    const leaderId = this.#leaders.get(mergeId);
    if (leaderId === undefined || leaderId === callId || (await store.get(callId)) !== undefined) return undefined;
    const leader = await store.get(leaderId);
    if (leader?.state !== 'inflight') return undefined;
    if (mode === 'enforced') {
      this.#merged.set(callId, leaderId);
      const [oldest] = this.#merged.keys();
      if (this.#merged.size > MAX_MERGED && oldest !== undefined) this.#merged.delete(oldest);
    }
    return leader;
  }

  spendTime(names: readonly string[], timeMs: number): Promise<void> {
    this.#budgets.spendTime(names, timeMs);
    return Promise.resolve();
  }

  #take(claim: Claim, record: DedupeRecord, repetitions = 0): ClaimAnswer {
    this.#budgets.take(claim, record.createdAtMs);
    this.#run(claim, record, [], false);
    return { kind: 'claimed', callId: claim.callId, ...(repetitions > 0 ? { repetitions } : {}) };
  }

  #run(claim: Claim, record: DedupeRecord, attempts: readonly AttemptRecord[], leftNoRecord: boolean): void {
    const { callId, mergeId, generation, request } = claim;
    this.#own.set(callId, {
      callId,
      generation,
      request,
      circuit: claim.circuit,
      paramsDigest: claim.paramsDigest,
      mergeId,
      record,
      phase: 'queued',
      fence: 0,
      attempts,
      leftNoRecord,
      firstStartedAtMs: attempts[0]?.startedAtMs,
      cancelRequested: false,
    });
    if (mergeId !== undefined) this.#leaders.set(mergeId, callId);
    this.#parts.onJob({ callId, generation, session: request.envelope.target.sessionKey });
  }

  #known(record: DedupeRecord, claim: Claim, nowMs: number): ClaimAnswer {
    const callId = record.key;
    if (record.request.paramsDigest !== claim.paramsDigest) return { kind: 'conflict', callId };
    if (record.state === 'inflight') {
      const own = this.#own.get(callId);
      if (own === undefined) this.#followed.follow(callId, { ...claim, callId });
      return { kind: 'inflight', callId, phase: own?.phase ?? 'running', ageMs: nowMs - record.createdAtMs };
    }
    const outcome = record.payload as Outcome;
    return { kind: 'ended', callId, state: record.state, outcome, ageMs: nowMs - record.updatedAtMs };
  }

  // Attempts

  async begin(job: CallJob, { probeEpoch }: BeginAttempt): Promise<BeginResult> {
    return this.#locks.take(job.callId, async () => {
      const call = this.#own.get(job.callId);
      if (call === undefined || call.generation !== job.generation) return { kind: 'stale' };
      // A retry that was to come before this process lost the call, and then took it over again.
      if (call.phase === 'running') return { kind: 'stale' };
      const nowMs = await this.now();
      const circuit = this.#parts.circuits.now(homePartition(partitionFor(call.callId).tier), call.circuit);
      const { request, fence, attempts: earlier, leftNoRecord: recovered } = call;
      const circuitRaw = JSON.stringify(circuit);
      if (circuit.state !== 'CLOSED' && circuit.epoch !== probeEpoch && !recovered)
        return { kind: 'circuit', nowMs, circuit: call.circuit, circuitRaw, request, fence, earlier };
      const attempts = recovered ? [...earlier, lostAttempt(earlier, nowMs)] : earlier;
      const written = await this.#write(call, {
        ...leased(call.record, nowMs),
        execution: executionOf(attempts, attempts.length + 1),
      });
      if (!written) return { kind: 'stale' };
      const lost = attempts.filter(({ status }) => status === 'lost').length;
      call.attempts = attempts;
      call.leftNoRecord = false;
      call.phase = 'running';
      // The version keeps it growing over takeovers and renewed runs.
      call.fence = Math.max(call.fence + 1, call.record.version - 1);
      call.firstStartedAtMs ??= nowMs;
      return {
        kind: 'started',
        nowMs,
        fence: call.fence,
        request: readAnew(request),
        earlier: attempts,
        lostAttempts: lost,
        isPoison: lost >= MAX_LOST_PROCESSES,
        recovered,
        firstStartedAtMs: call.firstStartedAtMs,
        circuit: call.circuit,
        circuitRaw,
        cancelRequested: call.cancelRequested,
      };
    });
  }

  async settle({ callId, fence, state, outcomeJson, attempts, sample, refill, ...life }: Settle): Promise<WriteAnswer> {
    const outcome = (
      typeof outcomeJson === 'string' ? JSON.parse(outcomeJson) : await parsedParts(outcomeJson.parts)
    ) as Outcome;
    return this.#locks.take(callId, async () => {
      const call = this.#own.get(callId);
      if (call === undefined || call.fence !== fence) return 'fenced';
      if (!(await this.#end(call, state, outcome, attempts, replayedMs(life)))) return 'fenced';
      if (sample !== undefined)
        this.#parts.circuits.addSuccess(
          homePartition(partitionFor(callId).tier),
          sample.circuit,
          sample.epoch,
          sample.windowSize,
        );
      if (refill !== undefined) this.#retries.refill(refill, await this.now());
      return 'settled';
    });
  }

  async postpone(
    callId: string,
    fence: number,
    phase: 'waiting-retry' | 'queued' | 'unstarted' | 'running',
    attempts: readonly AttemptRecord[],
    _delayMs: number,
    event?: object,
    allowance?: RetryAllowance,
  ): Promise<WriteAnswer> {
    return this.#locks.take(callId, async () => {
      const call = this.#own.get(callId);
      if (call === undefined || call.fence !== fence) return 'fenced';
      if (call.cancelRequested) return 'cancelled';
      const nowMs = await this.now();
      if (allowance !== undefined && !this.#retries.take(allowance, nowMs)) return 'exhausted';
      const execution = executionOf(attempts, attempts.length);
      if (!(await this.#write(call, { ...leased(call.record, nowMs), execution }))) return 'fenced';
      call.phase = phase === 'unstarted' ? 'queued' : phase;
      call.attempts = attempts;
      if (phase === 'unstarted' && attempts.length === 0) call.firstStartedAtMs = undefined;
      if (event !== undefined) this.#parts.onEvent(event as InboxEvent);
      return 'postponed';
    });
  }

  async renewLease(callId: string, fence: number, _leaseMs?: number, event?: object) {
    const call = this.#own.get(callId);
    if (call === undefined || call.fence !== fence) return { held: false, cancelRequested: false };
    if (event !== undefined) this.#parts.onEvent(event as InboxEvent);
    return { held: true, cancelRequested: call.cancelRequested };
  }

  async cancel(callId: string, endings: Parameters<CallLedger['cancel']>[1]): ReturnType<CallLedger['cancel']> {
    return this.#locks.take(callId, async () => {
      const call = this.#own.get(callId);
      if (call === undefined) {
        const record = await this.#parts.store.get(callId);
        if (record === undefined) return { kind: 'gone' };
        // Another process's call is not ours to stop.
        return { kind: record.state === 'inflight' ? 'requested' : 'too-late' };
      }
      if (call.phase === 'running') {
        // A deadline asks for nothing here: the attempt keeps the time itself.
        if (endings.state === 'cancelled') {
          call.cancelRequested = true;
          this.#parts.onStop(callId, new PawlError('CANCELLED'));
        }
        return { kind: 'requested' };
      }
      const known = {
        outcome: call.fence === 0 ? endings.beforeStart : endings.betweenAttempts,
        ttlMs: replayedMs(endings),
      };
      const { outcome, ttlMs } = (leftInDoubt(call.attempts) ? endings.inDoubt : undefined) ?? known;
      await this.#end(call, endings.state, outcome, call.attempts, ttlMs);
      return { kind: 'cancelled', jobId: callId };
    });
  }

  // Reading

  async read(callId: string): Promise<KnownCall | undefined> {
    const record = await this.#parts.store.get(callId);
    if (record === undefined) return undefined;
    const own = this.#own.get(callId);
    return {
      callId,
      state: record.state,
      createdAtMs: record.createdAtMs,
      readAtMs: await this.now(),
      attempts: own?.attempts ?? record.execution?.attempts ?? [],
      request: {
        envelope: {
          requestId: record.request.requestId,
          toolName: record.tool.slice(record.tool.lastIndexOf('.') + 1),
        },
        ...(own === undefined ? {} : { tool: own.request.tool }),
      },
      ...(record.state === 'inflight' ? {} : { outcome: record.payload as Outcome }),
    };
  }

  /** Nothing is kept apart here. */
  async wholeRequest(_callId: string, request: StoredRequest): Promise<StoredRequest> {
    return request;
  }

  async outcome(callId: string): Promise<Outcome | undefined> {
    const record = await this.#parts.store.get(callId);
    return record === undefined || record.state === 'inflight' ? undefined : (record.payload as Outcome);
  }

  /** Calls of a session that run here, without those that others may have joined. */
  ownCallsOf(sessionKey: string): readonly string[] {
    return [...this.#own.values()]
      .filter(({ request }) => request.shared !== true && request.envelope.target.sessionKey === sessionKey)
      .map(({ callId }) => callId);
  }

  // Leases

  /** Keeps the calls that run here from being taken over. */
  async renew(): Promise<void> {
    await this.#prolong(DEDUPE_DEFAULTS.lockMs);
  }

  /** Leaves the calls that have not ended to the other processes of the store, and ends the waits of this one. */
  async close(): Promise<void> {
    this.#followed.close();
    // Without the store, the leases end by themselves.
    await this.#prolong(-1).catch(this.#parts.onError);
    const waited = new Map([...this.#own.values()].map(({ callId, request }) => [callId, request.envelope.toolName]));
    for (const callId of this.#followed.callIds) waited.set(callId, waited.get(callId) ?? '');
    for (const [callId, toolName] of waited) {
      const error = resultError(
        failureOf('DRAINED', 'The runner was closed before the call had ended.'),
        'retriable_error',
      );
      const outcome: Outcome = { status: 'retriable_error', toolName, durationMs: 0, attempts: 0, error };
      this.#parts.onEvent({ type: 'settled', callId, state: 'failed', outcome });
    }
    this.#own.clear();
  }

  async #prolong(lockMs: number): Promise<void> {
    await Promise.all(
      [...this.#own.keys()].map((callId) =>
        this.#locks.take(callId, async () => {
          const call = this.#own.get(callId);
          if (call !== undefined) await this.#write(call, leased(call.record, await this.now(), lockMs));
        }),
      ),
    );
  }

  /** This process cannot go on with a call: it is followed like another's, until its lease ends. */
  abandon(callId: string): void {
    const call = this.#own.get(callId);
    if (call !== undefined) this.#lose(call);
  }

  async #end(
    call: OwnCall,
    state: Settle['state'],
    outcome: Outcome,
    attempts: readonly AttemptRecord[],
    ttlMs: number,
  ): Promise<boolean> {
    const nowMs = await this.now();
    const { lockUntilMs: _lease, ...record } = call.record;
    const { callId } = call;
    const written = await this.#write(call, {
      ...record,
      state,
      updatedAtMs: nowMs,
      expiresAtMs: nowMs + ttlMs,
      ttlMs,
      execution: executionOf(attempts, attempts.length),
      payload: outcome,
      ...(outcome.error === undefined ? {} : { error: errorOf(outcome.error) }),
    });
    if (!written) return false;
    this.#forget(call);
    this.#parts.onEvent({ type: 'settled', callId, state, outcome });
    return true;
  }

  /** Replaces a call's record. A deleted record is written again; a record that another process took over belongs to that process. */
  async #write(call: OwnCall, next: DedupeRecord): Promise<boolean> {
    const { store } = this.#parts;
    const answer = await store.compareAndSet(call.callId, call.record.version, next);
    if (answer.swapped) {
      call.record = { ...next, version: answer.version };
      return true;
    }
    if (answer.existing === undefined && (await store.setIfNotExists(next)).created) {
      call.record = { ...next, version: 1 };
      return true;
    }
    this.#lose(call);
    return false;
  }

  #lose(call: OwnCall): void {
    this.#forget(call);
    this.#parts.onStop(call.callId, new PawlError('LEASE_LOST', 'Another process holds the call.'));
    const { callId, generation, request, circuit, paramsDigest, mergeId } = call;
    this.#followed.follow(callId, {
      callId,
      generation,
      request,
      circuit,
      paramsDigest,
      mode: 'enforced',
      kept: false,
      ...(mergeId === undefined ? {} : { mergeId }),
    });
  }

  #forget(call: OwnCall): void {
    this.#own.delete(call.callId);
    if (call.mergeId !== undefined && this.#leaders.get(call.mergeId) === call.callId)
      this.#leaders.delete(call.mergeId);
  }
}

/** A store keeps a record only as long as its key is not free. */
function replayedMs({ ttlMs, freeAfterMs = ttlMs }: RecordLife): number {
  return freeAfterMs;
}

/** As if it came from a store: a tool that changes its parameters changes them for this attempt alone. */
function readAnew(request: StoredRequest): StoredRequest {
  const { envelope } = request;
  return { ...request, envelope: withParams(envelope, JSON.parse(JSON.stringify(envelope.payload.params))) };
}
