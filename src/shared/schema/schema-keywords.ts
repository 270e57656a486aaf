/** Keywords of JSON Schema 2020-12 below which further schemas stand. */

/** By name. */
export const SCHEMA_MAPS: readonly string[] = ['properties', 'patternProperties', '$defs', 'dependentSchemas'];
/** In order. */
export const SCHEMA_LISTS: readonly string[] = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
/** One. */
export const SCHEMA_SINGLES: readonly string[] = [
  ...['items', 'additionalProperties', 'not', 'if', 'then', 'else', 'contains', 'propertyNames'],
  ...['unevaluatedProperties', 'unevaluatedItems'],
];
