/** What an exported schema may ask for, and what it may let through. */
import { Ajv2020, type ErrorObject } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import type { ToolReport } from '../../../src/shared/model-tools/export-types.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';

/** One for all: making it takes longer than compiling a schema. */
export const ajv = new Ajv2020({ strict: false, ownProperties: true, allErrors: true });
addFormats.default(ajv);

/** What a model sends that must say every property. */
export function withNulls(schema: unknown, value: unknown): unknown {
  const parts = (schema ?? {}) as JsonSchema;
  if (Array.isArray(parts['anyOf'])) {
    const made = parts['anyOf'].map((part) => ({ part, made: withNulls(part, value) }));
    return made.find(({ part, made: candidate }) => ajv.validate(part, candidate))?.made ?? value;
  }
  if (Array.isArray(value)) return value.map((item) => withNulls(parts['items'], item));
  if (typeof value !== 'object' || value === null) return value;
  const properties = (parts['properties'] ?? {}) as JsonSchema;
  const members = Object.entries(value).map(([name, member]) => [name, withNulls(properties[name], member)]);
  return { ...Object.fromEntries(Object.keys(properties).map((name) => [name, null])), ...Object.fromEntries(members) };
}

/** The failures that no keyword of the report stands for: of a choice, one alternative must fail on nothing but listed ones. */
export function unexplained(
  errors: readonly ErrorObject[],
  removedKeywords: ToolReport['removedKeywords'],
): readonly ErrorObject[] {
  const isChoice = ({ keyword }: ErrorObject) => keyword === 'anyOf' || keyword === 'oneOf';
  // "Exactly one of" is exported as "any of", and the places below it are named so.
  const placeOf = (path: string) => path.replaceAll('oneOf', 'anyOf');
  // The keyword itself, or something within what it says. One schema that all must match is exported as that schema.
  const listed = removedKeywords.map(({ path, keyword }) => {
    const place = placeOf(path === '' ? keyword : `${path}.${keyword}`).replaceAll('$', String.raw`\$`);
    return new RegExp(`^${place.replaceAll('.', String.raw`(?:\.allOf\.0)*\.`)}(?:.|$)`);
  });
  const isListed = ({ schemaPath }: ErrorObject) => {
    const failed = placeOf(schemaPath.split('/').slice(1).join('.'));
    return listed.some((pattern) => pattern.test(failed));
  };
  const under = (outer: ErrorObject, { schemaPath, instancePath }: ErrorObject, index = '') =>
    schemaPath.startsWith(`${outer.schemaPath}/${index}`) && instancePath.startsWith(outer.instancePath);
  const open = (within: readonly ErrorObject[]): readonly ErrorObject[] => {
    const outermost = within.filter((error) => !within.some((outer) => isChoice(outer) && under(outer, error)));
    return outermost.filter((error) => {
      if (isListed(error)) return false;
      if (!isChoice(error)) return true;
      const alternatives = Map.groupBy(
        within.filter((inner) => under(error, inner)),
        ({ schemaPath }) => schemaPath.slice(error.schemaPath.length + 1).split('/')[0] ?? '',
      );
      return ![...alternatives.values()].some((failures) => open(failures).length === 0);
    });
  };
  return open(errors);
}
