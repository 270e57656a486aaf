/**
 * Finds the places in a foreign document that its references lead to: by a pointer, by an anchor of any draft, or by the address of the
 * document or of a schema within it.
 */
import { decoded } from './json-pointer.ts';

/** Relative addresses are compared below this one where the document names none. */
const NO_ADDRESS = 'schema:/';
const MAX_DEPTH = 64;

type Parts = Readonly<Record<string, unknown>>;

export class ReferencePlaces {
  readonly #root: Parts;
  readonly #base: string;
  /** The schemas that have an address or an anchor, by it. The walk that finds them is made when a reference needs it. */
  #named: ReadonlyMap<string, unknown> | undefined;

  constructor(root: Parts) {
    this.#root = root;
    this.#base = absolute(addressOf(root) ?? '', NO_ADDRESS);
  }

  /** The value that a reference leads to. `around` are the schemas around it that have definitions or an address, the innermost first. */
  find(reference: string, around: readonly Parts[]): unknown {
    const sign = reference.indexOf('#');
    const address = sign === -1 ? reference : reference.slice(0, sign);
    const fragment = sign === -1 ? '' : reference.slice(sign + 1);
    if (fragment !== '' && !fragment.startsWith('/'))
      return this.#index().get(`${address === '' ? '' : absolute(address, this.#base)}#${fragment}`);
    const inner = around.find((schema) => addressOf(schema) !== undefined) ?? this.#root;
    const document = address === '' ? inner : this.#index().get(absolute(address, this.#base));
    const found = atPointer(fragment, document);
    if (found !== undefined || address !== '') return found;
    // Generators copy a schema with its definitions into another one, and leave its references as they were.
    for (const place of [this.#root, ...around]) {
      const nested = atPointer(fragment, place);
      if (nested !== undefined) return nested;
    }
    return undefined;
  }

  #index(): ReadonlyMap<string, unknown> {
    if (this.#named !== undefined) return this.#named;
    const named = new Map<string, unknown>([[this.#base, this.#root]]);
    const add = (name: string, schema: unknown) => named.has(name) || named.set(name, schema);
    const look = (value: unknown, base: string, depth: number): void => {
      if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return;
      if (Array.isArray(value)) {
        for (const each of value) look(each, base, depth + 1);
        return;
      }
      const parts = value as Parts;
      const address = addressOf(parts);
      const own = address === undefined ? base : absolute(address, base);
      if (address !== undefined) add(own, parts);
      for (const anchor of anchorsOf(parts)) {
        add(`#${anchor}`, parts);
        add(`${own}#${anchor}`, parts);
      }
      for (const each of Object.values(parts)) look(each, own, depth + 1);
    };
    look(this.#root, this.#base, 0);
    this.#named = named;
    return named;
  }
}

/** The address of a schema: `$id`, or `id` in draft 4. A fragment alone is an anchor. */
export function addressOf(schema: Parts): string | undefined {
  for (const name of [schema['$id'], schema['id']])
    if (typeof name === 'string' && name !== '' && !name.startsWith('#')) return name.replace(/#$/, '');
  return undefined;
}

function anchorsOf(schema: Parts): readonly string[] {
  const older = [schema['$id'], schema['id']].filter((name) => typeof name === 'string' && name.startsWith('#'));
  const anchors = [schema['$anchor'], schema['$dynamicAnchor'], ...older.map((name) => (name as string).slice(1))];
  return anchors.filter((name): name is string => typeof name === 'string' && name !== '');
}

function absolute(address: string, base: string): string {
  return URL.canParse(address, base) ? new URL(address, base).href.replace(/#$/, '') : address;
}

function atPointer(pointer: string, from: unknown): unknown {
  let place = from;
  for (const step of pointer === '' ? [] : pointer.slice(1).split('/')) {
    const name = decoded(step);
    if (typeof place !== 'object' || place === null || !Object.hasOwn(place, name)) return undefined;
    place = (place as Parts)[name];
  }
  return place;
}
