/** Keywords of JSON Schema 2020-12 that hold further schemas. */

/** Keywords that hold schemas by name. */
export const SCHEMA_MAPS: readonly string[] = ['properties', 'patternProperties', '$defs', 'dependentSchemas'];
/** Keywords that hold a list of schemas. */
export const SCHEMA_LISTS: readonly string[] = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
/** Keywords that hold one schema. */
export const SCHEMA_SINGLES: readonly string[] = [
  ...['items', 'additionalProperties', 'not', 'if', 'then', 'else', 'contains', 'propertyNames'],
  ...['unevaluatedProperties', 'unevaluatedItems'],
];
