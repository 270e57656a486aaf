/** The calls that this process runs: their state in memory, and all writes to their records. */
import { type AttemptRecord, endsInDoubt, type Phase } from '../shared/calls/call-state.ts';
import { DEDUPE_DEFAULTS, type DedupeRecord } from '../shared/calls/dedupe-store.ts';
import { markInDoubt, type Outcome, outcomeWithoutRun, resultError } from '../shared/calls/outcome.ts';
import { failureOf, PawlError } from '../shared/errors/failure.ts';
import type { Claim } from '../shared/store/calls/claim/claim.ts';
import type { Settle } from '../shared/store/calls/settle.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import type { ExpiryRule } from '../shared/tools/pending.ts';
import { LimitedMap } from '../shared/util/limited-map.ts';
import { errorOf, executionOf, withLease } from './call-record.ts';
import { type NewOwnCall, SubscribedCalls, type SubscribedCallsDeps } from './followed-calls.ts';
import type { KeyedQueue } from './keyed-queue.ts';

export interface OwnCallsDeps extends Pick<SubscribedCallsDeps, 'store' | 'schedule' | 'onEvent' | 'onError'> {
  /** Serializes the changes of each call. */
  readonly locks: KeyedQueue;
  /** Called to run a call that was claimed, or recovered when another process's lease had ended. */
  onJob(job: CallJob): void;
  /** Called to stop a running call: it was cancelled, or another process has taken it. */
  onStop(callId: string, reason: PawlError): void;
}

/** A call that this process runs. */
export interface OwnCall extends Claim {
  /** The record as last written; its version guards the next write. */
  record: DedupeRecord;
  phase: Phase;
  fence: number;
  attempts: readonly AttemptRecord[];
  /** The previous attempt began in another process and left no record. */
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

interface CallEnd {
  readonly state: Settle['state'];
  readonly outcome: Outcome;
  readonly attempts: readonly AttemptRecord[];
  /** The TTL of its record. */
  readonly ttlMs: number;
}

/** The most merged requests in memory: a repeated one finds the call that it was merged into. */
const MAX_MERGED = 10_000;

export class OwnCalls {
  readonly #deps: OwnCallsDeps;
  readonly #calls = new Map<string, OwnCall>();
  /** The call in flight for a merge ID. */
  readonly #leaders = new Map<string, string>();
  readonly #merged = new LimitedMap<string, string>(MAX_MERGED);
  readonly #subscribed: SubscribedCalls;

  constructor(deps: OwnCallsDeps) {
    this.#deps = deps;
    this.#subscribed = new SubscribedCalls({
      ...deps,
      isOwn: (callId) => this.#calls.has(callId),
      onRecovered: (call) => deps.onJob(this.add(call)),
    });
  }

  get(callId: string): OwnCall | undefined {
    return this.#calls.get(callId);
  }

  /** Adds a call that runs here from now on. Returns its job. */
  add({ claim, record, attempts, leftNoRecord }: NewOwnCall): CallJob {
    const { callId, mergeId, generation, request } = claim;
    this.#calls.set(callId, {
      ...claim,
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

  /** The calls of a session, without shared ones, which other sessions may have joined. */
  ofSession(sessionKey: string): readonly string[] {
    const calls = [...this.#calls.values()].filter(({ request }) => request.shared !== true);
    return calls.filter(({ request }) => request.envelope.target.sessionKey === sessionKey).map((call) => call.callId);
  }

  /** Takes a step of the call's attempt with this fence, after all earlier steps of the call. Otherwise returns `fenced`. */
  change<Answer>(
    callId: string,
    fence: number,
    fenced: Answer,
    step: (call: OwnCall) => Promise<Answer>,
  ): Promise<Answer> {
    return this.#deps.locks.run(callId, async () => {
      const call = this.#calls.get(callId);
      return call?.fence === fence ? step(call) : fenced;
    });
  }

  /** Waits for the start of a delayed call, or until this process gives it up. */
  async untilStart(callId: string): Promise<void> {
    const call = this.#calls.get(callId);
    if (call === undefined) return;
    await this.wait(callId, (call.request.startAtMs ?? 0) - (await this.#deps.store.now()));
    call.phase = 'queued';
  }

  /** Resolves after a time, or when this process gives the call up. */
  async wait(callId: string, ms: number): Promise<void> {
    const call = this.#calls.get(callId);
    if (call === undefined) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = this.#deps.schedule(resolve, ms);
    call.wake = resolve;
    await promise.finally(stop);
  }

  /** Ends the waits of all calls when the runner closes. */
  wakeAll(): void {
    for (const call of this.#calls.values()) call.wake?.();
  }

  /** Follows another process's call until it has ended or is recovered here. */
  follow(callId: string, claim: Claim): void {
    this.#subscribed.follow(callId, { ...claim, callId });
  }

  /** The call that this request is merged into: the same one as before, or one in flight with the same parameters. */
  async leaderOf({ callId, mergeId, mode }: Claim): Promise<DedupeRecord | undefined> {
    if (mergeId === undefined) return undefined;
    const { store } = this.#deps;
    const mergedInto = this.#merged.get(callId);
    const merged = mergedInto === undefined ? undefined : await store.get(mergedInto);
    if (merged !== undefined) return merged;
    const leaderId = this.#leaders.get(mergeId);
    if (leaderId === undefined || leaderId === callId || (await store.get(callId)) !== undefined) return undefined;
    const leader = await store.get(leaderId);
    if (leader?.state !== 'inflight') return undefined;
    if (mode === 'enforced') this.#merged.set(callId, leaderId);
    return leader;
  }

  /** Makes the request a call of its own again. */
  unmerge(callId: string): void {
    this.#merged.delete(callId);
  }

  /** Leaves unfinished calls to other processes of the store, and ends the waits of this process. */
  async close(): Promise<void> {
    this.#subscribed.close();
    // Without the store, the leases end by themselves.
    await this.prolong(-1).catch(this.#deps.onError);
    const failure = failureOf('DRAINED', 'The runner was closed before the call had ended.');
    for (const callId of new Set([...this.#calls.keys(), ...this.#subscribed.callIds])) {
      const toolName = this.#calls.get(callId)?.request.envelope.toolName ?? '';
      const outcome = outcomeWithoutRun(toolName, failure, { status: 'retriable_error' });
      this.#deps.onEvent({ type: 'settled', callId, state: 'failed', outcome });
    }
    this.#calls.clear();
  }

  /** Renews the leases of all calls that run here. */
  async prolong(lockMs: number = DEDUPE_DEFAULTS.lockMs): Promise<void> {
    await Promise.all(
      [...this.#calls.keys()].map((callId) =>
        this.#deps.locks.run(callId, async () => {
          const call = this.#calls.get(callId);
          if (call !== undefined) await this.write(call, withLease(call.record, await this.#deps.store.now(), lockMs));
        }),
      ),
    );
  }

  /** Writes a call's outcome. False when another process has taken the call. */
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
      ...(outcome.error !== undefined && { error: errorOf(outcome.error) }),
    });
    if (!written) return false;
    this.#forget(call);
    this.#deps.onEvent({ type: 'settled', callId, state, outcome });
    return true;
  }

  /** Replaces a call's record, also a deleted one. False when another process has taken the call. */
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
    this.#lose(call);
    return false;
  }

  /** Gives up a call that this process cannot run: it is followed like a call of another process. */
  abandon(callId: string): void {
    const call = this.#calls.get(callId);
    if (call !== undefined) this.#lose(call);
  }

  /** Ends a call that this process cannot go on with. Its callers receive the error, even if its record cannot be written. */
  async fail(callId: string, reason: PawlError): Promise<void> {
    const call = this.#calls.get(callId);
    if (call === undefined) return;
    const { attempts, phase, request } = call;
    const error = resultError(failureOf(reason.code, reason.message), 'error');
    const settlement = phase === 'running' ? 'unsettled' : undefined;
    const isInDoubt = endsInDoubt(request.tool.effects ?? 'once', attempts, settlement);
    const outcome: Outcome = {
      status: 'error',
      toolName: request.envelope.toolName,
      durationMs: 0,
      attempts: attempts.length + (phase === 'running' ? 1 : 0),
      error: isInDoubt ? markInDoubt(error) : error,
    };
    const end = { state: 'failed', outcome, attempts, ttlMs: DEDUPE_DEFAULTS.failedMs } as const;
    const isWritten = await this.end(call, end).catch(() => undefined);
    if (isWritten !== undefined) return;
    this.#forget(call);
    this.#deps.onEvent({ type: 'settled', callId, state: 'failed', outcome });
  }

  #lose(call: OwnCall): void {
    this.#forget(call);
    this.#deps.onStop(call.callId, new PawlError('LEASE_LOST', 'Another process holds the call.'));
    this.#subscribed.follow(call.callId, { ...call, mode: 'enforced' });
  }

  #forget(call: OwnCall): void {
    this.#calls.delete(call.callId);
    call.wake?.();
    if (call.mergeId !== undefined && this.#leaders.get(call.mergeId) === call.callId)
      this.#leaders.delete(call.mergeId);
  }
}
