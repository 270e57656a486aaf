/** Finds the places that references lead to: by a pointer, by an anchor, or by the address of a document or of a schema within it. */
import { decodeStep } from './json-pointer.ts';
import type { JsonSchema } from './json-schema.ts';

/** The base of relative addresses in a document without an address. */
const NO_ADDRESS = 'schema:/';
const MAX_DEPTH = 64;

/** The places in a foreign document, of any draft. */
export class ReferenceResolver {
  readonly #root: JsonSchema;
  readonly #base: string;
  /** The schemas with an address or an anchor, by that name. They are indexed when a reference first needs them. */
  #schemasByName: ReadonlyMap<string, unknown> | undefined;

  constructor(root: JsonSchema) {
    this.#root = root;
    this.#base = absolute(schemaIdOf(root) ?? '', NO_ADDRESS);
  }

  /** The target of a reference. `ancestors`: the schemas around it with definitions or an address, the innermost first. */
  find(reference: string, ancestors: readonly JsonSchema[]): unknown {
    const hash = reference.indexOf('#');
    const address = hash === -1 ? reference : reference.slice(0, hash);
    const fragment = hash === -1 ? '' : reference.slice(hash + 1);
    // Addresses are relative to that of the schema around them. Some generators copy a schema and leave them relative to the root's.
    const bases = address === '' ? [] : [this.#baseOf(ancestors), this.#base];
    if (fragment !== '' && !fragment.startsWith('/')) {
      const names = address === '' ? [''] : bases.map((base) => absolute(address, base));
      return names.map((name) => this.#index().get(`${name}#${fragment}`)).find((schema) => schema !== undefined);
    }
    const inner = ancestors.find((schema) => schemaIdOf(schema) !== undefined) ?? this.#root;
    const addressed = bases.map((base) => this.#index().get(absolute(address, base)));
    const document = address === '' ? inner : addressed.find((schema) => schema !== undefined);
    const found = atPointer(fragment, document);
    if (found !== undefined || address !== '') return found;
    // Generators copy a schema with its definitions into another one, and leave its references as they were.
    for (const candidate of [this.#root, ...ancestors]) {
      const nested = atPointer(fragment, candidate);
      if (nested !== undefined) return nested;
    }
    return undefined;
  }

  #baseOf(ancestors: readonly JsonSchema[]): string {
    const addresses = ancestors.flatMap((schema) => schemaIdOf(schema) ?? []);
    return addresses.reduceRight((base, address) => absolute(address, base), this.#base);
  }

  #index(): ReadonlyMap<string, unknown> {
    if (this.#schemasByName !== undefined) return this.#schemasByName;
    const schemasByName = new Map<string, unknown>([[this.#base, this.#root]]);
    const add = (name: string, schema: unknown) => schemasByName.has(name) || schemasByName.set(name, schema);
    const visit = (value: unknown, base: string, depth: number): void => {
      if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return;
      if (Array.isArray(value)) {
        for (const child of value) visit(child, base, depth + 1);
        return;
      }
      const parts = value as JsonSchema;
      const address = schemaIdOf(parts);
      const scopeAddress = address === undefined ? base : absolute(address, base);
      if (address !== undefined) add(scopeAddress, parts);
      for (const anchor of anchorsOf(parts)) {
        add(`#${anchor}`, parts);
        add(`${scopeAddress}#${anchor}`, parts);
      }
      for (const child of Object.values(parts)) visit(child, scopeAddress, depth + 1);
    };
    visit(this.#root, this.#base, 0);
    this.#schemasByName = schemasByName;
    return schemasByName;
  }
}

/** Follows the references of a schema as Ajv does: by pointers, anchors and addresses, and by anchors that are chosen while checking. */
export class NamedSchemas {
  readonly #root: object;
  readonly #named = new Map<string, object>();
  /** The address below which the references of a schema are read, where it is not that of the root. */
  readonly #bases = new Map<object, string>();
  readonly #dynamic = new Map<string, object[]>();

  constructor(root: JsonSchema) {
    this.#root = root;
    this.#named.set(NO_ADDRESS, root);
    this.#walk(root, NO_ADDRESS);
  }

  /** The schemas to which a schema refers. A dynamic reference may lead to each schema with its anchor. */
  targetsOf(schema: JsonSchema): readonly object[] {
    const { $ref, $dynamicRef } = schema;
    if ($ref === undefined && $dynamicRef === undefined) return [];
    const [, name = ''] = typeof $dynamicRef === 'string' ? $dynamicRef.split('#') : [];
    const targets = new Set<object>(this.#dynamic.get(name));
    for (const reference of [$ref, $dynamicRef]) {
      const target = typeof reference === 'string' ? this.#find(reference, schema) : undefined;
      if (typeof target === 'object' && target !== null) targets.add(target);
    }
    return [...targets];
  }

  #find(reference: string, from: object): unknown {
    const base = this.#bases.get(from);
    // Most schemas have no address of their own, and their references are pointers.
    if (base === undefined && (reference === '#' || reference.startsWith('#/')))
      return atPointer(reference.slice(1), this.#root);
    const [address = '', fragment = ''] = absolute(reference, base ?? NO_ADDRESS).split('#');
    if (fragment !== '' && !fragment.startsWith('/')) return this.#named.get(`${address}#${fragment}`);
    return atPointer(fragment, this.#named.get(address));
  }

  #walk(value: unknown, base: string): void {
    if (typeof value !== 'object' || value === null) return;
    const schema = value as JsonSchema;
    const address = schemaIdOf(schema);
    const own = address === undefined ? base : absolute(address, base);
    if (own !== NO_ADDRESS) {
      this.#bases.set(schema, own);
      if (address !== undefined) this.#named.set(own, schema);
    }
    for (const anchor of anchorsOf(schema)) this.#named.set(`${own}#${anchor}`, schema);
    const { $dynamicAnchor: dynamic } = schema;
    if (typeof dynamic === 'string') this.#dynamic.set(dynamic, [...(this.#dynamic.get(dynamic) ?? []), schema]);
    for (const each of Object.values(schema)) this.#walk(each, own);
  }
}

/** The ID of a schema: `$id`, or `id` in draft 4. A fragment alone is an anchor. */
export function schemaIdOf(schema: JsonSchema): string | undefined {
  for (const name of [schema['$id'], schema['id']])
    if (typeof name === 'string' && name !== '' && !name.startsWith('#')) return name.replace(/#$/, '');
  return undefined;
}

function anchorsOf(schema: JsonSchema): readonly string[] {
  const older = [schema['$id'], schema['id']].filter((name) => typeof name === 'string' && name.startsWith('#'));
  const anchors = [schema['$anchor'], schema['$dynamicAnchor'], ...older.map((name) => (name as string).slice(1))];
  return anchors.filter((name): name is string => typeof name === 'string' && name !== '');
}

function absolute(address: string, base: string): string {
  return URL.canParse(address, base) ? new URL(address, base).href.replace(/#$/, '') : address;
}

/** The part of a document at a JSON pointer; undefined where there is none. */
export function atPointer(pointer: string, document: unknown): unknown {
  let value = document;
  for (const step of pointer === '' ? [] : pointer.slice(1).split('/')) {
    const name = decodeStep(step);
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as JsonSchema)[name];
  }
  return value;
}
