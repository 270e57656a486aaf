/**
 * Results for callers of systems on PostgreSQL that return none: whoever ends a call notifies its producer's channel, and the
 * producer reads the results of all calls that ended meanwhile in one query.
 */

/** PostgreSQL's client, connected, and used for nothing else. */
interface Listener {
  on(event: 'notification', heard: (message: { readonly payload?: string | undefined }) => void): unknown;
}

interface Waiter {
  readonly resolve: (text: string) => void;
  readonly reject: (error: Error) => void;
}

export class Replies {
  readonly #waiters = new Map<string, Waiter>();
  readonly #read: (ids: readonly string[]) => Promise<readonly { readonly id: string; readonly text: string }[]>;
  #ended: string[] = [];
  #reading = false;

  constructor(
    listener: Listener,
    read: (ids: readonly string[]) => Promise<readonly { readonly id: string; readonly text: string }[]>,
  ) {
    this.#read = read;
    listener.on('notification', ({ payload }) => {
      if (payload === undefined) return;
      this.#ended.push(payload);
      void this.#readAll();
    });
  }

  /** Call it before the call is handed in: it may end at once. */
  wait(id: string): Promise<string> {
    return new Promise((resolve, reject) => this.#waiters.set(id, { resolve, reject }));
  }

  async #readAll(): Promise<void> {
    if (this.#reading) return;
    this.#reading = true;
    while (this.#ended.length > 0) {
      const ids = this.#ended;
      this.#ended = [];
      try {
        for (const { id, text } of await this.#read(ids)) this.#take(id)?.resolve(text);
      } catch (error) {
        for (const id of ids) this.#take(id)?.reject(error as Error);
      }
    }
    this.#reading = false;
  }

  #take(id: string): Waiter | undefined {
    const waiter = this.#waiters.get(id);
    this.#waiters.delete(id);
    return waiter;
  }
}
