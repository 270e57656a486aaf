/** Translates keywords of JSON Schema drafts 3 to 2019-09 to 2020-12. */
import { isObject } from '../util/json/json-types.ts';

/** One schema of a document while it is changed. `note` and `drop` report the changes. */
export interface SchemaEdit {
  readonly schema: Record<string, unknown>;
  note(change: string): void;
  drop(keyword: string, reason: string): void;
}

export function translateOlderDrafts(edit: SchemaEdit): void {
  translateRecursion(edit);
  translateDependencies(edit);
  translateDraft3(edit);
}

/** Draft 2019-09 has references that an outer schema can redirect. A document alone has no outer schema, so they become plain ones. */
function translateRecursion({ schema, note, drop }: SchemaEdit): void {
  const reference = schema['$recursiveRef'];
  if (reference !== undefined) {
    delete schema['$recursiveRef'];
    if (reference === '#' && schema['$ref'] === undefined) {
      schema['$ref'] = '#';
      note('$recursiveRef made $ref');
    } else note(`$recursiveRef ${JSON.stringify(reference)} dropped, it is not "#"`);
  }
  // Draft 2020-12 has the same with names.
  if (schema['$dynamicRef'] !== undefined && schema['$ref'] === undefined) {
    schema['$ref'] = schema['$dynamicRef'];
    delete schema['$dynamicRef'];
    note('$dynamicRef made $ref');
  } else if (schema['$dynamicRef'] !== undefined) drop('$dynamicRef', 'there is a $ref beside it');
  if (schema['$recursiveAnchor'] !== undefined) drop('$recursiveAnchor', 'its references are plain ones now');
}

/** Before 2019-09, one keyword held lists of names and schemas. */
function translateDependencies({ schema, note, drop }: SchemaEdit): void {
  const { dependencies } = schema;
  if (dependencies === undefined) return;
  if (!isObject(dependencies)) {
    drop('dependencies', 'it is no object');
    return;
  }
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
  const hasOwnRequired = (value: unknown) =>
    typeof (value as { readonly required?: unknown } | null)?.required === 'boolean';
  const entries = Object.entries(properties);
  if (!entries.some(([, value]) => hasOwnRequired(value))) return;
  const names = entries.filter(([, value]) => (value as { readonly required?: unknown } | null)?.required === true);
  if (names.length > 0)
    schema['required'] = [...new Set([...(Array.isArray(required) ? required : []), ...names.map(([name]) => name)])];
  schema['properties'] = Object.fromEntries(
    entries.map(([name, value]) => {
      if (!hasOwnRequired(value)) return [name, value];
      const { required: _, ...rest } = value as Record<string, unknown>;
      return [name, rest];
    }),
  );
  note('required of properties made a list of names');
}

function translateDraft3({ schema, note }: SchemaEdit): void {
  if (schema['divisibleBy'] !== undefined) {
    schema['multipleOf'] ??= schema['divisibleBy'];
    delete schema['divisibleBy'];
    note('divisibleBy made multipleOf');
  }
  if (schema['extends'] !== undefined) {
    schema['allOf'] = [...((schema['allOf'] as unknown[] | undefined) ?? []), ...[schema['extends']].flat()];
    delete schema['extends'];
    note('extends made allOf');
  }
  if (schema['disallow'] !== undefined) {
    const disallowed = [schema['disallow']]
      .flat()
      .map((entry) => (typeof entry === 'string' ? { type: entry } : entry));
    schema['allOf'] = [...((schema['allOf'] as unknown[] | undefined) ?? []), { not: { anyOf: disallowed } }];
    delete schema['disallow'];
    note('disallow made not');
  }
}
