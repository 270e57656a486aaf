/**
 * Completions: the token with which an outside system completes a pending call, and the reports that it may send.
 *
 * A token names its partition, so that it can be found, and is 256 random bits otherwise. Only its digest is stored.
 */

import { z } from 'zod';
import { type Issue, invalidInput, PawlError } from '../errors/failure.ts';
import { digest } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { cachedValidator, fitToSchema } from '../schema/validator.ts';
import { WITH_RECEIVED, zodIssues } from '../schema/zod-issues.ts';
import { MAX_PENDING_MS } from '../tools/pending.ts';
import type { Tier } from '../tools/tool.ts';
import { normalizeResult, type ToolResult } from '../tools/tool-result.ts';
import type { LargeText } from '../util/json/large-json.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { partitionOf } from './call-id.ts';
import { type Outcome, outcomeText } from './outcome.ts';

/** Secret scanners recognise a token by its prefix. */
const TOKEN_PREFIX = 'pawlc_';
export const TOKEN_BYTES = 32;

/** The token of a call, from `TOKEN_BYTES` random bytes. */
export function completionToken(callId: string, random: Buffer): string {
  const [partition = ''] = callId.split('.', 1);
  return `${TOKEN_PREFIX}${partition}.${random.toString('base64url')}`;
}

/** The partition of a token's call, and the name under which the token is stored. Throws `UNKNOWN_COMPLETION`. */
export function readCompletionToken(token: string): {
  readonly partition: { readonly tier: Tier; readonly shard: number };
  readonly name: string;
} {
  const partition =
    typeof token === 'string' && token.startsWith(TOKEN_PREFIX)
      ? partitionOf(token.slice(TOKEN_PREFIX.length))
      : undefined;
  if (partition === undefined) throw new PawlError('UNKNOWN_COMPLETION');
  return { partition, name: tokenName(token) };
}

export function tokenName(token: string): string {
  return digest(token);
}

/** The limits that a completion must respect. The attempt's worker takes them from the tool. */
export interface CompletionTerms {
  readonly outputSchema?: JsonSchema;
  readonly maxResultBytes: number;
  /** The bytes of output that callers see. */
  readonly shownBytes?: number;
}

/** The codes that an operator resolves; an outside system cannot end a call with them. */
const RESERVED_CODES = ['OUTCOME_UNKNOWN', 'POISONED'];

const success = z.strictObject({
  status: z.literal('success'),
  output: z.unknown().optional(),
  display: z
    .string()
    .max(64 * 1_024)
    .optional(),
});
const failure = z.strictObject({
  status: z.literal('error'),
  error: z.strictObject({
    code: z
      .string()
      .regex(/^[A-Z][A-Z0-9_]{0,63}$/, 'must be a code such as CARD_DECLINED: capital letters, digits and underscores')
      .refine((code) => !RESERVED_CODES.includes(code), `must not be one of ${RESERVED_CODES.join(', ')}`),
    message: z.string().min(1).max(2_000),
  }),
});
const amounts = { progress: z.number(), total: z.number().optional(), message: z.string().max(2_000).optional() };
const progress = z.strictObject(amounts);
const nestedProgress = z.strictObject({ progress: z.strictObject(amounts) });
const extension = z.strictObject({ extendMs: z.number().int().min(1).max(MAX_PENDING_MS) });

/** The end of a pending call, as an outside system reports it. */
export type ReportedOutcome = z.output<typeof success> | z.output<typeof failure>;

/**
 * An outside system may report the end of a call, with `status`; its progress; or that it takes longer, by `extendMs`. For progress,
 * `progress` is a number, beside `total` and `message`, or an object of the three.
 */
export type Completion =
  | ReportedOutcome
  | z.output<typeof progress>
  | z.output<typeof nestedProgress>
  | z.output<typeof extension>;

/** For the OpenAPI document. */
export const completionJsonSchema = {
  oneOf: [success, failure, progress, nestedProgress, extension].map((form) => z.toJSONSchema(form, { io: 'input' })),
};

export type CompletionResult = 'success' | 'error' | 'progress' | 'extended' | 'refused';

export type ParsedCompletion =
  | { readonly kind: 'end'; readonly end: ReportedOutcome }
  | { readonly kind: 'progress'; readonly report: z.output<typeof progress> }
  | { readonly kind: 'extend'; readonly extendMs: number };

/** Throws `CONTRACT_INVALID` with the path of each fault. */
export function parseCompletion(value: unknown): ParsedCompletion {
  const body: Readonly<Record<string, unknown>> = typeof value === 'object' && value !== null ? defined(value) : {};
  if ('status' in body) {
    const end = parseAs(z.discriminatedUnion('status', [success, failure]), body);
    return { kind: 'end', end: end.status === 'success' ? { ...end, output: end.output ?? null } : end };
  }
  if ('extendMs' in body) return { kind: 'extend', ...parseAs(extension, body) };
  if (typeof body['progress'] === 'object') return { kind: 'progress', report: parseAs(nestedProgress, body).progress };
  if ('progress' in body) return { kind: 'progress', report: parseAs(progress, body) };
  throw invalid([{ path: 'status', message: 'is missing; a completion has status, progress or extendMs' }]);
}

function parseAs<Schema extends z.ZodType>(schema: Schema, value: unknown): z.output<Schema> {
  const parsed = schema.safeParse(value, WITH_RECEIVED);
  if (parsed.success) return parsed.data;
  throw invalid(zodIssues(parsed.error));
}

function invalid(issues: readonly Issue[]): PawlError {
  return invalidInput('The completion is not usable', issues, 'the completion');
}

/**
 * The result of a call whose output was given from outside, by an outside system or an operator. Null for an optional field is accepted.
 * Throws `COMPLETION_INVALID`, with the path of each fault of the output.
 */
export async function resultFromOutside(
  toolName: string,
  { outputSchema }: Pick<CompletionTerms, 'outputSchema'>,
  given: { readonly output: unknown; readonly display?: string | undefined },
): Promise<ToolResult<unknown>> {
  const result = normalizeResult(toolName, given);
  if (typeof result === 'string') throw new PawlError('COMPLETION_INVALID', result);
  if (outputSchema === undefined) return result;
  const { value, issues } = await fitToSchema(outputSchema, cachedValidator(outputSchema), result.output);
  if (issues.length > 0) throw outputInvalid(issues);
  return { ...result, output: value };
}

function outputInvalid(found: readonly Issue[]): PawlError {
  const issues = found.map(({ path, message }) => ({ path: path === '' ? 'output' : `output.${path}`, message }));
  const listed = issues.map(({ path, message }) => `${path}: ${message}`).join('; ');
  return new PawlError('COMPLETION_INVALID', `The output does not match the tool’s schema: ${listed}.`, { issues });
}

/** The text of an outcome from outside. Throws `COMPLETION_INVALID` when it is too large. */
export async function textFromOutside(outcome: Outcome, maxBytes: number): Promise<string | LargeText> {
  const text = await outcomeText(outcome, maxBytes);
  if (text !== undefined) return text;
  throw new PawlError('COMPLETION_INVALID', `The output is larger than the ${maxBytes} bytes that are allowed.`);
}
