/**
 * Moves the records of calls that succeeded long ago to segments, and removes segments whose last record has ended. One process at a time
 * does so for a partition, under a lease; two at once would do no harm.
 *
 * A segment is brought to the blob store before Redis refers to it. Then a script lets an entry stand for each record, if that has not
 * changed since. A mover that dies leaves the records, or the entries; a segment that nothing refers to expires, or the sweep of the blob
 * store removes it.
 */
import { randomUUID } from 'node:crypto';
import { digest } from '../../schema/canonical-json.ts';
import type { BlobStores } from '../blobs/blob-stores.ts';
import type { Redis } from '../redis/connection.ts';
import type { PartitionKeys } from '../redis/keys.ts';
import { holdLease } from '../redis/lease.ts';
import { Script } from '../redis/script.ts';
import { callIdsIn, SEGMENT_BYTES, type SegmentRecord, segmentBytes, segmentLine } from './segment-text.ts';
import { asLost, SEGMENT_LUA, type Segments } from './segments.ts';

const findScript = new Script(new URL('./find-movable.lua', import.meta.url), SEGMENT_LUA);
const moveScript = new Script(new URL('./move-calls.lua', import.meta.url), SEGMENT_LUA);
const forgetUnreadScript = new Script(new URL('./forget-unread.lua', import.meta.url), SEGMENT_LUA);
const dropScript = new Script(new URL('./drop-segment.lua', import.meta.url), SEGMENT_LUA);

const LEASE_MS = 60_000;
/** One step of a script takes about a millisecond for so many calls. A segment has as many at the most. */
const STEP = 250;
/** Records that end sooner are left to their expiry. */
const LEAST_LEFT_MS = 60_000;
/** A segment is there for so long after its last record has ended, so that its calls can be forgotten by name. */
const KEPT_AFTER_MS = 3_600_000;
const MOST_LOOKED_FOR = 10;
/** So many calls in a row that cannot be moved end a short walk. Once in an hour a walk goes to the oldest call. */
const NONE_IN_A_ROW = 2_000;
const WHOLE_WALK_MS = 3_600_000;
/** The characters of call IDs. Hashes of moved calls are named by three of them. */
const ID_CHARACTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

export interface SegmentMoverOptions {
  readonly redis: Redis;
  readonly blobs: BlobStores;
  readonly segments: Segments;
  /** The age at which ended calls are moved; without it, only segments that have ended are removed. */
  readonly afterMs: number | undefined;
  readonly leastLeftMs?: number;
}

/** The result of one run, in calls and segments. */
export interface SegmentRun {
  readonly calls: number;
  readonly written: number;
  readonly removed: number;
}

interface Movable extends SegmentRecord {
  /** The field in which its record keeps its end. */
  readonly ended: string;
}

const NOTHING: SegmentRun = { calls: 0, written: 0, removed: 0 };

export class SegmentMover {
  readonly #options: SegmentMoverOptions;

  constructor(options: SegmentMoverOptions) {
    this.#options = options;
  }

  /** Moves what is old enough, unless another process does. */
  async run(keys: PartitionKeys, nowMs: number): Promise<SegmentRun> {
    const { redis, afterMs } = this.#options;
    if (afterMs === undefined && (await redis.exists(keys.segments)) === 0) return NOTHING;
    const holder = randomUUID();
    if (!(await this.#lease(keys, holder, LEASE_MS))) return NOTHING;
    try {
      const removed = await this.#removeEnded(keys, nowMs);
      await this.#lookForLost(keys);
      if (afterMs === undefined) return { ...NOTHING, removed };
      return { ...(await this.#moveAll(keys, { afterMs, holder })), removed };
    } finally {
      await this.#lease(keys, holder, 0);
    }
  }

  #lease(keys: PartitionKeys, holder: string, leaseMs: number): Promise<boolean> {
    return holdLease(this.#options.redis, `${keys.segments}:mover`, holder, leaseMs);
  }

  async #moveAll(
    keys: PartitionKeys,
    { afterMs, holder }: { readonly afterMs: number; readonly holder: string },
  ): Promise<Omit<SegmentRun, 'removed'>> {
    const { redis } = this.#options;
    const isFullScan = (await redis.set(`${keys.segments}:walked`, '1', 'PX', WHOLE_WALK_MS, 'NX')) === 'OK';
    let calls = 0;
    let written = 0;
    for await (const batch of this.#batches(keys, afterMs, isFullScan)) {
      const moved = await this.#move(keys, batch);
      calls += moved;
      if (moved > 0) written += 1;
      if (!(await this.#lease(keys, holder, LEASE_MS))) return { calls, written };
    }
    return { calls, written };
  }

  /** The movable calls of a partition from the youngest on, as many as a segment takes at a time. */
  async *#batches(keys: PartitionKeys, afterMs: number, isFullScan: boolean): AsyncGenerator<readonly Movable[]> {
    let batch = new Map<string, Movable>();
    let bytes = 0;
    let inARow = 0;
    for (let position: number | '' = ''; isFullScan || inARow < NONE_IN_A_ROW; ) {
      const [next, looked, found] = await this.#find(keys, afterMs, position);
      position = next;
      inARow = found.length === 0 ? inARow + looked : 0;
      for (const each of found) {
        // A call that runs again may stand in the index twice.
        batch.set(each.callId, each);
        bytes += segmentLine(each).length;
        if (batch.size < STEP && bytes < SEGMENT_BYTES) continue;
        yield [...batch.values()];
        batch = new Map();
        bytes = 0;
      }
      if (looked < STEP) break;
    }
    if (batch.size > 0) yield [...batch.values()];
  }

  async #find(keys: PartitionKeys, afterMs: number, position: number | ''): Promise<[number, number, Movable[]]> {
    const { redis, leastLeftMs = LEAST_LEFT_MS } = this.#options;
    const answer = await findScript.run(redis, [keys.calls, keys.base], [position, STEP, afterMs, leastLeftMs]);
    const [next, looked, ...flat] = answer as [number, number, ...unknown[]];
    const found: Movable[] = [];
    for (let index = 0; index < flat.length; index += 3) {
      const [callId, expiresAt, fields] = flat.slice(index, index + 3) as [string, string, string[]];
      const ended = fields[fields.findIndex((name, index) => index % 2 === 0 && name === 'ended') + 1] ?? '';
      found.push({ callId, expiresAtMs: Number(expiresAt), fields, ended });
    }
    return [Number(next), Number(looked), found];
  }

  /** Writes one segment, and lets it stand for its records. Returns how many were moved. */
  async #move(keys: PartitionKeys, batch: readonly Movable[]): Promise<number> {
    const { redis, blobs } = this.#options;
    const number = String(await redis.incr(`${keys.segments}:last`));
    const name = keys.segment(number);
    const bytes = await segmentBytes(batch);
    await blobs.written.put(name, 0, bytes);
    await blobs.mark(name);
    const endsAtMs = Math.max(...batch.map(({ expiresAtMs }) => expiresAtMs));
    const calls = batch.flatMap(({ callId, ended }) => [callId, ended]);
    const args = [number, digest(bytes), endsAtMs, KEPT_AFTER_MS, ...calls];
    const [count] = await moveScript.run(redis, [keys.base, name], args);
    if (count === 0) await this.#drop(keys, number);
    // A negative count: Redis was away for longer than it keeps what nothing refers to.
    return Math.max(0, Number(count));
  }

  /** Removes the segments whose last record has ended. */
  async #removeEnded(keys: PartitionKeys, nowMs: number): Promise<number> {
    const numbers = await this.#options.redis.zrangebyscore(keys.segments, '-inf', nowMs);
    const unread: string[] = [];
    for (const number of numbers) {
      // Without a worker for a while, Redis may have forgotten a segment that has ended. Such a segment is not lost.
      const isKnown = (await this.#options.redis.hexists(keys.segment(number), 'digest')) === 1;
      const callIds = isKnown ? await this.#callIdsOf(keys, number) : undefined;
      if (callIds === undefined) {
        unread.push(number);
        continue;
      }
      for (let from = 0; from < callIds.length; from += STEP)
        await this.#options.segments.forget(keys, number, callIds.slice(from, from + STEP));
      await this.#drop(keys, number);
    }
    if (unread.length > 0) await this.#forgetUnread(keys, unread);
    for (const number of unread) await this.#drop(keys, number);
    return numbers.length;
  }

  /** Segments that were found lost may be there again: a file system was mounted, or files were put back. */
  async #lookForLost(keys: PartitionKeys): Promise<void> {
    const lost = `${keys.segments}:lost`;
    for (const number of await this.#options.redis.srandmember(lost, MOST_LOOKED_FOR))
      if ((await this.#callIdsOf(keys, number)) !== undefined) await this.#options.redis.srem(lost, number);
  }

  /** Undefined for a segment that is lost. */
  async #callIdsOf(keys: PartitionKeys, number: string): Promise<readonly string[] | undefined> {
    return this.#options.segments.readWhole(keys, number).then(callIdsIn, (error: unknown) => void asLost(error));
  }

  async #forgetUnread(keys: PartitionKeys, numbers: readonly string[]): Promise<void> {
    for (const first of ID_CHARACTERS)
      await forgetUnreadScript.run(this.#options.redis, [keys.base], [first, ID_CHARACTERS, ...numbers]);
  }

  async #drop(keys: PartitionKeys, number: string): Promise<void> {
    const name = keys.segment(number);
    await dropScript.run(this.#options.redis, [keys.base, name], [number]);
    await this.#options.blobs.remove(name);
  }
}
