/**
 * The step that claims a call, once. The claim's answer is a value: the call is new, joins another one, has ended already, or is
 * refused. `submit` decides what follows.
 */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { startInPast } from '../../shared/calls/start-time.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { budgetExhausted } from '../../shared/limits/budget.ts';
import { overloaded } from '../../shared/queues/priority.ts';
import type { Claim, ClaimAnswer } from '../../shared/store/calls/claim.ts';
import type { FinishedCall } from '../../shared/store/calls/finished-call.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { CallAudit, SubmittedRecord } from './audit.ts';
import type { ClaimBuilder } from './build-claim.ts';
import type { IdentifiedCall } from './checked-call.ts';
import type { CallRefusals } from './refusals.ts';
import type { ClaimUnderWay, Results, ResultWait } from './result-waiters.ts';
import type { DispatchEvent, SubmitOptions } from './submission.ts';

interface ClaimDeps {
  readonly ledger: Pick<CallLedger, 'claim' | 'ended'>;
  readonly results: Results;
  readonly builder: ClaimBuilder;
  readonly refusals: CallRefusals;
  readonly audit?: Pick<CallAudit, 'newRecord'>;
  readonly approvals?: Pick<ApprovalService, 'requested'>;
  readonly shards?: Pick<Shards, 'layout'>;
  onEvent(event: DispatchEvent): void;
}

export type ClaimedCall =
  | AwaitedCall
  /** Redis has the call's outcome. */
  | FinishedCall
  /** The call was not accepted; `callId` is the conflicting call, if there is one. */
  | { readonly kind: 'refused'; readonly error: unknown; readonly callId?: string }
  /** The key was used before with other parameters. */
  | { readonly kind: 'conflict'; readonly callId: string };

export interface AwaitedCall {
  readonly kind: 'awaited';
  readonly callId: string;
  readonly waiting: ResultWait;
  readonly joinedAgeMs?: number;
}

/** A claim with its answer, or why none could be made. */
type SentClaim =
  | { readonly claim: Claim; readonly answer: ClaimAnswer }
  | { readonly refusal: unknown; readonly answer?: undefined };

type Claimed = Extract<ClaimAnswer, { kind: 'claimed' }>;
type Rejected = Extract<ClaimAnswer, { kind: 'overloaded' | 'spent' | 'loop' | 'past' | 'lost' }>;
type Inflight = Extract<ClaimAnswer, { kind: 'inflight' }>;

export class CallClaimer {
  readonly #deps: ClaimDeps;

  constructor(deps: ClaimDeps) {
    this.#deps = deps;
  }

  /** Rejects when Redis is unavailable. */
  async claim(call: IdentifiedCall, options: SubmitOptions): Promise<ClaimedCall> {
    const { envelope, tool, identity, paramsDigest, sessionActorId } = call;
    const { submittedBy } = options;
    const { audit, results } = this.#deps;
    const record = audit?.newRecord(envelope, tool, { paramsDigest, submittedBy, sessionActorId });
    const finished = await this.#readFinished(call, record, options);
    if (finished !== undefined) return finished;
    const underWay = results.claimUnderWay(identity.callId);
    if (underWay !== undefined && mayJoin(call, underWay, options)) {
      const joined = await this.#joinUnderWay(call, underWay, record, options);
      if (joined !== undefined) return joined;
    }
    // The waiter is registered before the claim is sent: the result may arrive before the claim's reply.
    const waiting = results.wait(identity.callId, options.onProgress, { startsAfterMs: call.start?.afterMs });
    const sending = this.#send(call, record, options);
    waiting.claiming({ paramsDigest, answer: sending.then(({ answer }) => answer, noAnswer) });
    const sent = await sending.catch((error: unknown) => {
      waiting.stop();
      throw error;
    });
    if (sent.answer === undefined) {
      waiting.stop();
      return { kind: 'refused', error: sent.refusal };
    }
    const { claim, answer } = sent;
    if (isRejected(answer)) {
      waiting.stop();
      const conflicting = answer.kind === 'lost' ? { callId: answer.callId } : {};
      return { kind: 'refused', error: this.#errorOf(answer, call), ...conflicting };
    }
    record?.recordAnswer(answer, envelope.transport.dedupeMode);
    this.#deps.onEvent({ type: 'accepted', envelope, callId: answer.callId, answer: answer.kind });
    if (answer.kind === 'claimed') return this.#claimed(call, claim, answer, { waiting, options });
    if (answer.kind === 'inflight') return this.#joined(call, answer, { waiting, options });
    waiting.stop();
    if (answer.kind === 'ended') options.onAccepted?.(answer.callId);
    return answer;
  }

  /** Answers a call that this process has seen end, from its record if that still exists. No claim is sent then. */
  async #readFinished(
    { envelope, identity: { callId }, paramsDigest }: IdentifiedCall,
    record: SubmittedRecord | undefined,
    options: SubmitOptions,
  ): Promise<FinishedCall | undefined> {
    const { results, ledger, refusals, onEvent } = this.#deps;
    if (!results.hasFinished(callId)) return undefined;
    const mode = envelope.transport.dedupeMode;
    let finished: FinishedCall | undefined;
    try {
      finished = await ledger.ended?.({ callId, paramsDigest, mode });
    } catch (error) {
      refusals.reportUnanswered(error, envelope);
      throw error;
    }
    if (finished === undefined) return undefined;
    record?.recordAnswer(finished, mode);
    onEvent({ type: 'accepted', envelope, callId, answer: finished.kind });
    options.onAccepted?.(callId);
    return finished;
  }

  async #send(call: IdentifiedCall, record: SubmittedRecord | undefined, options: SubmitOptions): Promise<SentClaim> {
    const { builder, ledger, refusals } = this.#deps;
    let claim: Claim;
    try {
      claim = await builder.build(call, options, record?.claimText(call.identity.callId));
    } catch (refusal) {
      return { refusal };
    }
    try {
      return { claim, answer: await ledger.claim(claim) };
    } catch (error) {
      refusals.reportUnanswered(error, call.envelope);
      throw error;
    }
  }

  /**
   * Shares the answer to an equal claim that is under way: Redis would answer that the call is in flight, or has ended. Undefined when the
   * other claim had another answer.
   */
  async #joinUnderWay(
    { envelope, identity: { callId }, start }: IdentifiedCall,
    underWay: ClaimUnderWay,
    record: SubmittedRecord | undefined,
    options: SubmitOptions,
  ): Promise<AwaitedCall | FinishedCall | undefined> {
    const waiting = this.#deps.results.wait(callId, options.onProgress, { startsAfterMs: start?.afterMs });
    const answer = await underWay.answer;
    if (answer === undefined || !isShared(answer) || answer.callId !== callId) {
      waiting.stop();
      return undefined;
    }
    const kind = answer.kind === 'ended' ? 'ended' : 'inflight';
    record?.recordAnswer({ kind, callId }, 'enforced');
    this.#deps.onEvent({ type: 'accepted', envelope, callId, answer: kind });
    options.onAccepted?.(callId);
    if (answer.kind === 'ended') {
      waiting.stop();
      // A caller may change its result; each of them has its own copy.
      return structuredClone(answer);
    }
    waiting.claimed();
    return { kind: 'awaited', callId, waiting, joinedAgeMs: answer.kind === 'inflight' ? answer.ageMs : 0 };
  }

  #errorOf(answer: Rejected, call: IdentifiedCall): PawlError {
    const { envelope, tool, admission } = call;
    if (answer.kind === 'overloaded') {
      const shards = this.#deps.shards?.layout[tool.tier].current ?? 1;
      const partition = { ...partitionFor(call.identity.callId), shards };
      return overloaded(partition, admission.priority, answer.inflight);
    }
    if (answer.kind === 'lost') return new PawlError('RESULT_LOST', answer.message);
    if (answer.kind === 'past') return startInPast(call.start?.atMs ?? answer.nowMs, answer.nowMs);
    if (answer.kind === 'spent') {
      const { account, unit, spent, leftMs } = answer;
      const requested = unit === 'calls' ? 1 : unit === 'costUnits' ? (admission.spends?.costUnits ?? 1) : 0;
      return budgetExhausted(account, unit, { spent, requested, leftMs });
    }
    const { callId, repetitions, retryAfterMs } = answer;
    this.#deps.onEvent({ type: 'loop', envelope, callId, action: 'refused', repetitions });
    return loopDetected(tool.name, repetitions, retryAfterMs);
  }

  async #claimed(
    call: IdentifiedCall,
    { approval }: Claim,
    answer: Claimed,
    { waiting, options }: { readonly waiting: ResultWait; readonly options: SubmitOptions },
  ): Promise<AwaitedCall> {
    const { callId, resubmitted, duplicateOf } = answer;
    this.#reportRepetitions(call, answer);
    const requested = resubmitted ? undefined : approval;
    // The request is recorded in the audit trail before the program receives it, in case the process dies in between.
    if (requested !== undefined) await this.#deps.approvals?.requested(requested);
    options.onAccepted?.(callId);
    if (requested !== undefined) options.onApproval?.(requested);
    if (duplicateOf !== undefined) {
      const kind = duplicateOf === 'conflict' ? 'refused' : 'merged';
      this.#deps.onEvent({ type: 'shadow', envelope: call.envelope, callId, kind, detail: duplicateOf });
    }
    waiting.claimed();
    return { kind: 'awaited', callId, waiting };
  }

  /** Another caller's call with the same identity is queued, or runs. */
  #joined(
    { envelope, identity }: IdentifiedCall,
    { callId, phase, ageMs }: Inflight,
    { waiting, options }: { readonly waiting: ResultWait; readonly options: SubmitOptions },
  ): ClaimedCall {
    options.onAccepted?.(callId);
    waiting.claimed();
    if (envelope.transport.dedupeMode !== 'enforced') {
      waiting.stop();
      const message = `A call with this key is ${phase} since ${ageMs} ms (call ${callId}).`;
      return { kind: 'refused', error: new PawlError('IN_FLIGHT', message), callId };
    }
    // The first waiter stays when it has the right ID: it may have the result already.
    if (callId === identity.callId) return { kind: 'awaited', callId, waiting, joinedAgeMs: ageMs };
    waiting.stop();
    return {
      kind: 'awaited',
      callId,
      waiting: this.#deps.results.wait(callId, options.onProgress, { sinceClaim: true }),
      joinedAgeMs: ageMs,
    };
  }

  #reportRepetitions({ envelope, loop, circuit }: IdentifiedCall, { callId, repetitions }: Claimed): void {
    if (loop === undefined || repetitions === undefined) return;
    const { onEvent } = this.#deps;
    if (repetitions === loop.guard.warnAt) onEvent({ type: 'loop', envelope, callId, action: 'warned', repetitions });
    if (circuit.modes.circuits === 'shadow' && repetitions >= loop.guard.refuseAt)
      onEvent({ type: 'shadow', envelope, callId, kind: 'refused', detail: 'LOOP_DETECTED' });
  }
}

/** A driver's step is checked by each of its claims. */
function mayJoin(
  { envelope, paramsDigest }: IdentifiedCall,
  underWay: ClaimUnderWay,
  { step }: SubmitOptions,
): boolean {
  return underWay.paramsDigest === paramsDigest && envelope.transport.dedupeMode === 'enforced' && step === undefined;
}

function noAnswer(): undefined {}

function isShared({ kind }: ClaimAnswer): boolean {
  return kind === 'claimed' || kind === 'inflight' || kind === 'ended';
}

function isRejected(answer: ClaimAnswer): answer is Rejected {
  const { kind } = answer;
  return kind === 'overloaded' || kind === 'spent' || kind === 'loop' || kind === 'past' || kind === 'lost';
}

function loopDetected(tool: string, repetitions: number, retryAfterMs: number): PawlError {
  return new PawlError(
    'LOOP_DETECTED',
    `${tool} was called ${repetitions} times with the same parameters within a few minutes; it did not run again. ` +
      'Use the earlier results, change the parameters or try another way; if the repetition is meant, give each call an idempotencyKey of its own.',
    { details: { retryAfterMs } },
  );
}
