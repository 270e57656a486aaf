/**
 * prepare: tool, permission, parameters and context, all from this worker's own registry.
 */
import { generationOf } from '../../shared/approvals/approval.ts';
import { partitionFor } from '../../shared/calls/call-id.ts';
import { isHarmless } from '../../shared/calls/call-state.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import { denied, type PolicyRequest, permit, taintOf } from '../../shared/policy/policy.ts';
import { asksToEscalate } from '../../shared/policy/sandbox-override.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { firstGenerationOf } from '../../shared/store/calls/call-record.ts';
import { routeOf } from '../../shared/store/sessions/sessions.ts';
import { type Attempt, remainingMs, timeLimitMs } from '../attempt/attempt-state.ts';
import type { Step } from '../attempt/job-outcome.ts';
import { contextFor } from '../context/tool-context.ts';
import { meantTool } from './compensation.ts';
import type { OutcomeResolver } from './decide-outcome.ts';
import type { ExecutorDeps } from './executor-deps.ts';
import type { AttemptOptions } from './run-tool.ts';
import { hasDrifted } from './version-check.ts';

type Params = Readonly<Record<string, unknown>>;

interface Permitted {
  readonly approved: Params;
  readonly checkRewritten: (made: Params) => void;
}

/** Makes an attempt ready to run, from this worker's own registry and records; the job is not believed. */
export class Preparation {
  readonly #parts: ExecutorDeps;
  readonly #resolver: OutcomeResolver;
  /** Attempts whose parameters a person decided on. */
  readonly #decided = new WeakSet<Attempt>();

  constructor(parts: ExecutorDeps, resolver: OutcomeResolver) {
    this.#parts = parts;
    this.#resolver = resolver;
  }

  /** `toAsk` is for the question what became of an attempt before this one: when it cannot be asked, nobody knows. */
  async prepare(attempt: Attempt, toAsk = false): Promise<Step<AttemptOptions>> {
    const { envelope, registered, running } = attempt;
    const { validate } = registered;
    const { settings, backend, log, environment, schedule } = this.#parts;
    const remaining = remainingMs(attempt);
    if (remaining !== undefined && remaining <= 0) {
      if (toAsk) return { end: await this.#resolver.giveUp(attempt, failureOf('OUTCOME_UNKNOWN')) };
      return {
        end: await this.#resolver.fail(attempt, failureOf('DEADLINE_EXCEEDED'), { status: 'timeout', ran: false }),
      };
    }
    if (attempt.unreadable !== undefined) {
      // What became of an attempt before this one cannot be asked, nor found out by running it again.
      const isKnown = !attempt.started.recovered || isHarmless(registered.tool.effects);
      return { end: await this.#resolver.giveUp(attempt, isKnown ? attempt.unreadable : failureOf('OUTCOME_UNKNOWN')) };
    }
    try {
      const session = await this.#parts.sessionOf(envelope.target.sessionKey);
      if (session === undefined) throw new PawlError('UNKNOWN_SESSION');
      // Checked again here: the producer's word is not enough (DESIGN, decision 11).
      const { approved, checkRewritten } = await this.#permitted(attempt, session);
      const issues = validate(approved);
      if (issues.length > 0)
        throw new PawlError(
          hasDrifted(attempt.started.request, registered) ? 'DEFINITION_CHANGED' : 'INVALID_PARAMS',
          undefined,
          { issues },
        );
      const { context, flushProgress } = await contextFor(attempt, session, {
        settings,
        ledger: backend.ledger,
        log,
        environment,
        toolsOf: () => this.#parts.toolsOf(session),
        // A person has decided on just these parameters.
        escalated: this.#decided.has(attempt) && (asksToEscalate(approved) || this.#isUnconfined(attempt)),
        ...(this.#parts.memory === undefined ? {} : { memory: this.#parts.memory }),
        ...(this.#parts.channels === undefined ? {} : { channels: this.#parts.channels }),
        ...(this.#parts.agents === undefined ? {} : { agents: this.#parts.agents }),
        ...(this.#parts.terminals === undefined ? {} : { terminals: this.#parts.terminals }),
      });
      const { tool, validateOutput } = await meantTool(attempt, this.#parts.callOf);
      const params: unknown = tool.parse(approved);
      const options = {
        tool,
        params,
        given: approved,
        decided: this.#decided.has(attempt),
        checkRewritten,
        context,
        flushProgress,
        running,
        timeoutMs: timeLimitMs(attempt, tool),
        remainingMs: remaining,
        validateOutput,
        log,
        ...(schedule === undefined ? {} : { schedule }),
      };
      return { go: { ...options, policy: attempt.retry } };
    } catch (error) {
      // Whether the call may run cannot be known now, which refuses nothing.
      if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE') throw error;
      return { end: await this.#resolver.giveUp(attempt, toAsk ? failureOf('OUTCOME_UNKNOWN') : refusalOf(error)) };
    }
  }

  #isUnconfined({ registered: { tool } }: Attempt): boolean {
    return this.#parts.unconfined === true && tool.needs.includes('processes');
  }

  /** Where the producer did not ask: its policy has no layer for channels. */
  async #channelOf(session: SessionRecord): Promise<string | undefined> {
    if (Object.keys(this.#parts.settings.policy.channels).length === 0) return undefined;
    return (await routeOf(session, (key) => this.#parts.sessionOf(key)))?.channel.kind;
  }

  /** The parameters that policy, and where it asks a person, that person let run; and how those are checked that a hook makes. */
  async #permitted(attempt: Attempt, session: SessionRecord): Promise<Permitted> {
    const { envelope, registered, policy: toolPolicy } = attempt;
    const { tool } = registered;
    const { params } = envelope.payload;
    const request: PolicyRequest = {
      tool,
      // A call that was accepted while its session was open goes on.
      session: { ...session, state: undefined },
      toolPolicy,
      policy: this.#parts.settings.policy,
      registry: await this.#parts.toolPolicyFor?.(tool),
      channel: attempt.started.request.channel ?? (await this.#channelOf(session)),
      params,
      // What the session saw after the call was made is not in its parameters.
      taint: taintOf(envelope.control.requestTags, session, madeAtMs(attempt)),
      sandbox: this.#parts.settings.sandbox,
      unconfined: this.#isUnconfined(attempt),
      queueTier: partitionFor(attempt.callId).tier,
    };
    const verdict = permit(request);
    const checkRewritten = (made: Params) => {
      const { decision, reason, rule } = permit({ ...request, params: made });
      if (decision === 'ask')
        throw denied(tool, `${reason}, and nobody can be asked about parameters that a hook made`, rule);
    };
    // What a person decided on holds, also where policy asks nobody any more: they may have edited the parameters.
    if (verdict.decision === 'allow' && attempt.started.approvalId === undefined)
      return { approved: params, checkRewritten };
    if (this.#parts.gate === undefined) throw denied(tool, `${verdict.reason}, and here nobody can be asked`);
    this.#decided.add(attempt);
    const approved = await this.#parts.gate.pass(attempt, session, verdict);
    // An approver edits what policy lets pass: what it denies, nobody can approve.
    if (approved !== params) {
      attempt.running.params = approved;
      permit({ ...request, params: approved });
    }
    return { approved, checkRewritten };
  }
}

/**
 * When the call was made, at the earliest that somebody with a key says: its generation is renewed when it is approved, or resolved as
 * `retry`. The approval that its record names is signed for that ID, or the call does not run.
 */
function madeAtMs({ generation, started: { approvalId, resolution } }: Attempt): number {
  const asked = approvalId === undefined ? generation : generationOf(approvalId);
  const resolved = resolution === undefined ? generation : firstGenerationOf(resolution);
  return Math.min(Number(generation), Number(asked), Number(resolved));
}

/** Whatever stands in the way of a call before its tool runs. */
export function refusalOf(error: unknown): Failure {
  if (!(error instanceof PawlError))
    return failureOf('INVALID_PARAMS', error instanceof Error ? error.message : String(error));
  return failureOf(error.code, error.message, error.issues === undefined ? {} : { issues: error.issues });
}
