/** Failures as values and as errors: what Pawl raises, what tools throw, and what later decisions look at. */

import { orUndefined } from '../util/or-undefined.ts';
import { startOf, wellFormed } from '../util/text/text-cut.ts';
import { FAILURES, type FailureCode } from './failure-codes.ts';
import type { FailureClass } from './failure-kind.ts';
import { redact } from './redaction.ts';

/** One fault of a document: where it is and what is wrong there. */
export interface Issue {
  /** JSON-path-like: `payload.params.city`; empty for the document itself. */
  readonly path: string;
  readonly message: string;
}

/** Every error that Pawl itself raises. */
export class PawlError extends Error {
  override readonly name = 'PawlError';
  readonly code: FailureCode;
  readonly issues?: readonly Issue[];
  readonly details?: Readonly<Record<string, unknown>>;

  constructor(
    code: FailureCode,
    message?: string,
    options?: ErrorOptions & Partial<Pick<PawlError, 'issues' | 'details'>>,
  ) {
    super(message ?? FAILURES[code].sentence, options);
    this.code = code;
    if (options?.issues !== undefined) this.issues = options.issues;
    if (options?.details !== undefined) this.details = options.details;
  }
}

/** Whether Pawl refused something. When Redis cannot be reached, nothing is refused: the same may succeed later. */
export function isRefusalError(error: unknown): error is PawlError {
  return error instanceof PawlError && error.code !== 'BACKEND_UNAVAILABLE';
}

/** A handler for `catch` that ignores the errors with this code, and throws any other one again. */
export function ignoreCode(code: FailureCode): (error: unknown) => undefined {
  return (error) => {
    if (!(error instanceof PawlError) || error.code !== code) throw error;
  };
}

/**
 * The error for input that is refused, with the path of each fault. `whole` names the input where a path is empty.
 *
 *     throw invalidInput('The plan is not usable', issues, 'the plan');
 */
export function invalidInput(problem: string, issues: readonly Issue[], whole: string): PawlError {
  // A message of another error is a sentence already.
  const listed = issues.map(({ path, message }) => `${path === '' ? whole : path}: ${message.replace(/\.$/, '')}`);
  return new PawlError('CONTRACT_INVALID', `${problem}: ${listed.join('; ')}.`, { issues });
}

/** The error for one part of the input: `The lease must be 1 to 9 milliseconds`. */
export function invalidPart(
  subject: string,
  path: string,
  message: string,
  code: FailureCode = 'CONTRACT_INVALID',
): PawlError {
  return new PawlError(code, `${subject} ${message}.`, { issues: [{ path, message }] });
}

/** Marks the class, so that errors of another copy of this package are known: a tools file may load one. */
export const toolErrorBrand: unique symbol = Symbol.for('pawl.tool-error');

/** The error for tools that say more than an `Error` can: a code of their own, and whether another try could help. */
export class ToolError extends Error {
  override readonly name = 'ToolError';
  readonly code: string;
  readonly retriable: boolean;
  readonly nothingHappened: boolean;
  readonly retryAfterMs?: number;

  constructor(
    message: string,
    options: ErrorOptions & {
      code?: string;
      retriable?: boolean;
      nothingHappened?: boolean;
      retryAfterMs?: number;
    } = {},
  ) {
    super(message, options);
    this.code = options.code ?? 'TOOL_FAILED';
    this.retriable = options.retriable ?? false;
    this.nothingHappened = options.nothingHappened ?? false;
    if (options.retryAfterMs !== undefined) this.retryAfterMs = options.retryAfterMs;
  }

  get [toolErrorBrand](): true {
    return true;
  }
}

/** An error that is classified by its HTTP status and `Retry-After`, as those of HTTP clients are. */
export function statusError(message: string, { status, headers }: Pick<Response, 'status' | 'headers'>): Error {
  return Object.assign(new Error(message), { status, headers });
}

/** A failure after classification. Later decisions look at nothing else. */
export interface Failure {
  readonly code: string;
  readonly class: FailureClass;
  readonly retriable: boolean;
  readonly nothingHappened: boolean;
  readonly againstCircuit: boolean;
  /** The failure met an attempt that may have had its effect, whatever the code says. */
  readonly afterEffect?: true;
  /** The text for the model. It never holds a stack. */
  readonly message: string;
  readonly retryAfterMs?: number;
  readonly issues?: readonly Issue[];
}

/** The reason that a thrown value gives, for a sentence. Never throws: the value may be a proxy, or an object that is no text. */
export function reasonOf(thrown: unknown): string {
  const text = orUndefined(() => String(thrown instanceof Error ? thrown.message : thrown));
  return text ?? 'it threw a value that cannot be shown';
}

const MAX_MESSAGE_LENGTH = 2_000;

export function failureOf(
  code: FailureCode,
  message?: string,
  extra: { issues?: readonly Issue[]; retryAfterMs?: number } = {},
): Failure {
  const { class: failureClass, retriable, nothingHappened, againstCircuit, sentence } = FAILURES[code];
  return {
    code,
    class: failureClass,
    retriable,
    nothingHappened,
    againstCircuit,
    message: clip(message ?? sentence),
    ...wellFormed(extra),
  };
}

/** The newest message, because the same failure often comes many times in a row. */
let lastClipped = { message: '', clipped: '' };

/** Shortens a message and redacts what looks like a secret. Messages go to the model, into records and onto pages. */
export function clip(message: string): string {
  if (message === lastClipped.message) return lastClipped.clipped;
  const short = clipped(message.toWellFormed());
  if (message.length <= MAX_MESSAGE_LENGTH) lastClipped = { message, clipped: short };
  return short;
}

function clipped(message: string): string {
  // Redaction reads beyond the cut, because a token that is cut no longer looks like one.
  const clean = redact(startOf(message, 2 * MAX_MESSAGE_LENGTH));
  if (message.length <= MAX_MESSAGE_LENGTH) return clean;
  return `${startOf(clean, MAX_MESSAGE_LENGTH)}… [${message.length - MAX_MESSAGE_LENGTH} more characters]`;
}
