/**
 * What checking a value by a schema may cost at most. References let a small schema ask for exponential work: a definition that holds two
 * references to the next one is looked at twice, that one four times, and so on, and a recursive one as deep as the value goes.
 *
 * Only what is checked at the same place of a value multiplies. So the work of a definition for a value of some depth is that of itself,
 * of all that it refers to at the same place, and of the costliest place below.
 */
import { PawlError } from '../errors/failure.ts';
import { decoded } from './json-pointer.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from './schema-keywords.ts';
import { withTags } from './tagged-union.ts';

type Parts = Readonly<Record<string, unknown>>;

/** Schemas within one: beyond this, compiling takes longer than a process may be held up. */
const MAX_SCHEMAS = 5_000;
/** How often schemas are looked at for one place of a value. */
const MAX_LOOKS = 50_000;
/** A schema that lets in no value of this depth is of no use. */
const LEAST_DEPTH = 4;
/** Values are not nested deeper. */
const MAX_DEPTH = 128;

/** A reference to a definition, from a place below another one. */
interface Link {
  readonly target: object;
  /** Where the value stands that the target is for; '' for the place of the definition itself. */
  readonly partition: string;
  /** How much deeper that is. */
  readonly steps: number;
}

/** A schema that others refer to, or the root. */
interface Definition {
  /** Schemas that look at the place itself. */
  readonly looks: number;
  readonly here: readonly Link[];
  /** The places below, with what is looked at there. */
  readonly below: readonly (readonly Link[])[];
}

/**
 * How deep a value may be nested, so that checking it is not too costly; undefined for as deep as values may be. Throws
 * `CONFIGURATION` for a schema that is too costly for any value, or too large, or that refers to itself without end.
 */
export function deepestValue(schema: Parts): number | undefined {
  try {
    return deepest(schema);
  } catch (error) {
    if (error instanceof RangeError) throw tooCostly('it is nested too deep');
    throw error;
  }
}

function deepest(schema: Parts): number | undefined {
  const definitions = definitionsOf(schema);
  const order = inOrder(schema, definitions);
  const work: ReadonlyMap<object, number>[] = [];
  for (let depth = 0; depth <= MAX_DEPTH; depth += 1) {
    const looks = new Map<object, number>();
    for (const definition of order) looks.set(definition, workOf(definitions.get(definition), depth, looks, work));
    work.push(looks);
    if ((looks.get(schema) ?? 0) <= MAX_LOOKS) continue;
    if (depth > LEAST_DEPTH) return depth - 1;
    throw tooCostly(`its references ask for more than ${MAX_LOOKS} checks of one value`);
  }
  return undefined;
}

const known = new WeakMap<Parts, boolean>();

export function isTooCostly(schema: Parts): boolean {
  let found = known.get(schema);
  if (found === undefined) {
    found = refuses(schema);
    known.set(schema, found);
  }
  return found;
}

function refuses(schema: Parts): boolean {
  try {
    deepestValue(schema);
    return false;
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    return true;
  }
}

/** Whether a value is nested deeper than this. */
export function isDeeper(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return depth === 0 || Object.values(value).some((member) => isDeeper(member, depth - 1));
}

function workOf(
  definition: Definition | undefined,
  depth: number,
  here: ReadonlyMap<object, number>,
  shallower: readonly ReadonlyMap<object, number>[],
): number {
  if (definition === undefined) return 0;
  const sum = (links: readonly Link[], at: (link: Link) => ReadonlyMap<object, number> | undefined) =>
    links.reduce((all, link) => all + (at(link)?.get(link.target) ?? 0), 0);
  const costs = definition.below.map((links) => sum(links, ({ steps }) => shallower[depth - steps]));
  return definition.looks + sum(definition.here, () => here) + costs.reduce((most, cost) => Math.max(most, cost), 0);
}

/** All that the root reaches. */
function definitionsOf(root: Parts): ReadonlyMap<object, Definition> {
  const found = new Map<object, Definition>();
  const reading: Reading = { root, tagged: withTags(root) ?? root, schemas: 0, targets: new Map() };
  const pending: object[] = [root];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (found.has(next)) continue;
    const { links, looks } = read(next === root ? reading.tagged : next, reading);
    found.set(next, definitionFrom(looks, links));
    pending.push(...links.map(({ target }) => target));
  }
  return found;
}

function definitionFrom(looks: number, links: readonly Link[]): Definition {
  const below = Map.groupBy(
    links.filter(({ steps }) => steps > 0),
    ({ partition }) => partition,
  );
  // What is for every member is for each one that has a name, too.
  const ofAll = links.filter(({ partition }) => partition.includes('*'));
  const partitions = [...below].map(([partition, own]) => (partition.includes('*') ? ofAll : [...own, ...ofAll]));
  return { looks, here: links.filter(({ steps }) => steps === 0), below: partitions };
}

interface Reading {
  readonly root: Parts;
  /** The root with its unions told apart by their tags: of those, one alternative is looked at. */
  readonly tagged: Parts;
  schemas: number;
  readonly targets: Map<string, object | undefined>;
}

interface Found {
  readonly links: readonly Link[];
  readonly looks: number;
}

/** One schema with all that stands in it, up to the references. */
function read(schema: unknown, reading: Reading, partition = '', steps = 0): Found {
  if (typeof schema !== 'object' || schema === null) return { links: [], looks: 0 };
  reading.schemas += 1;
  if (reading.schemas > MAX_SCHEMAS) throw tooCostly(`it holds more than ${MAX_SCHEMAS} schemas`);
  const parts = schema as Parts;
  const target = targetOf(parts, reading);
  const own: Found = { links: target === undefined ? [] : [{ target, partition, steps }], looks: steps === 0 ? 1 : 0 };
  const all = [own];
  for (const [keyword, value] of Object.entries(parts)) {
    const inside = partsOf(keyword, value).map(([name, part]) =>
      name === '' ? read(part, reading, partition, steps) : read(part, reading, `${partition}/${name}`, steps + 1),
    );
    const isTagged = keyword === 'oneOf' && parts['discriminator'] !== undefined;
    all.push(...(isTagged ? inside.toSorted((a, b) => b.links.length - a.links.length).slice(0, 1) : inside));
    if (isTagged) all.push(...inside.map(apart));
  }
  return { links: all.flatMap(({ links }) => links), looks: all.reduce((sum, { looks }) => sum + looks, 0) };
}

/** An alternative that the tag does not name is looked at for no value: what it refers to is none the less known. */
function apart({ links }: Found, index: number): Found {
  const moved = links.map((link) => ({
    ...link,
    partition: `|${index}${link.partition}`,
    steps: Math.max(1, link.steps),
  }));
  return { links: moved, looks: 0 };
}

/** Schemas below a keyword, each with the place that it is for; '' for the same one. */
function partsOf(keyword: string, value: unknown): (readonly [partition: string, schema: unknown])[] {
  if (keyword === '$defs' || keyword === 'definitions' || typeof value !== 'object' || value === null) return [];
  if (keyword === 'properties') return Object.entries(value).map(([name, part]) => [nameOf(name), part]);
  if (keyword === 'patternProperties') return Object.values(value).map((part) => ['*', part]);
  if (keyword === 'prefixItems' && Array.isArray(value)) return value.map((part, index) => [`[${index}]`, part]);
  if (SCHEMA_MAPS.includes(keyword)) return Object.values(value).map((part) => ['', part]);
  if (SCHEMA_LISTS.includes(keyword) && Array.isArray(value)) return value.map((part) => ['', part]);
  if (!SCHEMA_SINGLES.includes(keyword)) return [];
  if (keyword === 'items') return Array.isArray(value) ? [] : [['[]', value]];
  if (keyword === 'contains' || keyword === 'unevaluatedItems') return [['[*]', value]];
  return [[['additionalProperties', 'unevaluatedProperties', 'propertyNames'].includes(keyword) ? '*' : '', value]];
}

function nameOf(name: string): string {
  return `.${name.replaceAll('*', '∗')}`;
}

/** What a reference leads to within the schema. */
function targetOf(parts: Parts, { root, tagged, targets }: Reading): object | undefined {
  const reference = parts['$ref'] ?? parts['$dynamicRef'];
  if (typeof reference !== 'string' || !(reference === '#' || reference.startsWith('#/'))) return undefined;
  if (targets.has(reference)) return targets.get(reference);
  let at: unknown = tagged;
  for (const step of reference.slice(1).split('/').slice(1)) {
    const name = decoded(step);
    at = typeof at === 'object' && at !== null && Object.hasOwn(at, name) ? (at as Parts)[name] : undefined;
  }
  const found = typeof at === 'object' && at !== null ? (at === tagged ? root : at) : undefined;
  targets.set(reference, found);
  return found;
}

/** Each definition after those that it refers to at the same place. Throws for one that refers to itself there. */
function inOrder(root: object, definitions: ReadonlyMap<object, Definition>): readonly object[] {
  const order = new Set<object>();
  const within = new Set<object>();
  const visit = (definition: object): void => {
    if (order.has(definition)) return;
    if (within.has(definition)) throw tooCostly('it refers to itself at the same place, without end');
    within.add(definition);
    for (const { target } of definitions.get(definition)?.here ?? []) visit(target);
    order.add(definition);
  };
  visit(root);
  for (const definition of definitions.keys()) visit(definition);
  return [...order];
}

function tooCostly(why: string): PawlError {
  return new PawlError('CONFIGURATION', `The schema is too costly: ${why}.`);
}
