/**
 * Schemas from elsewhere (MCP servers, dynamic tools, imports) made usable (C7, C8, C22): types inferred where they are missing,
 * structural fields ensured, references that cannot be followed and patterns that cannot be matched taken out. What was changed
 * is told, so that nobody is surprised by it later.
 */
import { isLinear } from './pattern.ts';
import type { JsonSchema } from './schema.ts';

export interface SanitizedSchema {
  readonly schema: JsonSchema;
  /** What was changed, with its place: `properties.a: type inferred as object`. */
  readonly changes: readonly string[];
}

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'];
const MAX_DEPTH = 64;

/** Which keyword tells the type of a schema that does not say it. The first that is there wins. */
const TELLING: readonly (readonly [keyword: string, type: string])[] = [
  ['properties', 'object'],
  ['required', 'object'],
  ['additionalProperties', 'object'],
  ['patternProperties', 'object'],
  ['items', 'array'],
  ['prefixItems', 'array'],
  ['minItems', 'array'],
  ['maxItems', 'array'],
  ['uniqueItems', 'array'],
  ['pattern', 'string'],
  ['minLength', 'string'],
  ['maxLength', 'string'],
  ['format', 'string'],
  ['minimum', 'number'],
  ['maximum', 'number'],
  ['exclusiveMinimum', 'number'],
  ['exclusiveMaximum', 'number'],
  ['multipleOf', 'number'],
];
/** A schema with one of these needs no type of its own. */
const SPEAKS_OTHERWISE = ['anyOf', 'oneOf', 'allOf', '$ref', 'not', 'if', 'const', 'enum'];
const MAPS = ['properties', 'patternProperties', '$defs', 'dependentSchemas'];
const LISTS = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
const SINGLES = [
  'items',
  'additionalProperties',
  'not',
  'if',
  'then',
  'else',
  'contains',
  'propertyNames',
  'unevaluatedProperties',
  'unevaluatedItems',
];

/** The schema of a tool's parameters: an object at its root, whatever came. Of an output: whatever it describes. */
export function sanitizeSchema(foreign: unknown, of: 'parameters' | 'output' = 'parameters'): SanitizedSchema {
  const changes: string[] = [];
  const root = isObject(foreign) ? foreign : {};
  if (!isObject(foreign))
    changes.push(`root: ${foreign === undefined ? 'nothing' : typeof foreign} replaced by an object`);
  const schema = sanitize(root, '', changes, 0, root) as Record<string, unknown>;
  delete schema['$schema'];
  if (of === 'output') return { schema, changes };
  if (schema['type'] !== 'object' && schema['$ref'] === undefined) {
    changes.push(`root: type ${JSON.stringify(schema['type']) ?? 'missing'} made object`);
    schema['type'] = 'object';
  }
  if (!isObject(schema['properties'])) schema['properties'] = {};
  return { schema, changes };
}

function sanitize(value: unknown, at: string, changes: string[], depth: number, root: object): unknown {
  if (typeof value === 'boolean') return value;
  const place = at === '' ? 'root' : at;
  if (!isObject(value) || depth > MAX_DEPTH) {
    changes.push(`${place}: ${depth > MAX_DEPTH ? 'nested too deep' : 'no schema'}, accepts anything`);
    return {};
  }
  const made: Record<string, unknown> = { ...value };
  const below = (part: unknown, name: string) =>
    sanitize(part, at === '' ? name : `${at}.${name}`, changes, depth + 1, root);
  const drop = (keyword: string, why: string) => {
    delete made[keyword];
    changes.push(`${place}: ${keyword} dropped, ${why}`);
  };
  if (isObject(made['definitions']) && !isObject(made['$defs'])) {
    made['$defs'] = made['definitions'];
    delete made['definitions'];
    changes.push(`${place}: definitions renamed $defs`);
  }
  if (Array.isArray(made['items'])) {
    made['prefixItems'] = made['items'];
    delete made['items'];
    changes.push(`${place}: a list of items made prefixItems`);
  }
  for (const keyword of MAPS) {
    if (made[keyword] === undefined) continue;
    if (isObject(made[keyword]))
      made[keyword] = Object.fromEntries(
        Object.entries(made[keyword]).map(([name, part]) => [name, below(part, `${keyword}.${name}`)]),
      );
    else drop(keyword, 'it is no object');
  }
  for (const keyword of LISTS) {
    if (made[keyword] === undefined) continue;
    if (Array.isArray(made[keyword]) && made[keyword].length > 0)
      made[keyword] = made[keyword].map((part, index) => below(part, `${keyword}.${index}`));
    else drop(keyword, 'it is no list of schemas');
  }
  for (const keyword of SINGLES) if (made[keyword] !== undefined) made[keyword] = below(made[keyword], keyword);
  if (typeof made['$ref'] === 'string') repairReference(made, made['$ref'], root, drop);
  if (made['pattern'] !== undefined && !(typeof made['pattern'] === 'string' && isLinear(made['pattern'])))
    drop('pattern', 'it cannot be matched in linear time');
  if (made['required'] !== undefined && !isListOfTexts(made['required'])) drop('required', 'it is no list of names');
  repairType(made, place, changes, drop);
  if (made['type'] === 'object' && made['properties'] === undefined && made['additionalProperties'] === undefined) {
    made['properties'] = {};
    changes.push(`${place}: properties added`);
  }
  if (made['type'] === 'array' && made['items'] === undefined && made['prefixItems'] === undefined) {
    made['items'] = {};
    changes.push(`${place}: items added`);
  }
  return made;
}

function repairReference(
  made: Record<string, unknown>,
  reference: string,
  root: object,
  drop: (keyword: string, why: string) => void,
): void {
  const pointer = reference.replace(/^#\/definitions\//, '#/$defs/');
  if (pointer === '#') return;
  const [, name] = /^#\/\$defs\/([^/]+)$/.exec(pointer) ?? [];
  const holders = root as { readonly $defs?: object; readonly definitions?: object };
  const defined = { ...holders.definitions, ...holders.$defs };
  if (
    name === undefined ||
    !Object.hasOwn(defined, decodeURIComponent(name).replaceAll('~1', '/').replaceAll('~0', '~'))
  )
    drop('$ref', `${JSON.stringify(reference.slice(0, 100))} cannot be followed`);
  else made['$ref'] = pointer;
}

function repairType(
  made: Record<string, unknown>,
  place: string,
  changes: string[],
  drop: (keyword: string, why: string) => void,
): void {
  const type = made['type'];
  const known = (name: unknown) => typeof name === 'string' && TYPES.includes(name);
  if (type !== undefined && !(known(type) || (Array.isArray(type) && type.length > 0 && type.every(known))))
    drop('type', `${JSON.stringify(type)} is none of JSON Schema`);
  if (made['type'] !== undefined || SPEAKS_OTHERWISE.some((keyword) => made[keyword] !== undefined)) return;
  const inferred = TELLING.find(([keyword]) => made[keyword] !== undefined)?.[1];
  if (inferred === undefined) return;
  made['type'] = inferred;
  changes.push(`${place}: type inferred as ${inferred}`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isListOfTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((entry) => typeof entry === 'string');
}
