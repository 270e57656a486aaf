/**
 * The ledger of runs without a fleet: calls that this process runs, and their records in a dedupe store, which may be shared.
 *
 * The store holds what must outlive a call: who claimed it, how many attempts began, how it ended. What only the process that
 * runs it needs, the envelope, the phase, the fence, stands here. A record in flight that is not here belongs to another
 * process: it is followed until it ends, or until its lease does and it is taken over, which its tool's effects then judge.
 */

import type { CompletableCall } from '../producer/completions/completion-service.ts';
import { partitionFor } from '../shared/calls/call-id.ts';
import { leftInDoubt, type RecordLife } from '../shared/calls/call-state.ts';
import type { DedupeRecord, DedupeStore } from '../shared/calls/dedupe-store.ts';
import { type Outcome, outcomeOf } from '../shared/calls/outcome.ts';
import { PawlError } from '../shared/errors/failure.ts';
import type { BeginAttempt, BeginResult } from '../shared/store/calls/begin-attempt.ts';
import { type StoredRequest, withParams } from '../shared/store/calls/call-record.ts';
import type { Claim, ClaimAnswer } from '../shared/store/calls/claim.ts';
import type { Postpone } from '../shared/store/calls/ledger.ts';
import type { CheckpointAnswer } from '../shared/store/calls/records/checkpoint.ts';
import type { Settle, WriteAnswer } from '../shared/store/calls/settle.ts';
import type { CallLedger, KnownCall } from '../shared/store/ports.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import { parsedParts } from '../shared/util/json/large-json.ts';
import type { Schedule } from '../shared/util/time.ts';
import { LocalBudgets } from './budgets.ts';
import { executionOf, leased, lostAttempt, mayRunAnew, recordFor } from './call-record.ts';
import type { LocalCircuits } from './circuits.ts';
import { LocalCompletions } from './completions.ts';
import { KeyedQueue } from './keyed-queue.ts';
import { LocalLoops } from './loops.ts';
import { type OwnCall, OwnCalls } from './own-calls.ts';
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

/** A call is quarantined after this many processes were lost with it. */
const MAX_LOST_PROCESSES = 3;

export class LocalLedger implements CallLedger {
  readonly #parts: LocalLedgerDeps;
  readonly #own: OwnCalls;
  readonly #retries = new LocalRetryBudgets();
  readonly #loops = new LocalLoops();
  readonly #budgets = new LocalBudgets();
  readonly #locks = new KeyedQueue();
  /** Calls that outside systems complete. */
  readonly completions: LocalCompletions;

  constructor(parts: LocalLedgerDeps) {
    this.#parts = parts;
    this.#own = new OwnCalls({ ...parts, locks: this.#locks, onRecovered: (job) => parts.onJob(job) });
    const { onEvent } = parts;
    this.completions = new LocalCompletions({
      own: this.#own,
      locks: this.#locks,
      now: () => this.now(),
      onEvent,
    });
  }

  now(): Promise<number> {
    return this.#parts.store.now();
  }

  /** Whether the call starts later. */
  isDelayed(callId: string): boolean {
    return this.#own.get(callId)?.phase === 'delayed';
  }

  /** Waits for the start of a delayed call, or until it runs here no more. */
  async untilStart(callId: string): Promise<void> {
    const call = this.#own.get(callId);
    if (call === undefined) return;
    await this.#own.wait(callId, (call.request.startAtMs ?? 0) - (await this.now()));
    call.phase = 'queued';
  }

  /** Waits for a time, or until the call runs here no more. */
  wait(callId: string, ms: number): Promise<void> {
    return this.#own.wait(callId, ms);
  }

  /** Ends the waiting of all calls: the runner closes. */
  wakeAll(): void {
    this.#own.wakeAll();
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
    const leader = await this.#own.leaderOf(claim);
    if (leader !== undefined && !mayRunAnew(leader, claim)) return this.#known(leader, claim, nowMs);
    this.#own.unmerge(claim.callId);
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

  spendTime(names: readonly string[], timeMs: number): Promise<void> {
    this.#budgets.spendTime(names, timeMs);
    return Promise.resolve();
  }

  #take(claim: Claim, record: DedupeRecord, repetitions = 0): ClaimAnswer {
    this.#budgets.take(claim, record.createdAtMs);
    this.#parts.onJob(this.#own.add({ claim, record, attempts: [], leftNoRecord: false }));
    return { kind: 'claimed', callId: claim.callId, ...(repetitions > 0 ? { repetitions } : {}) };
  }

  #known(record: DedupeRecord, claim: Claim, nowMs: number): ClaimAnswer {
    const callId = record.key;
    if (record.request.paramsDigest !== claim.paramsDigest) return { kind: 'conflict', callId };
    if (record.state === 'inflight') {
      const own = this.#own.get(callId);
      if (own === undefined) this.#own.follow(callId, claim);
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
      if (call.pending !== undefined) {
        const { untilMs, onExpiry } = call.pending;
        const { request, fence, attempts: earlierAttempts } = call;
        return { kind: 'pending', nowMs, remainingMs: untilMs - nowMs, onExpiry, request, fence, earlierAttempts };
      }
      const circuit = this.#parts.circuits.now(homePartition(partitionFor(call.callId).tier), call.circuit);
      const { request, fence, attempts: earlierAttempts, leftNoRecord: recovered } = call;
      const circuitRaw = JSON.stringify(circuit);
      if (circuit.state !== 'CLOSED' && circuit.epoch !== probeEpoch && !recovered)
        return { kind: 'circuit', nowMs, circuit: call.circuit, circuitRaw, request, fence, earlierAttempts };
      const attempts = recovered ? [...earlierAttempts, lostAttempt(earlierAttempts, nowMs)] : earlierAttempts;
      const written = await this.#own.write(call, {
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
        earlierAttempts: attempts,
        lostAttempts: lost,
        isPoison: lost >= MAX_LOST_PROCESSES,
        recovered,
        firstStartedAtMs: call.firstStartedAtMs,
        circuit: call.circuit,
        circuitRaw,
        cancelRequested: call.cancelRequested,
        ...(call.checkpoint === undefined ? {} : { checkpoint: call.checkpoint }),
      };
    });
  }

  async settle({ callId, fence, state, outcomeJson, attempts, sample, refill, ...life }: Settle): Promise<WriteAnswer> {
    const outcome = outcomeOf(
      typeof outcomeJson === 'string' ? JSON.parse(outcomeJson) : await parsedParts(outcomeJson.parts),
    );
    return this.#locks.take(callId, async () => {
      const call = this.#own.get(callId);
      if (call === undefined || call.fence !== fence) return 'fenced';
      if (!(await this.#own.end(call, { state, outcome, attempts, ttlMs: replayedMs(life) }))) return 'fenced';
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

  async postpone(callId: string, fence: number, { phase, attempts, event, allowance }: Postpone): Promise<WriteAnswer> {
    return this.#locks.take(callId, async () => {
      const call = this.#own.get(callId);
      if (call === undefined || call.fence !== fence) return 'fenced';
      if (call.cancelRequested) return 'cancelled';
      const nowMs = await this.now();
      if (allowance !== undefined && !this.#retries.take(allowance, nowMs)) return 'exhausted';
      const execution = executionOf(attempts, attempts.length);
      if (!(await this.#own.write(call, { ...leased(call.record, nowMs), execution }))) return 'fenced';
      call.phase = phase === 'unstarted' ? 'queued' : phase;
      call.attempts = attempts;
      if (phase === 'unstarted' && attempts.length === 0) call.firstStartedAtMs = undefined;
      if (event !== undefined) this.#parts.onEvent(event as InboxEvent);
      return 'postponed';
    });
  }

  async renewLease(callId: string, fence: number, _leaseMs?: number, event?: object) {
    const call = this.#own.get(callId);
    if (call === undefined || call.fence !== fence) return { renewed: false, cancelRequested: false };
    if (event !== undefined) this.#parts.onEvent(event as InboxEvent);
    return { renewed: true, cancelRequested: call.cancelRequested };
  }

  async checkpoint(callId: string, fence: number, text: string): Promise<CheckpointAnswer> {
    const call = this.#own.get(callId);
    if (call?.fence !== fence) return 'fenced';
    call.checkpoint = text;
    return 'written';
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
      if (call.phase === 'pending' && endings.state !== 'cancelled') return { kind: 'pending' };
      const known = {
        outcome: call.fence === 0 ? endings.beforeStart : endings.betweenAttempts,
        ttlMs: replayedMs(endings),
      };
      const { outcome, ttlMs } = (leftInDoubt(call.attempts) ? endings.inDoubt : undefined) ?? known;
      await this.#own.end(call, { state: endings.state, outcome, attempts: call.attempts, ttlMs });
      return { kind: 'cancelled', jobId: callId };
    });
  }

  // Reading

  async read(callId: string): Promise<KnownCall | undefined> {
    const record = await this.#parts.store.get(callId);
    if (record === undefined) return undefined;
    return knownCall(record, this.#own.get(callId), await this.now());
  }

  /** A call that runs or waits here, as completing it needs it. */
  async completable(callId: string): Promise<CompletableCall | undefined> {
    const call = this.#own.get(callId);
    if (call === undefined) return undefined;
    const { request, phase, fence, attempts, record, firstStartedAtMs } = call;
    return {
      callId,
      request,
      phase,
      fence,
      attempts,
      createdAtMs: record.createdAtMs,
      ...(firstStartedAtMs === undefined ? {} : { startedAtMs: firstStartedAtMs }),
      readAtMs: await this.now(),
    };
  }

  /** Nothing is kept apart here. */
  async requestWithParams(_callId: string, request: StoredRequest): Promise<StoredRequest> {
    return request;
  }

  async outcome(callId: string): Promise<Outcome | undefined> {
    const record = await this.#parts.store.get(callId);
    return record === undefined || record.state === 'inflight' ? undefined : (record.payload as Outcome);
  }

  /** Calls of a session that run here, without those that others may have joined. */
  ownCallsOf(sessionKey: string): readonly string[] {
    return [...this.#own]
      .filter(({ request }) => request.shared !== true && request.envelope.target.sessionKey === sessionKey)
      .map(({ callId }) => callId);
  }

  // Leases

  /** Keeps the calls that run here from being taken over. */
  async renew(): Promise<void> {
    await this.#own.prolong();
  }

  /** Leaves the calls that have not ended to the other processes of the store, and ends the waits of this one. */
  async close(): Promise<void> {
    await this.#own.close();
  }

  /** This process cannot go on with a call: it is followed like another's, until its lease ends. */
  abandon(callId: string): void {
    const call = this.#own.get(callId);
    if (call !== undefined) this.#own.lose(call);
  }
}

function knownCall(record: DedupeRecord, own: OwnCall | undefined, readAtMs: number): KnownCall {
  const dot = record.tool.lastIndexOf('.');
  return {
    callId: record.key,
    state: record.state,
    createdAtMs: record.createdAtMs,
    readAtMs,
    attempts: own?.attempts ?? record.execution?.attempts ?? [],
    request: {
      envelope: {
        requestId: record.request.requestId,
        toolNamespace: record.tool.slice(0, dot),
        toolName: record.tool.slice(dot + 1),
      },
      ...(own === undefined ? {} : { tool: own.request.tool }),
    },
    ...(record.state === 'inflight' ? {} : { outcome: record.payload as Outcome }),
  };
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
