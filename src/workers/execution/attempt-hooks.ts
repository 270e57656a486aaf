/** Where the hooks of a worker meet an attempt: each kind once, around the one place that runs the tool (D5, R32). */

import { isInDoubt } from '../../shared/calls/call-state.ts';
import { turnOf } from '../../shared/calls/envelope.ts';
import type { AfterAttemptEvent, AttemptEvent, Hooks } from '../../shared/calls/hooks.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import { type Attempt, paramsOf } from '../attempt/attempt-state.ts';
import { type AttemptOptions, type Ending, toEnding } from './run-tool.ts';

export class AttemptHooks {
  readonly #hooks: Hooks;
  /** The values that an attempt's hooks share with its tool. */
  readonly #values = new WeakMap<Attempt, Map<string, unknown>>();
  /** What they made of its parameters, if they did: a tool that is asked first, and then run, gets the same. */
  readonly #made = new WeakMap<Attempt, { readonly params?: Readonly<Record<string, unknown>> }>();

  constructor(hooks: Hooks) {
    this.#hooks = hooks;
  }

  /**
   * The attempt as the hooks leave it. Throws `PERMISSION_DENIED`, also for what they rewrote and policy does not allow, `HOOK_FAILED`
   * and, for what they rewrote, `INVALID_PARAMS`.
   */
  async before(attempt: Attempt, options: AttemptOptions): Promise<AttemptOptions> {
    if (!this.#hooks.has('beforeAttempt', 'afterAttempt', 'onRetry')) return options;
    const { values } = options.context;
    for (const [name, value] of this.#values.get(attempt) ?? []) values.set(name, value);
    this.#values.set(attempt, values);
    const { given = attempt.envelope.payload.params, decided = false } = options;
    const { params } = this.#made.get(attempt) ?? (await this.#make(attempt, given));
    if (params === undefined) return options;
    // What a person saw is what runs (DESIGN, decision 9).
    if (decided) throw new PawlError('PERMISSION_DENIED', 'A hook rewrote parameters that a person had approved.');
    attempt.running.params = params;
    const issues = attempt.registered.validate(params);
    if (issues.length > 0)
      throw new PawlError('INVALID_PARAMS', 'A hook made parameters that the schema refuses.', { issues });
    // Policy looked at what the caller sent: it holds for what runs.
    options.checkRewritten?.(params);
    return { ...options, params: options.tool.parse(params) };
  }

  async #make(attempt: Attempt, given: Readonly<Record<string, unknown>>) {
    const params = await this.#hooks.beforeAttempt({ ...this.#event(attempt), params: given });
    const made = params === given ? {} : { params };
    this.#made.set(attempt, made);
    return made;
  }

  /** The ending that counts. A closed failure after the attempt says nothing about the tool's effect. */
  async after(attempt: Attempt, options: AttemptOptions, ending: Ending): Promise<Ending> {
    if (!this.#hooks.has('afterAttempt')) return ending;
    try {
      const shown = endingOf(ending);
      const made = await this.#hooks.afterAttempt({ ...this.#event(attempt), ending: shown });
      if (made.kind !== 'value' || made === shown) return ending;
      return toEnding(made.result, options);
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      const failure: Failure = { ...failureOf(error.code, error.message), nothingHappened: false };
      return { kind: 'failure', failure: mayHaveActed(attempt, ending) ? { ...failure, afterEffect: true } : failure };
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
    const { envelope, registered, callId, number, started } = attempt;
    const { sessionKey, actorId, agentId, tenantId } = envelope.target;
    const turnId = turnOf(envelope);
    return {
      tool: registered.tool,
      params: paramsOf(attempt),
      requestId: envelope.requestId,
      callId,
      sessionKey,
      actorId,
      ...(agentId === undefined ? {} : { agentId }),
      ...(tenantId === undefined ? {} : { tenantId }),
      ...(turnId === undefined ? {} : { turnId }),
      values: this.#values.get(attempt) ?? new Map(),
      attempt: number,
      fence: started.fence,
    };
  }
}

/** Whether the attempt may have had its effect, as far as its ending says. */
function mayHaveActed({ registered }: Attempt, ending: Ending): boolean {
  switch (ending.kind) {
    case 'value':
      return true;
    case 'failure':
      return isInDoubt(registered.tool.effects, ending.failure);
    case 'aborted':
      return ending.evidence === 'unknown';
  }
}

function endingOf(ending: Ending): AfterAttemptEvent['ending'] {
  switch (ending.kind) {
    case 'value':
      return ending;
    case 'failure':
      return { kind: 'failure', code: ending.failure.code, message: ending.failure.message };
    case 'aborted':
      return { kind: 'aborted', code: ending.reason.code, message: ending.reason.message };
  }
}
