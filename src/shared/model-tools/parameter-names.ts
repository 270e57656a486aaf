/**
 * Maps parameters to names that every provider accepts, and back. Anthropic refuses a whole request for one other name, such as `$filter`.
 */
import { digest } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { flatRoot } from './object-root.ts';

type Properties = Readonly<Record<string, unknown>>;

const MAX_LENGTH = 64;
const SUFFIX_LENGTH = 8;

/** Maps each parameter whose name providers refuse to its replacement. Providers check the root only. */
export function renamedParameters(schema: JsonSchema): ReadonlyMap<string, string> {
  const names = Object.keys((flatRoot(schema).schema['properties'] ?? {}) as object);
  const plain = names.map((name) => name.replaceAll(/[^A-Za-z0-9_.-]/g, '_') || '_');
  return new Map(
    names.flatMap((name, index) => {
      const plainName = plain[index] ?? '';
      const collides = plain.some((other, otherIndex) => other === plainName && otherIndex !== index);
      const isKept = name === plainName && name.length <= MAX_LENGTH;
      if (isKept) return [];
      return [[name, collides || plainName.length > MAX_LENGTH ? distinctParameter(name, plainName) : plainName]];
    }),
  );
}

/** Renames the properties of a schema that is one object at its root. The description of a renamed property has its original name. */
export function withPlainNames(schema: JsonSchema): JsonSchema {
  const renamed = renamedParameters(schema);
  if (renamed.size === 0) return schema;
  const nameOf = (name: string) => renamed.get(name) ?? name;
  const properties = Object.entries(schema['properties'] as Properties).map(([name, form]) => {
    const isRenamed = renamed.has(name) && typeof form === 'object';
    return [nameOf(name), isRenamed ? withOwnName(form as Properties, name) : form];
  });
  const required = schema['required'] as readonly string[] | undefined;
  return {
    ...schema,
    properties: Object.fromEntries(properties),
    ...(required !== undefined && { required: required.map(nameOf) }),
  };
}

export function toPlainNames(schema: JsonSchema, params: Properties): Properties {
  const renamed = renamedParameters(schema);
  return Object.fromEntries(Object.entries(params).map(([name, value]) => [renamed.get(name) ?? name, value]));
}

/** Parameters under the tool's own names, whichever of its names a model used. */
export function toOwnNames(schema: JsonSchema, params: Properties): Properties {
  const renamed = renamedParameters(schema);
  if (renamed.size === 0) return params;
  const originalNames = new Map([...renamed].map(([name, plainName]) => [plainName, name]));
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => {
      const original = originalNames.get(name);
      return [original === undefined || Object.hasOwn(params, original) ? name : original, value];
    }),
  );
}

function withOwnName(form: Properties, name: string): Properties {
  return {
    ...form,
    description: [form['description'], `Stands for ${JSON.stringify(name)}.`].filter(Boolean).join(' '),
  };
}

function distinctParameter(name: string, plainName: string): string {
  const suffix = digest(name)
    .replaceAll(/[^A-Za-z0-9]/g, '')
    .slice(0, SUFFIX_LENGTH);
  return `${plainName.slice(0, MAX_LENGTH - SUFFIX_LENGTH - 1)}_${suffix}`;
}
