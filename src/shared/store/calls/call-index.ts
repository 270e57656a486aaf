/**
 * The indices of calls: finding, counting, pruning and forgetting them.
 */
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
const SIZE_PARTS = 24;
const FLUSH_BATCH = 200;
/** Claims remove the oldest calls meanwhile, so that a pass may miss some. Under load, calls end in each pass. */
const FLUSH_PASSES = 3;
const PRUNED_AT_ONCE = 1_000;
/** Longer than any straggler of a forgotten call lives. */
const FENCE_REMEMBERED_MS = 600_000;

export interface Flushed {
  flushed: number;
  inflight: number;
  /** They may have had their effect: resolve them first, or, where they were cancelled, name each of them. */
  unresolved: number;
}

/** The selection of calls of one partition. */
export interface Selection {
  readonly limit: number;
  readonly offset?: number;
  readonly sessionKey?: string;
  /**
   * Only those that the fleet works on, those whose outcome is unknown, those that workers hold, those that start later, those that a
   * person decides on, or those that an outside system completes.
   */
  readonly only?: 'inflight' | 'inDoubt' | 'running' | 'delayed' | 'awaiting-approval' | 'pending' | undefined;
}

/** For `Script`: `prune_index`, which needs `segment_of`. */
export const PRUNE_LUA = luaFunction(new URL('./prune-index.lua', import.meta.url));
const pruneScript = new Script(new URL('./prune-index.lua', import.meta.url), SEGMENT_LUA);
const flushScript = new Script(new URL('./flush.lua', import.meta.url), [...DEAD_LETTER_LUA, ...SEGMENT_LUA]);

/**
 * How long the indices keep what has ended: as long as the records of any tool are there. Those of the few calls that were cancelled may
 * be there for longer: indices of all calls are not kept for their sake where `ttl.doneMs` is short.
 */
export function longestKeptMs({ ttl, tools }: Pick<Settings, 'ttl' | 'tools'>): number {
  const kept = [ttl, ...Object.values(tools).map(({ ttl: own }) => own)];
  return Math.max(...kept.flatMap((own) => [own?.doneMs ?? 0, own?.failedMs ?? 0, own?.failedKeptMs ?? 0]));
}

/** The calls of a place: by time, by session, in flight, in doubt, and how many there are. */
export class CallIndex {
  readonly #access: LedgerAccess;

  constructor(access: LedgerAccess) {
    this.#access = access;
  }

  /** IDs of calls of one partition, the newest first; of one session when given. Of those in flight, delayed ones come last. */
  async list(partition: Partition, options: Selection): Promise<string[]> {
    const keys = this.#access.keys(partition);
    const { redis } = this.#access;
    const { limit, offset = 0, sessionKey, only = 'calls' } = options;
    const last = offset + limit - 1;
    // Behind a long backlog they are the oldest in flight: who came from the newest would look at all that wait.
    if (only === 'running')
      return (await redis.lrange(keys.job('active'), offset, last)).map((job) => callOfJob(job).callId);
    if (only === 'delayed' && sessionKey !== undefined)
      return redis.zrange(keys.delayedSessionCalls(sessionKey), String(offset), String(last));
    // They may be older than what a session's index keeps.
    if (only === 'pending') return redis.zrange(keys.pending, String(offset), String(last));
    if (sessionKey !== undefined) return redis.lrange(keys.sessionCalls(sessionKey), offset, last);
    if (only === 'calls') return redis.lrange(keys.calls, offset, last);
    if (only === 'awaiting-approval')
      return (await redis.zrevrange(`${keys.approvals}s:pending`, offset, last)).map(callOf);
    if (only === 'inDoubt') return redis.zrevrange(keys.inDoubt, offset, last);
    return this.#listInflight(keys, { limit, offset, only });
  }

  /** Delayed calls, whose scores are their starts, come behind all others, the next to start first. */
  async #listInflight({ inflight }: PartitionKeys, { limit, offset = 0, only }: Selection): Promise<string[]> {
    const { redis } = this.#access;
    const nowMs = await this.#access.now();
    const isDelayed = only === 'delayed';
    const others = isDelayed ? [] : await redis.zrevrangebyscore(inflight, nowMs, '-inf', 'LIMIT', offset, limit);
    if (others.length === limit) return others;
    const passed = isDelayed ? 0 : await redis.zcount(inflight, '-inf', nowMs);
    const [first, most] = [Math.max(0, offset - passed), limit - others.length];
    return [...others, ...(await redis.zrangebyscore(inflight, `(${nowMs}`, '+inf', 'LIMIT', first, most))];
  }

  /** IDs of calls in flight that were claimed before a time, or were to start, the oldest first, without the `passed` oldest. */
  async inflightBefore(partition: Partition, beforeMs: number, limit: number, passed = 0): Promise<string[]> {
    const { inflight } = this.#access.keys(partition);
    return this.#access.redis.zrangebyscore(inflight, '-inf', beforeMs, 'LIMIT', passed, limit);
  }

  /** IDs of a session's pending calls, and of some that have ended. */
  async pendingOf(partition: Partition, sessionKey: string): Promise<string[]> {
    return this.#access.redis.smembers(`${this.#access.keys(partition).pending}:${sessionKey}`);
  }

  /** IDs of pending calls that should have expired before a time. */
  async pendingBefore(partition: Partition, beforeMs: number, limit: number): Promise<string[]> {
    const { pending } = this.#access.keys(partition);
    return this.#access.redis.zrangebyscore(pending, '-inf', beforeMs, 'LIMIT', 0, limit);
  }

  /** Removes calls from the index whose records may have expired. Claims do the same as they go. */
  async prune(partition: Partition, nowMs: number): Promise<void> {
    const { redis, retentionMs } = this.#access;
    const { calls, records, base } = this.#access.keys(partition);
    // After a weekend there may be millions, which would hold all others up in one step.
    for (let gone = PRUNED_AT_ONCE; gone === PRUNED_AT_ONCE; )
      gone = Number((await pruneScript.run(redis, [calls, records, base], [nowMs - retentionMs, PRUNED_AT_ONCE]))[0]);
  }

  /**
   * Forgets the ended calls of one partition, of one session or one tool (`namespace.name`) when given. Calls in flight stay, and calls
   * that may have had their effect.
   */
  async flush(
    partition: Partition,
    select: { readonly sessionKey?: string; readonly tool?: string },
  ): Promise<Flushed> {
    const keys = this.#access.keys(partition);
    const index = select.sessionKey === undefined ? keys.calls : keys.sessionCalls(select.sessionKey);
    let flushed = 0;
    for (let pass = 1; ; pass += 1) {
      const counts = await this.#flushIndex(keys, index, select.tool);
      flushed += counts.flushed;
      if (counts.flushed === 0 || pass === FLUSH_PASSES) return { ...counts, flushed };
    }
  }

  /** From the oldest call on: a call that is forgotten leaves the end of the index, or stands right before the calls that stay. */
  async #flushIndex(keys: PartitionKeys, index: string, tool: string | undefined): Promise<Flushed> {
    const counts = { flushed: 0, inflight: 0, unresolved: 0 };
    const seen = new Set<string>();
    for (let stay = 0; ; ) {
      const callIds = await this.#access.redis.lrange(index, -stay - FLUSH_BATCH, -stay - 1);
      const codes = await Promise.all(callIds.map((callId) => this.#flushOne(keys, callId, { tool })));
      for (const [position, code] of codes.entries()) {
        if (code !== 'flushed' && code !== 'gone') stay += 1;
        const callId = callIds[position] as string;
        if (code in counts && !seen.has(callId)) counts[code as keyof Flushed] += 1;
        if (code !== 'flushed') seen.add(callId);
      }
      if (callIds.length < FLUSH_BATCH) return counts;
    }
  }

  /**
   * Forgets one call that has ended or was cancelled; undefined when there is none. A call of unknown outcome stays. A merged call is the
   * call that it was merged into.
   */
  async forget(mergedId: string): Promise<Flushed | undefined> {
    const record = await readCall(this.#access, mergedId, { brief: true }).catch(asLost);
    if (record === undefined) return undefined;
    const callId = record instanceof PawlError ? mergedId : record.callId;
    const code = await this.#flushOne(this.#access.placed(callId), callId, { named: true });
    return code === 'gone' ? undefined : { flushed: 0, inflight: 0, unresolved: 0, [code]: 1 };
  }

  async #flushOne(
    keys: PartitionKeys,
    callId: string,
    { tool, named = false }: { readonly tool?: string | undefined; readonly named?: boolean },
  ): Promise<string> {
    const request = await this.#storedRequest(keys, callId).catch(asLost);
    if (request instanceof PawlError) return this.#forgetLost(keys, callId, tool);
    if (request === null) {
      await this.#access.redis.lrem(keys.calls, -1, callId);
      return 'gone';
    }
    const { toolNamespace, toolName, target } = parseRequest(request).envelope;
    if (tool !== undefined && tool !== `${toolNamespace}.${toolName}`) return 'other';
    const [code] = await flushScript.run(
      this.#access.redis,
      [keys.record(callId), keys.calls, keys.sessionCalls(target.sessionKey), keys.inDoubt, keys.base],
      [
        callId,
        FENCE_REMEMBERED_MS,
        keys.sizes,
        this.#access.retentionMs,
        `${toolNamespace}.${toolName}`,
        named ? '1' : '0',
      ],
    );
    return code as string;
  }

  async #storedRequest(keys: PartitionKeys, callId: string): Promise<string | null> {
    const { redis, segments } = this.#access;
    const request = await redis.hget(keys.record(callId), 'request');
    if (request !== null || (await segments.restore(callId)) === 'gone') return request;
    return redis.hget(keys.record(callId), 'request');
  }

  /** Nothing says which tool it called. The index of its session forgets it in time. */
  async #forgetLost(keys: PartitionKeys, callId: string, tool: string | undefined): Promise<string> {
    if (tool !== undefined) return 'other';
    await this.#access.segments.forgetLost(callId);
    await this.#access.redis.lrem(keys.calls, -1, callId);
    return 'flushed';
  }

  /** How many calls of each tool (`namespace.name`) were claimed within the retention, to about a 24th part of it. */
  async sizes(partition: Partition): Promise<ReadonlyMap<string, number>> {
    const keys = this.#access.keys(partition);
    const newest = Math.floor(((await this.#access.now()) * SIZE_PARTS) / this.#access.retentionMs);
    const parts = await Promise.all(
      Array.from({ length: SIZE_PARTS }, (_, age) => this.#access.redis.hgetall(`${keys.sizes}${newest - age}`)),
    );
    const sizes = new Map<string, number>();
    for (const part of parts)
      for (const [tool, count] of Object.entries(part)) sizes.set(tool, (sizes.get(tool) ?? 0) + Number(count));
    return sizes;
  }

  /**
   * `inflight`: those that wait or run; `delayed`: those that start later; `pending`: those that an outside system completes. `calls` has
   * all of them.
   */
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
    // One that has not ended is kept, however long ago it was claimed.
    return { inflight: Math.max(0, inflight - delayed), delayed, pending, calls: Math.max(inflight + pending, calls) };
  }
}
