/**
 * Calls whose records have left memory. A call that succeeded long ago is a line of a *segment*, a value of the blob store that is written
 * once and never changed. In Redis an entry says which segment has the call, so that its key is known and runs nothing. A reader that
 * meets the entry puts a copy of the record back for a minute: replays, `calls show` and `flush` see a record as any other.
 *
 * A segment that is gone or changed costs results, never a second run: its entries stay until its last record would have ended.
 */
import { PawlError } from '../../errors/failure.ts';
import { digest } from '../../schema/canonical-json.ts';
import { getOrInsert } from '../../util/get-or-insert.ts';
import { LimitedMap } from '../../util/limited-map.ts';
import type { BlobStores } from '../blobs/blob-stores.ts';
import { type Redis, serverTimeMs } from '../redis/connection.ts';
import { PARTITION_NAMES, type PartitionKeys } from '../redis/keys.ts';
import { luaConstants, luaFunction, Script } from '../redis/script.ts';
import { recordIn, segmentLines } from './segment-text.ts';

const LUA = [luaConstants(PARTITION_NAMES), luaFunction(new URL('./segment-of.lua', import.meta.url))];
/** For `Script`: the names of a partition's keys, `segment_of` and `forget_moved`. */
export const SEGMENT_LUA = [...LUA, luaFunction(new URL('./forget-moved.lua', import.meta.url))];

const locateScript = new Script(new URL('./locate-call.lua', import.meta.url), SEGMENT_LUA);
const restoreScript = new Script(new URL('./restore-call.lua', import.meta.url), LUA);
const forgetScript = new Script(new URL('./forget-moved.lua', import.meta.url), LUA);

const COPY_KEPT_MS = 60_000;
/** Each is up to 256 KiB. A list of calls reads the same ones again and again. */
const CACHED = 8;
/** Another process may move the call again meanwhile. */
const MOST_ROUNDS = 3;

/** The place of a call's record. */
interface Located {
  readonly number: string;
  /** The kind of the store that has the segment; undefined for Redis. */
  readonly kind: string | undefined;
  /** The digest of the segment's bytes; undefined when Redis knows nothing of it. */
  readonly digest: string | undefined;
}

export interface LostSegment {
  /** Its name in the blob store. */
  readonly name: string;
  readonly reason: string;
}

export class Segments {
  readonly #redis: Redis;
  readonly #blobs: BlobStores;
  readonly #keysOf: (callId: string) => PartitionKeys;
  readonly #cache = new LimitedMap<string, Promise<Buffer>>(CACHED);
  readonly #reported = new Set<string>();
  #onLost: (lost: LostSegment) => void = () => {};

  constructor(redis: Redis, blobs: BlobStores, keysOf: (callId: string) => PartitionKeys) {
    this.#redis = redis;
    this.#blobs = blobs;
    this.#keysOf = keysOf;
  }

  /** The listener is called once for each segment that this process finds lost. */
  onLost(listener: (lost: LostSegment) => void): void {
    this.#onLost = listener;
  }

  /**
   * Puts a copy of a call's record back, for a minute. `gone` when it was not moved, or has expired. Throws `RESULT_LOST` when its segment
   * is lost, and `BACKEND_UNAVAILABLE` when the blob store cannot be read now.
   */
  async restore(callId: string): Promise<'restored' | 'gone'> {
    const keys = this.#keysOf(callId);
    for (let round = 1; round <= MOST_ROUNDS; round += 1) {
      const [now, number, kind, storedDigest] = await locateScript.run(this.#redis, [keys.base], [callId]);
      if (typeof number !== 'string') return 'gone';
      const located = { number, kind: textOf(kind), digest: textOf(storedDigest) };
      const record = recordIn(await this.#lines(keys, located), callId);
      if (record === undefined) throw await this.#lost(keys, located, `the record of ${callId} is not in it`);
      if (record.expiresAtMs <= Number(now)) {
        await this.forget(keys, number, [callId]);
        return 'gone';
      }
      const args = [callId, number, record.expiresAtMs, COPY_KEPT_MS, ...record.fields];
      const [code] = await restoreScript.run(this.#redis, [keys.base], args);
      if (code === 'restored') return 'restored';
    }
    throw new PawlError('BACKEND_UNAVAILABLE', `The record of ${callId} is being moved. Try again.`);
  }

  async forget(keys: PartitionKeys, number: string, callIds: readonly string[]): Promise<void> {
    await forgetScript.run(this.#redis, [keys.base], [number, ...callIds]);
  }

  /** Calls that were moved, segments that have them, and those of these that were found lost. */
  async counts(
    keys: PartitionKeys,
  ): Promise<{ readonly calls: number; readonly segments: number; readonly lost: number }> {
    const [calls, segments, lost] = await Promise.all([
      this.#redis.get(`${keys.segments}:calls`),
      this.#redis.zcard(keys.segments),
      this.#redis.scard(`${keys.segments}:lost`),
    ]);
    return { calls: Number(calls ?? 0), segments, lost };
  }

  /** The newest segments that cannot be read from here, and those that were found lost elsewhere, by name with the reason. */
  async unreadable(keys: PartitionKeys, limit: number): Promise<readonly LostSegment[]> {
    // Those that have ended may be forgotten already.
    const end = `(${await serverTimeMs(this.#redis)}`;
    const newest = await this.#redis.zrevrangebyscore(keys.segments, '+inf', end, 'LIMIT', 0, limit);
    const lost = (await this.#redis.smembers(`${keys.segments}:lost`)).slice(0, limit);
    const found: LostSegment[] = [];
    for (const number of new Set([...newest, ...lost]))
      await this.readWhole(keys, number).catch((error: unknown) => {
        if (!(error instanceof PawlError)) throw error;
        found.push({ name: keys.segment(number), reason: error.message });
      });
    return found;
  }

  /** The lines of a segment. Throws as `restore` does. */
  async readWhole(keys: PartitionKeys, number: string): Promise<Buffer> {
    const [kind, known] = await this.#redis.hmget(keys.segment(number), 'in', 'digest');
    return this.#lines(keys, { number, kind: kind ?? undefined, digest: known ?? undefined });
  }

  /** Forgets a call whose segment is lost, because an operator said so. */
  async forgetLost(callId: string): Promise<void> {
    const keys = this.#keysOf(callId);
    const [, number] = await locateScript.run(this.#redis, [keys.base], [callId]);
    if (typeof number === 'string') await this.forget(keys, number, [callId]);
  }

  #lines(keys: PartitionKeys, located: Located): Promise<Buffer> {
    // A Redis that has lost its last second may give a number again.
    const version = `${keys.segment(located.number)} ${located.digest}`;
    return getOrInsert(this.#cache, version, () => {
      const read = this.#read(keys, located);
      read.catch(() => this.#cache.delete(version));
      return read;
    });
  }

  async #read(keys: PartitionKeys, located: Located): Promise<Buffer> {
    if (located.digest === undefined) throw await this.#lost(keys, located, 'Redis has no digest of it');
    const bytes = await this.#blobs.of(located.kind).get(keys.segment(located.number), 0);
    if (bytes === null) throw await this.#lost(keys, located, 'it is not in the blob store');
    if (digest(bytes) !== located.digest) throw await this.#lost(keys, located, 'its bytes were changed');
    return segmentLines(bytes);
  }

  async #lost(keys: PartitionKeys, { number }: Located, reason: string): Promise<PawlError> {
    const name = keys.segment(number);
    await this.#redis.sadd(`${keys.segments}:lost`, number);
    if (!this.#reported.has(name)) {
      this.#reported.add(name);
      this.#onLost({ name, reason });
    }
    return new PawlError('RESULT_LOST', `The call succeeded, and its result was moved to ${name}: ${reason}.`);
  }
}

/** For `catch`: the error of a lost segment. Throws any other. */
export function asLost(error: unknown): PawlError {
  if (isLost(error)) return error;
  throw error;
}

export function isLost(error: unknown): error is PawlError {
  return error instanceof PawlError && error.code === 'RESULT_LOST';
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}
