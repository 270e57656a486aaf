/** The session objects of this process that listen for arguments which a session below them could not correct. */
import type { InvalidParams } from './session-events.ts';

/** A session object of this process. */
interface ListeningSession {
  readonly key: string;
  emit(name: 'invalid-params', event: InvalidParams): void;
}

export class ListeningSessions {
  readonly #byKey = new Map<string, Set<ListeningSession>>();

  /** The session is kept while it has listeners. */
  add(session: ListeningSession): void {
    this.#byKey.set(session.key, (this.#byKey.get(session.key) ?? new Set()).add(session));
  }

  remove(session: ListeningSession): void {
    const sessions = this.#byKey.get(session.key);
    sessions?.delete(session);
    if (sessions?.size === 0) this.#byKey.delete(session.key);
  }

  emit(sessionKey: string, event: InvalidParams): void {
    for (const session of this.#byKey.get(sessionKey) ?? []) session.emit('invalid-params', event);
  }
}
