/** Removes nulls that stand for what is absent, as models and programs send them. */
import type { JsonSchema } from './json-schema.ts';
import { withoutReference } from './schema-references.ts';

type Parts = Readonly<Record<string, unknown>>;
type Memo<Found> = Map<Parts, Map<unknown, Found>>;
const MAX_DEPTH = 64;
const NOTHING: Parts = {};

/** The state of one conversion. Alternatives of a recursive schema lead to the same value repeatedly, so each schema sees a value once. */
interface Walk {
  readonly root: Parts;
  readonly made: Memo<unknown>;
  readonly fitting: Memo<boolean>;
}

/**
 * Removes nulls wherever a property is optional and the canonical schema has no null there, as providers' strict modes send them. Returns
 * the value itself where nothing is removed.
 */
export function withoutNulls(schema: JsonSchema, value: unknown): unknown {
  if (!holdsNull(value)) return value;
  return normalize(schema, value, { root: schema, made: new Map(), fitting: new Map() }, 0);
}

/** Whether there is anything to remove. Most values hold no null, and need no look at the schema. */
export function holdsNull(value: unknown): boolean {
  const pending: unknown[] = [value];
  while (pending.length > 0) {
    const next = pending.pop();
    if (next === null) return true;
    if (typeof next === 'object')
      for (const member of Object.values(next)) if (typeof member === 'object') pending.push(member);
  }
  return false;
}

function normalize(schema: unknown, value: unknown, walk: Walk, depth: number): unknown {
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return value;
  const parts = resolve(schema, walk.root);
  return once(seenWith(walk.made, parts), value, value, () => normalizeParts(parts, value, walk, depth));
}

function normalizeParts(parts: Parts, value: object, walk: Walk, depth: number): unknown {
  let made: unknown = value;
  for (const part of listOf(parts['allOf'])) made = normalize(part, made, walk, depth + 1);
  const branches = branchesOf(parts, walk.root);
  if (branches.length > 0) made = fitted(branches, made, walk, depth);
  if (Array.isArray(made)) {
    const first = listOf(parts['prefixItems']);
    const items = made.map((item, index) => normalize(first[index] ?? parts['items'], item, walk, depth + 1));
    return items.some((item, index) => item !== (made as unknown[])[index]) ? items : made;
  }
  const properties = (parts['properties'] ?? {}) as Parts;
  const required = (parts['required'] as readonly string[] | undefined) ?? [];
  let changed = false;
  const members = Object.entries(made as Parts).flatMap(([name, member]) => {
    const declared = Object.hasOwn(properties, name);
    const described = declared ? properties[name] : parts['additionalProperties'];
    const absent = member === null && declared && !required.includes(name) && !fits(described, null, walk, depth + 1);
    const kept = absent ? undefined : normalize(described, member, walk, depth + 1);
    changed ||= absent || kept !== member;
    return absent ? [] : [[name, kept] as const];
  });
  return changed ? Object.fromEntries(members) : made;
}

/**
 * The value in the form of the alternative that it fits. A null that one alternative allows is kept, even if another would do without it.
 */
function fitted(branches: readonly Parts[], value: unknown, walk: Walk, depth: number): unknown {
  const names = new Set(branches.flatMap((branch) => Object.keys((branch['properties'] ?? {}) as object)));
  const fitting = branches
    .map((branch) => ({ branch, made: normalize(branch, withoutForeign(branch, value, names), walk, depth + 1) }))
    .filter(({ branch, made }) => fits(branch, made, walk, depth + 1));
  if (fitting.length <= 1) return fitting[0]?.made ?? value;
  return fitting.toSorted((a, b) => lengthOf(b.made) - lengthOf(a.made))[0]?.made;
}

/** Providers see all alternatives of the parameters as one object, so null stands for properties that belong to another alternative. */
function withoutForeign(branch: Parts, value: unknown, names: ReadonlySet<string>): unknown {
  if (branch['additionalProperties'] !== false || !isOfType('object', value)) return value;
  const own = (branch['properties'] ?? {}) as Parts;
  const isForeign = ([name, member]: [string, unknown]) =>
    member === null && names.has(name) && !Object.hasOwn(own, name);
  const entries = Object.entries(value as Parts);
  return entries.some(isForeign) ? Object.fromEntries(entries.filter((entry) => !isForeign(entry))) : value;
}

/** The alternatives; for one that is itself only a choice, its alternatives. */
function branchesOf(parts: Parts, root: Parts, seen = new Set<Parts>()): readonly Parts[] {
  seen.add(parts);
  const branches = [...listOf(parts['anyOf']), ...listOf(parts['oneOf'])].filter((branch) => branch !== false);
  return branches.flatMap((branch) => {
    const resolved = resolve(branch, root);
    const isChoice = resolved['anyOf'] !== undefined || resolved['oneOf'] !== undefined;
    if (!isChoice || resolved['properties'] !== undefined) return [resolved];
    return seen.has(resolved) ? [] : branchesOf(resolved, root, seen);
  });
}

/** Whether a value can be meant by a schema: its shape and its discriminating values, not every restriction. */
function fits(schema: unknown, value: unknown, walk: Walk, depth: number): boolean {
  if (depth > MAX_DEPTH || schema === undefined || schema === true) return true;
  if (schema === false) return false;
  const parts = resolve(schema, walk.root);
  return once(seenWith(walk.fitting, parts), value, true, () => fitsParts(parts, value, walk, depth));
}

function fitsParts(parts: Parts, value: unknown, walk: Walk, depth: number): boolean {
  if (parts['const'] !== undefined && !isSame(parts['const'], value)) return false;
  if (Array.isArray(parts['enum']) && !parts['enum'].some((other) => isSame(other, value))) return false;
  const types = parts['type'] === undefined ? [] : [parts['type']].flat();
  if (types.length > 0 && !types.some((type) => isOfType(String(type), value))) return false;
  for (const keyword of ['anyOf', 'oneOf'])
    if (Array.isArray(parts[keyword]) && !parts[keyword].some((part) => fits(part, value, walk, depth + 1)))
      return false;
  if (!listOf(parts['allOf']).every((part) => fits(part, value, walk, depth + 1))) return false;
  if (Array.isArray(value)) return value.every((item) => fits(parts['items'], item, walk, depth + 1));
  if (typeof value !== 'object' || value === null) return true;
  const properties = (parts['properties'] ?? {}) as Parts;
  const required = (parts['required'] as readonly string[] | undefined) ?? [];
  if (required.some((name) => !Object.hasOwn(value, name))) return false;
  return Object.entries(value).every(([name, member]) =>
    Object.hasOwn(properties, name)
      ? fits(properties[name], member, walk, depth + 1)
      : parts['additionalProperties'] !== false || parts['properties'] === undefined,
  );
}

/** The values that one schema has met, with what was found. */
function seenWith<Found>(memo: Memo<Found>, parts: Parts): Map<unknown, Found> {
  let seen = memo.get(parts);
  if (seen === undefined) {
    seen = new Map();
    memo.set(parts, seen);
  }
  return seen;
}

/** Caches what is found for a value. A recursive lookup of the same value gets `meanwhile`. */
function once<Found>(seen: Map<unknown, Found>, value: unknown, meanwhile: Found, find: () => Found): Found {
  if (seen.has(value)) return seen.get(value) as Found;
  seen.set(value, meanwhile);
  const found = find();
  seen.set(value, found);
  return found;
}

function isSame(one: unknown, other: unknown): boolean {
  if (typeof one !== 'object' || typeof other !== 'object') return one === other;
  return JSON.stringify(one) === JSON.stringify(other);
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function lengthOf(value: unknown): number {
  return JSON.stringify(value).length;
}

function resolve(schema: unknown, root: Parts): Parts {
  if (typeof schema !== 'object' || schema === null) return NOTHING;
  return withoutReference(schema as Parts, root);
}

function isOfType(type: string, value: unknown): boolean {
  switch (type) {
    case 'null':
      return value === null;
    case 'array':
      return Array.isArray(value);
    case 'object':
      return typeof value === 'object' && value !== null && !Array.isArray(value);
    case 'integer':
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}
