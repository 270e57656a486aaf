/** How lists and objects are written into a query or a form (I14). Pure; the words are those of OpenAPI where it has one. */
import { z } from 'zod';
import { PawlError } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';

/**
 * - `repeat`: one pair for each entry of a list; an object as JSON.
 * - `comma`, `space`, `pipe`: one pair, whose text is the entries, or an object's names and values in turn, with that between them.
 * - `members`: one pair for each member of an object, under the member's name; a list as with `repeat`.
 * - `deep`: `name[member]=value`, at any depth; `name[]=entry` for a list, `name[0][member]=value` for one of objects.
 * - `json`: whatever it is, as JSON.
 */
export const parameterStyleSchema = z.enum(['repeat', 'comma', 'space', 'pipe', 'members', 'deep', 'json']);
export type ParameterStyle = z.output<typeof parameterStyleSchema>;

type Pair = [name: string, text: string];

const SEPARATORS: Partial<Record<ParameterStyle, string>> = { comma: ',', space: ' ', pipe: '|' };

/**
 * The pairs that say one parameter. Throws `INVALID_PARAMS` for what cannot be written, and for a member with a name that is taken:
 * what an object's members are called is the model's to say, but never what stands for another parameter.
 */
export function pairsOf(
  param: string,
  name: string,
  value: unknown,
  style: ParameterStyle,
  isTaken: (name: string) => boolean,
): readonly Pair[] {
  if (style === 'json') return [[name, JSON.stringify(value)]];
  if (!isNested(value)) return [[name, plainText(param, value)]];
  if (style === 'deep') return deepPairs(param, name, value);
  const separator = SEPARATORS[style];
  if (separator !== undefined) return [[name, joinedText(param, value, separator)]];
  if (Array.isArray(value)) return value.map((entry) => [name, entryText(param, entry)]);
  if (style === 'repeat') return [[name, JSON.stringify(value)]];
  return membersOf(value).flatMap(([member, of]) => {
    if (isTaken(member)) throw invalidParameter(`${param}.${member}`, 'has the name of another parameter');
    return pairsOf(`${param}.${member}`, member, of, 'repeat', isTaken);
  });
}

/** A list's entries, or an object's names and values in turn; anything else as it is. */
export function joinedText(param: string, value: unknown, separator: string): string {
  if (!isNested(value)) return plainText(param, value);
  const entries = Array.isArray(value) ? value : membersOf(value).flat();
  return entries.map((entry) => entryText(param, entry)).join(separator);
}

export function plainText(param: string, value: unknown): string {
  if (typeof value === 'string') return value;
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  throw invalidParameter(
    param,
    `must be a text, a number or a boolean; got ${startOf(JSON.stringify(value) ?? 'undefined', 80)}`,
  );
}

export function invalidParameter(param: string, message: string): PawlError {
  return new PawlError('INVALID_PARAMS', `${param === '' ? 'The parameters' : param} ${message}.`, {
    issues: [{ path: param, message }],
  });
}

function deepPairs(param: string, name: string, value: unknown): readonly Pair[] {
  if (!isNested(value)) return [[name, plainText(param, value)]];
  if (!Array.isArray(value))
    return membersOf(value).flatMap(([member, of]) => deepPairs(`${param}.${member}`, `${name}[${member}]`, of));
  // Where entries have members, their pairs must say which belong together.
  const isNumbered = value.some(isNested);
  return value.flatMap((entry, index) => deepPairs(`${param}.${index}`, `${name}[${isNumbered ? index : ''}]`, entry));
}

/** What is null is left out, as elsewhere in a query. */
export function membersOf(value: object): readonly (readonly [name: string, value: unknown])[] {
  return Object.entries(value).filter(([, of]) => of !== undefined && of !== null);
}

function entryText(param: string, entry: unknown): string {
  return isNested(entry) ? JSON.stringify(entry) : plainText(param, entry);
}

function isNested(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
