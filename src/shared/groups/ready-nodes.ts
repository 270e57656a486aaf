/** The nodes of a plan that may begin: those whose needs have all ended. Each end costs as much as the nodes that wait for it. */
export class ReadyNodes {
  /** How many needs of a node have not ended. */
  readonly #missing = new Map<string, number>();
  readonly #dependents = new Map<string, string[]>();
  readonly #ready: string[] = [];
  readonly #open = new Set<string>();

  /** `waiting`: the nodes that have not begun. `open`: those that have not ended, the waiting ones among them. */
  constructor(
    needs: ReadonlyMap<string, ReadonlySet<string>>,
    { waiting, open }: { readonly waiting: readonly string[]; readonly open: readonly string[] },
  ) {
    for (const name of open) this.#open.add(name);
    for (const name of waiting) {
      let missing = 0;
      for (const other of needs.get(name) ?? []) {
        if (!this.#open.has(other)) continue;
        missing += 1;
        const dependents = this.#dependents.get(other);
        if (dependents === undefined) this.#dependents.set(other, [name]);
        else dependents.push(name);
      }
      this.#missing.set(name, missing);
      if (missing === 0) this.#ready.push(name);
    }
  }

  /** How many nodes have not ended. */
  get openCount(): number {
    return this.#open.size;
  }

  ended(name: string): void {
    if (!this.#open.delete(name)) return;
    for (const dependent of this.#dependents.get(name) ?? []) {
      const missing = (this.#missing.get(dependent) ?? 0) - 1;
      this.#missing.set(dependent, missing);
      if (missing === 0) this.#ready.push(dependent);
    }
  }

  get hasReady(): boolean {
    return this.#ready.length > 0;
  }

  /** The nodes that may begin; each is given out once. */
  take(): readonly string[] {
    return this.#ready.splice(0);
  }
}
