/**
 * Hooks over the life of a call (D5, R32): seven kinds, run one after the other in the order in which they were given.
 *
 *     producer   beforeCall ─► (onApproval) ─► … ─► afterCall        onShortCircuit when no attempt runs for this caller
 *     worker                        beforeAttempt ─► tool ─► afterAttempt ─► onRetry when there will be another attempt
 *
 * `beforeCall` and `afterCall` run once for each call that is handed in, `onShortCircuit` at most once between them (`afterCall` also for
 * results that MCP clients read of tasks, or of what they approved);
 * `beforeAttempt` and `afterAttempt` once for each attempt. A hook sees what those before it made of the call.
 */

import { type Failure, PawlError } from '../errors/failure.ts';
import type { Tool } from '../tools/tool.ts';
import { hookAnswerFault } from '../tools/tool-answers.ts';
import type { ToolResult } from '../tools/tool-result.ts';
import type { Schedule } from '../util/time.ts';
import type { ToolResultEnvelope } from './envelope.ts';

export const HOOK_KINDS = [
  'beforeCall',
  'beforeAttempt',
  'afterAttempt',
  'onRetry',
  'onShortCircuit',
  'onApproval',
  'afterCall',
] as const;
export type HookKind = (typeof HOOK_KINDS)[number];

export type HookedTool = Pick<Tool, 'name' | 'namespace' | 'version' | 'tier' | 'effects' | 'annotations'>;

/** What every hook is told. */
export interface HookEvent {
  readonly tool: HookedTool;
  readonly params: Readonly<Record<string, unknown>>;
  readonly requestId: string;
  /** Absent before the call has its identity. */
  readonly callId?: string;
  readonly sessionKey: string;
  readonly actorId: string;
  readonly agentId?: string;
  readonly tenantId?: string;
  readonly turnId?: string;
  /** Shared by the hooks of one process for one call; in a worker also with the tool, for one attempt (`ctx.values`). */
  readonly values: Map<string, unknown>;
  /** Aborted when the hook's own time is over. */
  readonly signal: AbortSignal;
}

export interface BeforeCallEvent extends HookEvent {
  /** The caller's key, or what a hook before this one supplied. */
  readonly idempotencyKey?: string;
}

export interface BeforeCallAnswer {
  /** Refuses the call with this reason: `PERMISSION_DENIED`, nothing runs. */
  readonly deny?: string;
  /** In place of the parameters; validated like those of the caller. */
  readonly params?: Readonly<Record<string, unknown>>;
  /** Used where the caller gave none (R8). */
  readonly idempotencyKey?: string;
  readonly hints?: {
    readonly timeoutMs?: number;
    readonly expectedRetrySafe?: boolean;
    readonly safetyCritical?: boolean;
  };
  /** Carried to the worker: there in `values`, for its hooks and the tool. */
  readonly carry?: Readonly<Record<string, string>>;
}

export interface AttemptEvent extends HookEvent {
  readonly callId: string;
  /** 1 for the first. */
  readonly attempt: number;
  readonly fence: number;
}

export interface BeforeAttemptAnswer {
  /** Ends the call with this reason: `PERMISSION_DENIED`, the tool does not run. */
  readonly deny?: string;
  /** In place of the parameters; schema and policy are checked again. */
  readonly params?: Readonly<Record<string, unknown>>;
}

export interface AfterAttemptEvent extends AttemptEvent {
  readonly ending:
    | { readonly kind: 'value'; readonly result: ToolResult<unknown> }
    | { readonly kind: 'failure' | 'aborted'; readonly code: string; readonly message: string };
}

export interface AfterAttemptAnswer {
  /** In place of the tool's result; ignored when there is none. */
  readonly result?: ToolResult<unknown>;
}

export interface RetryEvent extends AttemptEvent {
  readonly failure: Failure;
  readonly delayMs: number;
}

export interface RetryAnswer {
  /** No further attempt: the call ends with the failure that it has. */
  readonly deny?: string;
}

/** Why no attempt ran for this caller. `refused`: also by a person or a worker. `too-late`: its deadline passed before an attempt. */
export type ShortCircuit = 'replayed' | 'merged' | 'circuit-open' | 'refused' | 'cancelled' | 'too-late';

export interface ShortCircuitEvent extends HookEvent {
  readonly reason: ShortCircuit;
  /** What the caller will get; absent while a merged call runs. */
  readonly result?: ToolResultEnvelope;
}

/** Once approved, `params` are those that were approved: whoever decided may have edited them. */
export interface ApprovalEvent extends HookEvent {
  readonly callId: string;
  readonly approvalId: string;
  readonly state: 'requested' | 'approved' | 'denied' | 'expired' | 'cancelled';
  readonly preview?: { readonly summary: string; readonly details?: string };
  /** Who decided, and why. */
  readonly decidedBy?: string;
  readonly reason?: string;
}

export interface ApprovalAnswer {
  /** Denies a requested approval without asking a person. A hook can never approve. */
  readonly deny?: string;
}

export interface AfterCallEvent extends HookEvent {
  readonly result: ToolResultEnvelope;
}

export interface AfterCallAnswer {
  /** In place of `output.content` of a success, for this caller alone: the record stays as it is. */
  readonly content?: unknown;
  /** Added to `output.metadata` of a success. */
  readonly metadata?: Readonly<Record<string, unknown>>;
}

type MaybePromise<T> = Promise<T> | T;
// A hook that only looks returns nothing.
// biome-ignore lint/suspicious/noConfusingVoidType: `undefined` would force observers to say `return undefined`.
type Maybe<T> = MaybePromise<T | void>;

/** One hook: any of the seven kinds under one name. */
export interface Hook {
  /** Stands in errors and logs. */
  readonly name: string;
  /** Names or qualified names; without it, every tool. */
  readonly tools?: readonly string[];
  /** Time limit of one run. Default 5,000. */
  readonly timeoutMs?: number;
  /**
   * What a hook that throws or is too late does to the call: `closed` ends it with `HOOK_FAILED`, `open` goes on without it.
   * Default: `closed` for `beforeCall`, `beforeAttempt` and `onApproval`, which guard; `open` for the others, which come after.
   */
  readonly onFailure?: 'closed' | 'open';
  beforeCall?(event: BeforeCallEvent): Maybe<BeforeCallAnswer>;
  beforeAttempt?(event: AttemptEvent): Maybe<BeforeAttemptAnswer>;
  afterAttempt?(event: AfterAttemptEvent): Maybe<AfterAttemptAnswer>;
  onRetry?(event: RetryEvent): Maybe<RetryAnswer>;
  onShortCircuit?(event: ShortCircuitEvent): Maybe<undefined>;
  onApproval?(event: ApprovalEvent): Maybe<ApprovalAnswer>;
  afterCall?(event: AfterCallEvent): Maybe<AfterCallAnswer>;
}

export const DEFAULT_HOOK_TIMEOUT_MS = 5_000;
const GUARDS: readonly HookKind[] = ['beforeCall', 'beforeAttempt', 'onApproval'];
const MAY_DENY: readonly HookKind[] = [...GUARDS, 'onRetry'];

/** What an answer of each kind may say. */
const SAYS: { readonly [Kind in HookKind]: readonly (keyof AnswerOf<Kind> & string)[] } = {
  beforeCall: ['deny', 'params', 'idempotencyKey', 'hints', 'carry'],
  beforeAttempt: ['deny', 'params'],
  afterAttempt: ['result'],
  onRetry: ['deny'],
  onShortCircuit: [],
  onApproval: ['deny'],
  afterCall: ['content', 'metadata'],
};

const hookBrand: unique symbol = Symbol.for('pawl.hook');

/** Marks a hook, so that a tools file may export it beside its tools. Throws `CONFIGURATION` for what cannot be one. */
export function defineHook(hook: Hook): Hook {
  const wrong = (what: string): never => {
    throw new PawlError('CONFIGURATION', `Hook ${JSON.stringify(hook.name)}: ${what}.`);
  };
  if (typeof hook.name !== 'string' || hook.name === '') wrong('name must be a text that is not empty');
  if (hook.timeoutMs !== undefined && !(hook.timeoutMs > 0)) wrong('timeoutMs must be a number above 0');
  if (!HOOK_KINDS.some((kind) => typeof hook[kind] === 'function'))
    wrong(`needs at least one of ${HOOK_KINDS.join(', ')}`);
  return { ...hook, [hookBrand]: true } as Hook;
}

/** Not every caller is checked by a compiler, and a guard that is never asked lets all calls pass. Throws `CONFIGURATION`. */
export function checkHooks(hooks: unknown): void {
  if (!Array.isArray(hooks))
    throw new PawlError(
      'CONFIGURATION',
      `\`hooks\` must be a list of what defineHook returns; got ${hooks === null ? 'null' : typeof hooks}.`,
    );
  for (const hook of hooks) defineHook(hook ?? {});
}

export function isHook(value: unknown): value is Hook {
  return typeof value === 'object' && value !== null && (value as Record<symbol, unknown>)[hookBrand] === true;
}

type Unsigned<Event extends HookEvent> = Omit<Event, 'signal'>;

export interface HookDeps {
  readonly schedule: Schedule;
  /** Hears of hooks that failed. */
  onFailure(hook: string, kind: HookKind, message: string): void;
}

/** The hooks of one process. Every method throws `PERMISSION_DENIED` for a denial and `HOOK_FAILED` for a closed failure. */
export class Hooks {
  readonly #hooks: readonly Hook[];
  readonly #parts: HookDeps;

  constructor(hooks: readonly Hook[], parts: HookDeps) {
    this.#hooks = hooks;
    this.#parts = parts;
  }

  /** Whether there is a hook of any of these kinds: without one, a call need not prepare anything. */
  has(...kinds: readonly HookKind[]): boolean {
    return this.#hooks.some((hook) => kinds.some((kind) => hook[kind] !== undefined));
  }

  /** All answers in one; a supplied key never replaces the caller's. */
  async beforeCall(event: Unsigned<BeforeCallEvent>): Promise<BeforeCallAnswer & { readonly keyFrom?: string }> {
    let made: BeforeCallAnswer & { readonly keyFrom?: string } = {};
    const seen = () => ({
      ...event,
      params: made.params ?? event.params,
      ...(made.idempotencyKey === undefined ? {} : { idempotencyKey: made.idempotencyKey }),
    });
    await this.#each('beforeCall', seen, (answer, hook) => {
      const supplies = answer.idempotencyKey !== undefined && seen().idempotencyKey === undefined;
      made = {
        ...made,
        ...(answer.params === undefined ? {} : { params: answer.params }),
        ...(supplies ? { idempotencyKey: answer.idempotencyKey, keyFrom: hook.name } : {}),
        hints: { ...made.hints, ...answer.hints },
        carry: { ...made.carry, ...answer.carry },
      };
    });
    return made;
  }

  /** The parameters that the tool gets. */
  async beforeAttempt(event: Unsigned<AttemptEvent>): Promise<Readonly<Record<string, unknown>>> {
    let { params } = event;
    await this.#each(
      'beforeAttempt',
      () => ({ ...event, params }),
      (answer) => {
        params = answer.params ?? params;
      },
    );
    return params;
  }

  /** The ending that counts. */
  async afterAttempt(event: Unsigned<AfterAttemptEvent>): Promise<AfterAttemptEvent['ending']> {
    let { ending } = event;
    await this.#each(
      'afterAttempt',
      () => ({ ...event, ending }),
      (answer) => {
        if (answer.result !== undefined && ending.kind === 'value') ending = { kind: 'value', result: answer.result };
      },
    );
    return ending;
  }

  /** Whether there may be another attempt. */
  async onRetry(event: Unsigned<RetryEvent>): Promise<boolean> {
    let again = true;
    await this.#each(
      'onRetry',
      () => event,
      (answer) => {
        if (answer.deny !== undefined) again = false;
      },
    );
    return again;
  }

  async onShortCircuit(event: Unsigned<ShortCircuitEvent>): Promise<void> {
    await this.#each('onShortCircuit', () => event, takeNothing);
  }

  /** To be called for each transition of an approval. Throws `PERMISSION_DENIED` when a hook denies a requested one. */
  async onApproval(event: Unsigned<ApprovalEvent>): Promise<void> {
    await this.#each('onApproval', () => event, takeNothing);
  }

  /** The envelope as this caller gets it. */
  async afterCall(event: Unsigned<AfterCallEvent>): Promise<ToolResultEnvelope> {
    let { result } = event;
    await this.#each(
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

  async #each<Kind extends HookKind>(
    kind: Kind,
    event: () => Unsigned<EventOf<Kind>>,
    take: (answer: AnswerOf<Kind>, hook: Hook) => void,
  ): Promise<void> {
    for (const hook of this.#hooks) {
      const run = hook[kind] as ((event: EventOf<Kind>) => Maybe<AnswerOf<Kind>>) | undefined;
      const about = event();
      if (run === undefined || !concerns(hook, about.tool)) continue;
      let answer: AnswerOf<Kind> | false | undefined;
      try {
        answer = (await this.#limited(hook, (signal) => run.call(hook, { ...about, signal } as EventOf<Kind>))) as
          | AnswerOf<Kind>
          | false
          | undefined;
        checkAnswer(kind, answer);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        this.#parts.onFailure(hook.name, kind, message);
        if ((hook.onFailure ?? (GUARDS.includes(kind) ? 'closed' : 'open')) === 'open') continue;
        throw new PawlError('HOOK_FAILED', `The hook ${hook.name} failed in ${kind}: ${message}.`, { cause: error });
      }
      // Types forbid it; without them, nobody means "let it pass" by it.
      if (answer === false && MAY_DENY.includes(kind)) answer = { deny: 'it answered false' } as AnswerOf<Kind>;
      if (typeof answer !== 'object' || answer === null) continue;
      const deny = (answer as { readonly deny?: string }).deny;
      if (deny !== undefined && kind !== 'onRetry')
        throw new PawlError(
          'PERMISSION_DENIED',
          `The hook ${hook.name} denied the call: ${String(deny).replace(/\.$/, '')}.`,
        );
      take(answer, hook);
    }
  }

  async #limited<T>(hook: Hook, run: (signal: AbortSignal) => MaybePromise<T>): Promise<T> {
    const limitMs = hook.timeoutMs ?? DEFAULT_HOOK_TIMEOUT_MS;
    const controller = new AbortController();
    const { promise: late, reject } = Promise.withResolvers<never>();
    const stop = this.#parts.schedule(() => {
      const error = new PawlError('TIMEOUT', `it did not finish within ${limitMs} ms`);
      controller.abort(error);
      reject(error);
    }, limitMs);
    try {
      // An async function turns a synchronous throw into a rejection.
      return await Promise.race([(async () => run(controller.signal))(), late]);
    } finally {
      stop();
    }
  }
}

const takeNothing = () => {};

type EventOf<Kind extends HookKind> = Parameters<NonNullable<Hook[Kind]>>[0];
type AnswerOf<Kind extends HookKind> = Extract<Awaited<ReturnType<NonNullable<Hook[Kind]>>>, object>;

/**
 * Types forbid it; without them, a guard that says `{ denied: true }`, or its reason alone, means to guard. Throws for what says nothing
 * that its kind may say. What an observer's last expression happens to be (a number, a `Map`, a list) is no answer.
 */
function checkAnswer(kind: HookKind, answer: unknown): void {
  const says = SAYS[kind];
  if (says.length === 0) return;
  const expected = `an answer is { ${says.map((name) => `${name}?`).join(', ')} }`;
  if (typeof answer === 'string') throw new Error(`it answered a text; ${expected}`);
  if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return;
  const names = Object.keys(answer);
  const isAnswer = names.length === 0 || says.some((name) => name in answer);
  const fault = isAnswer ? hookAnswerFault(answer) : undefined;
  if (fault !== undefined) throw new Error(fault);
  if (isAnswer) return;
  throw new Error(`it answered { ${names.slice(0, 5).join(', ')} }; ${expected}`);
}

function concerns({ tools }: Hook, tool: HookedTool): boolean {
  return tools === undefined || tools.includes(tool.name) || tools.includes(`${tool.namespace}.${tool.name}`);
}
