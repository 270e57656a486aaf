/**
 * References in a node's parameters: `{"$from": "node.path.to.value"}` stands for a value, and `{"$literal": …}` for what it holds, taken
 * as it is. A reference may be a list of parts, for names with dots.
 */
import { canonicalJson } from '../schema/canonical-json.ts';
import type { Reference } from './plan.ts';

/** A reference and its place in the parameters. */
export interface FoundReference {
  /** The place, as issues name it. */
  readonly at: readonly string[];
  readonly node: string;
  readonly path: readonly string[];
}

export function parseReference({ $from }: Reference): { readonly node: string; readonly path: readonly string[] } {
  const [node = '', ...path] = typeof $from === 'string' ? $from.split('.') : $from;
  return { node, path };
}

export function isReference(value: unknown): value is Reference {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, '$from')) return false;
  const { $from } = value as { readonly $from: unknown };
  const isPath = Array.isArray($from) && $from.length > 0 && $from.every((part) => typeof part === 'string');
  return Object.keys(value).length === 1 && (isPath || (typeof $from === 'string' && $from !== ''));
}

function isLiteral(value: object): value is { readonly $literal: unknown } {
  return Object.hasOwn(value, '$literal') && Object.keys(value).length === 1;
}

/** Every reference, and each object that looks like one and is none. */
export function referencesIn(params: unknown): {
  readonly references: readonly FoundReference[];
  readonly malformed: readonly (readonly string[])[];
} {
  const references: FoundReference[] = [];
  const malformed: (readonly string[])[] = [];
  const visit = (value: unknown, at: readonly string[]): void => {
    if (typeof value !== 'object' || value === null || isLiteral(value)) return;
    if (isReference(value)) return void references.push({ at, ...parseReference(value) });
    if (Object.hasOwn(value, '$from')) return void malformed.push(at);
    for (const [name, member] of Object.entries(value)) visit(member, [...at, name]);
  };
  visit(params, []);
  return { references, malformed };
}

/** A copy with each reference replaced by what `readValue` says. */
export function resolveReferences(value: unknown, readValue: (reference: Reference) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (isLiteral(value)) return value.$literal;
  if (isReference(value)) return readValue(value);
  if (Array.isArray(value)) return value.map((item: unknown) => resolveReferences(item, readValue));
  const entries = Object.entries(value).map(([name, member]) => [name, resolveReferences(member, readValue)] as const);
  return Object.fromEntries(entries);
}

/**
 * Whether a node's parameters may have become this value: all but the references is the same. A member that is null, or a reference to it,
 * may be left out, as it is where a tool does not take null.
 */
export function mayBecome(template: unknown, value: unknown): boolean {
  if (isReference(template)) return true;
  if (typeof template !== 'object' || template === null) return template === value;
  if (isLiteral(template)) return canonicalJson(template.$literal) === canonicalJson(value);
  if (typeof value !== 'object' || value === null || Array.isArray(template) !== Array.isArray(value)) return false;
  const given = value as Readonly<Record<string, unknown>>;
  const members = Object.entries(template);
  const mayBeLeftOut = (member: unknown) => !Array.isArray(template) && (member === null || isReference(member));
  return (
    Object.keys(given).every((name) => Object.hasOwn(template, name)) &&
    members.every(([name, member]) =>
      Object.hasOwn(given, name) ? mayBecome(member, given[name]) : mayBeLeftOut(member),
    )
  );
}

/** The value at a path; undefined where there is none. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let at = value;
  for (const part of path) {
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, part)) return undefined;
    at = (at as Readonly<Record<string, unknown>>)[part];
  }
  return at;
}

/** A reference as people write it. */
export function pathOf({ $from }: Reference): string {
  return typeof $from === 'string' ? $from : $from.join('.');
}
