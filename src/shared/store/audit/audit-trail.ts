/**
 * The audit trail in Redis, independent of queues and calls.
 *
 * Every process appends its records to one stream of waiting records (`audit-writer.ts`). One process at a time, the holder of a lease
 * (`AuditChainer`), takes them from there, chains each to the one before it (`audit-chain.ts`) and appends them to the trail as one block;
 * sinks (`audit-files.ts`) copy the trail to files.
 */
import { createHash, randomBytes } from 'node:crypto';
import { type AuditChainLink, type ChainedRecord, chainRecords, type TrailHead } from '../../audit/audit-chain.ts';
import type { AuditEvent } from '../../audit/audit-event.ts';
import { parseJson } from '../../util/json/json-types.ts';
import { startOf } from '../../util/text/text-cut.ts';
import type { Redis } from '../redis/connection.ts';
import { AuditKeys } from '../redis/keys.ts';
import { holdLease } from '../redis/lease.ts';
import { Script } from '../redis/script.ts';
import type { AuditWriter } from './audit-writer.ts';
import { blockFields, recordsOfBlock } from './record-blocks.ts';

const leaseScript = new Script(new URL('./audit-lease.lua', import.meta.url));
const appendScript = new Script(new URL('./audit-append.lua', import.meta.url));
const restartScript = new Script(new URL('./audit-restart.lua', import.meta.url));
const LEASE_MS = 5_000;
/** The time to live of a trail in Redis after a new one has started. */
const OLD_TRAIL_TTL_MS = 7 * 24 * 3_600_000;
/** V8 stores texts of more than 128 KiB outside of its heap, which would make each record ten times as expensive. */
const MAX_BLOCK_BYTES = 64 * 1_024;
/** An entry holds one to some hundred records, so the first read is small and each further one doubles. Removing an entry needs its ID. */
const FIRST_ENTRIES_READ = 4;
const MAX_ENTRIES = 256;
const BLOCKS_PER_READ = 32;
/** Records in one entry, when they wait to be chained again. */
const RESTART_BATCH = 256;
/** The latest time of a Date. */
const LATEST_MS = 8_640_000_000_000_000;
/** Characters of a line that is no record, as it is listed. */
const MAX_UNREADABLE_CHARS = 1_000;
/** While a sink is behind, Redis keeps this many times as many records. */
const BEHIND_FACTOR = 4;

export interface AuditRecord {
  readonly id: string;
  readonly atMs: number;
  /** `unreadable`: a line that Pawl did not write. Its `text` is the beginning of the line, its time that of its neighbour. */
  readonly type: AuditEvent['type'] | 'unreadable';
  readonly [field: string]: unknown;
}

export interface AuditEntry {
  /** Absent for a record that is not chained yet. */
  readonly seq?: number;
  readonly seal?: string;
  readonly record: AuditRecord;
}

/** The trail in Redis: its newest records. Files have all of them. */
export class AuditTrail {
  readonly #redis: Redis;
  readonly #keys: AuditKeys;
  readonly #writer: Pick<AuditWriter, 'written'> | undefined;

  /** `own`: who reads finds what this process has recorded. */
  constructor(redis: Redis, prefix: string, writer?: Pick<AuditWriter, 'written'>) {
    this.#redis = redis;
    this.#keys = new AuditKeys(prefix);
    this.#writer = writer;
  }

  /** Undefined before the first record. */
  async head(): Promise<TrailHead | undefined> {
    const [trail, seq, seal] = await this.#redis.hmget(this.#keys.head, 'trail', 'seq', 'seal');
    if (typeof trail !== 'string') return undefined;
    return { trail, seq: Number(seq), seal: seal ?? '' };
  }

  /** Reads chained records from a number on, some blocks at a time; empty at the end. */
  async recordsFrom(trail: string, from: number): Promise<readonly ChainedRecord[]> {
    const blocks = await this.#redis.xrangeBuffer(this.#keys.chain(trail), `${from}-0`, '+', 'COUNT', BLOCKS_PER_READ);
    return blocks.flatMap(recordsOfBlock).filter(({ seq }) => seq >= from);
  }

  /**
   * Lists records, the newest first and those that are not chained yet included, if `matches` returns true; reads at most `maxRead`. Their
   * order is the trail's: the clocks of processes differ by milliseconds, and an attempt must not stand before its call.
   */
  async newest(
    matches: (record: AuditRecord) => boolean,
    { limit, sinceMs = 0, maxRead }: { readonly limit: number; readonly sinceMs?: number; readonly maxRead: number },
  ): Promise<readonly AuditEntry[]> {
    await this.#writer?.written();
    const entries: AuditEntry[] = [];
    const waiting = await this.#redis.xrange(this.#keys.pending, '-', '+');
    // Read after the waiting records: a record that is chained in between is read twice, not missed.
    const head = await this.head();
    const listedIds = new Set<string>();
    const add = (entry: AuditEntry) => {
      if (listedIds.has(entry.record.id) || entry.record.atMs < sinceMs || !matches(entry.record)) return;
      listedIds.add(entry.record.id);
      entries.push(entry);
    };
    const arrived = waiting.flatMap(([entry, fields]) =>
      recordTexts(fields).map((text) => ({ text, atMs: Number.parseInt(entry, 10) })),
    );
    for (const { text, atMs } of arrived.reverse()) add({ record: parseRecord(text) ?? unreadableRecord(text, atMs) });
    let to = '+';
    for (let readCount = 0; head !== undefined && entries.length < limit && readCount < maxRead; ) {
      const blocks = await this.#redis.xrevrangeBuffer(this.#keys.chain(head.trail), to, '-', 'COUNT', BLOCKS_PER_READ);
      const page = blocks.flatMap((block) => recordsOfBlock(block).toReversed());
      const records = page.map(({ text }) => parseRecord(text));
      let neighbourAtMs = records.find((record) => record !== undefined)?.atMs ?? sinceMs;
      for (const [index, { seq, text, seal }] of page.entries()) {
        const record = records[index] ?? unreadableRecord(text, neighbourAtMs);
        neighbourAtMs = record.atMs;
        add({ seq, seal, record });
      }
      // Processes write concurrently, so the times of records are only roughly in order.
      if (blocks.length < BLOCKS_PER_READ || page.length === 0 || neighbourAtMs < sinceMs - 60_000) break;
      readCount += page.length;
      to = `(${blocks.at(-1)?.[0]}`;
    }
    return entries.slice(0, limit);
  }

  /** The positions of the sinks: `trail seq` under the name of each. */
  async positions(): Promise<ReadonlyMap<string, { readonly trail: string; readonly seq: number }>> {
    const stored = await this.#redis.hgetall(this.#keys.sinks);
    return new Map(
      Object.entries(stored).map(([name, position]) => {
        const [trail = '', seq] = position.split(' ');
        return [name, { trail, seq: Number(seq) }];
      }),
    );
  }

  async setPosition(name: string, { trail, seq }: Pick<TrailHead, 'trail' | 'seq'>): Promise<void> {
    await this.#redis.hset(this.#keys.sinks, name, `${trail} ${seq}`);
  }

  /** Takes or renews the lease of a sink's files; false when another holder has it. */
  holdSink(name: string, holder: string): Promise<boolean> {
    return holdLease(this.#redis, this.#keys.sinkLease(name), holder, LEASE_MS);
  }

  async releaseSink(name: string, holder: string): Promise<void> {
    await holdLease(this.#redis, this.#keys.sinkLease(name), holder, 0);
  }

  /**
   * Starts a new trail, because files have records that this Redis has lost, and no number may be used twice. `texts` are the chained
   * records that are in no file; they are chained again.
   */
  async restart(from: TrailHead, texts: readonly string[]): Promise<void> {
    const batches: string[] = [];
    for (let start = 0; start < texts.length; start += RESTART_BATCH)
      batches.push(texts.slice(start, start + RESTART_BATCH).join('\n'));
    await restartScript.run(
      this.#redis,
      [this.#keys.head, this.#keys.pending, this.#keys.chain(from.trail)],
      [from.trail, from.seq, newTrailId(), OLD_TRAIL_TTL_MS, ...batches],
    );
  }
}

interface AuditChainerDeps {
  readonly redis: Redis;
  readonly prefix: string;
  readonly link: AuditChainLink;
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
    const { redis, link, keptRecords } = this.#deps;
    const { writer, head, pending, sinks } = this.#keys;
    const from = this.#head ?? (await this.#leased());
    this.#head = undefined;
    if (from === undefined) return 'idle';
    const { entries, texts, more } = await this.#waiting();
    const records = chainRecords(from, texts, link);
    const last = records.at(-1);
    if (last === undefined) return 'idle';
    const [code] = await appendScript.run(
      redis,
      [writer, head, pending, this.#keys.chain(from.trail), sinks],
      [
        ...[this.#holder, LEASE_MS, from.trail, from.seq, from.seal, keptRecords, keptRecords * BEHIND_FACTOR],
        ...[last.seq, last.seal, ...blockFields(records)],
        ...entries,
      ],
    );
    if (code !== 'chained' || !more) return 'idle';
    this.#head = { trail: from.trail, seq: last.seq, seal: last.seal };
    return 'more';
  }

  /** The head of the trail; undefined when another process has the lease. */
  async #leased(): Promise<TrailHead | undefined> {
    const { writer, head } = this.#keys;
    const [trail, seq, seal] = (await leaseScript.run(
      this.#deps.redis,
      [writer, head],
      [this.#holder, LEASE_MS, newTrailId()],
    )) as [string?, string?, string?];
    return trail === undefined ? undefined : { trail, seq: Number(seq), seal: seal ?? '' };
  }

  /** The oldest waiting records and the IDs of their entries. They are read outside of the script, because Lua hashes every text. */
  async #waiting(): Promise<{ entries: readonly string[]; texts: readonly string[]; more: boolean }> {
    const { redis } = this.#deps;
    const entries: string[] = [];
    const texts: string[] = [];
    let bytes = 0;
    for (;;) {
      const last = entries.at(-1);
      const after = last === undefined ? '-' : `(${last}`;
      const count = Math.max(FIRST_ENTRIES_READ, entries.length);
      const page = await redis.xrange(this.#keys.pending, after, '+', 'COUNT', count);
      for (const [id, fields] of page) {
        entries.push(id);
        for (const text of recordTexts(fields)) {
          texts.push(text);
          bytes += text.length;
        }
        if (bytes >= MAX_BLOCK_BYTES || entries.length >= MAX_ENTRIES) return { entries, texts, more: true };
      }
      if (page.length < count) return { entries, texts, more: false };
    }
  }

  async release(): Promise<void> {
    await holdLease(this.#deps.redis, this.#keys.writer, this.#holder, 0);
  }
}

function newTrailId(): string {
  return randomBytes(9).toString('hex');
}

/** Records of a waiting entry: one on each line of each of its fields. */
function recordTexts(fields: readonly string[]): string[] {
  return fields.flatMap((texts, index) => (index % 2 === 1 ? texts.split('\n') : []));
}

/** Undefined for a line that is not a record: anyone who can write to Redis can add lines. */
function parseRecord(text: string): AuditRecord | undefined {
  const value = parseJson(text) as Partial<AuditRecord> | null | undefined;
  const isMoment = typeof value?.atMs === 'number' && Math.abs(value.atMs) <= LATEST_MS;
  const isRecord = isMoment && typeof value?.id === 'string' && typeof value.type === 'string';
  return isRecord ? (value as AuditRecord) : undefined;
}

function unreadableRecord(text: string, atMs: number): AuditRecord {
  const id = createHash('sha256').update(text).digest('base64url').slice(0, 16);
  return { id, atMs, type: 'unreadable', text: startOf(text, MAX_UNREADABLE_CHARS) };
}
