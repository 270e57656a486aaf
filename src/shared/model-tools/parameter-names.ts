/**
 * Maps parameters to names that every provider accepts, and back. Anthropic refuses a whole request for one other name, such as `$filter`.
 */
import type { JsonSchema } from '../schema/json-schema.ts';
import { distinctNames, MAX_NAME_LENGTH } from './names.ts';
import { flatRoot } from './object-root.ts';

type Properties = Readonly<Record<string, unknown>>;

/** Maps each parameter whose name providers refuse to its replacement. Providers check the root only. */
export function renamedParameters(schema: JsonSchema): ReadonlyMap<string, string> {
  const names = Object.keys(flatRoot(schema).schema['properties'] ?? {});
  const plain = names.map((name) => name.replaceAll(/[^A-Za-z0-9_.-]/g, '_') || '_');
  const distinct = distinctNames(plain, names);
  // A name that is accepted as it is stays, even where the plain form of another one equals it.
  const isKept = (name: string, index: number) => name === plain[index] && name.length <= MAX_NAME_LENGTH;
  return new Map(
    names.flatMap((name, index) => (isKept(name, index) ? [] : [[name, distinct[index] ?? name] as const])),
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
