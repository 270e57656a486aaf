/**
 * The ledger of local runs: calls that this process runs, and their records in a dedupe store, which processes may share.
 *
 * The store has what must outlive the process: the claim, the number of attempts, the outcome. The envelope, the phase and the fence are
 * in memory only. A record in flight without them belongs to another process. Its call is followed until it ends, or until its lease
 * ends and it is recovered here by its tool's effects.
 */
import type { CompletableCall } from '../producer/completions/completion-service.ts';
import { partitionFor } from '../shared/calls/call-id.ts';
import { hasAttemptInDoubt, type RecordLifetime } from '../shared/calls/call-state.ts';
import type { DedupeRecord } from '../shared/calls/dedupe-store.ts';
import { decodeOutcome, type Outcome } from '../shared/calls/outcome.ts';
import { PawlError } from '../shared/errors/failure.ts';
import type { BeginAttempt, BeginResult } from '../shared/store/calls/begin-attempt.ts';
import { type StoredRequest, withParams } from '../shared/store/calls/call-record.ts';
import type { Claim, ClaimAnswer } from '../shared/store/calls/claim/claim.ts';
import type { Postpone } from '../shared/store/calls/ledger.ts';
import type { CheckpointAnswer } from '../shared/store/calls/records/checkpoint.ts';
import type { Settle, WriteAnswer } from '../shared/store/calls/settle.ts';
import { formatCircuit } from '../shared/store/circuits/circuits.ts';
import type { CallLedger, CallView } from '../shared/store/ports.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import { splitName } from '../shared/tools/tool.ts';
import { parseParts } from '../shared/util/json/large-json.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { LocalBudgets } from './budgets.ts';
import { executionOf, lostAttempt, mayRepeatCall, recordFor, withLease } from './call-record.ts';
import type { LocalCircuits } from './circuits.ts';
import { LocalCompletions } from './completions.ts';
import { KeyedQueue } from './keyed-queue.ts';
import { LocalLoops } from './loops.ts';
import { type OwnCall, OwnCalls, type OwnCallsDeps } from './own-calls.ts';
import { LocalRetryBudgets } from './retry-budgets.ts';

export interface LocalLedgerDeps extends Omit<OwnCallsDeps, 'locks'> {
  readonly circuits: LocalCircuits;
  /** The TTL of a record in flight after its process stopped renewing it. */
  readonly retentionMs: number;
}

/** A call is quarantined after this many processes were lost with it. */
const MAX_LOST_PROCESSES = 3;

export class LocalLedger implements CallLedger {
  /** The calls that run here. */
  readonly own: OwnCalls;
  readonly #deps: LocalLedgerDeps;
  readonly #retries = new LocalRetryBudgets();
  readonly #loops = new LocalLoops();
  readonly #budgets = new LocalBudgets();
  readonly #locks = new KeyedQueue();
  /** Calls that outside systems complete. */
  readonly completions: LocalCompletions;

  constructor(deps: LocalLedgerDeps) {
    this.#deps = deps;
    this.own = new OwnCalls({ ...deps, locks: this.#locks });
    const { onEvent } = deps;
    this.completions = new LocalCompletions({ ownCalls: this.own, locks: this.#locks, now: () => this.now(), onEvent });
  }

  now(): Promise<number> {
    return this.#deps.store.now();
  }

  // Claims

  claim(claim: Claim): Promise<ClaimAnswer> {
    // No other claim may charge the same budgets between the check and the charge.
    const claimWithBudget = () =>
      claim.spends === undefined ? this.#claim(claim) : this.#locks.run('budgets', () => this.#claim(claim));
    return this.#locks.run(`claim ${claim.mergeId ?? claim.callId}`, claimWithBudget);
  }

  async #claim(claim: Claim): Promise<ClaimAnswer> {
    const { store } = this.#deps;
    const nowMs = await store.now();
    const leader = await this.own.leaderOf(claim);
    if (leader !== undefined && !mayRepeatCall(leader, claim)) return this.#existing(leader, claim, nowMs);
    this.own.unmerge(claim.callId);
    let repetitions: number | undefined;
    const newRecord = recordFor(claim, nowMs, this.#deps.retentionMs);
    for (;;) {
      const present = await store.get(claim.callId);
      if (present === undefined || mayRepeatCall(present, claim)) {
        const spent = this.#budgets.refusal(claim, nowMs);
        if (spent !== undefined) return spent;
        repetitions ??= this.#loops.count(claim.loop, nowMs);
        if (repetitions >= (claim.loop?.refuseAt ?? Number.POSITIVE_INFINITY))
          return { kind: 'loop', callId: claim.callId, repetitions, retryAfterMs: claim.loop?.windowMs ?? 0 };
      }
      const answer = await store.setIfNotExists(newRecord);
      if (answer.created) return this.#begin(claim, { ...newRecord, version: 1 }, repetitions);
      const { existing } = answer;
      if (!mayRepeatCall(existing, claim)) return this.#existing(existing, claim, nowMs);
      const replaced = await store.compareAndSet(claim.callId, existing.version, newRecord);
      if (replaced.swapped) return this.#begin(claim, { ...newRecord, version: replaced.version }, repetitions);
    }
  }

  spendTime(names: readonly string[], timeMs: number): Promise<void> {
    this.#budgets.spendTime(names, timeMs);
    return Promise.resolve();
  }

  #begin(claim: Claim, record: DedupeRecord, repetitions = 0): ClaimAnswer {
    this.#budgets.take(claim, record.createdAtMs);
    this.#deps.onJob(this.own.add({ claim, record, attempts: [], leftNoRecord: false }));
    return { kind: 'claimed', callId: claim.callId, ...(repetitions > 0 ? { repetitions } : {}) };
  }

  #existing(record: DedupeRecord, claim: Claim, nowMs: number): ClaimAnswer {
    const callId = record.key;
    if (record.request.paramsDigest !== claim.paramsDigest) return { kind: 'conflict', callId };
    if (record.state === 'inflight') {
      const own = this.own.get(callId);
      if (own === undefined) this.own.follow(callId, claim);
      return { kind: 'inflight', callId, phase: own?.phase ?? 'running', ageMs: nowMs - record.createdAtMs };
    }
    const outcome = record.payload as Outcome;
    return { kind: 'ended', callId, state: record.state, outcome, ageMs: nowMs - record.updatedAtMs };
  }

  // Attempts

  async begin(job: CallJob, { probeEpoch }: BeginAttempt): Promise<BeginResult> {
    return this.#locks.run(job.callId, async () => {
      const call = this.own.get(job.callId);
      if (call?.generation !== job.generation) return { kind: 'stale' };
      // The job is a retry from before this process lost the call and recovered it again.
      if (call.phase === 'running') return { kind: 'stale' };
      const nowMs = await this.now();
      if (call.pending !== undefined) {
        const { untilMs, onExpiry } = call.pending;
        const { request, fence, attempts: earlierAttempts } = call;
        return { kind: 'pending', nowMs, remainingMs: untilMs - nowMs, onExpiry, request, fence, earlierAttempts };
      }
      const circuit = this.#deps.circuits.now(homePartition(partitionFor(call.callId).tier), call.circuit);
      const { request, fence, attempts: earlierAttempts, leftNoRecord: recovered } = call;
      const circuitRaw = formatCircuit(circuit);
      if (circuit.state !== 'CLOSED' && circuit.epoch !== probeEpoch && !recovered)
        return { kind: 'circuit', nowMs, circuit: call.circuit, circuitRaw, request, fence, earlierAttempts };
      const attempts = recovered ? [...earlierAttempts, lostAttempt(earlierAttempts, nowMs)] : earlierAttempts;
      const written = await this.own.write(call, {
        ...withLease(call.record, nowMs),
        execution: executionOf(attempts, attempts.length + 1),
      });
      if (!written) return { kind: 'stale' };
      const lost = attempts.filter(({ status }) => status === 'lost').length;
      call.attempts = attempts;
      call.leftNoRecord = false;
      call.phase = 'running';
      // The record's version lets the fence grow over recoveries and repeated runs.
      call.fence = Math.max(call.fence + 1, call.record.version - 1);
      call.firstStartedAtMs ??= nowMs;
      return {
        kind: 'started',
        nowMs,
        fence: call.fence,
        request: withOwnParams(request),
        earlierAttempts: attempts,
        lostAttempts: lost,
        isPoison: lost >= MAX_LOST_PROCESSES,
        recovered,
        firstStartedAtMs: call.firstStartedAtMs,
        circuit: call.circuit,
        circuitRaw,
        cancelRequested: call.cancelRequested,
        ...(call.checkpoint !== undefined && { checkpoint: call.checkpoint }),
      };
    });
  }

  async settle({ callId, fence, state, outcomeJson, attempts, sample, refill, ...life }: Settle): Promise<WriteAnswer> {
    const outcome = decodeOutcome(
      typeof outcomeJson === 'string' ? JSON.parse(outcomeJson) : await parseParts(outcomeJson.parts),
    );
    return this.own.change<WriteAnswer>(callId, fence, 'fenced', async (call) => {
      if (!(await this.own.end(call, { state, outcome, attempts, ttlMs: replayedMs(life) }))) return 'fenced';
      if (sample !== undefined) this.#deps.circuits.addSuccess(homePartition(partitionFor(callId).tier), sample);
      if (refill !== undefined) this.#retries.refill(refill, await this.now());
      return 'settled';
    });
  }

  async postpone(callId: string, fence: number, { phase, attempts, event, allowance }: Postpone): Promise<WriteAnswer> {
    return this.own.change<WriteAnswer>(callId, fence, 'fenced', async (call) => {
      if (call.cancelRequested) return 'cancelled';
      const nowMs = await this.now();
      if (allowance !== undefined && !this.#retries.take(allowance, nowMs)) return 'exhausted';
      const execution = executionOf(attempts, attempts.length);
      if (!(await this.own.write(call, { ...withLease(call.record, nowMs), execution }))) return 'fenced';
      call.phase = phase === 'unstarted' ? 'queued' : phase;
      call.attempts = attempts;
      if (phase === 'unstarted' && attempts.length === 0) call.firstStartedAtMs = undefined;
      if (event !== undefined) this.#deps.onEvent(event as InboxEvent);
      return 'postponed';
    });
  }

  async renewLease(callId: string, fence: number, _leaseMs?: number, event?: object) {
    const call = this.own.get(callId);
    if (call?.fence !== fence) return { renewed: false, cancelRequested: false };
    if (event !== undefined) this.#deps.onEvent(event as InboxEvent);
    return { renewed: true, cancelRequested: call.cancelRequested };
  }

  async checkpoint(callId: string, fence: number, text: string): Promise<CheckpointAnswer> {
    const call = this.own.get(callId);
    if (call?.fence !== fence) return 'fenced';
    call.checkpoint = text;
    return 'written';
  }

  async cancel(callId: string, endings: Parameters<CallLedger['cancel']>[1]): ReturnType<CallLedger['cancel']> {
    return this.#locks.run(callId, async () => {
      const call = this.own.get(callId);
      if (call === undefined) {
        const record = await this.#deps.store.get(callId);
        if (record === undefined) return { kind: 'gone' };
        // This process cannot stop a call of another process.
        return { kind: record.state === 'inflight' ? 'requested' : 'too-late' };
      }
      if (call.phase === 'running') {
        // A deadline needs no request: the attempt enforces it itself.
        if (endings.state === 'cancelled') {
          call.cancelRequested = true;
          this.#deps.onStop(callId, new PawlError('CANCELLED'));
        }
        return { kind: 'requested' };
      }
      if (call.phase === 'pending' && endings.state !== 'cancelled') return { kind: 'pending' };
      const regular = {
        outcome: call.fence === 0 ? endings.beforeStart : endings.betweenAttempts,
        ttlMs: replayedMs(endings),
      };
      const { outcome, ttlMs } = (hasAttemptInDoubt(call.attempts) ? endings.inDoubt : undefined) ?? regular;
      await this.own.end(call, { state: endings.state, outcome, attempts: call.attempts, ttlMs });
      return { kind: 'cancelled' };
    });
  }

  // Reading

  async read(callId: string): Promise<CallView | undefined> {
    const record = await this.#deps.store.get(callId);
    if (record === undefined) return undefined;
    return callView(record, this.own.get(callId), await this.now());
  }

  /** The fields of a call of this process that its completion needs. */
  async completable(callId: string): Promise<CompletableCall | undefined> {
    const call = this.own.get(callId);
    if (call === undefined) return undefined;
    const { request, phase, fence, attempts, record, firstStartedAtMs } = call;
    const times = { createdAtMs: record.createdAtMs, ...defined({ startedAtMs: firstStartedAtMs }) };
    return { callId, request, phase, fence, attempts, ...times, readAtMs: await this.now() };
  }

  /** Requests are always complete here: no parameters are stored outside of them. */
  async requestWithParams(_callId: string, request: StoredRequest): Promise<StoredRequest> {
    return request;
  }

  async outcome(callId: string): Promise<Outcome | undefined> {
    const record = await this.#deps.store.get(callId);
    return record === undefined || record.state === 'inflight' ? undefined : (record.payload as Outcome);
  }
}

function callView(record: DedupeRecord, own: OwnCall | undefined, readAtMs: number): CallView {
  const { namespace, name } = splitName(record.tool);
  return {
    callId: record.key,
    state: record.state,
    createdAtMs: record.createdAtMs,
    readAtMs,
    attempts: own?.attempts ?? record.execution?.attempts ?? [],
    request: {
      envelope: {
        requestId: record.request.requestId,
        toolNamespace: namespace,
        toolName: name,
      },
      ...(own !== undefined && { tool: own.request.tool }),
    },
    ...(record.state === 'inflight' ? {} : { outcome: record.payload as Outcome }),
  };
}

/** The TTL of a record: a store keeps it only until its key is free. */
function replayedMs({ ttlMs, freeAfterMs = ttlMs }: RecordLifetime): number {
  return freeAfterMs;
}

/** Copies the parameters, so that a tool that changes them does so for this attempt only. */
function withOwnParams(request: StoredRequest): StoredRequest {
  const { envelope } = request;
  return { ...request, envelope: withParams(envelope, JSON.parse(JSON.stringify(envelope.payload.params))) };
}
