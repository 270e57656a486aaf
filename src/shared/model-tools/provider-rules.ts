/** The schema rules and limits of each provider. */
import type { SubsetRules } from './provider-subset.ts';

const COMBINING = ['oneOf', 'allOf', 'not', 'if', 'then', 'else', 'dependentRequired', 'dependentSchemas'];

const COUNTING = ['patternProperties', 'propertyNames', 'contains', 'minContains', 'maxContains', 'uniqueItems'];

const BOUNDS = ['minProperties', 'maxProperties', 'unevaluatedProperties', 'unevaluatedItems'];

const CONTENT = ['contentEncoding', 'contentMediaType', 'contentSchema'];

const STRICT_FORMATS = ['date-time', 'time', 'date', 'duration', 'email', 'hostname', 'ipv4', 'ipv6', 'uuid'];

/** Everything that a strict form may hold. */
const STRICT_KEYWORDS = new Set([
  ...['type', 'properties', 'required', 'additionalProperties', 'items', 'enum', 'const', 'anyOf', '$ref', '$defs'],
  ...['title', 'description', 'format', 'pattern', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  ...['multipleOf', 'minItems', 'maxItems', 'minLength', 'maxLength'],
]);

/** The keywords of `parametersJsonSchema`. */
const GEMINI_KEYWORDS = new Set([
  ...['type', 'properties', 'required', 'additionalProperties', 'items', 'prefixItems', 'enum', 'anyOf'],
  ...['$ref', '$defs', 'title', 'description', 'format', 'minimum', 'maximum', 'minItems', 'maxItems', 'default'],
]);

export const OPENAI: SubsetRules = {
  known: STRICT_KEYWORDS,
  unknown: new Set([...COMBINING, ...COUNTING, ...BOUNDS, ...CONTENT, 'prefixItems']),
  formats: new Set(STRICT_FORMATS),
  nullForOptional: true,
  closed: true,
  constAsEnum: false,
};

export const OPENAI_LIMITS = {
  properties: 5_000,
  levels: 10,
  characters: 120_000,
  enumValues: 1_000,
  enumCharacters: 15_000,
} as const;

/** The rules for tools that are not strict, which OpenAI checks, too. */
export const PLAIN: SubsetRules = {
  unknown: new Set(['prefixItems']),
  itemsRequired: true,
  nullForOptional: false,
  closed: false,
  constAsEnum: false,
};

export const ANTHROPIC: SubsetRules = {
  known: STRICT_KEYWORDS,
  unknown: new Set([
    ...[...COMBINING, ...COUNTING, ...BOUNDS, ...CONTENT, 'prefixItems', 'maxItems', 'pattern'],
    ...['minLength', 'maxLength', 'minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ]),
  formats: new Set([...STRICT_FORMATS, 'uri']),
  largestMinItems: 1,
  nullForOptional: false,
  closed: true,
  constAsEnum: false,
};

/** The limits of one request; beyond them the API answers that the grammar is too large. */
export const ANTHROPIC_LIMITS = { tools: 20, optional: 24, unions: 16 } as const;

export const GEMINI: SubsetRules = {
  known: GEMINI_KEYWORDS,
  plainEnums: true,
  itemsRequired: true,
  describedRequired: true,
  unknown: new Set([
    ...[...COMBINING, ...COUNTING, ...BOUNDS, ...CONTENT, 'pattern', 'minLength', 'maxLength'],
    ...['exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'],
  ]),
  nullForOptional: false,
  closed: false,
  constAsEnum: true,
};
