/** Resolves references within a schema. All of them lead into the schema's own `$defs`, or to its root. */
import { decoded } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';

const DEFINITIONS = '#/$defs/';
/** Keywords that check no values. Beside a reference they replace those of its target. */
const ANNOTATIONS = ['title', 'description', 'default', 'examples', 'deprecated', 'readOnly', 'writeOnly', '$comment'];
/** Keywords that name a schema. A copy of a definition must not keep them. */
const NAMES = ['$id', '$anchor', '$dynamicAnchor', '$recursiveAnchor'];
/** Keywords that check the members which the keywords beside them leave out. */
const OF_THE_REST = ['additionalProperties', 'unevaluatedProperties', 'unevaluatedItems', 'items'];
/** Keywords whose members those above leave alone. */
const DESCRIBING = [
  ...['properties', 'patternProperties', 'prefixItems', 'contains'],
  ...['anyOf', 'oneOf', 'allOf', 'if', 'then', 'else', 'dependentSchemas'],
];

/** The schema that a reference leads to; undefined where there is none. */
export function referenced(reference: unknown, root: JsonSchema): unknown {
  if (reference === '#') return root;
  if (typeof reference !== 'string' || !reference.startsWith(DEFINITIONS)) return undefined;
  const definitions = (root['$defs'] ?? {}) as JsonSchema;
  const name = decoded(reference.slice(DEFINITIONS.length));
  return Object.hasOwn(definitions, name) ? definitions[name] : undefined;
}

/**
 * Merges a schema with the target of its reference, so that both hold. Returns the schema itself where it has no reference. A
 * reference that leads back to itself checks nothing.
 */
export function withoutReference(schema: JsonSchema, root: JsonSchema): JsonSchema {
  // Callers without types may pass anything.
  if ((schema as JsonSchema | undefined)?.['$ref'] === undefined) return schema;
  const known = followed.get(root) ?? new WeakMap<JsonSchema, JsonSchema>();
  followed.set(root, known);
  const found = known.get(schema) ?? follow(schema, root);
  known.set(schema, found);
  return found;
}

/** A cache for each root. A repeated lookup gives the same object, by which a walk through a recursive schema knows where it was. */
const followed = new WeakMap<JsonSchema, WeakMap<JsonSchema, JsonSchema>>();

function follow(schema: JsonSchema, root: JsonSchema): JsonSchema {
  const beside: JsonSchema[] = [];
  const seen = new Set<unknown>();
  let target: unknown = schema;
  while (isObject(target) && target['$ref'] !== undefined && !seen.has(target)) {
    seen.add(target);
    const { $ref, ...own } = target;
    beside.push(own);
    target = referenced($ref, root);
  }
  if (target === false) return { ...annotationsOf(beside), not: {} };
  const last = isObject(target) && !seen.has(target) ? unnamed(target) : {};
  return beside.reduceRight<JsonSchema>((made, own) => both(made, own), last);
}

/** Merges into one object where no keyword of one changes the other's meaning, else into two that must both hold. */
function both(target: JsonSchema, beside: JsonSchema): JsonSchema {
  const { $defs, ...own } = beside;
  if (Object.keys(beside).length === 0) return target;
  const definitions = $defs === undefined ? {} : { $defs };
  const annotations = Object.fromEntries(Object.entries(own).filter(([keyword]) => isAnnotation(keyword)));
  const rest = Object.fromEntries(Object.entries(own).filter(([keyword]) => !isAnnotation(keyword)));
  const properties = { ...(target['properties'] as object), ...(rest['properties'] as object) };
  const isSimple = Object.keys(rest).every((keyword) => isApart(keyword, rest, target));
  if (!isSimple) {
    const { $defs: above, ...alone } = target;
    return { ...defs(above), ...annotations, ...definitions, type: 'object', allOf: [alone, rest] };
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

function isApart(keyword: string, rest: JsonSchema, target: JsonSchema): boolean {
  const { [keyword]: own } = rest;
  const { [keyword]: other } = target;
  if (keyword === 'required') return true;
  const names = keyword === 'properties' ? Object.keys(own as object) : undefined;
  if (names?.length === 0) return true;
  if (other !== undefined && JSON.stringify(own) === JSON.stringify(other)) return true;
  if (DESCRIBING.includes(keyword) && OF_THE_REST.some((each) => target[each] !== undefined)) return false;
  if (names !== undefined) return names.every((name) => !Object.hasOwn((other ?? {}) as object, name));
  return other === undefined && !OF_THE_REST.includes(keyword);
}

function isAnnotation(keyword: string): boolean {
  return ANNOTATIONS.includes(keyword) || keyword.startsWith('$');
}

function annotationsOf(all: readonly JsonSchema[]): JsonSchema {
  const entries = all.toReversed().flatMap((own) => Object.entries(own));
  return Object.fromEntries(entries.filter(([keyword]) => isAnnotation(keyword)));
}

function defs(definitions: unknown): JsonSchema {
  return definitions === undefined ? {} : { $defs: definitions };
}

function unnamed(parts: JsonSchema): JsonSchema {
  if (!NAMES.some((name) => parts[name] !== undefined)) return parts;
  return Object.fromEntries(Object.entries(parts).filter(([keyword]) => !NAMES.includes(keyword)));
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isObject(value: unknown): value is JsonSchema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
