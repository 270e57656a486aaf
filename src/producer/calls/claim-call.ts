/**
 * The step that claims a call, once. The claim's answer is a value: the call is new, joins another one, has ended already, or is
 * refused. `submit` decides what follows.
 */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { startInPast } from '../../shared/calls/start-time.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { budgetExhausted } from '../../shared/limits/budget.ts';
import { overloaded } from '../../shared/queues/priority.ts';
import type { Claim, ClaimAnswer } from '../../shared/store/calls/claim/claim.ts';
import type { FinishedCall } from '../../shared/store/calls/finished-call.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { CallAudit, SubmittedRecord } from './audit.ts';
import type { ClaimBuilder } from './build-claim.ts';
import type { IdentifiedCall } from './checked-call.ts';
import type { CallRefusals } from './refusals.ts';
import type { ClaimUnderWay, ResultWait, ResultWaiters } from './result-waiters.ts';
import type { DispatchEvent, SubmitOptions } from './submission.ts';

interface ClaimDeps {
  readonly ledger: Pick<CallLedger, 'claim' | 'ended'>;
  readonly results: ResultWaiters;
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
type Accepted = Exclude<ClaimAnswer, Rejected>;
type Inflight = Extract<ClaimAnswer, { kind: 'inflight' }>;

/** A call that is being claimed, with its record in the audit trail. */
interface Claiming {
  readonly call: IdentifiedCall;
  readonly options: SubmitOptions;
  readonly record: SubmittedRecord | undefined;
}

export class CallClaimer {
  readonly #deps: ClaimDeps;

  constructor(deps: ClaimDeps) {
    this.#deps = deps;
  }

  /** Rejects when Redis is unavailable. */
  async claim(call: IdentifiedCall, options: SubmitOptions): Promise<ClaimedCall> {
    const claiming = { call, options, record: this.#newRecord(call, options) };
    const finished = await this.#readFinished(claiming);
    if (finished !== undefined) return finished;
    const underWay = this.#joinableClaim(claiming);
    const joined = underWay && (await this.#joinUnderWay(claiming, underWay));
    return joined ?? this.#claimNow(claiming);
  }

  #newRecord(call: IdentifiedCall, { submittedBy }: SubmitOptions): SubmittedRecord | undefined {
    const { envelope, tool, paramsDigest, sessionActorId } = call;
    return this.#deps.audit?.newRecord(envelope, tool, { paramsDigest, submittedBy, sessionActorId });
  }

  /** Sends the claim, and follows its answer. The waiter is registered before: the result may arrive before the claim's answer. */
  async #claimNow(claiming: Claiming): Promise<ClaimedCall> {
    const waiting = this.#wait(claiming);
    const sending = this.#send(claiming);
    const { paramsDigest } = claiming.call;
    waiting.claiming({ paramsDigest, answer: sending.then(({ answer }) => answer, noAnswer) });
    const sent = await sending.catch((error: unknown) => {
      waiting.stop();
      throw error;
    });
    const { answer } = sent;
    if (answer !== undefined && !isRejected(answer)) return this.#accept(claiming, sent.claim, answer, waiting);
    waiting.stop();
    return answer === undefined ? { kind: 'refused', error: sent.refusal } : this.#reject(claiming.call, answer);
  }

  #wait({ call, options }: Claiming): ResultWait {
    return this.#deps.results.wait(call.identity.callId, options.onProgress, { startsAfterMs: call.start?.afterMs });
  }

  /** Answers a call that this process has seen end, from its record if that still exists. No claim is sent then. */
  async #readFinished({ call, options, record }: Claiming): Promise<FinishedCall | undefined> {
    const { results, ledger, refusals, onEvent } = this.#deps;
    const { envelope, identity, paramsDigest } = call;
    const { callId } = identity;
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

  async #send({ call, options, record }: Claiming): Promise<SentClaim> {
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

  /** A claim under way that this one may join. A driver's step is checked by each of its claims. */
  #joinableClaim({ call, options }: Claiming): ClaimUnderWay | undefined {
    const { envelope, identity, paramsDigest } = call;
    const underWay = this.#deps.results.claimUnderWay(identity.callId);
    const mayJoin =
      underWay?.paramsDigest === paramsDigest &&
      envelope.transport.dedupeMode === 'enforced' &&
      options.step === undefined;
    return mayJoin ? underWay : undefined;
  }

  /**
   * Shares the answer to an equal claim that is under way: Redis would answer that the call is in flight, or has ended. Undefined when the
   * other claim had another answer.
   */
  async #joinUnderWay(claiming: Claiming, underWay: ClaimUnderWay): Promise<AwaitedCall | FinishedCall | undefined> {
    const { call, options, record } = claiming;
    const { envelope, identity } = call;
    const { callId } = identity;
    const waiting = this.#wait(claiming);
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

  #reject(call: IdentifiedCall, answer: Rejected): ClaimedCall {
    const { kind, callId } = answer;
    if (kind === 'loop') {
      const { repetitions } = answer;
      this.#deps.onEvent({ type: 'loop', envelope: call.envelope, callId, action: 'refused', repetitions });
    }
    const error = this.#rejectionError(call, answer);
    return { kind: 'refused', error, ...(kind === 'lost' && { callId }) };
  }

  #rejectionError({ identity, tool, admission, start }: IdentifiedCall, answer: Rejected): PawlError {
    switch (answer.kind) {
      case 'overloaded': {
        const shards = this.#deps.shards?.layout[tool.tier].current ?? 1;
        return overloaded({ ...partitionFor(identity.callId), shards }, admission.priority, answer.inflight);
      }
      case 'lost':
        return new PawlError('RESULT_LOST', answer.message);
      case 'past':
        return startInPast(start?.atMs ?? answer.nowMs, answer.nowMs);
      case 'spent': {
        const { account, unit, spent, leftMs } = answer;
        const requested = unit === 'calls' ? 1 : unit === 'costUnits' ? (admission.spends?.costUnits ?? 1) : 0;
        return budgetExhausted(account, unit, { spent, requested, leftMs });
      }
      case 'loop':
        return loopDetected(tool.name, answer.repetitions, answer.retryAfterMs);
    }
  }

  #accept(
    { call, options, record }: Claiming,
    claim: Claim,
    answer: Accepted,
    waiting: ResultWait,
  ): ClaimedCall | Promise<ClaimedCall> {
    const { envelope } = call;
    record?.recordAnswer(answer, envelope.transport.dedupeMode);
    this.#deps.onEvent({ type: 'accepted', envelope, callId: answer.callId, answer: answer.kind });
    switch (answer.kind) {
      case 'claimed':
        return this.#claimed(call, claim, answer, { waiting, options });
      case 'inflight':
        return this.#joined(call, answer, { waiting, options });
      case 'ended':
        waiting.stop();
        options.onAccepted?.(answer.callId);
        return answer;
      case 'conflict':
        waiting.stop();
        return answer;
    }
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
