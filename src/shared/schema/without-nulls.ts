/** Removes nulls that models and programs send for absent members. */
import { getOrInsert } from '../util/get-or-insert.ts';
import { isOfType, listOf } from '../util/json/json-types.ts';
import type { JsonSchema } from './json-schema.ts';
import { resolvedParts } from './schema-references.ts';

type Memo<Result> = Map<JsonSchema, Map<unknown, Result>>;
const MAX_DEPTH = 64;

/** A search for the schemas that a value could be meant for. */
interface Search {
  readonly root: JsonSchema;
  readonly keepsBounds: boolean;
  readonly matches: Memo<boolean>;
}

/** The state of one conversion. Alternatives of a recursive schema lead to the same value repeatedly, so each schema sees a value once. */
interface Walk extends Search {
  readonly normalized: Memo<unknown>;
  /** The same search by shape alone, whatever the bounds say. */
  readonly byShape: Search;
}

/**
 * Removes nulls of optional properties whose schema allows no null: providers' strict modes send them. Returns the value itself where
 * nothing is removed.
 */
export function withoutNulls(schema: JsonSchema, value: unknown): unknown {
  if (!holdsNull(value)) return value;
  const byShape: Search = { root: schema, keepsBounds: false, matches: new Map() };
  const walk: Walk = { root: schema, keepsBounds: true, matches: new Map(), normalized: new Map(), byShape };
  return normalize(schema, value, walk, 0);
}

/** Whether a value holds a null at all. Most values hold none, and their schema need not be read. */
export function holdsNull(value: unknown): boolean {
  // A set also ends the search of a value that holds itself.
  const found = new Set<unknown>([value]);
  for (const next of found) {
    if (next === null) return true;
    if (typeof next === 'object')
      for (const member of Object.values(next)) if (typeof member === 'object') found.add(member);
  }
  return false;
}

function normalize(schema: unknown, value: unknown, walk: Walk, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  const parts = resolvedParts(schema, walk.root);
  return memoized(resultsOf(walk.normalized, parts), value, value, () => normalizeParts(parts, value, walk, depth));
}

function normalizeParts(parts: JsonSchema, value: object, walk: Walk, depth: number): unknown {
  let normalized: unknown = value;
  for (const part of listOf(parts['allOf'])) normalized = normalize(part, normalized, walk, depth + 1);
  const branches = branchesOf(parts, walk.root);
  if (branches.length > 0) normalized = normalizeByBranch(branches, normalized, walk, depth);
  if (Array.isArray(normalized)) {
    const first = listOf(parts['prefixItems']);
    const items = normalized.map((item, index) => normalize(first[index] ?? parts['items'], item, walk, depth + 1));
    return items.some((item, index) => item !== (normalized as unknown[])[index]) ? items : normalized;
  }
  const properties = (parts['properties'] ?? {}) as JsonSchema;
  const required = (parts['required'] as readonly string[] | undefined) ?? [];
  let changed = false;
  const members = Object.entries(normalized as JsonSchema).flatMap(([name, member]) => {
    const isDeclared = Object.hasOwn(properties, name);
    const memberSchema = isDeclared ? properties[name] : parts['additionalProperties'];
    const isAbsent =
      member === null &&
      isDeclared &&
      !required.includes(name) &&
      !matchesSchema(memberSchema, null, walk.byShape, depth + 1);
    const newMember = isAbsent ? undefined : normalize(memberSchema, member, walk, depth + 1);
    changed ||= isAbsent || newMember !== member;
    return isAbsent ? [] : [[name, newMember] as const];
  });
  return changed ? Object.fromEntries(members) : normalized;
}

/**
 * The value normalised by the alternative that it matches. A null that one alternative allows stays, even if another would remove it.
 */
function normalizeByBranch(branches: readonly JsonSchema[], value: unknown, walk: Walk, depth: number): unknown {
  const names = new Set(branches.flatMap((branch) => Object.keys(branch['properties'] ?? {})));
  const candidates = branches.map((branch) => ({
    branch,
    normalized: normalize(branch, withoutForeignNulls(branch, value, names), walk, depth + 1),
  }));
  const matchingBy = (search: Search) =>
    candidates.filter(({ branch, normalized }) => matchesSchema(branch, normalized, search, depth + 1));
  const exact = matchingBy(walk);
  const matching = exact.length > 0 ? exact : matchingBy(walk.byShape);
  if (matching.length <= 1) return matching[0]?.normalized ?? value;
  return matching.toSorted((a, b) => lengthOf(b.normalized) - lengthOf(a.normalized))[0]?.normalized;
}

/** Providers see all alternatives of the parameters as one object, so null stands for properties that belong to another alternative. */
function withoutForeignNulls(branch: JsonSchema, value: unknown, names: ReadonlySet<string>): unknown {
  if (branch['additionalProperties'] !== false || !isOfType('object', value)) return value;
  const properties = (branch['properties'] ?? {}) as JsonSchema;
  const isForeign = ([name, member]: [string, unknown]) =>
    member === null && names.has(name) && !Object.hasOwn(properties, name);
  const entries = Object.entries(value as JsonSchema);
  return entries.some(isForeign) ? Object.fromEntries(entries.filter((entry) => !isForeign(entry))) : value;
}

/** The alternatives; for one that is itself only a choice, its alternatives. */
function branchesOf(parts: JsonSchema, root: JsonSchema, seen = new Set<JsonSchema>()): readonly JsonSchema[] {
  seen.add(parts);
  const branches = [...listOf(parts['anyOf']), ...listOf(parts['oneOf'])].filter((branch) => branch !== false);
  return branches.flatMap((branch) => {
    const resolved = resolvedParts(branch, root);
    const isChoice = resolved['anyOf'] !== undefined || resolved['oneOf'] !== undefined;
    if (!isChoice || resolved['properties'] !== undefined) return [resolved];
    return seen.has(resolved) ? [] : branchesOf(resolved, root, seen);
  });
}

/** Whether a value could be meant for a schema, by its shape, its constant values and their bounds. Other restrictions are ignored. */
function matchesSchema(schema: unknown, value: unknown, search: Search, depth: number): boolean {
  if (depth > MAX_DEPTH || schema === undefined || schema === true) return true;
  if (schema === false) return false;
  const parts = resolvedParts(schema, search.root);
  return memoized(resultsOf(search.matches, parts), value, true, () => matchesParts(parts, value, search, depth));
}

function matchesParts(parts: JsonSchema, value: unknown, search: Search, depth: number): boolean {
  const matches = (part: unknown, member: unknown) => matchesSchema(part, member, search, depth + 1);
  if (parts['const'] !== undefined && !isSame(parts['const'], value)) return false;
  if (Array.isArray(parts['enum']) && !parts['enum'].some((other) => isSame(other, value))) return false;
  if (!isOfType(parts['type'], value)) return false;
  if (search.keepsBounds && !isWithinBounds(parts, value)) return false;
  for (const keyword of ['anyOf', 'oneOf'])
    if (Array.isArray(parts[keyword]) && !parts[keyword].some((part) => matches(part, value))) return false;
  if (!listOf(parts['allOf']).every((part) => matches(part, value))) return false;
  if (Array.isArray(value)) {
    const first = listOf(parts['prefixItems']);
    return value.every((item, index) => matches(first[index] ?? parts['items'], item));
  }
  if (typeof value !== 'object' || value === null) return true;
  const properties = (parts['properties'] ?? {}) as JsonSchema;
  const required = (parts['required'] as readonly string[] | undefined) ?? [];
  if (required.some((name) => !Object.hasOwn(value, name))) return false;
  return Object.entries(value).every(([name, member]) =>
    Object.hasOwn(properties, name)
      ? matches(properties[name], member)
      : parts['additionalProperties'] !== false || parts['properties'] === undefined,
  );
}

function isWithinBounds(parts: JsonSchema, value: unknown): boolean {
  // An absent bound is NaN, with which each comparison is false.
  const bound = (keyword: string) => Number(parts[keyword]);
  const isWithin = (size: number, least: string, most: string) => !(size < bound(least) || size > bound(most));
  if (typeof value === 'number')
    return (
      isWithin(value, 'minimum', 'maximum') &&
      !(value <= bound('exclusiveMinimum') || value >= bound('exclusiveMaximum'))
    );
  if (typeof value === 'string') return isWithin(Array.from(value).length, 'minLength', 'maxLength');
  if (typeof value !== 'object' || value === null) return true;
  if (!Array.isArray(value)) return isWithin(Object.keys(value).length, 'minProperties', 'maxProperties');
  const isUnique = () => new Set(value.map((item) => JSON.stringify(item))).size === value.length;
  return isWithin(value.length, 'minItems', 'maxItems') && (parts['uniqueItems'] !== true || isUnique());
}

/** The cached results of one schema, by value. */
function resultsOf<Result>(memo: Memo<Result>, parts: JsonSchema): Map<unknown, Result> {
  return getOrInsert(memo, parts, () => new Map<unknown, Result>());
}

/** Caches the result for a value. A recursive lookup of the same value gets `provisional`. */
function memoized<Result>(
  results: Map<unknown, Result>,
  value: unknown,
  provisional: Result,
  compute: () => Result,
): Result {
  if (results.has(value)) return results.get(value) as Result;
  results.set(value, provisional);
  const result = compute();
  results.set(value, result);
  return result;
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== 'object' || typeof other !== 'object') return one === other;
  return JSON.stringify(one) === JSON.stringify(other);
}

function lengthOf(value: unknown): number {
  return JSON.stringify(value).length;
}
