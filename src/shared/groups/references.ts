/**
 * References in a node's parameters: `{"$from": "node.path.to.value"}` is replaced by a value, and `{"$literal": …}` by its content,
 * unchanged. A reference may be a list of parts, for names with dots.
 */
import { canonicalJson } from '../schema/canonical-json.ts';
import type { Reference } from './plan.ts';

/** The members by which references and literals are known. */
const MARKS = ['$literal', '$from'];

/** A reference and its location in the parameters. */
export interface FoundReference {
  /** The path of the reference itself, as issues name it. */
  readonly location: readonly string[];
  readonly node: string;
  readonly path: readonly string[];
}

export function parseReference({ $from }: Reference): { readonly node: string; readonly path: readonly string[] } {
  const [node = '', ...path] = typeof $from === 'string' ? $from.split('.') : $from;
  return { node, path };
}

function isReference(value: unknown): value is Reference {
  if (typeof value !== 'object' || value === null || !Object.hasOwn(value, '$from')) return false;
  const { $from } = value as { readonly $from: unknown };
  const isPath = Array.isArray($from) && $from.length > 0 && $from.every((part) => typeof part === 'string');
  return Object.keys(value).length === 1 && (isPath || (typeof $from === 'string' && $from !== ''));
}

function isLiteral(value: object): value is { readonly $literal: unknown } {
  return Object.hasOwn(value, '$literal') && Object.keys(value).length === 1;
}

/** Whether an object is, or looks like, a reference or a literal. */
export function looksLikeReference(value: object): boolean {
  return MARKS.some((mark) => Object.hasOwn(value, mark));
}

/** Every reference, and each malformed one. */
export function referencesIn(params: unknown): {
  readonly references: readonly FoundReference[];
  readonly malformed: readonly (readonly string[])[];
} {
  const references: FoundReference[] = [];
  const malformed: (readonly string[])[] = [];
  const visit = (value: unknown, location: readonly string[]): void => {
    if (typeof value !== 'object' || value === null || isLiteral(value)) return;
    if (isReference(value)) return void references.push({ location, ...parseReference(value) });
    if (looksLikeReference(value)) return void malformed.push(location);
    for (const [name, member] of Object.entries(value)) visit(member, [...location, name]);
  };
  visit(params, []);
  return { references, malformed };
}

/** A copy with each reference replaced by the result of `readValue`. */
export function resolveReferences(value: unknown, readValue: (reference: Reference) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (isLiteral(value)) return value.$literal;
  if (isReference(value)) return readValue(value);
  if (Array.isArray(value)) return value.map((item: unknown) => resolveReferences(item, readValue));
  const entries = Object.entries(value).map(([name, member]) => [name, resolveReferences(member, readValue)] as const);
  return Object.fromEntries(entries);
}

/**
 * Whether a value can be the result of resolving a node's parameters: everything except the references is equal. A member that is null or a
 * reference may be missing, because null is removed where a tool does not accept it.
 */
export function matchesTemplate(template: unknown, value: unknown): boolean {
  if (isReference(template)) return true;
  if (typeof template !== 'object' || template === null) return template === value;
  if (isLiteral(template)) return canonicalJson(template.$literal) === canonicalJson(value);
  if (typeof value !== 'object' || value === null || Array.isArray(template) !== Array.isArray(value)) return false;
  const actual = value as Readonly<Record<string, unknown>>;
  const members = Object.entries(template);
  const isOptional = (member: unknown) => !Array.isArray(template) && (member === null || isReference(member));
  return (
    Object.keys(actual).every((name) => Object.hasOwn(template, name)) &&
    members.every(([name, member]) =>
      Object.hasOwn(actual, name) ? matchesTemplate(member, actual[name]) : isOptional(member),
    )
  );
}

/** The value at a path; undefined where there is none. */
export function valueAt(value: unknown, path: readonly string[]): unknown {
  let node = value;
  for (const part of path) {
    if (typeof node !== 'object' || node === null || !Object.hasOwn(node, part)) return undefined;
    // A list has its length as a member, and JSON knows none.
    if (Array.isArray(node) && part === 'length') return undefined;
    node = (node as Readonly<Record<string, unknown>>)[part];
  }
  return node;
}

/** A reference as people write it. */
export function pathOf({ $from }: Reference): string {
  return typeof $from === 'string' ? $from : $from.join('.');
}
