/** The outputs of a plan's nodes, and the parameters that refer to them. An output is read once, when a node first needs it. */
import type { Member } from './group.ts';
import { memberKeys } from './node-state.ts';
import type { AcceptedNode, PlanDefinition, Reference } from './plan.ts';
import { parseReference, pathOf, referencesIn, resolveReferences, valueAt } from './references.ts';

interface NodeValuesDeps {
  readonly definition: PlanDefinition;
  readonly members: ReadonlyMap<string, Member>;
  /** The number of calls of a `forEach` node. */
  itemsOf(name: string): number;
  /** The whole output of a call that succeeded. */
  output(callId: string): Promise<unknown>;
}

/** A node's parameters with values in place of references, or the first reference that has no value. */
interface ResolvedParams {
  readonly params?: unknown;
  readonly missing?: string;
}

export class NodeValues {
  readonly #deps: NodeValuesDeps;
  readonly #outputs = new Map<string, unknown>();
  readonly #items = new Map<string, readonly unknown[]>();

  constructor(deps: NodeValuesDeps) {
    this.#deps = deps;
  }

  cacheOutput(key: string, output: unknown): void {
    this.#outputs.set(key, output);
  }

  /** Caches the list of a `forEach` node. */
  cacheItems(name: string, items: readonly unknown[]): void {
    this.#items.set(name, items);
  }

  async of(reference: Reference): Promise<unknown> {
    const { node, path } = parseReference(reference);
    return valueAt(await this.#nodeOutput(node), path);
  }

  /** @param index of the item, for a `forEach` node */
  async params(name: string, index: number | undefined): Promise<ResolvedParams> {
    const node = this.#node(name);
    const { references } = referencesIn(node.params);
    const values = new Map<string, unknown>();
    if (index !== undefined && node.forEach !== undefined) {
      values.set('item', (await this.#itemsOf(name, node.forEach))[index]);
      values.set('index', index);
    }
    for (const { node: from } of references) if (!values.has(from)) values.set(from, await this.#nodeOutput(from));
    let missing: string | undefined;
    const params = resolveReferences(node.params, (reference) => {
      const { node: from, path } = parseReference(reference);
      const value = valueAt(values.get(from), path);
      if (value === undefined) missing ??= pathOf(reference);
      return value;
    });
    return missing === undefined ? { params } : { missing };
  }

  async #itemsOf(name: string, forEach: Reference): Promise<readonly unknown[]> {
    const items = this.#items.get(name) ?? ((await this.of(forEach)) as readonly unknown[]);
    this.#items.set(name, items);
    return items;
  }

  /** The output of a node. The output of a `forEach` is a list, with null for each failed call. */
  async #nodeOutput(name: string): Promise<unknown> {
    if (this.#node(name).forEach === undefined) return this.#callOutput(name);
    const outputOf = async (key: string) => (await this.#callOutput(key)) ?? null;
    return Promise.all(memberKeys(name, this.#deps.itemsOf(name)).map(outputOf));
  }

  async #callOutput(key: string): Promise<unknown> {
    const member = this.#deps.members.get(key);
    if (this.#outputs.has(key) || member?.callId === undefined || member.end?.status !== 'success')
      return this.#outputs.get(key);
    const output = await this.#deps.output(member.callId);
    this.#outputs.set(key, output);
    return output;
  }

  #node(name: string): AcceptedNode {
    return this.#deps.definition.nodes[name] as AcceptedNode;
  }
}
