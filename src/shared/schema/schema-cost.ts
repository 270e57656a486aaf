/**
 * Bounds the cost of checking a value by a schema. References let a small schema cause exponential work: if each definition holds two
 * references to the next one, the second is checked twice, the third four times, and so on; a recursive one as deep as the value goes.
 *
 * Only checks at the same place of a value multiply. So the work of a definition for a value of a given depth is its own work, plus that of
 * all definitions that it refers to at the same place, plus that of the costliest place below.
 */
import { PawlError } from '../errors/failure.ts';
import { getOrInsert } from '../util/get-or-insert.ts';
import type { JsonSchema } from './json-schema.ts';
import { NamedSchemas } from './reference-places.ts';
import { SCHEMA_LISTS, SCHEMA_MAPS, SCHEMA_SINGLES } from './schema-keywords.ts';
import { characterCost, sizeOfSchema } from './schema-weight.ts';
import { withTags } from './tagged-union.ts';

/** The largest number of schemas within one. Compiling more blocks a process for too long. */
const MAX_SCHEMAS = 5_000;
/** The largest number of checks for one place of a value. */
const MAX_CHECKS = 50_000;
/** A schema that accepts no value of this depth is of no use. */
const MIN_DEPTH = 4;
/** The greatest depth of values. */
const MAX_DEPTH = 128;

/** A reference to a definition, at the place of another definition or below it. */
interface Link {
  readonly target: object;
  /** The place of the value that the target checks; '' for the place of the definition itself. */
  readonly place: string;
  /** The levels from the definition down to that place. */
  readonly steps: number;
}

/** A schema that others refer to, or the root. */
interface Definition {
  readonly checks: number;
  /** The size of the definition with its content: an upper bound for the cost of one place, without references. */
  readonly weight: number;
  /** An upper bound for the cost of one character, without references. */
  readonly text: number;
  readonly samePlace: readonly Link[];
  /** The places below, each with the references there. */
  readonly below: readonly (readonly Link[])[];
}

export interface CheckCost {
  /** The largest depth of a value that is not too costly to check; undefined where every depth is affordable. */
  readonly maxDepth: number | undefined;
  /** An upper bound for the cost of checking one member, in a value of this depth. */
  maxWork(depth: number): number;
  /** An upper bound for the cost of one character of a text or a name, in a value of this depth. */
  maxTextWork(depth: number): number;
}

/** Throws `CONFIGURATION` for a schema that is too costly for any value, or too large, or that refers to itself without end. */
export function checkCost(schema: JsonSchema): CheckCost {
  try {
    return costOf(schema);
  } catch (error) {
    if (error instanceof RangeError) throw tooCostly('it is nested too deep');
    throw error;
  }
}

function costOf(schema: JsonSchema): CheckCost {
  const definitions = definitionsOf(schema);
  const order = topologicalOrder(schema, definitions);
  const isFlat = definitions.size === 1 && (definitions.get(schema)?.below.length ?? 0) === 0;
  const checks: ReadonlyMap<object, number>[] = [];
  const weights: ReadonlyMap<object, number>[] = [];
  const texts: ReadonlyMap<object, number>[] = [];
  const at = (levels: readonly ReadonlyMap<object, number>[]) => (depth: number) =>
    levels[Math.min(depth, levels.length - 1)]?.get(schema) ?? 0;
  const work = { maxWork: at(weights), maxTextWork: at(texts) };
  for (let depth = 0; depth <= (isFlat ? 0 : MAX_DEPTH); depth += 1) {
    checks.push(workAtDepth(depth, { order, definitions, shallower: checks, measure: 'checks' }));
    weights.push(workAtDepth(depth, { order, definitions, shallower: weights, measure: 'weight' }));
    texts.push(workAtDepth(depth, { order, definitions, shallower: texts, measure: 'text' }));
    if ((checks[depth]?.get(schema) ?? 0) <= MAX_CHECKS) continue;
    if (depth > MIN_DEPTH) return { maxDepth: depth - 1, ...work };
    throw tooCostly(`its references ask for more than ${MAX_CHECKS} checks of one value`);
  }
  return { maxDepth: undefined, ...work };
}

interface Work {
  readonly order: readonly object[];
  readonly definitions: ReadonlyMap<object, Definition>;
  readonly shallower: readonly ReadonlyMap<object, number>[];
  readonly measure: 'checks' | 'weight' | 'text';
}

function workAtDepth(depth: number, { order, definitions, shallower, measure }: Work): ReadonlyMap<object, number> {
  const all = new Map<object, number>();
  for (const target of order) {
    const definition = definitions.get(target);
    if (definition === undefined) continue;
    all.set(target, definition[measure] + referencedWork(definition, depth, all, shallower));
  }
  return all;
}

const costlyCache = new WeakMap<JsonSchema, boolean>();

export function isTooCostly(schema: JsonSchema): boolean {
  return getOrInsert(costlyCache, schema, () => exceedsCost(schema));
}

function exceedsCost(schema: JsonSchema): boolean {
  try {
    checkCost(schema);
    return false;
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    return true;
  }
}

function referencedWork(
  definition: Definition,
  depth: number,
  here: ReadonlyMap<object, number>,
  shallower: readonly ReadonlyMap<object, number>[],
): number {
  const sum = (links: readonly Link[], workMap: (link: Link) => ReadonlyMap<object, number> | undefined) =>
    links.reduce((all, link) => all + (workMap(link)?.get(link.target) ?? 0), 0);
  const costs = definition.below.map((links) => sum(links, ({ steps }) => shallower[depth - steps]));
  return sum(definition.samePlace, () => here) + costs.reduce((max, cost) => Math.max(max, cost), 0);
}

/** The definitions that the root reaches. */
function definitionsOf(root: JsonSchema): ReadonlyMap<object, Definition> {
  const found = new Map<object, Definition>();
  const tagged = withTags(root) ?? root;
  const state: ReadState = { root, tagged, schemas: 0, named: new NamedSchemas(tagged) };
  const pending: object[] = [root];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (found.has(next)) continue;
    const { links, checks, texts } = readSchema(next === root ? state.tagged : next, state);
    found.set(next, definitionFrom({ checks, weight: sizeOfSchema(next), text: textWork(texts) }, links));
    pending.push(...links.map(({ target }) => target));
  }
  return found;
}

function definitionFrom(counts: Pick<Definition, 'checks' | 'weight' | 'text'>, links: readonly Link[]): Definition {
  const below = Map.groupBy(
    links.filter(({ steps }) => steps > 0),
    ({ place }) => place,
  );
  // A check of every member also checks each member that has a name.
  const everyMember = links.filter(({ place }) => place.includes('*'));
  const places = [...below].map(([place, placeLinks]) =>
    place.includes('*') ? everyMember : [...placeLinks, ...everyMember],
  );
  return { ...counts, samePlace: links.filter(({ steps }) => steps === 0), below: places };
}

interface ReadState {
  readonly root: JsonSchema;
  /** The root with marked unions. Only one alternative of a tagged union is checked. */
  readonly tagged: JsonSchema;
  schemas: number;
  readonly named: NamedSchemas;
}

interface SchemaLinks {
  readonly links: readonly Link[];
  readonly checks: number;
  readonly texts: readonly TextUse[];
}

/** The cost of each character at a place, or, for `content`, at all places below it. */
interface TextUse {
  readonly place: string;
  readonly work: number;
  readonly isContent?: boolean;
}

/** The work for a character at the costliest place. Checks of every member, and of all content, add to that of each place. */
function textWork(uses: readonly TextUse[]): number {
  const isEverywhere = ({ place, isContent }: TextUse) => isContent === true || place.includes('*');
  const sums = Map.groupBy(
    uses.filter((use) => !isEverywhere(use)),
    ({ place }) => place,
  );
  const sumOf = (all: readonly TextUse[]) => all.reduce((sum, { work }) => sum + work, 0);
  return sumOf(uses.filter(isEverywhere)) + [...sums.values()].reduce((max, all) => Math.max(max, sumOf(all)), 0);
}

function textUses(schema: JsonSchema, place: string): readonly TextUse[] {
  const { text, names, content } = characterCost(schema);
  const uses = [
    { place, work: text },
    { place: `${place}/*`, work: names },
    { place, work: content, isContent: true },
  ];
  return uses.filter(({ work }) => work > 0);
}

/** One schema with all schemas in it, up to the references. */
function readSchema(schema: unknown, state: ReadState, place = '', steps = 0): SchemaLinks {
  state.schemas += 1;
  if (state.schemas > MAX_SCHEMAS) throw tooCostly(`it holds more than ${MAX_SCHEMAS} schemas`);
  if (typeof schema !== 'object' || schema === null) return { links: [], checks: 0, texts: [] };
  const parts = schema as JsonSchema;
  const targets = state.named.targetsOf(parts).map((target) => (target === state.tagged ? state.root : target));
  const links = targets.map((target) => ({ target, place, steps }));
  const collected: SchemaLinks[] = [{ links, checks: steps === 0 ? 1 : 0, texts: textUses(parts, place) }];
  for (const [keyword, value] of Object.entries(parts)) {
    const children = subschemas(keyword, value).map(([name, part]) =>
      name === '' ? readSchema(part, state, place, steps) : readSchema(part, state, `${place}/${name}`, steps + 1),
    );
    const isTagged = keyword === 'oneOf' && parts['discriminator'] !== undefined;
    collected.push(...(isTagged ? children.toSorted((a, b) => b.links.length - a.links.length).slice(0, 1) : children));
    if (isTagged) collected.push(...children.map(excludeAlternative));
  }
  return {
    links: collected.flatMap(({ links }) => links),
    checks: collected.reduce((sum, { checks }) => sum + checks, 0),
    texts: collected.flatMap(({ texts }) => texts),
  };
}

/** The tag excludes this alternative from checks, but its references must still be followed. */
function excludeAlternative({ links, texts }: SchemaLinks, index: number): SchemaLinks {
  const elsewhere = (place: string) => `|${index}${place}`;
  const exclude = (link: Link) => ({ ...link, place: elsewhere(link.place), steps: Math.max(1, link.steps) });
  return {
    links: links.map(exclude),
    checks: 0,
    texts: texts.map((use) => ({ ...use, place: elsewhere(use.place) })),
  };
}

/** The schemas below a keyword, each with the place that it checks; '' for the same place. */
function subschemas(keyword: string, value: unknown): (readonly [place: string, schema: unknown])[] {
  if (keyword === '$defs' || keyword === 'definitions' || typeof value !== 'object' || value === null) return [];
  if (keyword === 'properties') return Object.entries(value).map(([name, part]) => [memberPlace(name), part]);
  if (keyword === 'patternProperties') return Object.values(value).map((part) => ['*', part]);
  if (keyword === 'prefixItems' && Array.isArray(value)) return value.map((part, index) => [`[${index}]`, part]);
  if (SCHEMA_MAPS.includes(keyword)) return Object.values(value).map((part) => ['', part]);
  if (SCHEMA_LISTS.includes(keyword) && Array.isArray(value)) return value.map((part) => ['', part]);
  if (!SCHEMA_SINGLES.includes(keyword)) return [];
  if (keyword === 'items') return Array.isArray(value) ? [] : [['[]', value]];
  if (keyword === 'contains' || keyword === 'unevaluatedItems') return [['[*]', value]];
  return [[['additionalProperties', 'unevaluatedProperties', 'propertyNames'].includes(keyword) ? '*' : '', value]];
}

function memberPlace(name: string): string {
  return `.${name.replaceAll('*', '∗')}`;
}

/** Sorts each definition behind those that it refers to at the same place. Throws for one that refers to itself there. */
function topologicalOrder(root: object, definitions: ReadonlyMap<object, Definition>): readonly object[] {
  const order = new Set<object>();
  const visiting = new Set<object>();
  const visit = (definition: object): void => {
    if (order.has(definition)) return;
    if (visiting.has(definition)) throw tooCostly('it refers to itself at the same place, without end');
    visiting.add(definition);
    for (const { target } of definitions.get(definition)?.samePlace ?? []) visit(target);
    order.add(definition);
  };
  visit(root);
  for (const definition of definitions.keys()) visit(definition);
  return [...order];
}

export function tooCostly(reason: string): PawlError {
  return new PawlError('CONFIGURATION', `The schema is too costly: ${reason}.`);
}
