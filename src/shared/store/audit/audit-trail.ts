/**
 * The audit trail in Redis, apart from the life of queues and calls.
 *
 * Every process appends its records to one stream of waiting records (`audit-writer.ts`). One process at a time, the holder of a lease
 * (`AuditChainer`), takes them from there, chains each to the one before it (`audit-chain.ts`) and appends them to the trail as one block;
 * sinks (`audit-files.ts`) copy the trail to files.
 */
import { createHash, randomBytes } from 'node:crypto';
import { type AuditChainLink, type ChainedRecord, chainRecords, type TrailHead } from '../../audit/audit-chain.ts';
import type { AuditEvent } from '../../audit/audit-event.ts';
import { startOf } from '../../util/text/text-cut.ts';
import type { Redis } from '../redis/connection.ts';
import { AuditKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import type { AuditWriter } from './audit-writer.ts';
import { blockFields, recordsOfBlock, wholeNames } from './stored-records.ts';

const leaseScript = new Script(new URL('./audit-lease.lua', import.meta.url));
const sealScript = new Script(new URL('./audit-seal.lua', import.meta.url));
const beginAnewScript = new Script(new URL('./audit-restart.lua', import.meta.url));
const LEASE_MS = 5_000;
/** How long what Redis has of a trail stays after another one has begun. */
const LEFT_TRAIL_MS = 7 * 24 * 3_600_000;
/** V8 keeps texts of more than 128 KiB outside of its heap, where each of these records would cost ten times as much. */
const TAKEN_AT_A_TIME_BYTES = 64 * 1_024;
/** Entries hold one record or some hundred: a few are read first, then as many again. Each is named when it is taken out again. */
const FIRST_ENTRIES_READ = 4;
const MAX_ENTRIES = 256;
/** Blocks that are read from the trail at a time. */
const BLOCKS_READ = 32;
/** Records of an entry, when a trail that is left gives them back. */
const SEALED_ANEW_AT_A_TIME = 256;
/** The last moment that a Date can be. */
const LATEST_MS = 8_640_000_000_000_000;
/** Characters of a line that is no record. */
const UNREADABLE_SHOWN = 1_000;
/** Sinks may be this many times further behind than what is kept without them. */
const BEHIND_FACTOR = 4;

/** As found in the trail. */
export interface AuditRecord {
  readonly id: string;
  readonly atMs: number;
  /** `unreadable`: no process of ours wrote it. Its `text` is the beginning of what stands there, its time that of its neighbour. */
  readonly type: AuditEvent['type'] | 'unreadable';
  readonly [field: string]: unknown;
}

export interface AuditEntry {
  /** Absent for a record that is not chained yet. */
  readonly seq?: number;
  readonly seal?: string;
  readonly record: AuditRecord;
}

/** The trail as it stands in Redis: its newest records; files have the rest. */
export class AuditTrail {
  readonly #redis: Redis;
  readonly #keys: AuditKeys;
  readonly #own: Pick<AuditWriter, 'written'> | undefined;

  /** `own`: who reads finds what this process has recorded. */
  constructor(redis: Redis, prefix: string, own?: Pick<AuditWriter, 'written'>) {
    this.#redis = redis;
    this.#keys = new AuditKeys(prefix);
    this.#own = own;
  }

  /** Undefined before the first record. */
  async head(): Promise<TrailHead | undefined> {
    const [trail, seq, sealed] = await this.#redis.hmget(this.#keys.head, 'trail', 'seq', 'seal');
    if (typeof trail !== 'string') return undefined;
    return { trail, seq: Number(seq), seal: sealed ?? '' };
  }

  /** Some chained records of a trail, from a number on; none when there are no more. */
  async sealed(trail: string, from: number): Promise<readonly ChainedRecord[]> {
    const blocks = await this.#redis.xrangeBuffer(this.#keys.chain(trail), `${from}-0`, '+', 'COUNT', BLOCKS_READ);
    return blocks.flatMap(recordsOfBlock).filter(({ seq }) => seq >= from);
  }

  /**
   * Lists records, the newest first and those that are not chained yet included, while `wanted` returns true; reads `maxLooked` at most.
   */
  async newest(
    wanted: (record: AuditRecord) => boolean,
    {
      limit,
      sinceMs = 0,
      maxLooked,
    }: { readonly limit: number; readonly sinceMs?: number; readonly maxLooked: number },
  ): Promise<readonly AuditEntry[]> {
    await this.#own?.written();
    const found: AuditEntry[] = [];
    const waiting = await this.#redis.xrange(this.#keys.pending, '-', '+');
    // Read last: a record that is chained in between is then found twice, not lost.
    const head = await this.head();
    const seen = new Set<string>();
    const add = (entry: AuditEntry) => {
      if (seen.has(entry.record.id) || entry.record.atMs < sinceMs || !wanted(entry.record)) return;
      seen.add(entry.record.id);
      found.push(entry);
    };
    const arrived = waiting.flatMap(([entry, fields]) =>
      textsOf(fields).map((text) => ({ text, atMs: Number.parseInt(entry, 10) })),
    );
    for (const { text, atMs } of arrived.reverse()) add({ record: readable(text) ?? unreadable(text, atMs) });
    let to = '+';
    for (let looked = 0; head !== undefined && found.length < limit && looked < maxLooked; ) {
      const blocks = await this.#redis.xrevrangeBuffer(this.#keys.chain(head.trail), to, '-', 'COUNT', BLOCKS_READ);
      const page = blocks.flatMap((block) => recordsOfBlock(block).toReversed());
      const records = page.map(({ text }) => readable(text));
      let nearMs = records.find((record) => record !== undefined)?.atMs ?? sinceMs;
      for (const [index, { seq, text, seal: sealed }] of page.entries()) {
        const record = records[index] ?? unreadable(text, nearMs);
        nearMs = record.atMs;
        add({ seq, seal: sealed, record });
      }
      // Processes write side by side: their records' times are only nearly in order.
      if (blocks.length < BLOCKS_READ || page.length === 0 || nearMs < sinceMs - 60_000) break;
      looked += page.length;
      to = `(${blocks.at(-1)?.[0]}`;
    }
    return found.sort((a, b) => b.record.atMs - a.record.atMs).slice(0, limit);
  }

  /** The positions of the sinks: `trail seq` under the name of each. */
  async positions(): Promise<ReadonlyMap<string, { readonly trail: string; readonly seq: number }>> {
    const all = await this.#redis.hgetall(this.#keys.sinks);
    return new Map(
      Object.entries(all).map(([name, position]) => {
        const [trail = '', seq] = position.split(' ');
        return [name, { trail, seq: Number(seq) }];
      }),
    );
  }

  async setPosition(name: string, { trail, seq }: Pick<TrailHead, 'trail' | 'seq'>): Promise<void> {
    await this.#redis.hset(this.#keys.sinks, name, `${trail} ${seq}`);
  }

  /** True while this one may write to a sink's files. */
  async holdSink(name: string, holder: string): Promise<boolean> {
    const key = this.#keys.sinkLease(name);
    if ((await this.#redis.set(key, holder, 'PX', LEASE_MS, 'NX')) !== null) return true;
    if ((await this.#redis.get(key)) !== holder) return false;
    await this.#redis.pexpire(key, LEASE_MS);
    return true;
  }

  async leaveSink(name: string, holder: string): Promise<void> {
    const key = this.#keys.sinkLease(name);
    if ((await this.#redis.get(key)) === holder) await this.#redis.del(key);
  }

  /**
   * Begins a new trail, because files have records that this Redis has lost and no number may be used twice. `texts` are the records that
   * it has chained since, which would be in no file.
   */
  async beginAnew(from: TrailHead, texts: readonly string[]): Promise<void> {
    const batches: string[] = [];
    for (let at = 0; at < texts.length; at += SEALED_ANEW_AT_A_TIME)
      batches.push(texts.slice(at, at + SEALED_ANEW_AT_A_TIME).join('\n'));
    await beginAnewScript.run(
      this.#redis,
      [this.#keys.head, this.#keys.pending, this.#keys.chain(from.trail)],
      [from.trail, from.seq, newTrailId(), LEFT_TRAIL_MS, ...batches],
    );
  }
}

export interface AuditChainerDeps {
  readonly redis: Redis;
  readonly prefix: string;
  readonly sealing: AuditChainLink;
  /** How many chained records Redis keeps. */
  readonly keptRecords: number;
}

/** Chains waiting records, while it has the lease. */
export class AuditChainer {
  readonly #deps: AuditChainerDeps;
  readonly #keys: AuditKeys;
  readonly #holder = randomBytes(9).toString('base64url');
  /** The head that the next step continues; undefined when it must be read. */
  #head: TrailHead | undefined;

  constructor(deps: AuditChainerDeps) {
    this.#deps = deps;
    this.#keys = new AuditKeys(deps.prefix);
  }

  /** Chains a part of the waiting records. `more`: there may be more; `idle`: there is nothing to do, or another process does it. */
  async step(): Promise<'more' | 'idle'> {
    const { redis, sealing, keptRecords } = this.#deps;
    const { writer, head, pending, sinks } = this.#keys;
    const from = this.#head ?? (await this.#leased());
    this.#head = undefined;
    if (from === undefined) return 'idle';
    const { entries, texts, more } = await this.#waiting();
    const records = chainRecords(from, texts, sealing);
    const last = records.at(-1);
    if (last === undefined) return 'idle';
    const [code] = await sealScript.run(
      redis,
      [writer, head, pending, this.#keys.chain(from.trail), sinks],
      [
        ...[this.#holder, LEASE_MS, from.trail, from.seq, from.seal, keptRecords, keptRecords * BEHIND_FACTOR],
        ...[last.seq, last.seal, ...(await blockFields(records))],
        ...entries,
      ],
    );
    if (code !== 'sealed' || !more) return 'idle';
    this.#head = { trail: from.trail, seq: last.seq, seal: last.seal };
    return 'more';
  }

  /** The head of the trail; undefined when another process has the lease. */
  async #leased(): Promise<TrailHead | undefined> {
    const { writer, head } = this.#keys;
    const [trail, seq, sealed] = (await leaseScript.run(
      this.#deps.redis,
      [writer, head],
      [this.#holder, LEASE_MS, newTrailId()],
    )) as [string?, string?, string?];
    return trail === undefined ? undefined : { trail, seq: Number(seq), seal: sealed ?? '' };
  }

  /** The oldest records that wait, and the entries that they stand in. No script reads them: Lua would look at every byte. */
  async #waiting(): Promise<{ entries: readonly string[]; texts: readonly string[]; more: boolean }> {
    const { redis } = this.#deps;
    const entries: string[] = [];
    const texts: string[] = [];
    let bytes = 0;
    for (;;) {
      const last = entries.at(-1);
      const after = last === undefined ? '-' : `(${last}`;
      const count = Math.max(FIRST_ENTRIES_READ, entries.length);
      const found = await redis.xrange(this.#keys.pending, after, '+', 'COUNT', count);
      for (const [id, fields] of found) {
        entries.push(id);
        for (const text of textsOf(fields)) {
          texts.push(text);
          bytes += text.length;
        }
        if (bytes >= TAKEN_AT_A_TIME_BYTES || entries.length >= MAX_ENTRIES) return { entries, texts, more: true };
      }
      if (found.length < count) return { entries, texts, more: false };
    }
  }

  async leave(): Promise<void> {
    const { redis } = this.#deps;
    if ((await redis.get(this.#keys.writer)) === this.#holder) await redis.del(this.#keys.writer);
  }
}

function newTrailId(): string {
  return randomBytes(9).toString('hex');
}

/** Records of a waiting entry: one on each line of each of its fields. */
function textsOf(fields: readonly string[]): string[] {
  return fields.flatMap((texts, index) => (index % 2 === 1 ? texts.split('\n').map(wholeNames) : []));
}

/** Any writer to Redis can add a line to the waiting records: undefined for one that is not a record. */
function readable(text: string): AuditRecord | undefined {
  let value: Partial<AuditRecord> | null;
  try {
    value = JSON.parse(text) as Partial<AuditRecord> | null;
  } catch {
    return undefined;
  }
  const isMoment = typeof value?.atMs === 'number' && Math.abs(value.atMs) <= LATEST_MS;
  const isRecord = isMoment && typeof value?.id === 'string' && typeof value.type === 'string';
  return isRecord ? (value as AuditRecord) : undefined;
}

function unreadable(text: string, atMs: number): AuditRecord {
  const id = createHash('sha256').update(text).digest('base64url').slice(0, 16);
  return { id, atMs, type: 'unreadable', text: startOf(text, UNREADABLE_SHOWN) };
}
