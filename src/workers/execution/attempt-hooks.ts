/** The hooks of a worker around one attempt. Each kind runs once, around the one place that runs the tool. */
import { isInDoubt } from '../../shared/calls/call-state.ts';
import { hookCallerOf } from '../../shared/calls/envelope.ts';
import type { AfterAttemptEvent, AttemptEvent } from '../../shared/calls/hook-events.ts';
import type { Hooks } from '../../shared/calls/hooks.ts';
import { classify } from '../../shared/errors/classify-error.ts';
import { type Failure, PawlError } from '../../shared/errors/failure.ts';
import type { AttemptResult } from '../attempt/attempt-result.ts';
import { type Attempt, paramsOf } from '../attempt/attempt-state.ts';
import type { PreparedOptions } from './prepare-call.ts';
import { type AttemptOptions, checkedResult } from './run-tool.ts';

export class AttemptHooks {
  readonly #hooks: Hooks;
  readonly #values = new WeakMap<Attempt, Map<string, unknown>>();
  /** The parameters that hooks rewrote. A tool that is probed first and then run gets the same. */
  readonly #rewritten = new WeakMap<Attempt, { readonly params?: Readonly<Record<string, unknown>> }>();

  constructor(hooks: Hooks) {
    this.#hooks = hooks;
  }

  /**
   * The attempt as the hooks leave it. Throws `PERMISSION_DENIED` and `HOOK_FAILED`, and `INVALID_PARAMS` for rewritten parameters.
   * Policy decides on rewritten parameters as well.
   */
  async before(attempt: Attempt, options: PreparedOptions): Promise<AttemptOptions> {
    if (!this.#hooks.has('beforeAttempt', 'afterAttempt', 'onRetry')) return options;
    const { values } = options.context;
    for (const [name, value] of this.#values.get(attempt) ?? []) values.set(name, value);
    this.#values.set(attempt, values);
    const { permission } = options;
    const { params } = this.#rewritten.get(attempt) ?? (await this.#rewrite(attempt, permission.params));
    if (params === undefined) return options;
    // A person approved exactly the original parameters, so no others may run.
    if (permission.isApproved)
      throw new PawlError('PERMISSION_DENIED', 'A hook rewrote parameters that a person had approved.');
    attempt.running.params = params;
    const issues = await attempt.registered.validate(params);
    if (issues.length > 0)
      throw new PawlError('INVALID_PARAMS', 'A hook made parameters that the schema refuses.', { issues });
    // Policy has allowed the caller's parameters; the rewritten ones need its permission as well.
    permission.checkRewritten(params);
    return { ...options, params: options.tool.parse(params) };
  }

  async #rewrite(attempt: Attempt, original: Readonly<Record<string, unknown>>) {
    const params = await this.#hooks.beforeAttempt({ ...this.#event(attempt), params: original });
    const rewrite = params === original ? {} : { params };
    this.#rewritten.set(attempt, rewrite);
    return rewrite;
  }

  /** The result after the hooks. A hook that fails closed after the attempt says nothing about the tool's effect. */
  async after(attempt: Attempt, options: AttemptOptions, result: AttemptResult): Promise<AttemptResult> {
    // The hooks of attempts do not see the output of an outside system.
    if (!this.#hooks.has('afterAttempt') || result.kind === 'pending') return result;
    try {
      const ending = endingFor(result);
      const replacement = await this.#hooks.afterAttempt({ ...this.#event(attempt), ending });
      if (replacement.kind !== 'value' || replacement === ending) return result;
      return await checkedResult(replacement.result, options);
    } catch (error) {
      const failure: Failure = { ...classify(error), nothingHappened: false };
      return {
        kind: 'failure',
        failure: mayHaveHadEffect(attempt, result) ? { ...failure, afterEffect: true } : failure,
      };
    }
  }

  /** Whether there may be another attempt. A hook that fails closed allows none. */
  async mayRetry(attempt: Attempt, failure: Failure, delayMs: number): Promise<boolean> {
    if (!this.#hooks.has('onRetry')) return true;
    try {
      return await this.#hooks.onRetry({ ...this.#event(attempt), failure, delayMs });
    } catch {
      return false;
    }
  }

  #event(attempt: Attempt): Omit<AttemptEvent, 'signal'> {
    const { envelope, tool, callId, number, started } = attempt;
    return {
      tool,
      params: paramsOf(attempt),
      callId,
      ...hookCallerOf(envelope),
      values: this.#values.get(attempt) ?? new Map(),
      attempt: number,
      fence: started.fence,
    };
  }
}

/** Whether the attempt may have had its effect, as far as its result says. */
function mayHaveHadEffect({ tool }: Attempt, result: AttemptResult): boolean {
  switch (result.kind) {
    case 'value':
    case 'pending':
      return true;
    case 'failure':
      return isInDoubt(tool.effects, result.failure);
    case 'aborted':
      return result.evidence === 'unknown';
  }
}

/** The result in the shape that hooks see. */
function endingFor(result: Exclude<AttemptResult, { readonly kind: 'pending' }>): AfterAttemptEvent['ending'] {
  switch (result.kind) {
    case 'value':
      return result;
    case 'failure':
      return { kind: 'failure', code: result.failure.code, message: result.failure.message };
    case 'aborted':
      return { kind: 'aborted', code: result.reason.code, message: result.reason.message };
  }
}
