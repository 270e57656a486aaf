/** The nodes of a plan that may begin, because their dependencies have ended. The cost of each end is linear in the node's dependents. */
import { getOrInsert } from '../util/get-or-insert.ts';

export class ReadyNodes {
  /** The number of dependencies of a node that have not ended. */
  readonly #pendingNeeds = new Map<string, number>();
  readonly #dependents = new Map<string, string[]>();
  readonly #ready: string[] = [];
  readonly #open: Set<string>;

  /** `waiting`: the nodes that have not begun. `open`: the nodes that have not ended, including the waiting ones. */
  constructor(
    needs: ReadonlyMap<string, ReadonlySet<string>>,
    { waiting, open }: { readonly waiting: readonly string[]; readonly open: readonly string[] },
  ) {
    this.#open = new Set(open);
    for (const name of waiting) {
      let pendingCount = 0;
      for (const need of needs.get(name) ?? []) {
        if (!this.#open.has(need)) continue;
        pendingCount += 1;
        getOrInsert(this.#dependents, need, () => []).push(name);
      }
      this.#pendingNeeds.set(name, pendingCount);
      if (pendingCount === 0) this.#ready.push(name);
    }
  }

  /** The number of nodes that have not ended. */
  get openCount(): number {
    return this.#open.size;
  }

  ended(name: string): void {
    if (!this.#open.delete(name)) return;
    for (const dependent of this.#dependents.get(name) ?? []) {
      const pendingCount = (this.#pendingNeeds.get(dependent) ?? 0) - 1;
      this.#pendingNeeds.set(dependent, pendingCount);
      if (pendingCount === 0) this.#ready.push(dependent);
    }
  }

  get hasReady(): boolean {
    return this.#ready.length > 0;
  }

  /** The nodes that may begin; each is returned once. */
  takeReady(): readonly string[] {
    return this.#ready.splice(0);
  }
}
