import type { SessionRecord } from '../../shared/sessions/session.ts';
import { SessionCache } from '../../shared/store/sessions/session-cache.ts';
import type { Sessions } from '../../shared/store/sessions/sessions.ts';

const MAX_SESSIONS = 5_000;

/** The sessions of the calls that this worker runs. */
export class WorkerSessions extends SessionCache {
  readonly #records: Sessions;

  constructor(records: Sessions) {
    super(MAX_SESSIONS);
    this.#records = records;
  }

  async find(sessionKey: string): Promise<SessionRecord | undefined> {
    return this.get(sessionKey) ?? this.keep(sessionKey, () => this.#records.read(sessionKey));
  }

  /** Records that a session has seen text from outside. */
  async taint(sessionKey: string, source: string, atMs: number): Promise<void> {
    const session = await this.find(sessionKey);
    if (session === undefined || session.taint?.some((mark) => mark.source === source) === true) return;
    await this.#records.taint(sessionKey, [source], atMs);
    this.forget(sessionKey);
  }
}
