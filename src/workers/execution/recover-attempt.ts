/** Decides what follows an attempt that left its effect open: run again, probe the tool, or end the call. */
import { decideRecovery } from '../../shared/calls/call-state.ts';
import { type Failure, failureOf, type PawlError } from '../../shared/errors/failure.ts';
import type { ToolResult } from '../../shared/tools/tool-result.ts';
import { type Attempt, needsProbe, supportsProbe } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { OutcomeResolver } from '../outcome/decide-outcome.ts';
import type { CallEnder } from '../outcome/end-call.ts';
import { serializeResult } from '../outcome/serialize-result.ts';
import type { CallSettler } from '../outcome/settle-call.ts';
import type { AttemptHooks } from './attempt-hooks.ts';
import type { Preparation } from './prepare-call.ts';
import { type AttemptOptions, runProbe } from './run-tool.ts';

interface RecoveryDeps {
  readonly preparation: Pick<Preparation, 'prepare'>;
  readonly hooks: Pick<AttemptHooks, 'before' | 'after'>;
  readonly ender: Pick<CallEnder, 'giveUp' | 'succeed'>;
  readonly resolver: Pick<OutcomeResolver, 'resolve' | 'aborted'>;
  readonly settler: Pick<CallSettler, 'postpone'>;
  /** The tool's own code runs from here on. */
  reachCode(attempt: Attempt): Promise<void>;
}

export class Recovery {
  readonly #deps: RecoveryDeps;

  constructor(deps: RecoveryDeps) {
    this.#deps = deps;
  }

  async recover(attempt: Attempt): Promise<JobOutcome | undefined> {
    const { started, running } = attempt;
    if (started.recovered || needsProbe(attempt)) {
      const decided = await this.#decide(attempt);
      if (decided !== undefined) return decided;
    }
    if (!running.signal.aborted) return undefined;
    const reason = running.signal.reason as PawlError;
    return this.#deps.resolver.aborted(attempt, reason, 'not-run');
  }

  /** The effects of the tool decide. */
  async #decide(attempt: Attempt): Promise<JobOutcome | undefined> {
    const { started, tool, registered, circuit, modes } = attempt;
    const plan = decideRecovery(tool.effects, started.isPoison, supportsProbe(registered));
    if (plan.kind === 'stop') return this.#deps.ender.giveUp(attempt, failureOf(plan.code));
    if (plan.kind === 'probe') {
      const probed = await this.#probe(attempt);
      if (probed !== undefined) return probed;
    }
    const mayPass = circuit.snapshot.state === 'CLOSED' || circuit.probe !== undefined || modes.circuits !== 'on';
    if (mayPass) return undefined;
    // The circuit opened meanwhile: the next attempt is admitted by it like any other.
    const next = { phase: 'waiting-retry', attempts: started.earlierAttempts, delayMs: 1 } as const;
    return this.#deps.settler.postpone(attempt, next);
  }

  /** Asks the tool what became of the lost attempt. The call goes on when that attempt had no effect. */
  async #probe(attempt: Attempt): Promise<JobOutcome | undefined> {
    const { preparation, hooks, ender } = this.#deps;
    await this.#deps.reachCode(attempt);
    const prepared = await preparation.prepare(attempt);
    if ('failure' in prepared) {
      // Without a probe the outcome stays unknown.
      const isUnreadable = prepared.failure === attempt.unreadable;
      return ender.giveUp(attempt, isUnreadable ? prepared.failure : failureOf('OUTCOME_UNKNOWN'));
    }
    const options = await hooks.before(attempt, prepared.options).catch(() => undefined);
    if (options === undefined) return ender.giveUp(attempt, failureOf('OUTCOME_UNKNOWN'));
    const answer = await runProbe(options);
    if (answer.state === 'done') return this.#endWithProbed(attempt, options, answer.result);
    if (answer.state === 'unknown') return this.#unanswered(attempt, answer.fault);
    return undefined;
  }

  /** Ends the call with the result of the lost attempt, which its hooks have not seen yet. */
  async #endWithProbed(attempt: Attempt, options: AttemptOptions, result: ToolResult<unknown>): Promise<JobOutcome> {
    const { hooks, ender, resolver } = this.#deps;
    const final = await hooks.after(attempt, options, { kind: 'value', result });
    const serialized = await serializeResult(attempt, final, '');
    return serialized.kind === 'value' ? ender.succeed(attempt, serialized) : resolver.resolve(attempt, serialized);
  }

  /** The tool gave no clear answer, or none in time: the effect of the lost attempt stays as open as it was. */
  #unanswered(attempt: Attempt, fault: string | undefined): Promise<JobOutcome> {
    const { aborted, reason } = attempt.running.signal as { readonly aborted: boolean; readonly reason: PawlError };
    return aborted && reason.code !== 'TIMEOUT'
      ? this.#deps.resolver.aborted(attempt, reason, 'not-run')
      : this.#deps.ender.giveUp(attempt, unknownOutcome(fault));
  }
}

/** `fault` says why the tool's answer to the probe is none. */
function unknownOutcome(fault: string | undefined): Failure {
  const failure = failureOf('OUTCOME_UNKNOWN');
  return fault === undefined ? failure : failureOf('OUTCOME_UNKNOWN', `${failure.message} ${fault}`);
}
