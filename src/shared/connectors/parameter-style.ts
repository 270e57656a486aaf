/** The ways to write lists and objects into a query or a form, in OpenAPI's terms where it has them. Pure functions. */
import { z } from 'zod';
import { invalidPart, type PawlError } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';

/**
 * - `repeat`: one pair for each entry of a list; an object as JSON.
 * - `comma`, `space`, `pipe`: one pair with all entries, or an object's alternating names and values, separated by that character.
 * - `members`: one pair for each member of an object, under the member's name; a list as with `repeat`.
 * - `deep`: `name[member]=value`, at any depth; `name[]=entry` for a list, `name[0][member]=value` for a list of objects.
 * - `json`: any value as JSON.
 */
export const parameterStyleSchema = z.enum(['repeat', 'comma', 'space', 'pipe', 'members', 'deep', 'json']);
export type ParameterStyle = z.output<typeof parameterStyleSchema>;

/** Both are encoded, so that a separator differs from the same character in an entry. */
type Pair = readonly [name: string, text: string];

/** The place of a parameter in a query or a form. */
interface PairTarget {
  /** The parameter's path, for errors. */
  readonly param: string;
  readonly name: string;
  readonly style: ParameterStyle;
  readonly isReserved: (name: string) => boolean;
}

const SEPARATORS: Partial<Record<ParameterStyle, string>> = { comma: ',', space: '%20', pipe: '%7C' };

/** The text as a query or a form writes it. */
function encoded(text: string): string {
  return new URLSearchParams([['', text]]).toString().slice('='.length);
}

export function joinPairs(pairs: readonly Pair[]): string {
  return pairs.map(([name, text]) => `${name}=${text}`).join('&');
}

/** Sets a parameter of the query. `URLSearchParams` would encode the separators of all others again. */
export function setQueryParameter(url: URL, name: string, text: string): void {
  const others = url.search.slice(1).split('&');
  const isOther = (pair: string) => pair !== '' && !new URLSearchParams(pair).has(name);
  url.search = [...others.filter(isOther), joinPairs([[encoded(name), encoded(text)]])].join('&');
}

/**
 * The pairs of one parameter. Throws `INVALID_PARAMS` for a value that cannot be written, and for a member whose name is taken: a model may
 * name the members of an object, but must not replace another parameter.
 */
export function pairsOf(target: PairTarget, value: unknown): readonly Pair[] {
  const { param, name, style, isReserved } = target;
  const pair = (pairName: string, text: string): Pair => [encoded(pairName), encoded(text)];
  if (style === 'json') return [pair(name, JSON.stringify(value))];
  if (!isNested(value)) return [pair(name, plainText(param, value))];
  if (style === 'deep') return deepPairs(param, name, value).map(([member, text]) => pair(member, text));
  const separator = SEPARATORS[style];
  if (separator !== undefined) return [[encoded(name), joinText(param, value, separator, encoded)]];
  if (Array.isArray(value)) return value.map((entry) => pair(name, entryText(param, entry)));
  if (style === 'repeat') return [pair(name, JSON.stringify(value))];
  return membersOf(value).flatMap(([member, memberValue]) => {
    if (isReserved(member)) throw invalidParameter(`${param}.${member}`, 'has the name of another parameter');
    return pairsOf({ param: `${param}.${member}`, name: member, style: 'repeat', isReserved }, memberValue);
  });
}

/** A list's entries, or an object's alternating names and values, as one text; any other value as plain text. */
export function joinText(
  param: string,
  value: unknown,
  separator: string,
  encode: (entry: string) => string = (entry) => entry,
): string {
  if (!isNested(value)) return encode(plainText(param, value));
  const entries = Array.isArray(value) ? value : membersOf(value).flat();
  return entries.map((entry) => encode(entryText(param, entry))).join(separator);
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
  return invalidPart(param || 'The parameters', param, message, 'INVALID_PARAMS');
}

function deepPairs(param: string, name: string, value: unknown): readonly (readonly [name: string, text: string])[] {
  if (!isNested(value)) return [[name, plainText(param, value)]];
  if (!Array.isArray(value))
    return membersOf(value).flatMap(([member, memberValue]) =>
      deepPairs(`${param}.${member}`, `${name}[${member}]`, memberValue),
    );
  // Pairs of entries with members need a number that says which belong together.
  const isNumbered = value.some(isNested);
  return value.flatMap((entry, index) => deepPairs(`${param}.${index}`, `${name}[${isNumbered ? index : ''}]`, entry));
}

/** The members of an object. Null members are left out, as elsewhere in a query. */
export function membersOf(value: object): readonly (readonly [name: string, value: unknown])[] {
  return Object.entries(value).filter(([, memberValue]) => memberValue !== undefined && memberValue !== null);
}

function entryText(param: string, entry: unknown): string {
  return isNested(entry) ? JSON.stringify(entry) : plainText(param, entry);
}

function isNested(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
