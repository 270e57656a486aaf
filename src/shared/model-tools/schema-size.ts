/** The size of a schema, in the measures of the providers' limits. */
import { ANNOTATIONS } from '../schema/schema-keywords.ts';

type SchemaObject = Record<string, unknown>;

/** Up to this number of enum values, their length is not limited. */
const MANY_ENUM_VALUES = 250;

export function measureSchema(schema: unknown): {
  readonly properties: number;
  readonly levels: number;
  readonly enumValues: number;
  /** The characters of the texts of one enum with many values. */
  readonly enumCharacters: number;
  readonly characters: number;
  readonly optional: number;
  readonly unions: number;
} {
  let [properties, enumValues, enumCharacters, optional, unions] = [0, 0, 0, 0, 0];
  const levelsOf = (part: unknown): number => {
    if (typeof part !== 'object' || part === null) return 0;
    if (Array.isArray(part)) return Math.max(0, ...part.map(levelsOf));
    const parts = part as SchemaObject;
    let deepest = 0;
    for (const [keyword, value] of Object.entries(parts)) {
      if (ANNOTATIONS.includes(keyword) || keyword === 'enum' || keyword === 'const' || keyword === 'required')
        continue;
      if (keyword === 'properties' || keyword === '$defs')
        deepest = Math.max(deepest, ...Object.values(value as object).map(levelsOf));
      else deepest = Math.max(deepest, levelsOf(value));
    }
    const ownLevel = parts['properties'] === undefined ? 0 : 1;
    const names = Object.keys(parts['properties'] ?? {});
    properties += names.length;
    optional += names.filter(
      (name) => !((parts['required'] as readonly string[] | undefined) ?? []).includes(name),
    ).length;
    if (Array.isArray(parts['enum'])) {
      const values: readonly unknown[] = parts['enum'];
      enumValues += values.length;
      const characters = values.reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 0), 0);
      if (values.length > MANY_ENUM_VALUES) enumCharacters = Math.max(enumCharacters, characters);
    }
    if (Array.isArray(parts['anyOf']) || Array.isArray(parts['type'])) unions += 1;
    return deepest + ownLevel;
  };
  const levels = levelsOf(schema);
  return {
    properties,
    levels,
    enumValues,
    enumCharacters,
    characters: JSON.stringify(schema).length,
    optional,
    unions,
  };
}
