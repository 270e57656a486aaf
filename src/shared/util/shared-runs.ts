/**
 * Runs of one task, one at a time. A caller that comes during a run needs what has happened since it began, so it waits for the next one,
 * which all callers until then share.
 */
export class SharedRuns {
  #current: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  run(task: () => Promise<void>): Promise<void> {
    if (this.#current === undefined) {
      this.#current = task().finally(() => {
        this.#current = undefined;
      });
      return this.#current;
    }
    this.#next ??= this.#current
      .catch(() => {})
      .then(() => {
        this.#next = undefined;
        return this.run(task);
      });
    return this.#next;
  }
}
