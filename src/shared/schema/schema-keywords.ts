/** Keywords of JSON Schema 2020-12 that hold further schemas. */
import { isObject } from '../util/json/json-types.ts';
import { words } from '../util/text/words.ts';

/** Keywords that hold schemas by name. */
export const SCHEMA_MAPS: readonly string[] = ['properties', 'patternProperties', '$defs', 'dependentSchemas'];
export const SCHEMA_LISTS: readonly string[] = ['anyOf', 'oneOf', 'allOf', 'prefixItems'];
export const SCHEMA_SINGLES = words(
  'items additionalProperties not if then else contains propertyNames unevaluatedProperties unevaluatedItems',
);

/** Keywords that check no values. Next to a reference they replace those of its target. */
export const ANNOTATIONS = words('title description default examples deprecated readOnly writeOnly $comment');

/** Keywords that check no values, or concern the whole document. */
export const ANNOTATION_KEYWORDS = [
  ...ANNOTATIONS,
  ...['$schema', '$id', '$anchor', '$dynamicAnchor', '$defs', 'definitions'],
];
/** Keywords whose loss changes nothing of what a schema accepts. */
export const UNCHECKED_KEYWORDS = [
  ...ANNOTATION_KEYWORDS,
  ...['id', '$recursiveAnchor', 'additionalItems', 'contentEncoding', 'contentMediaType'],
];

const isText = (value: unknown) => typeof value === 'string';
/** JSON writes numbers that are not finite as null. */
const isNumber = (value: unknown) => Number.isFinite(value);
const isCount = (value: unknown) => Number.isInteger(value) && Number(value) >= 0;

/** Keywords with the kind of value that they take. A value of another kind makes Ajv refuse the whole schema. */
export const KEYWORD_VALUES: readonly (readonly [
  isFitting: (value: unknown) => boolean,
  kind: string,
  keywords: readonly string[],
])[] = [
  [
    isText,
    'text',
    ['title', 'description', '$comment', 'contentEncoding', 'contentMediaType', 'format', '$schema', '$ref'],
  ],
  [(value) => typeof value === 'boolean', 'boolean', ['deprecated', 'readOnly', 'writeOnly', 'uniqueItems']],
  [Array.isArray, 'list', ['examples', 'enum']],
  [isNumber, 'number', ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum']],
  [(value) => isNumber(value) && Number(value) > 0, 'number above 0', ['multipleOf']],
  [
    isCount,
    'whole number from 0 on',
    ['Length', 'Items', 'Contains', 'Properties'].flatMap((what) => [`min${what}`, `max${what}`]),
  ],
  [isObject, 'object', ['dependentRequired']],
  // Ajv’s own mark makes it answer every check with a promise, which looks like success. The other ones check no values.
  [() => false, 'restriction', ['$async', '$vocabulary', 'contentSchema']],
];

/** Whether each keyword has a value of its kind, at any depth: programs may read such a schema without looking. */
export function hasKeywordValues(schema: unknown): boolean {
  if (typeof schema === 'boolean') return true;
  if (Array.isArray(schema)) return schema.every(hasKeywordValues);
  if (!isObject(schema)) return false;
  const { type = [], required = [] } = schema;
  const isFitting = KEYWORD_VALUES.every(([fits, , keywords]) =>
    keywords.every((keyword) => schema[keyword] === undefined || fits(schema[keyword])),
  );
  if (!isFitting || ![type].flat().every(isText) || !Array.isArray(required) || !required.every(isText)) return false;
  for (const keyword of SCHEMA_MAPS)
    if (
      schema[keyword] !== undefined &&
      !(isObject(schema[keyword]) && hasKeywordValues(Object.values(schema[keyword])))
    )
      return false;
  for (const keyword of SCHEMA_LISTS)
    if (schema[keyword] !== undefined && !Array.isArray(schema[keyword])) return false;
  return [...SCHEMA_LISTS, ...SCHEMA_SINGLES].every(
    (keyword) => schema[keyword] === undefined || hasKeywordValues(schema[keyword]),
  );
}

/** A copy of a schema, with another one in place of each schema directly below it; undefined for what has no keywords. */
export function mapSchemas(schema: unknown, change: (below: unknown) => unknown): Record<string, unknown> | undefined {
  if (!isObject(schema)) return undefined;
  const made: Record<string, unknown> = { ...schema };
  for (const keyword of SCHEMA_MAPS)
    if (typeof made[keyword] === 'object' && made[keyword] !== null)
      made[keyword] = Object.fromEntries(Object.entries(made[keyword]).map(([name, part]) => [name, change(part)]));
  for (const keyword of SCHEMA_LISTS)
    if (Array.isArray(made[keyword])) made[keyword] = made[keyword].map((part) => change(part));
  for (const keyword of SCHEMA_SINGLES) if (made[keyword] !== undefined) made[keyword] = change(made[keyword]);
  return made;
}
