import { mergeTaint, type SessionRecord } from '../../sessions/session.ts';
import { type Clock, systemClock } from '../../util/time.ts';

/** A broadcast may have been lost on its way here: a session that is used is read again after this time. */
const FRESH_MS = 60_000;

interface CacheEntry {
  readonly record: SessionRecord;
  /** By the monotonic clock. */
  readAtMs: number;
}

/** Sessions as this process last read or wrote them. A broadcast of a change removes a session; none is used while broadcasts are lost. */
export class SessionCache {
  readonly #limit: number;
  readonly #clock: Pick<Clock, 'monotonic'>;
  readonly #entries = new Map<string, CacheEntry>();
  /** The cached sessions that may have changed. */
  readonly #doubted = new Set<string>();
  #broadcast = 0;
  #isSuspended = false;

  constructor(limit: number, clock: Pick<Clock, 'monotonic'> = systemClock) {
    this.#limit = limit;
    this.#clock = clock;
  }

  /**
   * Returns a cached session. Undefined: the caller must read it, because it is not cached or may have changed. When a session was read a
   * while ago, one caller gets undefined; the others use the cached one until that caller has read it.
   */
  get(sessionKey: string): SessionRecord | undefined {
    const entry = this.#usable(sessionKey);
    if (entry === undefined) return undefined;
    const nowMs = this.#clock.monotonic();
    if (nowMs - entry.readAtMs < FRESH_MS) return entry.record;
    entry.readAtMs = nowMs;
    return undefined;
  }

  /** The session, if no caller of `get` would have to read it now. Reading it stays the task of the next caller of `get`. */
  peek(sessionKey: string): SessionRecord | undefined {
    const entry = this.#usable(sessionKey);
    if (entry === undefined) return undefined;
    return this.#clock.monotonic() - entry.readAtMs < FRESH_MS ? entry.record : undefined;
  }

  #usable(sessionKey: string): CacheEntry | undefined {
    return this.#isSuspended || this.#doubted.has(sessionKey) ? undefined : this.#entries.get(sessionKey);
  }

  /** As it was known last, forgotten or not: what Redis has lost is still that session. */
  last(sessionKey: string): SessionRecord | undefined {
    return this.#entries.get(sessionKey)?.record;
  }

  /** Keeps what is read or written. What was asked for before some news came, and arrives after them, may be older than they are. */
  async keep(sessionKey: string, record: () => Promise<SessionRecord | undefined>): Promise<SessionRecord | undefined> {
    const broadcast = this.#broadcast;
    let found: SessionRecord | undefined;
    try {
      found = this.#withKnown(await record());
    } finally {
      if (found !== undefined && broadcast === this.#broadcast) this.remember(found);
      else this.#doubt(sessionKey);
    }
    return found;
  }

  /**
   * The end and the taint of a session are final. A record without what this process knows of them is an earlier one: an intruder put it
   * back, or Redis lost the later one in a failover.
   */
  #withKnown(record: SessionRecord | undefined): SessionRecord | undefined {
    if (record === undefined) return undefined;
    const known = this.last(record.sessionKey);
    if (known?.createdAtMs !== record.createdAtMs) return record;
    const tainted = mergeTaint(record, known);
    return known.state === 'closed' ? { ...tainted, state: 'closed' } : tainted;
  }

  /** As the last one to be dropped. */
  remember(record: SessionRecord): void {
    this.#put({ record, readAtMs: this.#clock.monotonic() });
  }

  /** The same for one that is used, and no newer for it. */
  use(sessionKey: string): void {
    const entry = this.#entries.get(sessionKey);
    if (entry !== undefined && !this.#doubted.has(sessionKey)) this.#put(entry);
  }

  #put(entry: CacheEntry): void {
    this.#drop(entry.record.sessionKey);
    this.#entries.set(entry.record.sessionKey, entry);
    const oldest = this.#entries.keys().next().value;
    if (this.#entries.size > this.#limit && oldest !== undefined) this.#drop(oldest);
  }

  #drop(sessionKey: string): void {
    this.#entries.delete(sessionKey);
    this.#doubted.delete(sessionKey);
  }

  #doubt(sessionKey: string): void {
    if (this.#entries.has(sessionKey)) this.#doubted.add(sessionKey);
  }

  forget(sessionKey: string): void {
    this.#broadcast += 1;
    this.#doubt(sessionKey);
  }

  /** Broadcasts are lost until `clear`: until then, every caller of `get` must read its session. */
  suspend(): void {
    this.#isSuspended = true;
  }

  clear(): void {
    this.#isSuspended = false;
    this.#broadcast += 1;
    for (const sessionKey of this.#entries.keys()) this.#doubted.add(sessionKey);
  }
}
