/** `ctx.pending`: the result of a tool whose work goes on in an outside system, which completes the call later. */
import { ToolError } from '../errors/failure.ts';
import type { Effects } from '../retries/effects.ts';
import { quoteValue } from '../util/text/quote-value.ts';

/** The rules for a call that is not completed in time: it fails, runs again, or has an unknown outcome that an operator resolves. */
const EXPIRY_RULES = ['fail', 'retry', 'unknown'] as const;
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
  const { expiresInMs, onExpiry = defaultExpiryRule(tool.effects), token: passedToken = token } = options ?? {};
  const fail = (field: string, expected: string, actual: unknown): never => {
    throw new ToolError(
      `ctx.pending of ${tool.name}: ${field} must be ${expected}; got ${actual === undefined ? 'nothing' : quoteValue(actual)}.`,
      {
        code: 'RESULT_INVALID',
      },
    );
  };
  if (!Number.isInteger(expiresInMs) || expiresInMs < 1 || expiresInMs > MAX_PENDING_MS)
    fail('expiresInMs', `a whole number of milliseconds from 1 to ${MAX_PENDING_MS} (a year)`, expiresInMs);
  if (!EXPIRY_RULES.includes(onExpiry)) fail('onExpiry', `one of ${EXPIRY_RULES.join(', ')}`, onExpiry);
  if (onExpiry === 'retry' && tool.effects === 'once')
    fail('onExpiry', 'fail or unknown, because a tool with effects once must not run twice', onExpiry);
  if (passedToken !== token) fail('token', 'the one that ctx.completionToken() returned in this attempt', passedToken);
  // `output` exists for the type system alone.
  return { [pendingBrand]: true, token, expiresInMs, onExpiry } as PendingResult;
}

function defaultExpiryRule(effects: Effects): ExpiryRule {
  if (effects === 'once') return 'unknown';
  return effects === 'probe' ? 'retry' : 'fail';
}
