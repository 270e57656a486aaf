/** Resolves references within a schema. All of them lead into the schema's own `$defs`, or to its root. */
import { getOrInsert } from '../util/get-or-insert.ts';
import { isObject, listOf } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { decodeStep } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';
import { ANNOTATIONS, mapSchemas } from './schema-keywords.ts';

const DEFINITIONS = '#/$defs/';
/** Keywords that name a schema. A copy of a definition must not keep them. */
const NAME_KEYWORDS = ['$id', '$anchor', '$dynamicAnchor', '$recursiveAnchor'];
/** Keywords that check the members which no other keyword checks, a reference or `allOf` included. */
const UNEVALUATED_KEYWORDS = ['unevaluatedProperties', 'unevaluatedItems'];
/** Keywords that check the members which other keywords of the schema do not check. */
const REMAINDER_KEYWORDS = ['additionalProperties', 'items', ...UNEVALUATED_KEYWORDS];
/** Keywords that check members, so that the remainder keywords skip these. */
const MEMBER_KEYWORDS = [
  ...['properties', 'patternProperties', 'prefixItems', 'contains'],
  ...['anyOf', 'oneOf', 'allOf', 'if', 'then', 'else', 'dependentSchemas'],
];

/** The target of a reference; undefined where there is none. */
export function referenced(reference: unknown, root: JsonSchema): unknown {
  if (reference === '#') return root;
  if (typeof reference !== 'string' || !reference.startsWith(DEFINITIONS)) return undefined;
  const definitions = (root['$defs'] ?? {}) as JsonSchema;
  const name = decodeStep(reference.slice(DEFINITIONS.length));
  return Object.hasOwn(definitions, name) ? definitions[name] : undefined;
}

/**
 * Merges a schema with the target of its reference, so that both hold. Returns the schema itself where it has no reference. A
 * reference that leads back to itself checks nothing.
 */
export function withoutReference(schema: JsonSchema, root: JsonSchema): JsonSchema {
  // Callers without types may pass anything.
  if ((schema as JsonSchema | undefined)?.['$ref'] === undefined) return schema;
  const cache = getOrInsert(mergedByRoot, root, () => new WeakMap<JsonSchema, JsonSchema>());
  return getOrInsert(cache, schema, () => mergeTarget(schema, root));
}

const NOTHING: JsonSchema = {};

/** The same for a schema that may be a boolean, which has no keywords. */
export function resolvedParts(schema: unknown, root: JsonSchema): JsonSchema {
  return typeof schema === 'object' && schema !== null ? withoutReference(schema as JsonSchema, root) : NOTHING;
}

/** A cache for each root. A repeated lookup returns the same object, so that a walk through a recursive schema can recognise it. */
const mergedByRoot = new WeakMap<JsonSchema, WeakMap<JsonSchema, JsonSchema>>();

function mergeTarget(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const siblings: JsonSchema[] = [];
  const seen = new Set<unknown>();
  let target: unknown = schema;
  while (isObject(target) && target['$ref'] !== undefined && !seen.has(target)) {
    seen.add(target);
    const { $ref, ...keywords } = target;
    siblings.push(keywords);
    target = referenced($ref, root);
  }
  if (target === false) return { ...annotationsOf(siblings), not: {} };
  const base = isObject(target) && !seen.has(target) ? withoutNames(target) : {};
  return siblings.reduceRight<JsonSchema>((merged, keywords) => mergeSchemas(merged, keywords), base);
}

/** Merges into one object where no keyword of one changes the other's meaning, else into an `allOf` of both. */
function mergeSchemas(target: JsonSchema, siblings: JsonSchema): JsonSchema {
  const { $defs, ...ownKeywords } = siblings;
  if (Object.keys(siblings).length === 0) return target;
  const definitions = defined({ $defs });
  const annotations = Object.fromEntries(Object.entries(ownKeywords).filter(([keyword]) => isAnnotation(keyword)));
  const rest = Object.fromEntries(Object.entries(ownKeywords).filter(([keyword]) => !isAnnotation(keyword)));
  const properties = { ...(target['properties'] as object), ...(rest['properties'] as object) };
  const isSimple = Object.keys(rest).every((keyword) => canMerge(keyword, rest, target));
  if (!isSimple) {
    const { $defs: targetDefs, ...targetRest } = target;
    const isUnevaluated = ([keyword]: [string, unknown]) => UNEVALUATED_KEYWORDS.includes(keyword);
    const unevaluated = Object.fromEntries(Object.entries(rest).filter(isUnevaluated));
    const others = Object.fromEntries(Object.entries(rest).filter((entry) => !isUnevaluated(entry)));
    const allOf = [targetRest, others];
    return { ...defined({ $defs: targetDefs }), ...annotations, ...definitions, type: 'object', allOf, ...unevaluated };
  }
  const required = [...new Set([...listOf(target['required']), ...listOf(rest['required'])])];
  return {
    ...target,
    ...rest,
    ...annotations,
    ...definitions,
    ...(Object.keys(properties).length === 0 && rest['properties'] === undefined ? {} : { properties }),
    ...(required.length === 0 ? {} : { required }),
  };
}

function canMerge(keyword: string, rest: JsonSchema, target: JsonSchema): boolean {
  const { [keyword]: ownValue } = rest;
  const { [keyword]: other } = target;
  if (keyword === 'required') return true;
  const names = keyword === 'properties' ? Object.keys(ownValue as object) : undefined;
  if (names?.length === 0) return true;
  if (other !== undefined && JSON.stringify(ownValue) === JSON.stringify(other)) return true;
  if (MEMBER_KEYWORDS.includes(keyword) && REMAINDER_KEYWORDS.some((each) => target[each] !== undefined)) return false;
  if (names !== undefined) return names.every((name) => !Object.hasOwn(other ?? {}, name));
  return other === undefined && (!REMAINDER_KEYWORDS.includes(keyword) || UNEVALUATED_KEYWORDS.includes(keyword));
}

function isAnnotation(keyword: string): boolean {
  return ANNOTATIONS.includes(keyword) || keyword.startsWith('$');
}

function annotationsOf(schemas: readonly JsonSchema[]): JsonSchema {
  const entries = schemas.toReversed().flatMap((schema) => Object.entries(schema));
  return Object.fromEntries(entries.filter(([keyword]) => isAnnotation(keyword)));
}

function withoutNames(parts: JsonSchema): JsonSchema {
  if (!NAME_KEYWORDS.some((name) => parts[name] !== undefined)) return parts;
  return Object.fromEntries(Object.entries(parts).filter(([keyword]) => !NAME_KEYWORDS.includes(keyword)));
}

/** Adds to `found` each of the schemas that uses one of it, directly or through others. */
export function addUsers(found: Set<unknown>, schemas: Iterable<JsonSchema>, root: JsonSchema): void {
  const users = new Map<unknown, unknown[]>();
  for (const schema of schemas) {
    const use = (target: unknown) => {
      getOrInsert(users, target, () => []).push(schema);
      return target;
    };
    use(referenced(schema['$ref'], root));
    mapSchemas(schema, use);
  }
  // A set also visits what is added meanwhile.
  for (const target of found) for (const user of users.get(target) ?? []) found.add(user);
}
