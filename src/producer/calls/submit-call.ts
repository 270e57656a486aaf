/**
 * Submits a call to the queue. `submit` lists its steps: validate, authorize, check the circuit, identify, claim, await. A step returns a
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
import { resolveAlias, type ToolCatalogue } from '../tools/tool-catalogue.ts';
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

/** The steps of a submission, in their order. */
interface SubmitSteps {
  readonly authorizer: CallAuthorizer;
  readonly circuits: CircuitCheck;
  readonly identifier: CallIdentifier;
  readonly claimer: CallClaimer;
  readonly awaiter: ResultAwaiter;
  readonly refusals: CallRefusals;
}

interface SubmitContext {
  readonly settings: Settings;
  readonly catalogue: Pick<ToolCatalogue, 'peek' | 'find'>;
  readonly hooks: Hooks;
  readonly clock: Clock;
  readonly traces?: CallTraces | undefined;
}

/** A call that may be claimed, or the answer to one that was refused. */
type CheckedSubmission = { readonly call: IdentifiedCall } | { readonly refused: Submission };

export class CallSubmitter {
  readonly #steps: SubmitSteps;
  readonly #context: SubmitContext;

  constructor(steps: SubmitSteps, context: SubmitContext) {
    this.#steps = steps;
    this.#context = context;
  }

  /**
   * Refuses a call synchronously when its circuit is open: a model that keeps trying makes many such calls.
   * Returns undefined for every other call, which then goes through `submit`.
   */
  refuseNow(submitted: ToolCallEnvelope): Submission | undefined {
    const { catalogue, traces } = this.#context;
    const { authorizer, circuits, refusals } = this.#steps;
    if (this.#hasHooks()) return undefined;
    const named = resolveAlias(submitted, catalogue);
    const tool = catalogue.peek(named.toolNamespace, named.toolName);
    if (tool === undefined) return undefined;
    const circuit = circuits.circuitOf(named, tool);
    const open = circuits.refusal(tool, circuit);
    if (open === undefined) return undefined;
    const call = authorizer.authorizeNow(named, tool);
    // Changed parameters may have another target, with another circuit.
    if (call === undefined || call.envelope !== named) return undefined;
    const envelope = traces?.begin(named) ?? named;
    return refusals.answerOpenCircuit({ ...call, envelope, circuit }, open);
  }

  /**
   * Checks whether a session may make a call, and submits nothing. `isDraft`: the session was not opened yet. Throws `UNKNOWN_TOOL`,
   * `SESSION_CLOSED`, `PERMISSION_DENIED`, `INVALID_PARAMS` and `CONTRACT_INVALID`.
   */
  check(envelope: ToolCallEnvelope, session: SessionRecord, isDraft = false): Promise<AuthorizedCall> {
    return this.#steps.authorizer.authorize(resolveAlias(envelope, this.#context.catalogue), session, isDraft);
  }

  /** The decision of policy on a call whose parameters are not known yet. Throws as `check` does, except for the parameters. */
  permit(envelope: ToolCallEnvelope, session: SessionRecord, isDraft: boolean): Promise<PolicyResult> {
    return this.#steps.authorizer.permit(resolveAlias(envelope, this.#context.catalogue), session, isDraft);
  }

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
   * Identifies a call as `submit` would; nothing is written. Throws its refusal, and `BACKEND_UNAVAILABLE`. Circuits, used budgets and
   * hooks are not checked.
   */
  async identify(valid: ToolCallEnvelope): Promise<IdentifiedSubmission> {
    const { authorizer, circuits, identifier } = this.#steps;
    const submitted = resolveAlias(valid, this.#context.catalogue);
    const authorized = await authorizer.authorize(submitted);
    const circuit = circuits.circuitOf(authorized.envelope, authorized.tool);
    return { ...(await identifier.identify({ ...authorized, circuit })), submitted, authorized };
  }

  /** Submits a valid envelope, with its hooks around. Rejects when Redis is unavailable, and for defects. */
  async submit(valid: ToolCallEnvelope, options: SubmitOptions = {}): Promise<Submission> {
    const { catalogue, hooks, clock } = this.#context;
    const envelope = resolveAlias(valid, catalogue);
    const submitInTime = (current: ToolCallEnvelope) => withinTimeLimit(current, clock, this.#submit(current, options));
    const { toolNamespace, toolName } = envelope;
    // An unknown tool has no hooks: its calls are refused below.
    const tool = this.#hasHooks() && (await catalogue.find(toolNamespace, toolName).catch(() => undefined));
    if (!tool) return submitInTime(envelope);
    return submitWithHooks(envelope, {
      hooks,
      tool,
      submit: submitInTime,
      refuse: (error, refused) => this.#steps.refusals.answer(error, refused),
    });
  }

  async #submit(submitted: ToolCallEnvelope, options: SubmitOptions): Promise<Submission> {
    const { identifier, claimer } = this.#steps;
    const envelope = this.#context.traces?.begin(submitted) ?? submitted;
    // Hooks may have changed the call after it was identified.
    const identified = options.identified?.submitted === submitted ? options.identified : undefined;
    const checked = await this.#check(envelope, options, identified);
    if ('refused' in checked) return checked.refused;
    const { call } = checked;
    const claimed = await claimer.claim(call, options);
    if (claimed.kind !== 'conflict' || !this.#mayBeIndependent(call)) return this.#await(call, claimed, options);
    const independent = identifier.makeIndependent(call);
    return this.#await(independent, await claimer.claim(independent, options), options);
  }

  /** The steps before the claim. Each throws a typed error that ends the call. */
  async #check(
    envelope: ToolCallEnvelope,
    options: SubmitOptions,
    identified: IdentifiedSubmission | undefined,
  ): Promise<CheckedSubmission> {
    const { authorizer, circuits, identifier, refusals } = this.#steps;
    try {
      // The start is computed first: the delay begins when the call arrives.
      const start = this.#startOf(envelope, options);
      const authorized = identified?.authorized ?? (await authorizer.authorize(envelope, options.session));
      const circuit = circuits.circuitOf(authorized.envelope, authorized.tool);
      // The current state of a circuit does not matter for a later start.
      const open = start === undefined ? circuits.refusal(authorized.tool, circuit) : undefined;
      if (open !== undefined) return { refused: refusals.answerOpenCircuit({ ...authorized, circuit }, open) };
      const call =
        identified === undefined
          ? await identifier.identify({ ...authorized, circuit, start })
          : { ...identified, circuit, envelope: { ...identified.envelope, trace: envelope.trace } };
      if (start !== undefined && !start.isPast) await authorizer.keepSession(authorized.session, start.atMs);
      return { call };
    } catch (error) {
      return { refused: refusals.answer(error, envelope) };
    }
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
