/** Defines a hook and checks its definition and its answers. */
import { PawlError } from '../errors/failure.ts';
import { hookAnswerFault } from '../tools/tool-answers.ts';
import { isObject } from '../util/json/json-types.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import {
  type AfterAttemptAnswer,
  type AfterAttemptEvent,
  type AfterCallAnswer,
  type AfterCallEvent,
  type ApprovalAnswer,
  type ApprovalEvent,
  type AttemptEvent,
  type BeforeAttemptAnswer,
  type BeforeCallAnswer,
  type BeforeCallEvent,
  HOOK_KINDS,
  type HookedTool,
  type HookKind,
  type RetryAnswer,
  type RetryEvent,
  type ShortCircuitEvent,
} from './hook-events.ts';

export type MaybePromise<T> = Promise<T> | T;

// A hook that only looks returns nothing.
// biome-ignore lint/suspicious/noConfusingVoidType: `undefined` would force observers to say `return undefined`.
export type Maybe<T> = MaybePromise<T | void>;

/** One hook: functions of any of the seven kinds under one name. */
export interface Hook {
  /** The name in errors and logs. */
  readonly name: string;
  /** Names or qualified names of the tools that the hook concerns. Default: every tool. */
  readonly tools?: readonly string[];
  /** The time limit of one run, in milliseconds. Default 5,000. */
  readonly timeoutMs?: number;
  /**
   * The effect of a hook that throws or is too late: `closed` ends the call with `HOOK_FAILED`, `open` goes on without the hook.
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

export const GUARDS: readonly HookKind[] = ['beforeCall', 'beforeAttempt', 'onApproval'];

const MAY_DENY: readonly HookKind[] = [...GUARDS, 'onRetry'];

/** The members that an answer of each kind may have. */
const ANSWER_MEMBERS: { readonly [Kind in HookKind]: readonly (keyof AnswerOf<Kind> & string)[] } = {
  beforeCall: ['deny', 'params', 'idempotencyKey', 'hints', 'carry'],
  beforeAttempt: ['deny', 'params'],
  afterAttempt: ['result'],
  onRetry: ['deny'],
  onShortCircuit: [],
  onApproval: ['deny'],
  afterCall: ['content', 'metadata'],
};

const hookBrand: unique symbol = Symbol.for('pawl.hook');

/** Marks a hook, so that a tools file may export it beside its tools. Throws `CONFIGURATION` for an invalid hook. */
export function defineHook(hook: Hook): Hook {
  const fail = (problem: string): never => {
    throw new PawlError('CONFIGURATION', `Hook ${quoteValue(hook?.name)}: ${problem}.`);
  };
  if (typeof hook?.name !== 'string' || hook.name === '') fail('name must be a text that is not empty');
  if (hook.timeoutMs !== undefined && !(typeof hook.timeoutMs === 'number' && hook.timeoutMs > 0))
    fail('timeoutMs must be a number above 0');
  if (!HOOK_KINDS.some((kind) => typeof hook[kind] === 'function'))
    fail(`needs at least one of ${HOOK_KINDS.join(', ')}`);
  return { ...hook, [hookBrand]: true } as Hook;
}

/** Checks hooks of callers without a compiler: a guard that never runs would let all calls pass. Throws `CONFIGURATION`. */
export function checkHooks(hooks: unknown): void {
  const refusal = (path: string, form: string, value: unknown) =>
    new PawlError('CONFIGURATION', `\`${path}\` must be ${form}; got ${quoteValue(value)}.`);
  if (!Array.isArray(hooks)) throw refusal('hooks', 'a list of what defineHook returns', hooks);
  for (const [index, hook] of hooks.entries()) {
    if (!isObject(hook)) throw refusal(`hooks[${index}]`, 'what defineHook returns', hook);
    defineHook(hook as unknown as Hook);
  }
}

export function isHook(value: unknown): value is Hook {
  return typeof value === 'object' && value !== null && (value as Record<symbol, unknown>)[hookBrand] === true;
}

export type EventOf<Kind extends HookKind> = Parameters<NonNullable<Hook[Kind]>>[0];

export type AnswerOf<Kind extends HookKind> = Extract<Awaited<ReturnType<NonNullable<Hook[Kind]>>>, object>;

/**
 * Reads each member of a hook's answer once; undefined for no answer. Throws for an answer with none of the members of its kind. Types
 * forbid such answers; without types, a guard that answers `{ denied: true }`, or its reason alone, meant to deny. The last expression of
 * an observer (a number, a `Map`, a list) is no answer.
 */
export function readAnswer<Kind extends HookKind>(kind: Kind, answer: unknown): AnswerOf<Kind> | undefined {
  const memberNames = ANSWER_MEMBERS[kind];
  if (memberNames.length === 0) return undefined;
  const expected = `an answer is { ${memberNames.map((name) => `${name}?`).join(', ')} }`;
  if (typeof answer === 'string') throw new Error(`it answered a text; ${expected}`);
  // Types forbid `false`; an author without types means "deny" by it.
  if (answer === false && MAY_DENY.includes(kind)) return { deny: 'it answered false' } as AnswerOf<Kind>;
  if (!isObject(answer)) return undefined;
  const members = memberNames.filter((name) => name in answer).map((name) => [name, answer[name]] as const);
  const names = members.length === 0 ? Object.keys(answer).slice(0, 5) : [];
  if (names.length > 0) throw new Error(`it answered { ${names.join(', ')} }; ${expected}`);
  const read = Object.fromEntries(members);
  const fault = hookAnswerFault(read);
  if (fault !== undefined) throw new Error(fault);
  return read as AnswerOf<Kind>;
}

export function appliesTo({ tools }: Hook, tool: HookedTool): boolean {
  return tools === undefined || tools.includes(tool.name) || tools.includes(`${tool.namespace}.${tool.name}`);
}
