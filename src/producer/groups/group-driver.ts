/**
 * Drives one batch or plan, as the holder of its lease: it submits the calls that may start, receives their ends as events, and writes
 * the progress. A call is written to the record before it is claimed, so that a later driver knows of every call. After an error a
 * driver stops. Its lease ends, and another process takes the group.
 */
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { envelopeOf, isRefusedForOther, refusal } from '../../shared/calls/outcome.ts';
import type { StartTime } from '../../shared/calls/start-time.ts';
import { ignoreCode, isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import {
  type DriverStep,
  type GroupFields,
  type GroupProgress,
  memberEnd,
  type NextCall,
} from '../../shared/groups/group.ts';
import { canonicalJson } from '../../shared/schema/canonical-json.ts';
import type { Advance, GroupRecord, LeasedGroup } from '../../shared/store/groups/groups.ts';
import type { CallView, GroupStore } from '../../shared/store/ports.ts';
import { asLost } from '../../shared/store/segments/segments.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import type { IdentifiedSubmission, Submission, SubmitOptions } from '../calls/submission.ts';

/** A call to submit. With `approval`, it is the one that waits for the decision on a plan. */
export interface GroupCall extends NextCall {
  readonly approval?: ApprovalRequest;
}

interface CheckedCall extends GroupCall {
  /** The result of the call's check, if it was checked just before. */
  readonly identified?: IdentifiedSubmission;
}

/** How a driver checks, submits, reads and cancels calls. */
export interface GroupCalls {
  /** The call as `submit` would make it. Throws what refuses it; nothing is written. */
  check(envelope: ToolCallEnvelope): Promise<IdentifiedSubmission>;
  submit(call: GroupCall, options?: SubmitOptions): Promise<Submission>;
  read(callId: string): Promise<CallView | undefined>;
  result(callId: string): Promise<ToolResultEnvelope | undefined>;
  cancel(callId: string, by?: string): Promise<unknown>;
}

interface GroupDriverDeps {
  readonly records: Pick<GroupStore, 'advance' | 'stepOf'>;
  readonly calls: GroupCalls;
  /** The TTL of the record of a group that has ended, ms. */
  readonly keptMs: number;
  /** Called once, when the driver has stopped; with the record if the group has ended. */
  onStopped(ended?: GroupRecord): void;
  /** Redis' clock. */
  now(): Promise<number>;
  onResult?(key: string, result: ToolResultEnvelope): void;
  onError(error: unknown): void;
}

/** Exponential backoff while the fleet is overloaded, ms. */
const OVERLOADED_MS = { first: 250, longest: 10_000 };

export class GroupDriver {
  readonly #deps: GroupDriverDeps;
  readonly #group: LeasedGroup;
  readonly #progress: GroupProgress;
  readonly #ended: {
    readonly key: string;
    readonly callId: string | undefined;
    readonly result: ToolResultEnvelope;
  }[] = [];
  /** Running calls, by key. */
  readonly #submissions = new Map<string, Promise<Submission>>();
  readonly #cancelled = new Set<string>();
  readonly #fields: Record<string, object>;
  #steps: number;
  #cancelledBy: string | undefined;
  #state: 'driving' | 'stopped' = 'driving';
  #stepping = false;
  #stepRequested = false;

  constructor(deps: GroupDriverDeps, group: LeasedGroup, progress: GroupProgress) {
    this.#deps = deps;
    this.#group = group;
    this.#progress = progress;
    this.#fields = { ...group.fields };
    this.#steps = group.steps;
    if (group.cancelledBy !== undefined) this.cancel(group.cancelledBy);
  }

  /** Resumes running calls, and starts those that may start. */
  start(callOf: (key: string) => Promise<GroupCall | undefined>): void {
    for (const [key, { callId = '' }] of this.#progress.running)
      this.#follow(key, this.#resume(callOf.bind(undefined, key), callId));
    this.step();
  }

  /** Starts no further call, and cancels the running ones. */
  cancel(by: string): void {
    this.#cancelledBy ??= by;
    this.#progress.cancel();
    this.step();
  }

  /** Starts the calls that may start now. */
  step(): void {
    this.#stepRequested = true;
    if (this.#stepping || this.#state === 'stopped') return;
    this.#stepping = true;
    void this.#stepWhileNeeded().then(
      () => {
        this.#stepping = false;
        if (this.#stepRequested) this.step();
      },
      (error: unknown) => this.#fail(error),
    );
  }

  /** Renews the lease, and checks whether the group was cancelled. */
  async renew(): Promise<void> {
    if (this.#state === 'driving') await this.#write({}).catch((error: unknown) => this.#fail(error));
  }

  /** Releases the lease, so that another process can go on at once. */
  async release(): Promise<void> {
    if (this.#state === 'stopped') return;
    this.#stop();
    await this.#deps.records.advance(this.#group, { release: true });
  }

  async #stepWhileNeeded(): Promise<void> {
    // Calls that end in the same tick are written together.
    await Promise.resolve();
    while (this.#stepRequested && this.#state === 'driving') {
      this.#stepRequested = false;
      await this.#step();
    }
  }

  async #step(): Promise<void> {
    const progress = this.#progress;
    for (const { key, callId, result } of this.#ended.splice(0)) {
      progress.ended(key, memberEnd(result), callId, result);
      this.#submissions.delete(key);
    }
    const next = await progress.next();
    const checkedCalls = await Promise.all(next.map((call) => this.#check(call)));
    const isOver = progress.isOver && this.#ended.length === 0;
    const changes = progress.takeChanges();
    const writing = changes.size > 0 || isOver ? this.#writeStep(changes, isOver) : undefined;
    const step = this.#deps.records.stepOf(this.#group, this.#steps);
    // Claims that name the step are sent right behind it.
    if (step === undefined && (await writing) === 'lost') return;
    for (const call of checkedCalls) if (call !== undefined) this.#follow(call.key, this.#submit(call, step));
    const written = await writing;
    if (written === 'lost') return;
    if (isOver && written !== undefined) return this.#stop(this.#recordAt(written.nowMs));
    if (progress.cancelling) this.#cancelRunning();
  }

  #writeStep(changes: GroupFields, isOver: boolean) {
    const end = isOver ? { end: { keptMs: this.#deps.keptMs } } : {};
    if (changes.size === 0) return this.#write(end);
    this.#steps += 1;
    for (const [field, value] of changes) this.#fields[field] = value;
    return this.#write({ step: { number: this.#steps, changes }, ...end });
  }

  /** Writes the record under the fence. `lost`: another process drives the group. */
  async #write(advance: Advance) {
    const answer = await this.#deps.records.advance(this.#group, advance);
    if (answer === 'lost') this.#stop();
    else if (answer.cancelledBy !== undefined && this.#cancelledBy === undefined) this.cancel(answer.cancelledBy);
    return answer;
  }

  #recordAt(endedAtMs: number): GroupRecord {
    const { head, definition } = this.#group;
    const cancelled = defined({ cancelledBy: this.#cancelledBy });
    return { head, definition, fields: this.#fields, steps: this.#steps, ...cancelled, endedAtMs };
  }

  /** Checks a call. A refused one ends here; otherwise its ID is written before it is claimed. */
  async #check(call: NextCall): Promise<CheckedCall | undefined> {
    try {
      const identified = await this.#deps.calls.check(call.envelope);
      this.#progress.began(call.key, identified.identity.callId);
      return { ...call, identified };
    } catch (error) {
      if (!isRefusalError(error)) throw error;
      this.#end(call.key, undefined, refusal(error, call.envelope));
      return undefined;
    }
  }

  async #submit({ identified, ...call }: CheckedCall, step?: DriverStep): Promise<Submission> {
    const { submittedBy } = this.#group.head;
    let latestCheck = identified;
    for (let waitMs = OVERLOADED_MS.first; ; waitMs = Math.min(2 * waitMs, OVERLOADED_MS.longest)) {
      const start = await this.#startOf(call);
      // The start is part of a call's identity, so a delayed call is identified again.
      const reusable = start === undefined ? latestCheck : undefined;
      const options = defined({ submittedBy, identified: reusable, step, start, callbackUrl: call.callbackUrl });
      const submission = await this.#deps.calls.submit(call, options);
      const isOverloaded = submission.kind === 'answered' && submission.result.error?.code === 'OVERLOADED';
      if (!isOverloaded || this.#progress.cancelling || this.#state === 'stopped') return submission;
      await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
      // Permissions may have changed meanwhile.
      latestCheck = undefined;
    }
  }

  /** Undefined for a call whose start has passed since the group was created: it starts at once. */
  async #startOf({ startAtMs: atMs }: GroupCall): Promise<StartTime | undefined> {
    if (atMs === undefined) return undefined;
    const isPast = atMs <= this.#group.head.createdAtMs;
    const afterMs = atMs - (await this.#deps.now());
    return isPast || afterMs > 0 ? { atMs, afterMs: Math.max(0, afterMs), isPast } : undefined;
  }

  /** Resumes a call of an earlier driver from its record. */
  async #resume(callOf: () => Promise<GroupCall | undefined>, callId: string): Promise<Submission> {
    const record = await this.#deps.calls.read(callId).catch(asLost);
    if (record instanceof PawlError)
      return { kind: 'answered', callId, result: refusal(record, { requestId: '', toolName: '', callId }) };
    if (record === undefined || (await this.#isOther(record, callOf))) return this.#submitAgain(callOf, callId);
    const { requestId, toolName } = record.request.envelope;
    if (record.outcome !== undefined && record.state !== 'inflight')
      return { kind: 'answered', callId, result: envelopeOf(record.outcome, { requestId, toolName, callId }) };
    const result = this.#deps.calls.result(callId).then((ended) => ended ?? Promise.reject(new Error('no result')));
    return { kind: 'pending', callId, requestId, result, stop: () => {} };
  }

  /**
   * Whether the record is that of another call, which had used the caller's key with other parameters before. The earlier driver left
   * before it claimed its own call, or before it learned of the conflict.
   */
  async #isOther({ request }: CallView, callOf: () => Promise<GroupCall | undefined>): Promise<boolean> {
    const { payload } = request.envelope;
    const isOwnKey = payload?.idempotencyKey?.startsWith(`${this.#group.head.id}:`) !== false;
    if (payload === undefined || isOwnKey) return false;
    const call = await callOf();
    return call !== undefined && canonicalJson(call.envelope.payload.params) !== canonicalJson(payload.params);
  }

  /**
   * A call without a record was never claimed, or its record was flushed or has expired. One that cannot be made again ends, and may have
   * had its effect.
   */
  async #submitAgain(callOf: () => Promise<GroupCall | undefined>, callId: string): Promise<Submission> {
    let reason = `There is no record of the call ${callId} any more.`;
    try {
      const call = await callOf();
      if (call !== undefined) return await this.#submit(call);
    } catch (error) {
      if (!isRefusalError(error)) throw error;
      reason = error.message;
    }
    const result = refusal(new PawlError('OUTCOME_UNKNOWN', reason), { requestId: '', toolName: '' });
    return { kind: 'answered', callId, result };
  }

  #follow(key: string, submitting: Promise<Submission>): void {
    this.#submissions.set(key, submitting);
    submitting
      .then(async (submission) => {
        const result = await submission.result;
        // The record of the call that has the key is not that of the refused one.
        this.#end(key, isRefusedForOther(result.error) ? undefined : submission.callId, result);
      })
      .catch((error: unknown) => this.#fail(error));
  }

  #end(key: string, callId: string | undefined, result: ToolResultEnvelope): void {
    if (this.#state === 'stopped') return;
    this.#deps.onResult?.(key, result);
    this.#ended.push({ key, callId, result });
    this.step();
  }

  /** Cancels running calls after their claims: a call that is claimed after its cancellation would run. */
  #cancelRunning(): void {
    for (const [key, submitting] of this.#submissions) {
      if (this.#cancelled.has(key)) continue;
      this.#cancelled.add(key);
      submitting
        .then(({ callId }) => callId && this.#deps.calls.cancel(callId, this.#cancelledBy))
        .catch(ignoreCode('UNKNOWN_CALL'))
        .catch((error: unknown) => this.#fail(error));
    }
  }

  #fail(error: unknown): void {
    if (this.#state === 'driving') this.#deps.onError(error);
    this.#stop();
  }

  #stop(ended?: GroupRecord): void {
    if (this.#state === 'stopped') return;
    this.#state = 'stopped';
    this.#deps.onStopped(ended);
  }
}
