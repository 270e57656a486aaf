/**
 * Parameter names that every provider accepts, and their way back. Anthropic refuses a whole request for one other name, such as `$filter`.
 */
import { digest } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { flatRoot } from './object-root.ts';

type Named = Readonly<Record<string, unknown>>;

const MAX_LENGTH = 64;
const MARK_LENGTH = 8;

/** Maps each parameter whose name providers refuse to its replacement. Providers check the root only. */
export function renamedParameters(schema: JsonSchema): ReadonlyMap<string, string> {
  const names = Object.keys((flatRoot(schema).schema['properties'] ?? {}) as object);
  const plain = names.map((name) => name.replaceAll(/[^A-Za-z0-9_.-]/g, '_') || '_');
  return new Map(
    names.flatMap((name, index) => {
      const shown = plain[index] ?? '';
      const collides = plain.some((other, at) => other === shown && at !== index);
      const isKept = name === shown && name.length <= MAX_LENGTH;
      if (isKept) return [];
      return [[name, collides || shown.length > MAX_LENGTH ? distinct(name, shown) : shown]];
    }),
  );
}

/** Renames the properties of a schema that is one object at its root. The description of a renamed property says its own name. */
export function withPlainNames(schema: JsonSchema): JsonSchema {
  const renamed = renamedParameters(schema);
  if (renamed.size === 0) return schema;
  const nameOf = (name: string) => renamed.get(name) ?? name;
  const properties = Object.entries(schema['properties'] as Named).map(([name, form]) => {
    const isTold = renamed.has(name) && typeof form === 'object';
    return [nameOf(name), isTold ? withOwnName(form as Named, name) : form];
  });
  const required = schema['required'] as readonly string[] | undefined;
  return {
    ...schema,
    properties: Object.fromEntries(properties),
    ...(required === undefined ? {} : { required: required.map(nameOf) }),
  };
}

export function underPlainNames(schema: JsonSchema, params: Named): Named {
  const renamed = renamedParameters(schema);
  return Object.fromEntries(Object.entries(params).map(([name, value]) => [renamed.get(name) ?? name, value]));
}

/** Parameters under the tool's own names, whichever of its names a model used. */
export function underOwnNames(schema: JsonSchema, params: Named): Named {
  const renamed = renamedParameters(schema);
  if (renamed.size === 0) return params;
  const own = new Map([...renamed].map(([name, shown]) => [shown, name]));
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => {
      const meant = own.get(name);
      return [meant === undefined || Object.hasOwn(params, meant) ? name : meant, value];
    }),
  );
}

function withOwnName(form: Named, name: string): Named {
  return {
    ...form,
    description: [form['description'], `Stands for ${JSON.stringify(name)}.`].filter(Boolean).join(' '),
  };
}

function distinct(name: string, shown: string): string {
  const mark = digest(name)
    .replaceAll(/[^A-Za-z0-9]/g, '')
    .slice(0, MARK_LENGTH);
  return `${shown.slice(0, MAX_LENGTH - MARK_LENGTH - 1)}_${mark}`;
}
