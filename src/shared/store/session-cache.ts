import type { SessionRecord } from '../session.ts';

/** Sessions as this process last read or wrote them; whoever hears that one has changed forgets it. */
export class SessionCache {
  readonly #limit: number;
  readonly #known = new Map<string, SessionRecord>();
  /** Of the known ones, those that may have changed. */
  readonly #doubted = new Set<string>();
  #news = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  get(sessionKey: string): SessionRecord | undefined {
    return this.#doubted.has(sessionKey) ? undefined : this.#known.get(sessionKey);
  }

  /** As it was known last, forgotten or not: what Redis has lost is still that session. */
  last(sessionKey: string): SessionRecord | undefined {
    return this.#known.get(sessionKey);
  }

  /** Keeps what is read or written. What was asked for before some news came, and arrives after them, may be older than they are. */
  async keep(sessionKey: string, record: () => Promise<SessionRecord | undefined>): Promise<SessionRecord | undefined> {
    const news = this.#news;
    const found = await record();
    if (found !== undefined && news === this.#news) this.remember(found);
    else this.#doubt(sessionKey);
    return found;
  }

  /** As the last one to be dropped. */
  remember(record: SessionRecord): void {
    this.#drop(record.sessionKey);
    this.#known.set(record.sessionKey, record);
    const oldest = this.#known.keys().next().value;
    if (this.#known.size > this.#limit && oldest !== undefined) this.#drop(oldest);
  }

  #drop(sessionKey: string): void {
    this.#known.delete(sessionKey);
    this.#doubted.delete(sessionKey);
  }

  #doubt(sessionKey: string): void {
    if (this.#known.has(sessionKey)) this.#doubted.add(sessionKey);
  }

  forget(sessionKey: string): void {
    this.#news += 1;
    this.#doubt(sessionKey);
  }

  clear(): void {
    this.#news += 1;
    for (const sessionKey of this.#known.keys()) this.#doubted.add(sessionKey);
  }
}
