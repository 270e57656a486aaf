/**
 * Ajv checks some keywords in another way here.
 *
 * Own members: values and schemas come from JSON, where `__proto__`, `constructor` and `toString` are names like any other. Ajv leaves
 * out schemas under `__proto__`, looks evaluated properties up in an object that inherits some, and calls a `toString` or `valueOf` that
 * it finds in a value.
 *
 * Linear costs: Ajv compares each item of a list with each other, writes the names of a `dependentRequired` once for each of them, and an
 * alternative once for each of its tags. It copies its code for all evaluated properties once for each of them.
 */
import { createRequire } from 'node:module';
import type { Ajv2020, CodeKeywordDefinition, FuncKeywordDefinition } from 'ajv/dist/2020.js';
import { isObject } from '../util/json/json-types.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { canonicalJson } from './canonical-json.ts';
import type { JsonSchema } from './json-schema.ts';
import { mapSchemas } from './schema-keywords.ts';
import type { Tag } from './tagged-union.ts';

const NAME = '__proto__';

/** The schema with what it says of `__proto__` also as a pattern, which Ajv checks. The same schema where it does not name it. */
export function withProtoMember(schema: JsonSchema): JsonSchema {
  return JSON.stringify(schema).includes(NAME) ? (asPattern(schema) as JsonSchema) : schema;
}

function asPattern(schema: unknown): unknown {
  const converted = mapSchemas(schema, asPattern);
  if (converted === undefined) return schema;
  const properties = protoMember(converted['properties']);
  const patterns = protoMember(converted['patternProperties']);
  const moved = defined({ [`^${NAME}$`]: properties, [`(?:${NAME})`]: patterns });
  if (Object.keys(moved).length === 0) return converted;
  return { ...converted, patternProperties: { ...(converted['patternProperties'] as object), ...moved } };
}

/** The schema under `__proto__`. */
function protoMember(map: unknown): unknown {
  return isObject(map) && Object.hasOwn(map, NAME) ? map[NAME] : undefined;
}

/** Lets the properties that a check has evaluated inherit nothing. Texts in the code, such as names, stay as they are. */
export function withBareEvaluated(code: string): string {
  return code.replaceAll(
    /"(?:[^"\\]|\\.)*"|\b(?<assign>props\d+ = (?:props\d+ \|\| )?)\{\};/g,
    (whole, assign: string | undefined) => (assign === undefined ? whole : `${assign}Object.create(null);`),
  );
}

const require = createRequire(import.meta.url);

/** `hasTags`: the schemas' unions are marked by `withTags`. */
export function replaceKeywords(ajv: Ajv2020, hasTags: boolean): void {
  addEqualityKeywords(ajv);
  for (const keyword of [UNIQUE_ITEMS, DEPENDENT_REQUIRED])
    ajv.removeKeyword(keyword.keyword as string).addKeyword(keyword);
  lookUpEvaluated(ajv);
  if (hasTags) addDiscriminator(ajv);
}

/** Replaces the comparison of each property with all evaluated ones, as long as their names are known, by a look-up. */
function lookUpEvaluated(ajv: Ajv2020): void {
  const { Name } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  const original = ajv.getKeyword('unevaluatedProperties') as CodeKeywordDefinition;
  ajv.removeKeyword('unevaluatedProperties').addKeyword({
    ...original,
    code: (context) => {
      const { gen, it } = context;
      const { props } = it;
      if (typeof props === 'object' && !(props instanceof Name))
        it.props = gen.scopeValue('obj', { ref: Object.assign(Object.create(null), props) });
      original.code(context);
    },
  });
}

/** Replaces the keywords of Ajv that compare values. */
function addEqualityKeywords(ajv: Ajv2020): void {
  const { _ } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  ajv.removeKeyword('const');
  ajv.addKeyword({
    keyword: 'const',
    error: {
      message: 'must be equal to constant',
      params: ({ schemaCode }) => _`{allowedValue: ${schemaCode}}`,
    },
    code: (context) => {
      const isSame = context.gen.scopeValue('func', { ref: isOneOf([context.schema]) });
      context.pass(_`${isSame}(${context.data})`);
    },
  });
  ajv.removeKeyword('enum');
  ajv.addKeyword({
    keyword: 'enum',
    schemaType: 'array',
    error: {
      message: 'must be equal to one of the allowed values',
      params: ({ schemaCode }) => _`{allowedValues: ${schemaCode}}`,
    },
    code: (context) => {
      const values = context.schema as readonly unknown[];
      if (values.length === 0) throw new Error('enum must have non-empty array');
      const isAllowed = context.gen.scopeValue('func', { ref: isOneOf(values) });
      context.pass(_`${isAllowed}(${context.data})`);
    },
  });
}

function isOneOf(values: readonly unknown[]): (value: unknown) => boolean {
  const plain = new Set(values.filter((each) => !isContainer(each)));
  const containers = values.filter(isContainer);
  return (value) => (isContainer(value) ? containers.some((each) => isEqual(value, each)) : plain.has(value));
}

function isContainer(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Compares JSON values. It goes as deep as the shallower of them. */
function isEqual(one: unknown, other: unknown): boolean {
  if (!isContainer(one) || !isContainer(other)) return one === other;
  if (Array.isArray(one) !== Array.isArray(other)) return false;
  const names = Object.keys(one);
  if (names.length !== Object.keys(other).length) return false;
  const [left, right] = [one as Readonly<Record<string, unknown>>, other as Readonly<Record<string, unknown>>];
  return names.every((name) => Object.hasOwn(right, name) && isEqual(left[name], right[name]));
}

const UNIQUE_ITEMS: FuncKeywordDefinition = {
  keyword: 'uniqueItems',
  type: 'array',
  schemaType: 'boolean',
  errors: false,
  error: { message: 'must NOT have duplicate items' },
  compile: (isUnique: boolean) => (items: readonly unknown[]) =>
    !isUnique || new Set(items.map((item) => canonicalJson(item))).size === items.length,
};

const DEPENDENT_REQUIRED: FuncKeywordDefinition = {
  keyword: 'dependentRequired',
  type: 'object',
  schemaType: 'object',
  compile: (dependencies: Readonly<Record<string, readonly string[]>>) => {
    const check: ReturnType<NonNullable<FuncKeywordDefinition['compile']>> = (data: object) => {
      const broken = Object.entries(dependencies).filter(
        ([name, needed]) => Object.hasOwn(data, name) && !needed.every((each) => Object.hasOwn(data, each)),
      );
      check.errors = broken.map(([name, needed]) => ({
        keyword: 'dependentRequired',
        message: `must have ${needed.length === 1 ? 'property' : 'properties'} ${needed.join(', ')} when property ${name} is present`,
      }));
      return broken.length === 0;
    };
    return check;
  },
};

function addDiscriminator(ajv: Ajv2020): void {
  const { _, Name } = require('ajv/dist/2020.js') as typeof import('ajv/dist/2020.js');
  ajv.removeKeyword('discriminator').addKeyword({
    keyword: 'discriminator',
    // All keywords that evaluate properties follow, so that the alternative's are collected first.
    before: 'propertyNames',
    type: 'object',
    schemaType: 'object',
    error: { message: 'must have one of the tags' },
    code: (context) => {
      const { gen, data, schema } = context;
      const { propertyName, alternatives } = schema as Tag;
      const indexes = new Map(alternatives.flatMap((values, index) => values.map((value) => [value, index] as const)));
      const find = (value: object) =>
        Object.hasOwn(value, propertyName)
          ? indexes.get((value as Record<string, string>)[propertyName] ?? '')
          : undefined;
      const isValid = gen.let('valid', false);
      const chosen = gen.const('chosen', _`${gen.scopeValue('func', { ref: find })}(${data})`);
      gen.if(_`${chosen} === undefined`, () => context.error());
      for (const schemaProp of alternatives.keys())
        gen.if(_`${chosen} === ${schemaProp}`, () => {
          const result = gen.name('valid');
          const alternative = context.subschema({ keyword: 'oneOf', schemaProp }, result);
          context.mergeEvaluated(alternative, Name);
          gen.assign(isValid, result);
        });
      context.ok(isValid);
    },
  });
}
