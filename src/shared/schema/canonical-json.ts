/** Canonical JSON (RFC 8785): equal values give equal text. */
// A named import would fail on a Node that lacks the function, before the required version can be printed.
import crypto from 'node:crypto';
import { invalidPart, PawlError, reasonOf } from '../errors/failure.ts';
import { findUnserializable, isInvalidDate, unsupportedKind } from '../util/json/json-support.ts';
import { orUndefined } from '../util/or-undefined.ts';

/** Deeper nesting is refused: no tool needs it, and recursion must end. */
const MAX_DEPTH = 128;

/**
 * RFC 8785 canonical JSON: sorted keys, -0 as 0, `undefined` dropped, strings verbatim.
 * Throws `CONTRACT_INVALID` for values that are not JSON-serializable (NaN, BigInt, Map, Set, functions, cycles).
 */
export function canonicalJson(value: unknown): string {
  try {
    return canonicalText(value, 0);
  } catch (error) {
    throw error instanceof PawlError ? error : notSerializable(value, error);
  }
}

class UnserializableError extends Error {
  readonly kind: string;

  constructor(kind: string) {
    super(kind);
    this.kind = kind;
  }
}

function canonicalText(value: unknown, depth: number): string {
  if (depth > MAX_DEPTH)
    throw new PawlError('CONTRACT_INVALID', `The parameters are nested more than ${MAX_DEPTH} levels deep.`, {
      issues: [{ path: 'payload.params', message: `nested more than ${MAX_DEPTH} levels deep` }],
    });
  switch (typeof value) {
    case 'string':
      return quoted(value);
    case 'boolean':
      return String(value);
    case 'number':
      if (!Number.isFinite(value)) throw new UnserializableError(String(value));
      return String(value);
    case 'object':
      return value === null ? 'null' : canonicalObject(value, depth);
    default:
      throw new UnserializableError(typeof value);
  }
}

function canonicalObject(value: object, depth: number): string {
  if (Array.isArray(value)) {
    let items = '';
    for (let index = 0; index < value.length; index += 1)
      // JSON writes a hole in a list as null.
      items += `${index === 0 ? '' : ','}${canonicalText(value[index] === undefined ? null : value[index], depth + 1)}`;
    return `[${items}]`;
  }
  if ('toJSON' in value && typeof value.toJSON === 'function') {
    if (isInvalidDate(value)) throw new UnserializableError('Invalid Date');
    return canonicalText(value.toJSON(), depth + 1);
  }
  const kind = unsupportedKind(value);
  if (kind !== undefined) throw new UnserializableError(kind);
  let members = '';
  for (const key of sortInPlace(Object.keys(value))) {
    const member = (value as Record<string, unknown>)[key];
    if (member === undefined) continue;
    members += `${members === '' ? '' : ','}${quoted(key)}:${canonicalText(member, depth + 1)}`;
  }
  return `{${members}}`;
}

/** Every call ID quotes a few texts. Most are short and have nothing to escape. */
const PLAIN = /^[^"\\\u0000-\u001f\ud800-\udfff]*$/;

const MAX_PLAIN_LENGTH = 1_000;

/** A text as JSON, as `JSON.stringify` writes it. */
export function quoted(text: string): string {
  return text.length <= MAX_PLAIN_LENGTH && PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
}

/** Sorts by UTF-16 code units, in place. For a few names, `sort` takes several times as long. */
function sortInPlace(names: string[]): string[] {
  if (names.length > 32) return names.sort();
  for (let index = 1; index < names.length; index += 1) {
    const name = names[index] as string;
    let position = index;
    for (; position > 0 && (names[position - 1] as string) > name; position -= 1)
      names[position] = names[position - 1] as string;
    names[position] = name;
  }
  return names;
}

/** The refusal of parameters that could not be written as JSON because of `error`: names the first part that JSON does not have. */
export function notSerializable(value: unknown, error: unknown): PawlError {
  const found = orUndefined(() => findUnserializable(value));
  const kind =
    error instanceof UnserializableError ? error.kind : (found?.kind ?? `a value that throws (${reasonOf(error)})`);
  const path = (found?.path ?? '').replace(/^\./, '');
  const message = `holds ${kind}${path === '' ? '' : ` in ${path}`}, which is not JSON-serializable`;
  return invalidPart('The call', 'payload.params', message);
}

/** SHA-256, base64url: 43 characters that are safe in Redis keys, job IDs and URLs. */
export function digest(text: string | Buffer): string {
  return crypto.hash('sha256', text, 'base64url');
}
