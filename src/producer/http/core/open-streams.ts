/** Streams that are open. A closing server ends them; who comes back goes on where they left off. */
export class Streams {
  readonly #ends = new Set<() => void>();
  #closed = false;

  add(end: () => void): () => void {
    if (this.#closed) end();
    else this.#ends.add(end);
    return () => void this.#ends.delete(end);
  }

  close(): void {
    this.#closed = true;
    for (const end of [...this.#ends]) end();
  }
}
