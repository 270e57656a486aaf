/** Translates keywords of JSON Schema drafts 3 to 2019-09, and of OpenAPI 3.0, to 2020-12. */
import { isObject } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { ANNOTATION_KEYWORDS, UNCHECKED_KEYWORDS } from './schema-keywords.ts';

/** One schema of a document while it is changed. `note`, `drop` and `rename` report the changes. */
export interface SchemaEdit {
  readonly schema: Record<string, unknown>;
  note(change: string): void;
  drop(keyword: string, reason: string): void;
  rename(keyword: string, name: string): void;
}

export function translateOlderDrafts(edit: SchemaEdit): void {
  translateRecursion(edit);
  translateDependencies(edit);
  translateDraft3(edit);
}

/** Up to draft 7 a reference stands alone: what checks beside it has no effect. */
export function dropBesideReference({ schema, note }: SchemaEdit, dialect: unknown): void {
  if (typeof schema['$ref'] !== 'string' || typeof dialect !== 'string' || !/\/draft-0[3-7]\//.test(dialect)) return;
  const ignored = Object.keys(schema).filter((keyword) => keyword !== '$ref' && !UNCHECKED_KEYWORDS.includes(keyword));
  for (const keyword of ignored) delete schema[keyword];
  if (ignored.length > 0) note(`${ignored.join(', ')} dropped, the document's draft ignores it beside $ref`);
}

/** Draft 2019-09 has references that an outer schema can redirect. A document alone has no outer schema, so they become plain ones. */
function translateRecursion({ schema, note, drop, rename }: SchemaEdit): void {
  const reference = schema['$recursiveRef'];
  if (reference === '#' && schema['$ref'] === undefined) rename('$recursiveRef', '$ref');
  else if (reference !== undefined) {
    delete schema['$recursiveRef'];
    note(`$recursiveRef ${JSON.stringify(reference)} dropped, it is not "#"`);
  }
  // Draft 2020-12 has the same with names.
  if (schema['$dynamicRef'] !== undefined && schema['$ref'] === undefined) rename('$dynamicRef', '$ref');
  else if (schema['$dynamicRef'] !== undefined) drop('$dynamicRef', 'there is a $ref beside it');
  if (schema['$recursiveAnchor'] !== undefined) drop('$recursiveAnchor', 'its references are plain ones now');
}

/** Before 2019-09, one keyword held lists of names and schemas. */
function translateDependencies(edit: SchemaEdit): void {
  const { schema, note, drop } = edit;
  const { dependencies } = schema;
  if (dependencies === undefined) return;
  if (!isObject(dependencies)) return void drop('dependencies', 'it is no object');
  const required: Record<string, unknown> = {};
  const schemas: Record<string, unknown> = {};
  for (const [name, dependency] of Object.entries(dependencies)) {
    if (typeof dependency === 'string') required[name] = [dependency];
    else if (Array.isArray(dependency)) required[name] = dependency;
    else schemas[name] = dependency;
  }
  delete schema['dependencies'];
  addMembers(edit, 'dependentRequired', required);
  addMembers(edit, 'dependentSchemas', schemas);
  note('dependencies made dependentRequired and dependentSchemas');
}

/** Members that the keyword has already stay. */
function addMembers({ schema, drop }: SchemaEdit, keyword: string, members: Readonly<Record<string, unknown>>): void {
  if (Object.keys(members).length === 0) return;
  if (schema[keyword] !== undefined && !isObject(schema[keyword])) drop(keyword, 'it is no object');
  schema[keyword] = { ...members, ...(schema[keyword] as object | undefined) };
}

/** Draft 3, and many authors since, mark a required property inside its own schema. */
export function translateOwnRequired({ schema, note }: SchemaEdit): void {
  const { properties, required } = schema;
  if (!isObject(properties)) return;
  const ownRequired = (value: unknown) => (isObject(value) ? value['required'] : undefined);
  const entries = Object.entries(properties);
  if (!entries.some(([, value]) => typeof ownRequired(value) === 'boolean')) return;
  const names = entries.filter(([, value]) => ownRequired(value) === true).map(([name]) => name);
  if (names.length > 0) schema['required'] = [...new Set([...(Array.isArray(required) ? required : []), ...names])];
  schema['properties'] = Object.fromEntries(
    entries.map(([name, value]) => {
      if (typeof ownRequired(value) !== 'boolean') return [name, value];
      const { required: _, ...rest } = value as Record<string, unknown>;
      return [name, rest];
    }),
  );
  note('required of properties made a list of names');
}

function translateDraft3(edit: SchemaEdit): void {
  const { schema, note, rename } = edit;
  if (schema['divisibleBy'] !== undefined) {
    schema['divisibleBy'] = schema['multipleOf'] ?? schema['divisibleBy'];
    rename('divisibleBy', 'multipleOf');
  }
  const { extends: extended, disallow, type } = schema;
  if (extended !== undefined) {
    addToAllOf(edit, [extended].flat());
    delete schema['extends'];
    note('extends made allOf');
  }
  if (Array.isArray(type) && type.some(isObject)) {
    addToAllOf(edit, [{ anyOf: type.map(schemaOfType) }]);
    delete schema['type'];
    note('type with schemas made anyOf');
  }
  if (disallow !== undefined) {
    addToAllOf(edit, [{ not: { anyOf: [disallow].flat().map(schemaOfType) } }]);
    delete schema['disallow'];
    note('disallow made not');
  }
}

function addToAllOf({ schema, drop }: SchemaEdit, parts: readonly unknown[]): void {
  if (schema['allOf'] !== undefined && !Array.isArray(schema['allOf'])) drop('allOf', 'it is no list of schemas');
  schema['allOf'] = [...((schema['allOf'] as unknown[] | undefined) ?? []), ...parts];
}

/** Draft 3 has schemas among the names of types. */
function schemaOfType(entry: unknown): unknown {
  return typeof entry === 'string' ? { type: entry } : entry;
}

/** Draft 4 and OpenAPI 3.0 mark an exclusive bound by a boolean beside it. */
export function translateBounds({ schema, note, drop, rename }: SchemaEdit): void {
  for (const [exclusive, bound] of [
    ['exclusiveMinimum', 'minimum'],
    ['exclusiveMaximum', 'maximum'],
  ] as const) {
    if (typeof schema[exclusive] !== 'boolean') continue;
    if (schema[exclusive] && typeof schema[bound] === 'number') rename(bound, exclusive);
    else if (schema[exclusive]) drop(exclusive, `there is no ${bound}`);
    else {
      delete schema[exclusive];
      note(`${exclusive} dropped, it says nothing`);
    }
  }
}

/** Renames keywords of the drafts before 2019-09. */
export function renameOlderKeywords({ schema, note, drop, rename }: SchemaEdit): void {
  if (isObject(schema['definitions'])) {
    schema['$defs'] = { ...schema['definitions'], ...(isObject(schema['$defs']) ? schema['$defs'] : {}) };
    delete schema['definitions'];
    note('definitions renamed $defs');
  } else if (schema['definitions'] !== undefined) drop('definitions', 'it is no object');
  if (Array.isArray(schema['items'])) {
    schema['prefixItems'] = schema['items'];
    delete schema['items'];
    note('a list of items made prefixItems');
  }
  if (schema['additionalItems'] !== undefined) {
    if (Array.isArray(schema['prefixItems']) && schema['items'] === undefined) rename('additionalItems', 'items');
    else drop('additionalItems', 'there is no list of items beside it');
  }
  // Ajv refuses draft 4's `id`, and an address of two schemas. References by these names are rewritten to `$defs`.
  for (const name of ['id', '$id', '$anchor', '$dynamicAnchor'])
    if (schema[name] !== undefined) drop(name, 'references find their places without it');
}

/** Keywords next to which adding null to the type would not be enough. */
export const COMBINING_KEYWORDS = ['anyOf', 'oneOf', 'allOf', '$ref', 'not', 'if', 'const'];

/** OpenAPI 3.0 marks what may be null beside its type. */
export function acceptNull(schema: Record<string, unknown>): void {
  const types = [schema['type'] ?? []].flat();
  if (types.length > 0 && !types.includes('null')) schema['type'] = [...types, 'null'];
  if (Array.isArray(schema['enum']) && !schema['enum'].includes(null)) schema['enum'] = [...schema['enum'], null];
}

export function choiceWithNull(schema: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const entries = Object.entries(schema);
  const annotations = Object.fromEntries(entries.filter(([keyword]) => ANNOTATION_KEYWORDS.includes(keyword)));
  const { anyOf, ...rest } = Object.fromEntries(entries.filter(([keyword]) => !ANNOTATION_KEYWORDS.includes(keyword)));
  const choices = Array.isArray(anyOf) && Object.keys(rest).length === 0 ? anyOf : [{ ...rest, ...defined({ anyOf }) }];
  return { ...annotations, anyOf: [...choices, { type: 'null' }] };
}
