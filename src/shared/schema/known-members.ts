/** Refuses unknown members: without types, a misspelt option or filter would silently have no effect. */
import { PawlError } from '../errors/failure.ts';
import { isObject } from '../util/json/json-types.ts';
import { didYouMean } from '../util/text/nearest.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { JsonSchema } from './json-schema.ts';

const MAX_NAME_LENGTH = 128;
/** The names that a sentence lists; a body may have hundreds of thousands. */
const MAX_LISTED = 10;

/** Names the unknown members of an object, with similar known ones, or all known ones. */
export function describeUnknown(unknown: readonly string[], known: readonly string[]): string {
  const listed = unknown.slice(0, MAX_LISTED).map((name) => JSON.stringify(startOf(name, MAX_NAME_LENGTH)));
  const others = unknown.length - listed.length;
  const names = `${listed.join(', ')}${others === 0 ? '' : ` and ${others} more`}`;
  if (known.length === 0) return `has no member ${names}`;
  const hint = unknown.length === 1 ? didYouMean(unknown[0] ?? '', known) : '';
  return `has no member ${names}${hint === '' ? `; these are known: ${known.join(', ')}` : ` (${hint})`}`;
}

/** Rewords the fault for settings and definitions, whose members have another name: `is not a setting`. */
export function rephraseUnknown(message: string, name: string): string {
  return message.replace(/^has no member (?:(?:, )?"(?:[^"\\]|\\.)*")+(?: and \d+ more)?/, name);
}

/** Throws `CONTRACT_INVALID` for an argument that is no object, or has an unknown member. */
export function checkMembers(path: string, value: unknown, known: readonly string[]): void {
  checkObject(path, value);
  const unknown = Object.keys(value).filter((name) => !known.includes(name));
  if (unknown.length > 0) throw invalidArgument(path, describeUnknown(unknown, known));
}

/** Throws `CONTRACT_INVALID` for an argument that is no object, as callers without types may pass. */
export function checkObject(path: string, value: unknown): asserts value is object {
  if (!isObject(value)) throw invalidArgument(path, `must be an object; got ${quoteValue(value)}`);
}

const MAX_REASON = 1_000;

/** Throws `CONTRACT_INVALID` for a reason that the audit trail does not take. */
export function checkReason(path: string, reason: unknown): void {
  if (typeof reason !== 'string' || reason === '' || reason.length > MAX_REASON)
    throw invalidArgument(path, `must be a text of 1 to ${MAX_REASON} characters; got ${quoteValue(reason)}`);
}

/** Throws `CONTRACT_INVALID` for the limit of a list that is none. */
export function checkLimit(limit: unknown): void {
  if (!Number.isSafeInteger(limit) || Number(limit) < 0)
    throw invalidArgument('limit', `must be a whole number from 0 on; got ${quoteValue(limit)}`);
}

/** The failure of an argument that only types refuse. */
export function invalidArgument(path: string, message: string): PawlError {
  return new PawlError('CONTRACT_INVALID', `The arguments are not usable: ${path}: ${message}`, {
    issues: [{ path, message }],
  });
}

/** Completes "it must name …" for a name that no parameter of the schema has; undefined for one that a parameter may have. */
export function parameterFault(name: string, inputSchema: JsonSchema): string | undefined {
  const names = parameterNames(inputSchema);
  if (names === undefined || names.includes(name)) return undefined;
  return names.length === 0 ? 'a parameter, and the tool has none' : `one of the parameters: ${names.join(', ')}`;
}

/** The names that parameters can have; undefined where the schema does not list all of them. A list without names is open, unless it says not. */
function parameterNames(schema: unknown): readonly string[] | undefined {
  if (!isObject(schema)) return undefined;
  const { properties = {}, additionalProperties, patternProperties, $ref, ...keywords } = schema as JsonSchema;
  const lists = ['anyOf', 'oneOf', 'allOf'].flatMap((keyword) => keywords[keyword] ?? []).map(parameterNames);
  if ((additionalProperties ?? false) !== false || patternProperties !== undefined || $ref !== undefined)
    return undefined;
  if (!lists.every((names) => names !== undefined)) return undefined;
  const names = [...new Set([...Object.keys(properties as object), ...lists.flat()])];
  return names.length === 0 && additionalProperties === undefined ? undefined : names;
}
