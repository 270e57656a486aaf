/**
 * Hooks over the life of a call: seven kinds, which run one after the other in the order in which they were given.
 *
 *     producer   beforeCall ─► (onApproval) ─► … ─► afterCall        onShortCircuit when no attempt runs for this caller
 *     worker                        beforeAttempt ─► tool ─► afterAttempt ─► onRetry when there will be another attempt
 *
 * `beforeCall` and `afterCall` run once for each submitted call, `onShortCircuit` at most once between them. `afterCall` also runs for
 * results that MCP clients read of tasks, or of calls that they approved. `beforeAttempt` and `afterAttempt` run once for each attempt.
 * A hook sees the changes of those before it.
 */

import { PawlError, reasonOf } from '../errors/failure.ts';
import { defined } from '../util/json/omit-undefined.ts';
import type { Schedule } from '../util/time.ts';
import {
  type AnswerOf,
  appliesTo,
  DEFAULT_HOOK_TIMEOUT_MS,
  type EventOf,
  GUARDS,
  type Hook,
  type Maybe,
  type MaybePromise,
  readAnswer,
} from './define-hook.ts';
import type { ToolResultEnvelope } from './envelope.ts';
import type {
  AfterAttemptEvent,
  AfterCallEvent,
  ApprovalEvent,
  AttemptEvent,
  BeforeCallAnswer,
  BeforeCallEvent,
  HookEvent,
  HookKind,
  RetryEvent,
  ShortCircuitEvent,
} from './hook-events.ts';

type WithoutSignal<Event extends HookEvent> = Omit<Event, 'signal'>;

interface HookDeps {
  readonly schedule: Schedule;
  /** Receives the name and error of each hook that failed. */
  onFailure(hook: string, kind: HookKind, message: string): void;
}

/** The hooks of one process. Every method throws `PERMISSION_DENIED` for a denial and `HOOK_FAILED` for a closed failure. */
export class Hooks {
  readonly #hooks: readonly Hook[];
  readonly #deps: HookDeps;

  constructor(hooks: readonly Hook[], deps: HookDeps) {
    this.#hooks = hooks;
    this.#deps = deps;
  }

  /** Whether there is a hook of any of these kinds. Without one, a call prepares no events. */
  has(...kinds: readonly HookKind[]): boolean {
    return this.#hooks.some((hook) => kinds.some((kind) => hook[kind] !== undefined));
  }

  /** Merges all answers. A supplied key never replaces the caller's. */
  async beforeCall(event: WithoutSignal<BeforeCallEvent>): Promise<BeforeCallAnswer & { readonly keyFrom?: string }> {
    let combined: BeforeCallAnswer & { readonly keyFrom?: string } = {};
    const currentEvent = () => ({
      ...event,
      params: combined.params ?? event.params,
      ...(combined.idempotencyKey !== undefined && { idempotencyKey: combined.idempotencyKey }),
    });
    await this.#runEach('beforeCall', currentEvent, (answer, hook) => {
      const suppliesKey = answer.idempotencyKey !== undefined && currentEvent().idempotencyKey === undefined;
      combined = {
        ...combined,
        ...(answer.params !== undefined && { params: answer.params }),
        ...(suppliesKey ? { idempotencyKey: answer.idempotencyKey, keyFrom: hook.name } : {}),
        hints: { ...combined.hints, ...defined(answer.hints ?? {}) },
        carry: { ...combined.carry, ...defined(answer.carry ?? {}) },
      };
    });
    return combined;
  }

  /** The parameters for the tool. */
  async beforeAttempt(event: WithoutSignal<AttemptEvent>): Promise<Readonly<Record<string, unknown>>> {
    let { params } = event;
    await this.#runEach(
      'beforeAttempt',
      () => ({ ...event, params }),
      (answer) => {
        params = answer.params ?? params;
      },
    );
    return params;
  }

  /** The ending after all hooks. */
  async afterAttempt(event: WithoutSignal<AfterAttemptEvent>): Promise<AfterAttemptEvent['ending']> {
    let { ending } = event;
    await this.#runEach(
      'afterAttempt',
      () => ({ ...event, ending }),
      (answer) => {
        if (answer.result !== undefined && ending.kind === 'value') ending = { kind: 'value', result: answer.result };
      },
    );
    return ending;
  }

  /** Whether there may be another attempt. */
  async onRetry(event: WithoutSignal<RetryEvent>): Promise<boolean> {
    let mayRetry = true;
    await this.#runEach(
      'onRetry',
      () => event,
      (answer) => {
        if (answer.deny !== undefined) mayRetry = false;
      },
    );
    return mayRetry;
  }

  async onShortCircuit(event: WithoutSignal<ShortCircuitEvent>): Promise<void> {
    await this.#runEach('onShortCircuit', () => event, ignoreAnswer);
  }

  /** Runs for each transition of an approval. Throws `PERMISSION_DENIED` when a hook denies a requested one. */
  async onApproval(event: WithoutSignal<ApprovalEvent>): Promise<void> {
    await this.#runEach('onApproval', () => event, ignoreAnswer);
  }

  async afterCall(event: WithoutSignal<AfterCallEvent>): Promise<ToolResultEnvelope> {
    let { result } = event;
    await this.#runEach(
      'afterCall',
      () => ({ ...event, result }),
      (answer) => {
        if (result.status !== 'success') return;
        const metadata = { ...result.output.metadata, ...answer.metadata };
        const content = 'content' in answer ? answer.content : result.output.content;
        result = {
          ...result,
          output: Object.keys(metadata).length === 0 ? { content } : { content, metadata },
        };
      },
    );
    return result;
  }

  async #runEach<Kind extends HookKind>(
    kind: Kind,
    event: () => WithoutSignal<EventOf<Kind>>,
    applyAnswer: (answer: AnswerOf<Kind>, hook: Hook) => void,
  ): Promise<void> {
    for (const hook of this.#hooks) {
      const run = hook[kind] as ((event: EventOf<Kind>) => Maybe<AnswerOf<Kind>>) | undefined;
      const eventFields = event();
      if (run === undefined || !appliesTo(hook, eventFields.tool)) continue;
      let deny: unknown;
      try {
        const answer = readAnswer(
          kind,
          await this.#runWithTimeout(hook, (signal) => run.call(hook, { ...eventFields, signal } as EventOf<Kind>)),
        );
        if (answer === undefined) continue;
        ({ deny } = answer as { readonly deny?: unknown });
        applyAnswer(answer, hook);
      } catch (error) {
        const message = reasonOf(error);
        this.#deps.onFailure(hook.name, kind, message);
        if ((hook.onFailure ?? (GUARDS.includes(kind) ? 'closed' : 'open')) === 'open') continue;
        throw new PawlError('HOOK_FAILED', `The hook ${hook.name} failed in ${kind}: ${message}.`, { cause: error });
      }
      if (deny !== undefined && kind !== 'onRetry')
        throw new PawlError(
          'PERMISSION_DENIED',
          `The hook ${hook.name} denied the call: ${String(deny).replace(/\.$/, '')}.`,
        );
    }
  }

  async #runWithTimeout<T>(hook: Hook, run: (signal: AbortSignal) => MaybePromise<T>): Promise<T> {
    const limitMs = hook.timeoutMs ?? DEFAULT_HOOK_TIMEOUT_MS;
    const controller = new AbortController();
    const { promise: timeout, reject } = Promise.withResolvers<never>();
    const cancelTimer = this.#deps.schedule(() => {
      const error = new PawlError('TIMEOUT', `it did not finish within ${limitMs} ms`);
      controller.abort(error);
      reject(error);
    }, limitMs);
    try {
      // An async function turns a synchronous throw into a rejection.
      return await Promise.race([(async () => run(controller.signal))(), timeout]);
    } finally {
      cancelTimer();
    }
  }
}

const ignoreAnswer = () => {};
