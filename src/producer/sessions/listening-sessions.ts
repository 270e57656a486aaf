/** The session objects of this process that want to hear of arguments which a session below them could not mend (A15). */
import type { Session, SessionEvents } from './session.ts';

export type InvalidParams = SessionEvents['invalid-params'][0];

export class ListeningSessions {
  readonly #byKey = new Map<string, Set<Session>>();

  /** Kept while somebody listens. */
  add(session: Session): void {
    this.#byKey.set(session.key, (this.#byKey.get(session.key) ?? new Set()).add(session));
  }

  remove(session: Session): void {
    const sessions = this.#byKey.get(session.key);
    sessions?.delete(session);
    if (sessions?.size === 0) this.#byKey.delete(session.key);
  }

  tell(sessionKey: string, event: InvalidParams): void {
    for (const session of this.#byKey.get(sessionKey) ?? []) session.tell('invalid-params', event);
  }
}
