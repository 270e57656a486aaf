/** The references of an OpenAPI document. Those within it are followed, those out of it are not. */
import { digest } from '../schema/canonical-json.ts';
import { decodeStep } from '../schema/json-pointer.ts';
import { atPointer } from '../schema/reference-places.ts';
import { isObject } from '../util/json/json-types.ts';
import { asText } from '../util/text/quote-value.ts';
import { startOf } from '../util/text/text-cut.ts';

export type Json = Readonly<Record<string, unknown>>;

/** An operation that a connector cannot express; the others are imported. */
export class NotImportable extends Error {}

const MAX_HOPS = 32;
const REFERENCE = '#/components/schemas/';

/** Every reference within the document, by the name of its definition. A document parsed from YAML may contain itself. */
export function referencesOf(document: Json): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  const seen = new Set<unknown>();
  const pending: unknown[] = [document];
  while (pending.length > 0) {
    const node = pending.pop();
    if (typeof node !== 'object' || node === null || seen.has(node)) continue;
    seen.add(node);
    const reference = (node as { readonly $ref?: unknown }).$ref;
    if (typeof reference === 'string' && reference.startsWith('#/')) found.set(definitionName(reference), reference);
    for (const part of Object.values(node)) pending.push(part);
  }
  return found;
}

/**
 * A component keeps its own name; any other target is named after its place. A name that loses characters ends in a digest of them all,
 * because another one may differ from it only in these, as names in Chinese do.
 */
export function definitionName(reference: string): string {
  const place = reference.startsWith(REFERENCE) ? reference.slice(REFERENCE.length) : reference.slice('#/'.length);
  const original = decodeStep(place);
  const name = original.replaceAll(/[^A-Za-z0-9_.-]/g, '_');
  return name === original ? name : `${name}_${digest(original).slice(0, 8)}`;
}

/** An object of the document, with its reference followed. Throws `NotImportable` for one that leads nowhere. */
export function resolveReference(document: Json, value: unknown): Json | undefined {
  let node = objectOf(value);
  for (let hops = 0; typeof node?.['$ref'] === 'string'; hops += 1) {
    const reference = node['$ref'];
    const found = reference.startsWith('#/') && hops <= MAX_HOPS ? target(document, reference) : undefined;
    if (found === undefined) {
      const fault = reference.startsWith('#') ? 'cannot be followed' : 'leads to another document';
      throw new NotImportable(`its reference ${startOf(reference, 100)} ${fault}`);
    }
    node = objectOf(found);
  }
  return node;
}

/** The same, with the members that stand beside the reference. */
export function resolveWithSiblings(document: Json, value: unknown): Json {
  const { $ref: _, ...own } = objectOf(value) ?? {};
  return { ...resolveReference(document, value), ...own };
}

export function target(document: Json, reference: string): unknown {
  return atPointer(reference.slice('#'.length), document);
}

/** The same for a schema; undefined where its reference leads nowhere. */
export function resolveSchema(document: Json, schema: unknown): Json | undefined {
  const { $ref: reference } = objectOf(schema) ?? {};
  return typeof reference === 'string' ? targetsOf(document, reference).at(-1) : objectOf(schema);
}

/** The objects that a reference leads to, one behind the other. */
export function targetsOf(document: Json, reference: string): readonly Json[] {
  const targets: Json[] = [];
  for (let next: unknown = reference; typeof next === 'string' && targets.length <= MAX_HOPS; ) {
    const node = next.startsWith('#/') ? objectOf(target(document, next)) : undefined;
    if (node !== undefined) targets.push(node);
    next = node?.['$ref'];
  }
  return targets;
}

export function lastStep(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

export function objectOf(value: unknown): Json | undefined {
  return isObject(value) ? value : undefined;
}

/** Version 3.0 ignores what stands beside a reference. */
export function isVersion30(document: Json): boolean {
  return asText(document['openapi']).startsWith('3.0');
}
