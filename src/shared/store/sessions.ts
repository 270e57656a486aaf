/** The records of sessions. All but the state never changes, so readers may keep what they read until told otherwise. */
import type { SessionRecord } from '../session.ts';
import { FleetKeys } from './keys.ts';
import { publishNews } from './news.ts';
import type { Redis } from './redis.ts';

const OPEN_TTL_MS = 30 * 24 * 3_600_000;
const CLOSED_TTL_MS = 24 * 3_600_000;

export class Sessions {
  readonly #redis: Redis;
  readonly #prefix: string;
  readonly #keys: FleetKeys;

  constructor(redis: Redis, prefix: string) {
    this.#redis = redis;
    this.#prefix = prefix;
    this.#keys = new FleetKeys(prefix);
  }

  /** Stores a new session; false when the key is taken. */
  async create(record: SessionRecord): Promise<boolean> {
    const created = await this.#redis.set(
      this.#keys.session(record.sessionKey),
      JSON.stringify(record),
      'PX',
      OPEN_TTL_MS,
      'NX',
    );
    if (created === null) return false;
    await this.#redis.zadd(this.#keys.sessions, record.createdAtMs, record.sessionKey);
    return true;
  }

  async read(sessionKey: string): Promise<SessionRecord | undefined> {
    const stored = await this.#redis.get(this.#keys.session(sessionKey));
    return stored === null ? undefined : (JSON.parse(stored) as SessionRecord);
  }

  /** Closes a session, so that no further call is accepted; undefined when there is none. */
  async close(sessionKey: string): Promise<SessionRecord | undefined> {
    const record = await this.read(sessionKey);
    if (record === undefined) return undefined;
    const closed: SessionRecord = { ...record, state: 'closed' };
    await this.#redis.set(this.#keys.session(sessionKey), JSON.stringify(closed), 'PX', CLOSED_TTL_MS);
    await publishNews(this.#redis, this.#prefix, { type: 'session', sessionKey });
    return closed;
  }

  /** The newest first. Expired ones are dropped from the index on the way. */
  async list(limit: number): Promise<SessionRecord[]> {
    const keys = await this.#redis.zrevrange(this.#keys.sessions, 0, limit - 1);
    if (keys.length === 0) return [];
    const stored = await this.#redis.mget(keys.map((key) => this.#keys.session(key)));
    const expired = keys.filter((_key, index) => stored[index] === null);
    if (expired.length > 0) await this.#redis.zrem(this.#keys.sessions, ...expired);
    return stored
      .filter((text): text is string => typeof text === 'string')
      .map((text) => JSON.parse(text) as SessionRecord);
  }

  /** Keys of the sessions below one, itself included. */
  async tree(sessionKey: string): Promise<string[]> {
    const all = await this.list(10_000);
    const below = new Set([sessionKey]);
    for (let grown = true; grown; ) {
      grown = false;
      for (const session of all) {
        if (session.parent !== undefined && below.has(session.parent) && !below.has(session.sessionKey)) {
          below.add(session.sessionKey);
          grown = true;
        }
      }
    }
    return [...below];
  }
}
