/** The records of sessions. Readers may cache them until a broadcast says otherwise: see `SessionRecord` for what changes. */
import type { ApprovalRoute } from '../../approvals/approval.ts';
import { LOCAL_CHANNELS, type LocalChannel } from '../../sessions/channel-kinds.ts';
import {
  SESSION_CAPABILITIES,
  type SessionRecord,
  sessionClosed,
  sessionForged,
  withTaint,
} from '../../sessions/session.ts';
import { Signatures } from '../../signing/signatures.ts';
import { Remembered } from '../../util/remembered.ts';
import { systemClock } from '../../util/time.ts';
import type { Shards } from '../queues/shards.ts';
import type { Broadcast } from '../redis/broadcasts.ts';
import { type Redis, serverTimeMs } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

const createScript = new Script(new URL('./session-create.lua', import.meta.url), [], 'once');
const replaceScript = new Script(new URL('./session-replace.lua', import.meta.url));
const keepScript = new Script(new URL('./session-keep.lua', import.meta.url));
const enterScript = new Script(new URL('./session-enter.lua', import.meta.url));

/**
 * The first session with a channel, from one upwards. Without any, the topmost one has the channel that a front door offers now: it may
 * have been opened before.
 */
export async function routeOf(
  session: SessionRecord,
  sessionOf: (sessionKey: string) => Promise<SessionRecord | undefined>,
  defaultChannel?: Sessions['defaultChannel'],
): Promise<ApprovalRoute | undefined> {
  const seen = new Set<string>();
  for (let at: SessionRecord | undefined = session; at !== undefined && !seen.has(at.sessionKey); ) {
    const { sessionKey, parent }: SessionRecord = at;
    const channel = at.channel ?? (parent === undefined ? await defaultChannel?.(at) : undefined);
    if (channel !== undefined) return { sessionKey, channel };
    seen.add(sessionKey);
    at = parent === undefined ? undefined : await sessionOf(parent);
  }
  return undefined;
}

/**
 * Brings a session in line with the one above it, which was closed or changed while this one was being opened: it is closed as well, or
 * takes over the state that it `inherits`. Throws `SESSION_CLOSED`.
 */
export async function followAbove(
  sessions: Pick<Sessions, 'read' | 'close' | 'setState'>,
  opened: SessionRecord,
  inherits: boolean,
): Promise<SessionRecord> {
  const { sessionKey, parent } = opened;
  for (let current = opened; ; ) {
    const above = parent === undefined ? undefined : await sessions.read(parent);
    if (parent === undefined || above === undefined || above.state === current.state) return current;
    if (above.state === 'closed') {
      await sessions.close(sessionKey);
      throw sessionClosed(parent);
    }
    // The loop ends when the session above was not changed meanwhile.
    const changed = inherits ? await sessions.setState(sessionKey, above.state) : undefined;
    if (changed?.state !== above.state) return changed ?? current;
    current = changed;
  }
}

/** After its opening, or its end; one that is used, or asked for, lives on. */
const KEPT_MS = 30 * 24 * 3_600_000;
/** A list lives longer than any session that has entered it: each enters again when it is kept on, and may be closed just before its end. */
const LISTED_MS = 2 * KEPT_MS;
/** Each call of a tool that may use a channel asks for the one that a front door offers. */
const OFFERED_CHANNEL_FRESH_MS = 100;
/** The page size of a list: many entries may have expired. */
const MIN_PAGE = 20;

export class Sessions extends FleetRecords {
  readonly #shards: Pick<Shards, 'assign' | 'ensureKnown'> | undefined;
  readonly #offeredChannel = new Remembered(() => this.#readOfferedChannel(), OFFERED_CHANNEL_FRESH_MS, systemClock);

  /** Without shards, all calls of all sessions are in the first one of their tier. */
  constructor(
    redis: Redis,
    prefix: string,
    signatures = new Signatures(),
    shards?: Pick<Shards, 'assign' | 'ensureKnown'>,
  ) {
    super(redis, prefix, signatures);
    this.#shards = shards;
  }

  /** The channel of a session that names none, and is below none; undefined where no front door offers one, or it reaches no people. */
  async defaultChannel({ kind: sessionKind }: Pick<SessionRecord, 'kind'>): Promise<SessionRecord['channel']> {
    if (!SESSION_CAPABILITIES[sessionKind].includes('channel')) return undefined;
    return this.#offeredChannel.get();
  }

  async #readOfferedChannel(): Promise<SessionRecord['channel']> {
    const published = await this.redis.get(this.keys.defaultChannel);
    const kind = LOCAL_CHANNELS.find((each) => each === published);
    return kind === undefined ? undefined : { kind };
  }

  /** Offers one for a while; 0 ends that. */
  async offerChannel(kind: LocalChannel, forMs: number): Promise<void> {
    if (forMs === 0) await this.redis.del(this.keys.defaultChannel);
    else await this.redis.set(this.keys.defaultChannel, kind, 'PX', forMs);
    this.#offeredChannel.forget();
  }

  /**
   * Stores a new session and assigns its shards; undefined when the key is taken. A key that was made for the session (`fresh`) has no
   * earlier calls. Throws `SIGNATURE_INVALID` when the key holds a record that no key of this fleet signed: reading it would find nothing,
   * and the caller would try for ever.
   */
  async create(request: SessionRecord, named?: 'fresh'): Promise<SessionRecord | undefined> {
    const shards = (await this.#shards?.assign(request.sessionKey, named === 'fresh')) ?? {};
    const record = Object.keys(shards).length === 0 ? request : { ...request, shards };
    await this.#addToParent(record);
    const key = this.keys.session(record.sessionKey);
    const text = this.#signed(record);
    const [isCreated] = await createScript.run(this.redis, [key], [text, KEPT_MS]);
    if (isCreated !== 1) {
      const current = await this.redis.get(key);
      const isForged = current !== null && this.#opened(record.sessionKey, current) === undefined;
      if (isForged) throw sessionForged(record.sessionKey);
      return undefined;
    }
    await this.#enter(record);
    return record;
  }

  /** Adds the session to its parent before it exists: closing the parent then closes this one, too. */
  async #addToParent({ sessionKey, parent }: SessionRecord): Promise<void> {
    if (parent === undefined) return;
    const children = this.keys.sessionChildren(parent);
    await Promise.all([this.redis.sadd(children, sessionKey), this.redis.pexpire(children, LISTED_MS)]);
  }

  /** Adds the session to its parent once more: a clean-up there may have come before the record. */
  async #enter({ sessionKey, parent, tenantId, createdAtMs }: SessionRecord): Promise<void> {
    const lists = this.#listsOf(tenantId);
    const children = parent === undefined ? [] : [this.keys.sessionChildren(parent)];
    const args = [sessionKey, createdAtMs, LISTED_MS, lists.length, this.keys.session('')];
    await enterScript.run(this.redis, [...lists, ...children], args);
  }

  /** The lists of all sessions that have it: the fleet's, and its tenant's. */
  #listsOf(tenantId: string | undefined): string[] {
    return [this.keys.sessions, ...(tenantId === undefined ? [] : [this.keys.sessionsOf(tenantId)])];
  }

  /** Removes a session that was not announced to any caller: its key is free again. */
  async takeBack({ sessionKey, parent, tenantId }: SessionRecord): Promise<void> {
    await Promise.all([
      this.redis.del(this.keys.session(sessionKey)),
      ...this.#listsOf(tenantId).map((list) => this.redis.zrem(list, sessionKey)),
      ...(parent === undefined ? [] : [this.redis.srem(this.keys.sessionChildren(parent), sessionKey)]),
    ]);
  }

  async read(sessionKey: string): Promise<SessionRecord | undefined> {
    const key = this.keys.session(sessionKey);
    const [stored, leftMs] = await Promise.all([this.redis.get(key), this.redis.pttl(key)]);
    const record = stored === null ? undefined : this.#opened(sessionKey, stored);
    if (stored === null || record === undefined) return undefined;
    // Redis may be out of memory: the next read tries again.
    if (leftMs < KEPT_MS / 2) await this.#keepOn(record, stored).catch(() => {});
    return this.#withKnownShards(record);
  }

  /** For as long again, signed with the newest key, and with it those above: their channel and their end are its own, too. */
  async #keepOn(record: SessionRecord, stored: string): Promise<void> {
    const { ancestors = [] } = record;
    await this.#enter(record);
    await Promise.all(
      ancestors.flatMap((above) => [
        this.redis.pexpire(this.keys.session(above), KEPT_MS),
        this.redis.pexpire(this.keys.sessionChildren(above), LISTED_MS),
      ]),
    );
    // Last: as long as this has not been done, all of it is tried again.
    await this.#replace(record, stored, KEPT_MS);
  }

  /** Keeps a session, and those above it, for as long as usual after a time that may be far off. */
  async keepUntil({ sessionKey, ancestors = [], parent, tenantId }: SessionRecord, untilMs: number): Promise<void> {
    const delayMs = untilMs - (await serverTimeMs(this.redis));
    const lists = this.#listsOf(tenantId);
    const records = [sessionKey, ...ancestors].map((key) => [this.keys.session(key), KEPT_MS] as const);
    const listed = [...ancestors, ...(parent === undefined ? [] : [parent])].map((key) =>
      this.keys.sessionChildren(key),
    );
    const lifetimes = [...records, ...[...lists, ...listed].map((key) => [key, LISTED_MS] as const)];
    await Promise.all(lifetimes.map(([key, ms]) => keepScript.run(this.redis, [key], [delayMs + ms])));
  }

  /** Remembers the shards of the session's calls in this process. */
  async #withKnownShards(record: SessionRecord): Promise<SessionRecord> {
    if (record.shards !== undefined) await this.#shards?.ensureKnown(record.shards);
    return record;
  }

  #signed(record: SessionRecord): string {
    return signedText(this.signatures, 'session', record.sessionKey, record);
  }

  /** The record, when a key of this fleet signed it. */
  #opened(sessionKey: string, stored: string): SessionRecord | undefined {
    return verifiedText(this.signatures, 'session', sessionKey, stored);
  }

  /** Closes a session, so that no further call is accepted; undefined when there is none. Its record lives as long as an open one's. */
  async close(sessionKey: string): Promise<SessionRecord | undefined> {
    const closed = await this.#change(sessionKey, 'session', KEPT_MS, (record) => ({ ...record, state: 'closed' }));
    return closed && this.#withKnownShards(closed);
  }

  /** Says what a session is doing; a closed one stays closed. Undefined when there is none. */
  async setState(sessionKey: string, state: string): Promise<SessionRecord | undefined> {
    const changed = await this.#change(sessionKey, 'session', undefined, (record) =>
      record.state === 'closed' || record.state === state ? record : { ...record, state },
    );
    return changed && this.#withKnownShards(changed);
  }

  /** Writes down that a session has seen text from these tools, once each; undefined when there is no such session. */
  taint(sessionKey: string, sources: readonly string[], atMs: number): Promise<SessionRecord | undefined> {
    return this.#change(sessionKey, 'taint', undefined, (record) => withTaint(record, sources, atMs));
  }

  /** Changes a record. If `change` returns the record itself, nothing is written. */
  async #change(
    sessionKey: string,
    type: 'session' | 'taint',
    ttlMs: number | undefined,
    change: (record: SessionRecord) => SessionRecord,
  ): Promise<SessionRecord | undefined> {
    for (;;) {
      const stored = await this.redis.get(this.keys.session(sessionKey));
      const record = stored === null ? undefined : this.#opened(sessionKey, stored);
      if (stored === null || record === undefined) return undefined;
      const changed = change(record);
      if (changed === record || (await this.#replace(changed, stored, ttlMs, { type, sessionKey }))) return changed;
    }
  }

  /** False when another record stands there by now. */
  async #replace(
    record: SessionRecord,
    expected: string,
    ttlMs: number | undefined,
    broadcast?: Broadcast,
  ): Promise<boolean> {
    const message = broadcast === undefined ? '' : JSON.stringify(broadcast);
    const args = [expected, this.#signed(record), ttlMs ?? '', this.channel, message];
    const [replaced] = await replaceScript.run(this.redis, [this.keys.session(record.sessionKey)], args);
    return replaced === 1;
  }

  /** The newest first, of all or of one tenant. Expired ones are dropped from the index on the way: older ones take their places. */
  async list(limit: number, tenantId?: string): Promise<SessionRecord[]> {
    const index = tenantId === undefined ? this.keys.sessions : this.keys.sessionsOf(tenantId);
    const page = Math.max(limit, MIN_PAGE);
    const found: SessionRecord[] = [];
    for (let offset = 0; found.length < limit; ) {
      const keys = await this.redis.zrevrange(index, offset, offset + page - 1);
      if (keys.length === 0) break;
      const stored = await this.redis.mget(keys.map((key) => this.keys.session(key)));
      const expired = keys.filter((_key, index) => stored[index] === null);
      if (expired.length > 0) await this.redis.zrem(index, ...expired);
      offset += keys.length - expired.length;
      for (const [index, key] of keys.entries()) {
        const text = stored[index];
        const record = typeof text === 'string' ? this.#opened(key, text) : undefined;
        if (record !== undefined) found.push(record);
      }
    }
    return found.slice(0, limit);
  }

  /** Keys of the sessions below one, itself included. */
  async tree(sessionKey: string): Promise<string[]> {
    const found = new Set([sessionKey]);
    for (const parent of found) {
      const keys = await this.redis.smembers(this.keys.sessionChildren(parent));
      const records = await Promise.all(keys.map((key) => this.read(key)));
      // The key may have been taken by another one.
      for (const record of records) if (record?.parent === parent) found.add(record.sessionKey);
    }
    return [...found];
  }
}
