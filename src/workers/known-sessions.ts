import type { SessionRecord } from '../shared/session.ts';
import type { Sessions } from '../shared/store/sessions.ts';

const SESSION_CACHE = 5_000;

/** Sessions as this process last read them; whoever hears that one has changed forgets it. */
export class KnownSessions {
  readonly #records: Sessions;
  readonly #known = new Map<string, SessionRecord>();
  /** What was read before some news came, and arrives after them, may be older than they are. */
  #news = 0;

  constructor(records: Sessions) {
    this.#records = records;
  }

  async of(sessionKey: string): Promise<SessionRecord | undefined> {
    const known = this.#known.get(sessionKey);
    if (known !== undefined) return known;
    const news = this.#news;
    const record = await this.#records.read(sessionKey);
    if (record === undefined || news !== this.#news) return record;
    this.#known.set(sessionKey, record);
    const oldest = this.#known.keys().next().value;
    if (this.#known.size > SESSION_CACHE && oldest !== undefined) this.#known.delete(oldest);
    return record;
  }

  /** Writes down that a session has seen what a tool brought from outside. */
  async taint(sessionKey: string, source: string, atMs: number): Promise<void> {
    const known = await this.of(sessionKey);
    if (known === undefined || known.taint?.some((seen) => seen.source === source) === true) return;
    await this.#records.taint(sessionKey, [source], atMs);
    this.forget(sessionKey);
  }

  forget(sessionKey: string): void {
    this.#news += 1;
    this.#known.delete(sessionKey);
  }

  clear(): void {
    this.#news += 1;
    this.#known.clear();
  }
}
