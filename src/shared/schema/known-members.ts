/** Refuses unknown members: without types, a misspelt option or filter would silently have no effect. */
import { PawlError } from '../errors/failure.ts';
import { isObject } from '../util/json/json-types.ts';
import { didYouMean } from '../util/text/nearest.ts';
import { startOf } from '../util/text/text-cut.ts';
import { quoteValue } from './schema-issues.ts';

const MAX_NAME_LENGTH = 128;

/** Names the unknown members of an object, with similar known ones, or all known ones. */
export function describeUnknown(unknown: readonly string[], known: readonly string[]): string {
  const names = unknown.map((name) => JSON.stringify(startOf(name, MAX_NAME_LENGTH))).join(', ');
  if (known.length === 0) return `has no member ${names}`;
  const hint = unknown.length === 1 ? didYouMean(unknown[0] ?? '', known) : '';
  return `has no member ${names}${hint === '' ? `; these are known: ${known.join(', ')}` : ` (${hint})`}`;
}

/** Rewords the fault for settings and definitions, whose members have another name: `is not a setting`. */
export function rephraseUnknown(message: string, name: string): string {
  return message.replace(/^has no member (?:(?:, )?"(?:[^"\\]|\\.)*")+/, name);
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
