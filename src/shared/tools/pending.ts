/** `ctx.pending`: the result of a tool whose work goes on in an outside system, which completes the call later. */
import { ToolError } from '../errors/failure.ts';
import type { Effects } from '../retries/effects.ts';
import { quoteValue } from '../schema/schema-issues.ts';

/** The rules for a call that is not completed in time: it fails, runs again, or has an unknown outcome that an operator resolves. */
export const EXPIRY_RULES = ['fail', 'retry', 'unknown'] as const;
export type ExpiryRule = (typeof EXPIRY_RULES)[number];

/** The longest that a call waits for its completion: a year. */
export const MAX_PENDING_MS = 365 * 24 * 3_600_000;

export interface PendingOptions {
  /** Milliseconds until the call expires, at most a year. It replaces the call's deadline. */
  readonly expiresInMs: number;
  /**
   * Default: `unknown` for a tool with effects `once`, `retry` for `probe` (the tool is probed first), else `fail`. With `fail`, the tool
   * states that a call that expires had no effect.
   */
  readonly onExpiry?: ExpiryRule;
  /** The token that `ctx.completionToken()` returned. Default: that token. */
  readonly token?: string;
}

const pendingBrand: unique symbol = Symbol.for('pawl.pending');

/** The value that `ctx.pending` makes, to be returned by `run` as it is. */
export interface PendingResult {
  readonly [pendingBrand]: true;
  readonly token: string;
  readonly expiresInMs: number;
  readonly onExpiry: ExpiryRule;
  /** For the type system alone: a pending call has no output yet. */
  readonly output: never;
}

export function isPending(value: unknown): value is PendingResult {
  return typeof value === 'object' && value !== null && (value as Record<symbol, unknown>)[pendingBrand] === true;
}

/** Throws `RESULT_INVALID` for options that cannot be used: the tool may have had its effect by then. */
export function pendingResult(
  tool: { readonly name: string; readonly effects: Effects },
  token: string,
  options: PendingOptions,
): PendingResult {
  const { expiresInMs, onExpiry = defaultRule(tool.effects), token: given = token } = options ?? {};
  const wrong = (field: string, expected: string, came: unknown): never => {
    throw new ToolError(
      `ctx.pending of ${tool.name}: ${field} must be ${expected}; got ${came === undefined ? 'nothing' : quoteValue(came)}.`,
      {
        code: 'RESULT_INVALID',
      },
    );
  };
  if (!Number.isInteger(expiresInMs) || expiresInMs < 1 || expiresInMs > MAX_PENDING_MS)
    wrong('expiresInMs', `a whole number of milliseconds from 1 to ${MAX_PENDING_MS} (a year)`, expiresInMs);
  if (!EXPIRY_RULES.includes(onExpiry)) wrong('onExpiry', `one of ${EXPIRY_RULES.join(', ')}`, onExpiry);
  if (onExpiry === 'retry' && tool.effects === 'once')
    wrong('onExpiry', 'fail or unknown, because a tool with effects once must not run twice', onExpiry);
  if (given !== token) wrong('token', 'the one that ctx.completionToken() returned in this attempt', given);
  // The members that only the type system knows stay out of the value.
  return { [pendingBrand]: true, token, expiresInMs, onExpiry } as PendingResult;
}

function defaultRule(effects: Effects): ExpiryRule {
  if (effects === 'once') return 'unknown';
  return effects === 'probe' ? 'retry' : 'fail';
}
