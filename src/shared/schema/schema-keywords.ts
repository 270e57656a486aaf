/** Keywords of JSON Schema 2020-12 that hold further schemas. */

/** Keywords that hold schemas by name. */
export const SCHEMA_MAPS: readonly string[] = ['properties', 'patternProperties', '$defs', 'dependentSchemas'];
export const SCHEMA_LISTS: readonly string[] = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
export const SCHEMA_SINGLES: readonly string[] = [
  ...['items', 'additionalProperties', 'not', 'if', 'then', 'else', 'contains', 'propertyNames'],
  ...['unevaluatedProperties', 'unevaluatedItems'],
];
