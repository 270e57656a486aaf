/**
 * A call's way into the queue. `submit` lists its steps: validate, authorize, check the circuit, identify, claim, await. A step returns a
 * narrower value, or throws a typed error that ends the call before anything is written.
 */
import { parseEnvelope, type ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import { checkDeadline, type StartTime, startTimeOf } from '../../shared/calls/start-time.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { withParams } from '../../shared/store/calls/call-record.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { CircuitCheck } from '../circuits/circuit-check.ts';
import { type ToolCatalogue, underOwnName } from '../tools/tool-catalogue.ts';
import type { CallAuthorizer } from './authorize-call.ts';
import type { ResultAwaiter } from './await-result.ts';
import { submitWithHooks } from './call-hooks.ts';
import type { AuthorizedCall, IdentifiedCall } from './checked-call.ts';
import type { CallClaimer, ClaimedCall } from './claim-call.ts';
import { withinTimeLimit } from './deadline.ts';
import type { CallIdentifier } from './identify-call.ts';
import { jsonParams } from './params.ts';
import type { CallRefusals } from './refusals.ts';
import type { IdentifiedSubmission, Submission, SubmitOptions } from './submission.ts';
import type { CallTraces } from './traces.ts';

/** The steps of a submission, in their order, and what decides on their way. */
export interface SubmitSteps {
  readonly authorizer: CallAuthorizer;
  readonly circuits: CircuitCheck;
  readonly identifier: CallIdentifier;
  readonly claimer: CallClaimer;
  readonly awaiter: ResultAwaiter;
  readonly refusals: CallRefusals;
}

export interface SubmitContext {
  readonly settings: Settings;
  readonly catalogue: Pick<ToolCatalogue, 'peek' | 'find'>;
  readonly hooks: Hooks;
  readonly clock: Clock;
  readonly traces?: CallTraces;
}

export class CallSubmitter {
  readonly #steps: SubmitSteps;
  readonly #context: SubmitContext;

  constructor(steps: SubmitSteps, context: SubmitContext) {
    this.#steps = steps;
    this.#context = context;
  }

  /**
   * Refuses a call at once when its circuit is open, without a turn of the event loop: a model that keeps trying makes many such calls.
   * Returns undefined for every other call, which then goes through `submit`.
   */
  refuseNow(asked: ToolCallEnvelope): Submission | undefined {
    const { catalogue, traces } = this.#context;
    const { authorizer, circuits, refusals } = this.#steps;
    if (this.#hasHooks()) return undefined;
    const named = underOwnName(asked, catalogue);
    const tool = catalogue.peek(named.toolNamespace, named.toolName);
    if (tool === undefined) return undefined;
    const circuit = circuits.circuitOf(named, tool);
    const open = circuits.refusal(tool, circuit);
    if (open === undefined) return undefined;
    const call = authorizer.authorizeNow(named, tool);
    // Changed parameters may name another target, whose circuit is another one.
    if (call === undefined || call.envelope !== named) return undefined;
    const envelope = traces?.begin(named) ?? named;
    return refusals.answerOpenCircuit({ ...call, envelope, circuit }, open);
  }

  /**
   * Checks whether a session may make a call, and submits nothing. Throws `UNKNOWN_TOOL`, `SESSION_CLOSED`, `PERMISSION_DENIED`,
   * `INVALID_PARAMS` and `CONTRACT_INVALID`.
   */
  check(envelope: ToolCallEnvelope, session: SessionRecord): Promise<AuthorizedCall> {
    return this.#steps.authorizer.authorize(underOwnName(envelope, this.#context.catalogue), session);
  }

  /** Asks policy about a call whose parameters are still open, and returns its decision. Throws as `check` does, but for the parameters. */
  permit(envelope: ToolCallEnvelope, session: SessionRecord, isDraft: boolean): Promise<PolicyResult> {
    return this.#steps.authorizer.permit(underOwnName(envelope, this.#context.catalogue), session, isDraft);
  }

  /** Submits a value from outside, which may be no envelope at all. */
  async submitUnchecked(value: unknown, options: SubmitOptions = {}): Promise<Submission> {
    let envelope: ToolCallEnvelope;
    try {
      envelope = validate(value);
    } catch (error) {
      return this.#steps.refusals.answerInvalid(error, value);
    }
    return this.submit(envelope, options);
  }

  /**
   * A call as `submit` would make it, with its identity; nothing is written. Throws what would refuse it, and `BACKEND_UNAVAILABLE`. An open
   * circuit, a spent budget and hooks are not asked.
   */
  async identify(valid: ToolCallEnvelope): Promise<IdentifiedSubmission> {
    const { authorizer, circuits, identifier } = this.#steps;
    const asked = underOwnName(valid, this.#context.catalogue);
    const authorized = await authorizer.authorize(asked);
    const circuit = circuits.circuitOf(authorized.envelope, authorized.tool);
    return { ...(await identifier.identify({ ...authorized, circuit })), asked, authorized };
  }

  /** Submits a valid envelope, with its hooks around. Rejects when Redis is unavailable, and for defects. */
  async submit(valid: ToolCallEnvelope, options: SubmitOptions = {}): Promise<Submission> {
    const { catalogue, hooks, clock } = this.#context;
    const envelope = underOwnName(valid, catalogue);
    const submitInTime = (made: ToolCallEnvelope) => withinTimeLimit(made, clock, this.#submit(made, options));
    const { toolNamespace, toolName } = envelope;
    // An unknown tool has no hooks: its calls are refused below.
    const tool = this.#hasHooks() && (await catalogue.find(toolNamespace, toolName).catch(() => undefined));
    if (!tool) return submitInTime(envelope);
    return submitWithHooks(envelope, {
      hooks,
      tool,
      submit: submitInTime,
      refuse: (error, asked) => this.#steps.refusals.answer(error, asked),
    });
  }

  async #submit(asked: ToolCallEnvelope, options: SubmitOptions): Promise<Submission> {
    const { authorizer, circuits, identifier, claimer, refusals } = this.#steps;
    const envelope = this.#context.traces?.begin(asked) ?? asked;
    let call: IdentifiedCall;
    try {
      // First of all: the delay begins when the call comes.
      const start = this.#startOf(envelope, options);
      // Hooks may have changed the call since.
      const known = options.identified?.asked === asked ? options.identified : undefined;
      const authorized = known?.authorized ?? (await authorizer.authorize(envelope, options.session));
      const circuit = circuits.circuitOf(authorized.envelope, authorized.tool);
      // The state of a circuit now says nothing about a later start.
      const open = start === undefined ? circuits.refusal(authorized.tool, circuit) : undefined;
      if (open !== undefined) return refusals.answerOpenCircuit({ ...authorized, circuit }, open);
      call =
        known === undefined
          ? await identifier.identify({ ...authorized, circuit, start })
          : { ...known, circuit, envelope: { ...known.envelope, trace: envelope.trace } };
      if (start !== undefined && !start.isPast) await authorizer.keepSession(authorized.session, start.atMs);
    } catch (error) {
      return refusals.answer(error, envelope);
    }
    const claimed = await claimer.claim(call, options);
    if (claimed.kind !== 'conflict' || !this.#mayBeIndependent(call)) return this.#await(call, claimed, options);
    const independent = identifier.makeIndependent(call);
    return this.#await(independent, await claimer.claim(independent, options), options);
  }

  /** Throws `CONTRACT_INVALID`. */
  #startOf({ control }: ToolCallEnvelope, options: SubmitOptions): StartTime | undefined {
    const start = options.start ?? startTimeOf(options, this.#context.clock.now());
    if (start !== undefined) checkDeadline(control.deadlineAtMs, start);
    return start;
  }

  async #await(call: IdentifiedCall, claimed: ClaimedCall, options: SubmitOptions): Promise<Submission> {
    const { awaiter, refusals } = this.#steps;
    switch (claimed.kind) {
      case 'awaited':
        return awaiter.pending(call, claimed);
      case 'ended':
        return awaiter.replay(call, claimed);
      case 'refused':
        return refusals.answer(claimed.error, call.envelope, claimed.callId);
      case 'conflict': {
        const { callId } = claimed;
        options.onAccepted?.(callId);
        return refusals.answer(idempotencyConflict(callId), call.envelope, callId);
      }
    }
  }

  #hasHooks(): boolean {
    return this.#context.hooks.has('beforeCall', 'onShortCircuit', 'afterCall');
  }

  #mayBeIndependent({ tool }: IdentifiedCall): boolean {
    return toolPolicy(this.#context.settings, tool).onConflict === 'independent';
  }
}

/** Throws `CONTRACT_INVALID`. The caller may change its parameters afterwards: the envelope has a copy of them. */
function validate(value: unknown): ToolCallEnvelope {
  const envelope = parseEnvelope(value);
  return withParams(envelope, jsonParams(envelope.payload.params));
}

function idempotencyConflict(callId: string): PawlError {
  const message = `The idempotency key was used before with other parameters (call ${callId}); nothing ran.`;
  return new PawlError('IDEMPOTENCY_CONFLICT', message);
}
