/**
 * The way of one call into the queue: contract, tool, permission, schema, identity, circuit, claim. Each step either passes a
 * narrower value on or ends the call with a typed error, before anything is written.
 */

import { partitionFor } from '../../shared/calls/call-id.ts';
import { parseEnvelope, type ToolCallEnvelope, type ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { bringsTaint, envelopeOf, type Outcome, refusal } from '../../shared/calls/outcome.ts';
import {
  FORCED_BY_CONFIGURATION,
  FORCED_OPEN_RETRY_MS,
  forcedOpenText,
} from '../../shared/circuits/circuit-breaker.ts';
import { targetOfCircuit } from '../../shared/circuits/circuit-key.ts';
import { circuitPolicyOf, toolPolicy } from '../../shared/config/tool-settings.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { budgetExhausted } from '../../shared/limits/budget.ts';
import { overloaded } from '../../shared/queues/priority.ts';
import type { Claim, ClaimAnswer } from '../../shared/store/calls/claim.ts';
import type { FinishedCall } from '../../shared/store/calls/finished-call.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type ResolvedTool, underOwnName } from '../tools/tool-catalogue.ts';
import type { AskedRecord } from './audit.ts';
import { Claims } from './build-claim.ts';
import { submitHooked } from './call-hooks.ts';
import { CallChecks } from './check-call.ts';
import type { Admitted, Permitted } from './checked-call.ts';
import { heardWithin, SILENCE_GRACE_MS, withDeadline } from './deadline.ts';
import type { Waiting } from './result-waiters.ts';
import type { Submission, SubmitOptions } from './submission.ts';
import type { SubmitDeps } from './submit-deps.ts';

/** As long as nobody changes the configuration and starts anew. */
const FORCED_HERE = {
  state: 'FORCED_OPEN',
  reason: FORCED_BY_CONFIGURATION,
  retryAfterMs: FORCED_OPEN_RETRY_MS,
} as const;

type Accepted = Exclude<ClaimAnswer, { kind: 'overloaded' | 'spent' | 'loop' }>;

export class Dispatch {
  readonly #parts: SubmitDeps;
  readonly #checks: CallChecks;
  readonly #claims: Claims;

  constructor(parts: SubmitDeps) {
    this.#parts = parts;
    this.#checks = new CallChecks(parts);
    this.#claims = new Claims(parts);
  }

  /** Hands in an envelope from outside, which may be malformed. */
  async submitUnchecked(value: unknown, options: SubmitOptions = {}): Promise<Submission> {
    let envelope: ToolCallEnvelope;
    try {
      envelope = parseEnvelope(value);
    } catch (error) {
      return this.#refused(error, undefined, nameIn(value));
    }
    return this.submit(envelope, options);
  }

  /** Hands in a well-formed envelope. Rejects, or throws, only when Redis is out of reach or the code is wrong. */
  submit(asked: ToolCallEnvelope, options: SubmitOptions = {}): Submission | Promise<Submission> {
    const { hooks, catalogue } = this.#parts;
    const envelope = underOwnName(asked, catalogue);
    return hooks.has('beforeCall', 'onShortCircuit', 'afterCall')
      ? this.#submitHooked(envelope, options)
      : this.#submit(envelope, options);
  }

  async #submitHooked(envelope: ToolCallEnvelope, options: SubmitOptions): Promise<Submission> {
    const { hooks, catalogue } = this.#parts;
    // A tool that nobody knows has no hooks: the call is refused below.
    const { toolNamespace: namespace, toolName: name } = envelope;
    const published = catalogue.peek(namespace, name) ?? (await catalogue.find(namespace, name).catch(() => undefined));
    if (published === undefined) return this.#submit(envelope, options);
    return submitHooked(
      hooks,
      published,
      envelope,
      (made) => this.#submit(made, options),
      (error, asked) => this.#refused(error, asked),
    );
  }

  #submit(envelope: ToolCallEnvelope, options: SubmitOptions): Submission | Promise<Submission> {
    const submission = this.#handIn(envelope, options);
    const { deadlineAtMs } = envelope.control;
    if (deadlineAtMs === undefined || !(submission instanceof Promise)) return submission;
    return heardWithin(submission, Math.max(0, deadlineAtMs - this.#parts.clock.now()) + SILENCE_GRACE_MS);
  }

  /** At once, as far as nobody has to be asked: a refusal keeps nothing waiting. */
  #handIn(asked: ToolCallEnvelope, options: SubmitOptions): Submission | Promise<Submission> {
    const envelope = this.#parts.traces?.begin(asked) ?? asked;
    let permitted: Permitted | Promise<Permitted>;
    try {
      permitted = this.#checks.permit(envelope, options.session);
    } catch (error) {
      return this.#refused(error, envelope);
    }
    if (!(permitted instanceof Promise))
      return this.#refusedByCircuit(permitted) ?? this.#admit(envelope, permitted, options);
    return permitted.then(
      (found) => this.#refusedByCircuit(found) ?? this.#admit(envelope, found, options),
      (error) => this.#refused(error, envelope),
    );
  }

  async #admit(envelope: ToolCallEnvelope, permitted: Permitted, options: SubmitOptions): Promise<Submission> {
    let admitted: Admitted;
    try {
      admitted = await this.#checks.admit(permitted);
    } catch (error) {
      return this.#refused(error, envelope);
    }
    return this.#claim(admitted, options);
  }

  /** What is told of a call that was made again and again. */
  #tellRepetitions({ envelope, loop, modes }: Admitted, callId: string, repetitions: number | undefined): void {
    if (loop === undefined || repetitions === undefined) return;
    if (repetitions === loop.guard.warnAt)
      this.#parts.onEvent({ type: 'loop', envelope, callId, action: 'warned', repetitions });
    if (modes.circuits === 'shadow' && repetitions >= loop.guard.refuseAt)
      this.#parts.onEvent({ type: 'shadow', envelope, callId, kind: 'refused', detail: 'LOOP_DETECTED' });
  }

  /** R22: answered from the pushed copy, without a round trip. */
  #refusedByCircuit({ envelope, published, circuit, ownCircuit, modes }: Permitted): Submission | undefined {
    // What only observes, the worker observes.
    if (modes.circuits !== 'on') return undefined;
    const { settings, circuits } = this.#parts;
    const open =
      toolPolicy(settings, published).circuit?.forcedOpen === true
        ? FORCED_HERE
        : circuits.refusal(homePartition(published.tier), circuit, ownCircuit);
    if (open === undefined || circuitPolicyOf(settings, published).whenOpen === 'park') return undefined;
    const { retryAfterMs } = open;
    const target = targetOfCircuit(circuit);
    const error = {
      code: 'CIRCUIT_OPEN',
      message:
        open.state === 'FORCED_OPEN'
          ? forcedOpenText(published.name, open.reason)
          : `${published.name}${target === undefined ? '' : ` for ${target}`} keeps failing and is given time to recover; try again in ${Math.ceil(retryAfterMs / 1_000)} s.`,
      details: { retryAfterMs },
    } as const;
    this.#parts.onEvent({ type: 'refused', envelope, published, code: error.code, message: error.message });
    return { kind: 'answered', result: refusal(error, asking(envelope), 'circuit_open', open.state) };
  }

  async #claim(admitted: Admitted, options: SubmitOptions, independent = false): Promise<Submission> {
    const { envelope, published, identity, paramsDigest } = admitted;
    const { submittedBy } = options;
    const record = this.#parts.audit?.asked(envelope, published, {
      paramsDigest,
      submittedBy,
      sessionActorId: admitted.sessionActorId,
    });
    if (this.#parts.results.hasFinished(identity.callId)) {
      const replayed = await this.#replay(admitted, record, options);
      if (replayed !== undefined) return replayed;
    }
    let claim: Claim;
    try {
      claim = await this.#claims.of(admitted, options, record?.claimed(identity.callId));
    } catch (error) {
      return this.#refused(error, envelope);
    }
    // The waiter stands before the claim is sent: the answer may overtake the claim's own reply.
    const waiting = this.#parts.results.wait(identity.callId, options.onProgress);
    let answer: ClaimAnswer;
    try {
      answer = await this.#parts.ledger.claim(claim);
    } catch (error) {
      waiting.stop();
      throw this.#unanswered(error, envelope);
    }
    if (
      answer.kind === 'conflict' &&
      !independent &&
      toolPolicy(this.#parts.settings, published).onConflict === 'independent'
    ) {
      waiting.stop();
      // R17: whoever watches hears of it, although the call goes on.
      this.#parts.onEvent({ type: 'accepted', envelope, callId: answer.callId, answer: 'conflict' });
      const { shard } = partitionFor(identity.callId);
      return this.#claim(
        {
          ...admitted,
          identity: this.#checks.identify(envelope, published, admitted.paramsDigest, {
            shard,
            asks: admitted.asks !== undefined,
            independent: true,
          }),
        },
        options,
        true,
      );
    }
    if (answer.kind === 'overloaded' || answer.kind === 'spent') {
      waiting.stop();
      const shards = this.#parts.shards?.layout[published.tier].current ?? 1;
      return this.#refused(rejected(admitted, answer, shards), envelope);
    }
    if (answer.kind === 'loop') {
      waiting.stop();
      const { repetitions, retryAfterMs } = answer;
      this.#parts.onEvent({ type: 'loop', envelope, callId: answer.callId, action: 'refused', repetitions });
      return this.#refused(looping(published.name, repetitions, retryAfterMs), envelope);
    }
    record?.answered(answer, envelope.transport.dedupeMode);
    return this.#accepted(admitted, claim, answer, waiting, options);
  }

  /** A call that this process has seen end is answered from its record, where it still is: nothing else of it is sent. */
  async #replay(
    admitted: Admitted,
    record: AskedRecord | undefined,
    options: SubmitOptions,
  ): Promise<Submission | undefined> {
    const { envelope, identity, paramsDigest } = admitted;
    const { callId } = identity;
    const mode = envelope.transport.dedupeMode;
    let answer: FinishedCall | undefined;
    try {
      answer = await this.#parts.ledger.ended?.({ callId, paramsDigest, mode });
    } catch (error) {
      throw this.#unanswered(error, envelope);
    }
    if (answer === undefined) return undefined;
    record?.answered(answer, mode);
    this.#parts.onEvent({ type: 'accepted', envelope, callId, answer: answer.kind });
    options.onAccepted?.(callId);
    return this.#known(admitted, answer);
  }

  /** The same error, once it was told that Redis is out of reach. */
  #unanswered(error: unknown, envelope: ToolCallEnvelope): unknown {
    if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
      this.#parts.onEvent({ type: 'refused', envelope, code: error.code, message: error.message });
    return error;
  }

  async #accepted(
    admitted: Admitted,
    claim: Claim,
    answer: Accepted,
    waiting: Waiting,
    options: SubmitOptions,
  ): Promise<Submission> {
    const { envelope, identity } = admitted;
    this.#parts.onEvent({ type: 'accepted', envelope, callId: answer.callId, answer: answer.kind });
    if (answer.kind === 'claimed') this.#tellRepetitions(admitted, answer.callId, answer.repetitions);
    const approval = answer.kind === 'claimed' && !answer.again ? claim.approval : undefined;
    // A process that dies may have told nobody of a call that waits for people, but not before the trail has it.
    if (approval !== undefined) await this.#parts.approvals?.requested(approval);
    options.onAccepted?.(answer.callId);
    if (approval !== undefined) options.onApproval?.(approval);
    if (answer.kind === 'claimed' && answer.duplicateOf !== undefined) {
      const kind = answer.duplicateOf === 'conflict' ? 'refused' : 'merged';
      this.#parts.onEvent({ type: 'shadow', envelope, callId: answer.callId, kind, detail: answer.duplicateOf });
    }
    if (answer.kind === 'claimed' || answer.kind === 'inflight') waiting.claimed();
    if (answer.kind === 'claimed') return this.#pending(admitted, answer.callId, waiting, undefined);
    if (answer.kind === 'inflight' && envelope.transport.dedupeMode === 'enforced') {
      // Under its own name the first waiter stays: it may have been told of the end already.
      if (answer.callId === identity.callId) return this.#pending(admitted, answer.callId, waiting, answer.ageMs);
      waiting.stop();
      const leading = this.#parts.results.wait(answer.callId, options.onProgress, true);
      return this.#pending(admitted, answer.callId, leading, answer.ageMs);
    }
    waiting.stop();
    return this.#known(admitted, answer);
  }

  /** What became of the call that is known already, where nobody waits for it. */
  async #known({ envelope, published }: Admitted, answer: Exclude<Accepted, { kind: 'claimed' }>): Promise<Submission> {
    if (answer.kind === 'conflict') {
      return this.#refused(
        new PawlError(
          'IDEMPOTENCY_CONFLICT',
          `The idempotency key was used before with other parameters (call ${answer.callId}); nothing ran.`,
        ),
        envelope,
        undefined,
        answer.callId,
      );
    }
    if (answer.kind === 'ended') {
      this.#parts.results.markFinished(answer.callId);
      const result = envelopeOf(answer.outcome, {
        requestId: envelope.requestId,
        toolName: envelope.toolName,
        callId: answer.callId,
        cache: { matchedOn: 'completed', ageMs: answer.ageMs },
      });
      await this.#ended(envelope, published, result);
      return { kind: 'answered', callId: answer.callId, result };
    }
    return this.#refused(
      new PawlError(
        'IN_FLIGHT',
        `A call with this key is ${answer.phase} since ${answer.ageMs} ms (call ${answer.callId}).`,
      ),
      envelope,
      undefined,
      answer.callId,
    );
  }

  /**
   * Before the caller has the result. The worker has marked the session that made the call; this one may be another, which is given
   * the same call's result, and what this process knows of its own is older.
   */
  #ended(envelope: ToolCallEnvelope, published: ResolvedTool, result: ToolResultEnvelope): Promise<void> | undefined {
    this.#parts.onEvent({ type: 'ended', envelope, published, result });
    if (!bringsTaint(result, published)) return undefined;
    return this.#parts.taint?.(envelope.target.sessionKey, qualifiedName(published));
  }

  #pending(
    { envelope, published }: Admitted,
    callId: string,
    waiting: { readonly outcome: Promise<Outcome>; stop(): void },
    attachedAgeMs: number | undefined,
  ): Submission {
    const asked = {
      requestId: envelope.requestId,
      toolName: envelope.toolName,
      callId,
      ...(attachedAgeMs === undefined ? {} : { cache: { matchedOn: 'inflight' as const, ageMs: attachedAgeMs } }),
    };
    const settled = waiting.outcome.then((outcome) => envelopeOf(outcome, asked));
    const own = attachedAgeMs === undefined;
    const result = withDeadline(this.#parts, { envelope, published }, callId, settled, waiting.stop, own).then(
      (ended) => {
        const marked = this.#ended(envelope, published, ended);
        return marked === undefined ? ended : marked.then(() => ended);
      },
    );
    const stop = () => {
      waiting.stop();
      this.#parts.traces?.left(envelope);
    };
    // Who only looks the result up later must not be ended by a rejection that nobody awaits.
    result.catch(() => {});
    const pending = { kind: 'pending', callId, requestId: envelope.requestId, result, stop } as const;
    return own ? pending : { ...pending, merged: true };
  }

  /** Errors that are answers become envelopes; Redis out of reach and defects stay exceptions. */
  #refused(
    error: unknown,
    envelope: ToolCallEnvelope | undefined,
    asked = envelope === undefined ? { requestId: '', toolName: '' } : asking(envelope),
    callId?: string,
  ): Submission {
    if (!(error instanceof PawlError) || error.code === 'BACKEND_UNAVAILABLE' || error.code === 'CONFIGURATION')
      throw error;
    this.#parts.onEvent({
      type: 'refused',
      ...(envelope === undefined ? {} : { envelope }),
      code: error.code,
      message: error.message,
    });
    return {
      kind: 'answered',
      ...(callId === undefined ? {} : { callId }),
      result: refusal(error, { ...asked, ...(callId === undefined ? {} : { callId }) }),
    };
  }
}

function rejected(
  { identity, admission }: Admitted,
  answer: Extract<ClaimAnswer, { kind: 'overloaded' | 'spent' }>,
  shards: number,
): PawlError {
  if (answer.kind === 'overloaded')
    return overloaded({ ...partitionFor(identity.callId), shards }, admission.importance, answer.inflight);
  const { account, unit, spent, leftMs } = answer;
  const asked = unit === 'calls' ? 1 : unit === 'costUnits' ? (admission.spends?.costUnits ?? 1) : 0;
  return budgetExhausted(account, unit, { spent, asked, leftMs });
}

function looping(tool: string, repetitions: number, retryAfterMs: number): PawlError {
  return new PawlError(
    'LOOP_DETECTED',
    `${tool} was called ${repetitions} times with the same parameters within a few minutes; it did not run again. ` +
      'Use the earlier results, change the parameters or try another way; if the repetition is meant, give each call an idempotencyKey of its own.',
    { details: { retryAfterMs } },
  );
}

function asking(envelope: ToolCallEnvelope): { requestId: string; toolName: string } {
  return { requestId: envelope.requestId, toolName: envelope.toolName };
}

/** The little that can be said of a malformed envelope. */
function nameIn(value: unknown): { requestId: string; toolName: string } {
  const fields = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  const text = (field: unknown) => (typeof field === 'string' ? startOf(field, 256) : '');
  return { requestId: text(fields['requestId']), toolName: text(fields['toolName']) };
}
