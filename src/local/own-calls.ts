/** The calls that this process runs: what only their runner needs of them, and every write to their records. */

import type { AttemptRecord, Phase } from '../shared/calls/call-state.ts';
import { DEDUPE_DEFAULTS, type DedupeRecord, type DedupeStore } from '../shared/calls/dedupe-store.ts';
import { type Outcome, resultError } from '../shared/calls/outcome.ts';
import { failureOf, PawlError } from '../shared/errors/failure.ts';
import type { StoredRequest } from '../shared/store/calls/call-record.ts';
import type { Claim } from '../shared/store/calls/claim.ts';
import type { Settle } from '../shared/store/calls/settle.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import type { ExpiryRule } from '../shared/tools/pending.ts';
import type { Schedule } from '../shared/util/time.ts';
import { errorOf, executionOf, leased } from './call-record.ts';
import { type NewOwnCall, SubscribedCalls } from './followed-calls.ts';
import type { KeyedQueue } from './keyed-queue.ts';

export interface OwnCallsDeps {
  readonly store: DedupeStore;
  readonly schedule: Schedule;
  /** One change of a call at a time. */
  readonly locks: KeyedQueue;
  /** The lease of another process's call has ended: the call runs here now. */
  onRecovered(job: CallJob): void;
  onEvent(event: InboxEvent): void;
  /** A call that runs here must stop: cancelled, or no longer this process's. */
  onStop(callId: string, reason: PawlError): void;
  onError(error: Error): void;
}

/** A call that this process runs. */
export interface OwnCall {
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
  /** JSON. It ends with the process. */
  checkpoint?: string;
  /** The call waits for an outside system. */
  pending?: { untilMs: number; readonly onExpiry: ExpiryRule } | undefined;
  /** Ends the call's waiting for a time. */
  wake?: () => void;
}

export interface CallEnd {
  readonly state: Settle['state'];
  readonly outcome: Outcome;
  readonly attempts: readonly AttemptRecord[];
  /** How long its record is kept. */
  readonly ttlMs: number;
}

/** Requests that were merged into another call, which is remembered for when they are repeated. */
const MAX_MERGED = 10_000;

export class OwnCalls {
  readonly #deps: OwnCallsDeps;
  readonly #calls = new Map<string, OwnCall>();
  /** The call in flight for a merge ID. */
  readonly #leaders = new Map<string, string>();
  readonly #merged = new Map<string, string>();
  readonly #followed: SubscribedCalls;

  constructor(deps: OwnCallsDeps) {
    this.#deps = deps;
    const { store, schedule } = deps;
    this.#followed = new SubscribedCalls({
      store,
      schedule,
      isOwn: (callId) => this.#calls.has(callId),
      onRecovered: (call) => deps.onRecovered(this.add(call)),
      onEvent: (event) => deps.onEvent(event),
      onError: (error) => deps.onError(error),
    });
  }

  get(callId: string): OwnCall | undefined {
    return this.#calls.get(callId);
  }

  [Symbol.iterator](): IterableIterator<OwnCall> {
    return this.#calls.values();
  }

  /** A call runs here from now on. The answer is its job. */
  add({ claim, record, attempts, leftNoRecord }: NewOwnCall): CallJob {
    const { callId, mergeId, generation, request } = claim;
    this.#calls.set(callId, {
      callId,
      generation,
      request,
      circuit: claim.circuit,
      paramsDigest: claim.paramsDigest,
      mergeId,
      record,
      phase: (request.startAtMs ?? 0) > record.createdAtMs ? 'delayed' : 'queued',
      fence: 0,
      attempts,
      leftNoRecord,
      firstStartedAtMs: attempts[0]?.startedAtMs,
      cancelRequested: false,
    });
    if (mergeId !== undefined) this.#leaders.set(mergeId, callId);
    return { callId, generation, session: request.envelope.target.sessionKey };
  }

  /** Resolves after a time, or when the call runs here no more. */
  async wait(callId: string, ms: number): Promise<void> {
    const call = this.#calls.get(callId);
    if (call === undefined) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = this.#deps.schedule(resolve, ms);
    call.wake = resolve;
    await promise.finally(stop);
  }

  /** Ends the waiting of all calls: the runner closes. */
  wakeAll(): void {
    for (const call of this.#calls.values()) call.wake?.();
  }

  /** Watches another process's call until it has ended, or its lease has and it runs here. */
  follow(callId: string, claim: Claim): void {
    this.#followed.follow(callId, { ...claim, callId });
  }

  /** The call that this request was merged into before, or is merged into now: one with the same parameters that is in flight. */
  async leaderOf({ callId, mergeId, mode }: Claim): Promise<DedupeRecord | undefined> {
    if (mergeId === undefined) return undefined;
    const { store } = this.#deps;
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

  /** The request runs as a call of its own, and no longer as a part of another. */
  unmerge(callId: string): void {
    this.#merged.delete(callId);
  }

  /** Leaves the calls that have not ended to the other processes of the store, and ends the waits of this one. */
  async close(): Promise<void> {
    this.#followed.close();
    // Without the store, the leases end by themselves.
    await this.prolong(-1).catch(this.#deps.onError);
    const waited = new Map([...this.#calls.values()].map(({ callId, request }) => [callId, request.envelope.toolName]));
    for (const callId of this.#followed.callIds) waited.set(callId, waited.get(callId) ?? '');
    for (const [callId, toolName] of waited) {
      const error = resultError(
        failureOf('DRAINED', 'The runner was closed before the call had ended.'),
        'retriable_error',
      );
      const outcome: Outcome = { status: 'retriable_error', toolName, durationMs: 0, attempts: 0, error };
      this.#deps.onEvent({ type: 'settled', callId, state: 'failed', outcome });
    }
    this.#calls.clear();
  }

  /** Renews the leases of all calls that run here. */
  async prolong(lockMs: number = DEDUPE_DEFAULTS.lockMs): Promise<void> {
    await Promise.all(
      [...this.#calls.keys()].map((callId) =>
        this.#deps.locks.take(callId, async () => {
          const call = this.#calls.get(callId);
          if (call !== undefined) await this.write(call, leased(call.record, await this.#deps.store.now(), lockMs));
        }),
      ),
    );
  }

  /** Writes a call's outcome. The answer is false for a call that is another process's. */
  async end(call: OwnCall, { state, outcome, attempts, ttlMs }: CallEnd): Promise<boolean> {
    const nowMs = await this.#deps.store.now();
    const { lockUntilMs: _lease, ...record } = call.record;
    const { callId } = call;
    const written = await this.write(call, {
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
    this.#deps.onEvent({ type: 'settled', callId, state, outcome });
    return true;
  }

  /** Replaces a call's record. A deleted record is written again; a record that another process took over belongs to that process. */
  async write(call: OwnCall, next: DedupeRecord): Promise<boolean> {
    const { store } = this.#deps;
    const answer = await store.compareAndSet(call.callId, call.record.version, next);
    if (answer.swapped) {
      call.record = { ...next, version: answer.version };
      return true;
    }
    if (answer.existing === undefined && (await store.setIfNotExists(next)).created) {
      call.record = { ...next, version: 1 };
      return true;
    }
    this.lose(call);
    return false;
  }

  /** This process cannot go on with a call: it is followed like another's, until its lease ends. */
  lose(call: OwnCall): void {
    this.#forget(call);
    this.#deps.onStop(call.callId, new PawlError('LEASE_LOST', 'Another process holds the call.'));
    const { callId, generation, request, circuit, paramsDigest, mergeId } = call;
    this.#followed.follow(callId, {
      callId,
      generation,
      request,
      circuit,
      paramsDigest,
      mode: 'enforced',
      keepJob: false,
      ...(mergeId === undefined ? {} : { mergeId }),
    });
  }

  #forget(call: OwnCall): void {
    this.#calls.delete(call.callId);
    call.wake?.();
    if (call.mergeId !== undefined && this.#leaders.get(call.mergeId) === call.callId)
      this.#leaders.delete(call.mergeId);
  }
}
