/** Translates keywords of JSON Schema drafts 3 to 2019-09 to 2020-12. */
import { isObject } from '../util/json/json-types.ts';

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
function translateDependencies({ schema, note, drop }: SchemaEdit): void {
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
  if (Object.keys(required).length > 0)
    schema['dependentRequired'] = { ...required, ...(schema['dependentRequired'] as object | undefined) };
  if (Object.keys(schemas).length > 0)
    schema['dependentSchemas'] = { ...schemas, ...(schema['dependentSchemas'] as object | undefined) };
  note('dependencies made dependentRequired and dependentSchemas');
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

function translateDraft3({ schema, note, rename }: SchemaEdit): void {
  if (schema['divisibleBy'] !== undefined) {
    schema['divisibleBy'] = schema['multipleOf'] ?? schema['divisibleBy'];
    rename('divisibleBy', 'multipleOf');
  }
  const { extends: extended, disallow, allOf = [] } = schema;
  if (extended !== undefined) {
    schema['extends'] = [...(allOf as unknown[]), ...[extended].flat()];
    rename('extends', 'allOf');
  }
  if (disallow !== undefined) {
    const disallowed = [disallow].flat().map((entry) => (typeof entry === 'string' ? { type: entry } : entry));
    schema['allOf'] = [...((schema['allOf'] as unknown[] | undefined) ?? []), { not: { anyOf: disallowed } }];
    delete schema['disallow'];
    note('disallow made not');
  }
}
