/**
 * Closes a session and its descendants: new calls are refused, and waiting or running ones cancelled. Calls that all sessions share go
 * on: they change nothing, and other callers may wait for them.
 */
import { ignoreCode } from '../../shared/errors/failure.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';

/** The number of calls that are read together. */
const PAGE = 500;
/**
 * At most this many calls of one session are read by its index. Beyond that, all calls in flight of the partition are read, because
 * their number is bounded.
 */
const MAX_INDEXED = 10_000;
/**
 * The number of sessions that are closed concurrently. A tool that ignores its signal takes seconds to end, and must not delay the
 * cancellation of other sessions' calls.
 */
const MAX_SESSIONS = 100;
/** The number of concurrent cancellations. Thousands would block this process, and its Redis commands would time out. */
const MAX_CANCELS = 100;

export interface CloseSessionsDeps {
  readonly backend: Pick<Backend, 'ledger' | 'sessions' | 'shards'>;
  /** How long the record of a success is kept, in milliseconds. */
  readonly outcomeTtlMs: number;
  cancel(callId: string): Promise<unknown>;
  onClosed(closed: SessionRecord): Promise<void>;
}

interface Cancelling extends Pick<CloseSessionsDeps, 'backend' | 'cancel'> {
  /** Undefined for a call that has ended. Those that were moved to segments are not read. */
  readInflight(callId: string): Promise<CallRecord | undefined>;
}

export async function closeSessions(deps: CloseSessionsDeps, sessionKey: string): Promise<void> {
  const { backend, onClosed, outcomeTtlMs } = deps;
  const cancelling: Cancelling = {
    backend,
    readInflight: limitConcurrency(PAGE, async (callId) =>
      (await backend.ledger.isInflight(callId)) ? backend.ledger.readBrief(callId) : undefined,
    ),
    cancel: limitConcurrency(MAX_CANCELS, (callId) => deps.cancel(callId)),
  };
  const keys = new Set<string>();
  // Top down: a session that is opened meanwhile is found as a child, or is refused because its parent is closed.
  for (let open = [sessionKey]; open.length > 0; ) {
    for (const key of open) {
      const closed = await backend.sessions.close(key);
      if (closed !== undefined) await onClosed(closed);
    }
    for (const key of open) keys.add(key);
    open = (await backend.sessions.tree(sessionKey)).filter((key) => !keys.has(key));
  }
  const partitions = backend.shards.partitions();
  const crowded = new Set<Partition>();
  const cancelAll = limitConcurrency(MAX_SESSIONS, (key) => cancelIndexed(cancelling, partitions, key));
  for (const unread of await Promise.all([...keys].map(cancelAll)))
    for (const partition of unread) crowded.add(partition);
  const maxCalls = Number.POSITIVE_INFINITY;
  const cancelDelayed = (key: string) => cancelIndexed(cancelling, partitions, key, { maxCalls, only: 'delayed' });
  await Promise.all([...keys].map(limitConcurrency(MAX_SESSIONS, cancelDelayed)));
  const nowMs = await backend.ledger.now();
  // A session's index drops calls when they may have expired. Those that still wait or run are in the index of calls in flight.
  for (const partition of partitions)
    await cancelInflight(cancelling, partition, crowded.has(partition) ? nowMs : nowMs - outcomeTtlMs, keys);
  // Pending calls may be older than the calls of both indices.
  const { index } = backend.ledger;
  const pendingLists = [...keys].flatMap((key) =>
    partitions.map((partition) => index.pendingOfSession(partition, key)),
  );
  await cancelAmong(cancelling, (await Promise.all(pendingLists)).flat(), keys);
  // Another front door may have claimed calls before it received the broadcast.
  const cancelNewest = limitConcurrency(MAX_SESSIONS, (key) =>
    cancelIndexed(cancelling, partitions, key, { maxCalls: PAGE }),
  );
  await Promise.all([...keys].map(cancelNewest));
}

/** Limits the concurrent runs of a function; further runs are queued. */
function limitConcurrency<Answer>(
  limit: number,
  run: (id: string) => Promise<Answer>,
): (id: string) => Promise<Answer> {
  let running = 0;
  const waiting: (() => void)[] = [];
  return async (id) => {
    if (running < limit) running += 1;
    else await new Promise<void>((start) => waiting.push(start));
    try {
      return await run(id);
    } finally {
      const next = waiting.shift();
      if (next === undefined) running -= 1;
      else next();
    }
  };
}

/** Cancels calls by the session's index, the newest first. Returns the partitions that have more than `maxCalls`. */
async function cancelIndexed(
  cancelling: Cancelling,
  partitions: readonly Partition[],
  sessionKey: string,
  { maxCalls = MAX_INDEXED, only }: { readonly maxCalls?: number; readonly only?: 'delayed' } = {},
): Promise<readonly Partition[]> {
  const { ledger } = cancelling.backend;
  let remaining = partitions;
  for (let offset = 0; remaining.length > 0 && offset < maxCalls; offset += PAGE) {
    const lists = await Promise.all(
      remaining.map((partition) => ledger.index.list(partition, { sessionKey, only, limit: PAGE, offset })),
    );
    await cancelAmong(cancelling, lists.flat(), new Set([sessionKey]));
    remaining = remaining.filter((_partition, index) => lists[index]?.length === PAGE);
  }
  return remaining;
}

/** Cancels the sessions' calls among all calls of the partition that are in flight since before `beforeMs`. */
async function cancelInflight(
  cancelling: Cancelling,
  partition: Partition,
  beforeMs: number,
  sessionKeys: ReadonlySet<string>,
): Promise<void> {
  const { ledger } = cancelling.backend;
  const oldest = await ledger.index.inflightBefore(partition, beforeMs, PAGE);
  if (oldest.length < PAGE) return cancelAmong(cancelling, oldest, sessionKeys);
  const { inflight } = await ledger.index.counts(partition);
  // From the newest call back: when calls end meanwhile, later ones move to the front, which is read last.
  for (let offset = Math.floor(inflight / PAGE) * PAGE; offset >= 0; offset -= PAGE)
    await cancelAmong(cancelling, await ledger.index.inflightBefore(partition, beforeMs, PAGE, offset), sessionKeys);
}

async function cancelAmong(
  { readInflight, cancel }: Cancelling,
  callIds: readonly string[],
  sessionKeys: ReadonlySet<string>,
): Promise<void> {
  for (let first = 0; first < callIds.length; first += PAGE) {
    const records = await Promise.all(callIds.slice(first, first + PAGE).map(readInflight));
    const inflight = records
      .filter((record) => record !== undefined)
      .filter(
        ({ state, cancelRequested, request: { envelope, shared } }) =>
          state === 'inflight' && !cancelRequested && shared !== true && sessionKeys.has(envelope.target.sessionKey),
      );
    await Promise.all(inflight.map(({ callId }) => cancel(callId).catch(ignoreCode('UNKNOWN_CALL'))));
  }
}
