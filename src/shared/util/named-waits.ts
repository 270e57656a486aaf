/** Waits under names: a notification of a name ends every wait for it. */
import { getOrInsert } from './get-or-insert.ts';
import { onAbort, withinMs } from './wait.ts';

export class NamedWaits {
  readonly #wakers = new Map<string, Set<() => void>>();

  notify(name: string): void {
    for (const wake of this.#wakers.get(name) ?? []) wake();
  }

  /** From now on, a notification of any of the names, or an abort of the signal, ends the wait. The caller calls `stop`. */
  listen(names: readonly string[], signal: AbortSignal | undefined) {
    const { promise, resolve: wake } = Promise.withResolvers<void>();
    for (const name of names) getOrInsert(this.#wakers, name, () => new Set()).add(wake);
    const stopListening = onAbort(signal, wake);
    return {
      within: (limitMs: number): Promise<void> => withinMs(promise, limitMs),
      stop: (): void => {
        stopListening();
        for (const name of names) {
          const wakers = this.#wakers.get(name);
          wakers?.delete(wake);
          if (wakers?.size === 0) this.#wakers.delete(name);
        }
      },
    };
  }
}
