/** Runs tasks one at a time for each name, in the order in which they were added. */
export class KeyedQueue {
  readonly #last = new Map<string, Promise<unknown>>();

  take<T>(name: string, task: () => Promise<T>): Promise<T> {
    const turn = (this.#last.get(name) ?? Promise.resolve()).then(task);
    const ended = turn.then(
      () => {},
      () => {},
    );
    this.#last.set(name, ended);
    void ended.then(() => {
      if (this.#last.get(name) === ended) this.#last.delete(name);
    });
    return turn;
  }
}
