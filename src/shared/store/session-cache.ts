import type { SessionRecord } from '../session.ts';

/** Sessions as this process last read or wrote them; whoever hears that one has changed forgets it. */
export class SessionCache {
  readonly #limit: number;
  readonly #known = new Map<string, SessionRecord>();
  #news = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get(sessionKey: string): SessionRecord | undefined {
    return this.#known.get(sessionKey);
  }

  /** Keeps what is read or written. What was asked for before some news came, and arrives after them, may be older than they are. */
  async keep(sessionKey: string, record: () => Promise<SessionRecord | undefined>): Promise<SessionRecord | undefined> {
    const news = this.#news;
    const found = await record();
    if (found !== undefined && news === this.#news) this.remember(found);
    else this.#known.delete(sessionKey);
    return found;
  }

  /** As the last one to be dropped. */
  remember(record: SessionRecord): void {
    this.#known.delete(record.sessionKey);
    this.#known.set(record.sessionKey, record);
    const oldest = this.#known.keys().next().value;
    if (this.#known.size > this.#limit && oldest !== undefined) this.#known.delete(oldest);
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
