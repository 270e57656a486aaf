/** The indices of calls: finding, counting, pruning and forgetting them. */
import { callOf } from '../../approvals/approval.ts';
import type { Settings } from '../../config/config.ts';
import { PawlError } from '../../errors/failure.ts';
import { DEAD_LETTER_LUA } from '../dead-letters/dead-letter-index.ts';
import { callOfJob } from '../queues/jobs.ts';
import type { Partition, PartitionKeys } from '../redis/keys.ts';
import { luaFunction, Script } from '../redis/script.ts';
import { asLost, SEGMENT_LUA } from '../segments/segments.ts';
import type { LedgerAccess } from './ledger-context.ts';
import { readCall } from './records/read-call.ts';
import { parseRequest } from './records/request-text.ts';

/** As `claim.lua` divides the retention. */
const SIZE_BUCKETS = 24;
const FLUSH_BATCH = 200;
/** Concurrent claims shift the index, so one pass may miss calls. Under load, calls end in every pass. */
const FLUSH_PASSES = 3;
const PRUNE_BATCH = 1_024;
/** Longer than any late attempt of a forgotten call can run. */
const FENCE_TTL_MS = 600_000;

export interface FlushCounts {
  flushed: number;
  inflight: number;
  /** Calls in doubt, which stay: resolve them first. A cancelled one can be forgotten by its ID (`forget`). */
  unresolved: number;
}

/** The filter and page of a list of calls. */
export interface CallListOptions {
  readonly limit: number;
  readonly offset?: number;
  readonly sessionKey?: string;
  /** Default: all calls. `running`: those that workers hold. */
  readonly only?: 'inflight' | 'inDoubt' | 'running' | 'delayed' | 'awaiting-approval' | 'pending' | undefined;
}

/** For `Script`: `prune_index`, which needs `segment_of`. */
export const PRUNE_LUA = luaFunction(new URL('./prune-index.lua', import.meta.url));
const pruneScript = new Script(new URL('./prune-index.lua', import.meta.url), SEGMENT_LUA);
const FLUSH_LUA = [...DEAD_LETTER_LUA, ...SEGMENT_LUA];
const flushScript = new Script(new URL('./flush.lua', import.meta.url), FLUSH_LUA);
/** Many calls are only counted; the caller who named one learns whether it was there. */
const flushNamedScript = new Script(new URL('./flush.lua', import.meta.url), FLUSH_LUA, 'once');

/**
 * How long the indices keep ended calls: the longest lifetime of a record of any tool. Cancelled calls do not count: they are few, and
 * would lengthen the indices of all calls where `ttl.doneMs` is short.
 */
export function longestRetentionMs({ ttl, tools }: Pick<Settings, 'ttl' | 'tools'>): number {
  const ttls = [ttl, ...Object.values(tools).map(({ ttl: toolTtl }) => toolTtl)];
  return Math.max(
    ...ttls.flatMap((toolTtl) => [toolTtl?.doneMs ?? 0, toolTtl?.failedMs ?? 0, toolTtl?.failedKeptMs ?? 0]),
  );
}

/** The indices of a partition's calls: by time, by session, in flight, in doubt, and their counts. */
export class CallIndex {
  readonly #access: LedgerAccess;

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /** Lists IDs of a partition's calls, the newest first. Among calls in flight, delayed ones come last. */
  async list(partition: Partition, options: CallListOptions): Promise<string[]> {
    const keys = this.#access.keys(partition);
    const { redis } = this.#access;
    const { limit, offset = 0, sessionKey, only = 'calls' } = options;
    const last = offset + limit - 1;
    // Running calls are the oldest in flight: finding them from the newest on would scan the whole backlog.
    if (only === 'running')
      return (await redis.lrange(keys.job('active'), offset, last)).map((job) => callOfJob(job).callId);
    if (only === 'delayed' && sessionKey !== undefined)
      return redis.zrange(keys.delayedSessionCalls(sessionKey), String(offset), String(last));
    // Pending calls may be older than the entries of a session's index.
    if (only === 'pending') return redis.zrange(keys.pending, String(offset), String(last));
    if (sessionKey !== undefined) return redis.lrange(keys.sessionCalls(sessionKey), offset, last);
    if (only === 'calls') return redis.lrange(keys.calls, offset, last);
    if (only === 'awaiting-approval')
      return (await redis.zrevrange(`${keys.approvals}s:pending`, offset, last)).map(callOf);
    if (only === 'inDoubt') return redis.zrevrange(keys.inDoubt, offset, last);
    return this.#listInflight(keys, { limit, offset, only });
  }

  /** Lists delayed calls last, the next to start first. The score of a delayed call is its start. */
  async #listInflight({ inflight }: PartitionKeys, { limit, offset = 0, only }: CallListOptions): Promise<string[]> {
    const { redis } = this.#access;
    const nowMs = await this.#access.now();
    const isDelayed = only === 'delayed';
    const current = isDelayed ? [] : await redis.zrevrangebyscore(inflight, nowMs, '-inf', 'LIMIT', offset, limit);
    if (current.length === limit) return current;
    const currentCount = isDelayed ? 0 : await redis.zcount(inflight, '-inf', nowMs);
    const [first, remaining] = [Math.max(0, offset - currentCount), limit - current.length];
    return [...current, ...(await redis.zrangebyscore(inflight, `(${nowMs}`, '+inf', 'LIMIT', first, remaining))];
  }

  /** IDs of calls in flight whose claim, or delayed start, was before a time, the oldest first. */
  async inflightBefore(partition: Partition, beforeMs: number, limit: number, offset = 0): Promise<string[]> {
    const { inflight } = this.#access.keys(partition);
    return this.#access.redis.zrangebyscore(inflight, '-inf', beforeMs, 'LIMIT', offset, limit);
  }

  /** IDs of a session's pending calls. Some may have ended. */
  async pendingOfSession(partition: Partition, sessionKey: string): Promise<string[]> {
    return this.#access.redis.smembers(`${this.#access.keys(partition).pending}:${sessionKey}`);
  }

  /** IDs of pending calls that should have expired before a time. */
  async pendingBefore(partition: Partition, beforeMs: number, limit: number): Promise<string[]> {
    const { pending } = this.#access.keys(partition);
    return this.#access.redis.zrangebyscore(pending, '-inf', beforeMs, 'LIMIT', 0, limit);
  }

  /** Removes calls from the index whose records may have expired. Claims prune a few entries, too. */
  async prune(partition: Partition, nowMs: number): Promise<void> {
    const { redis, retentionMs } = this.#access;
    const { calls, base } = this.#access.keys(partition);
    // After a weekend there may be millions: removing them in one script would block Redis.
    for (let removed = PRUNE_BATCH; removed === PRUNE_BATCH; )
      removed = Number((await pruneScript.run(redis, [calls, base], [nowMs - retentionMs, PRUNE_BATCH]))[0]);
  }

  /** Forgets a partition's ended calls, of one session or one tool (`namespace.name`) if set. Calls in flight and in doubt stay. */
  async flush(
    partition: Partition,
    select: { readonly sessionKey?: string; readonly tool?: string },
  ): Promise<FlushCounts> {
    const keys = this.#access.keys(partition);
    const index = select.sessionKey === undefined ? keys.calls : keys.sessionCalls(select.sessionKey);
    let flushed = 0;
    for (let pass = 1; ; pass += 1) {
      const counts = await this.#flushIndex(keys, index, select.tool);
      flushed += counts.flushed;
      if (counts.flushed === 0 || pass === FLUSH_PASSES) return { ...counts, flushed };
    }
  }

  /** Goes from the oldest call to the newest. `retained` counts the calls at the end of the index that stay, and are skipped. */
  async #flushIndex(keys: PartitionKeys, index: string, tool: string | undefined): Promise<FlushCounts> {
    const counts = { flushed: 0, inflight: 0, unresolved: 0 };
    const counted = new Set<string>();
    for (let retained = 0; ; ) {
      const callIds = await this.#access.redis.lrange(index, -retained - FLUSH_BATCH, -retained - 1);
      const codes = await Promise.all(callIds.map((callId) => this.#flushOne(keys, callId, { tool, index })));
      for (const [position, code] of codes.entries()) {
        if (code !== 'flushed' && code !== 'gone') retained += 1;
        const callId = callIds[position] as string;
        if (code in counts && !counted.has(callId)) counts[code as keyof FlushCounts] += 1;
        if (code !== 'flushed') counted.add(callId);
      }
      if (callIds.length < FLUSH_BATCH) return counts;
    }
  }

  /**
   * Forgets one ended call; undefined when there is none. A call in doubt stays, unless it was cancelled. For a merged call, forgets the
   * call that it was merged into.
   */
  async forget(mergedId: string): Promise<FlushCounts | undefined> {
    const record = await readCall(this.#access, mergedId, { brief: true }).catch(asLost);
    if (record === undefined) return undefined;
    const callId = record instanceof PawlError ? mergedId : record.callId;
    const code = await this.#flushOne(this.#access.callKeys(callId), callId, { isExplicit: true });
    return code === 'gone' ? undefined : { flushed: 0, inflight: 0, unresolved: 0, [code]: 1 };
  }

  /** A call without a record leaves the index. The record of a lost call is gone, so its tool is unknown. */
  async #flushOne(
    keys: PartitionKeys,
    callId: string,
    selection: { readonly tool?: string | undefined; readonly isExplicit?: boolean; readonly index?: string },
  ): Promise<string> {
    const { tool, isExplicit = false, index = keys.calls } = selection;
    const request = await this.#storedRequest(keys, callId).catch(asLost);
    if (request instanceof PawlError && tool !== undefined) return 'other';
    if (request === null || request instanceof PawlError) {
      if (request !== null) await this.#access.segments.forgetLost(callId);
      for (const each of new Set([keys.calls, index])) await this.#access.redis.lrem(each, -1, callId);
      return request === null ? 'gone' : 'flushed';
    }
    const { toolNamespace, toolName, target } = parseRequest(request).envelope;
    if (tool !== undefined && tool !== `${toolNamespace}.${toolName}`) return 'other';
    const script = isExplicit ? flushNamedScript : flushScript;
    const args = [callId, target.sessionKey, `${toolNamespace}.${toolName}`, FENCE_TTL_MS, this.#access.retentionMs];
    const [code] = await script.run(this.#access.redis, [keys.base], [...args, isExplicit ? '1' : '0']);
    return code === 'moved' ? this.#flushOne(keys, callId, selection) : (code as string);
  }

  async #storedRequest(keys: PartitionKeys, callId: string): Promise<string | null> {
    const { redis, segments } = this.#access;
    const request = await redis.hget(keys.record(callId), 'request');
    if (request !== null || (await segments.restore(callId)) === 'gone') return request;
    return redis.hget(keys.record(callId), 'request');
  }

  /** The number of calls of each tool (`namespace.name`) claimed within the retention, to about a 24th of it. */
  async sizes(partition: Partition): Promise<ReadonlyMap<string, number>> {
    const keys = this.#access.keys(partition);
    const newest = Math.floor(((await this.#access.now()) * SIZE_BUCKETS) / this.#access.retentionMs);
    const buckets = await Promise.all(
      Array.from({ length: SIZE_BUCKETS }, (_, age) => this.#access.redis.hgetall(`${keys.sizes}${newest - age}`)),
    );
    const sizes = new Map<string, number>();
    for (const bucket of buckets)
      for (const [tool, count] of Object.entries(bucket)) sizes.set(tool, (sizes.get(tool) ?? 0) + Number(count));
    return sizes;
  }

  /** `inflight` counts calls that wait or run, without `delayed` ones. `calls` counts all, also those that have ended. */
  async counts(partition: Partition): Promise<{
    readonly inflight: number;
    readonly delayed: number;
    readonly pending: number;
    readonly calls: number;
  }> {
    const keys = this.#access.keys(partition);
    const nowMs = await this.#access.now();
    const [inflight, delayed, pending, calls] = await Promise.all([
      this.#access.redis.zcard(keys.inflight),
      this.#access.redis.zcount(keys.inflight, `(${nowMs}`, '+inf'),
      this.#access.redis.zcard(keys.pending),
      this.#access.redis.llen(keys.calls),
    ]);
    // The index drops calls by age; calls that have not ended still exist.
    return { inflight: Math.max(0, inflight - delayed), delayed, pending, calls: Math.max(inflight + pending, calls) };
  }
}
