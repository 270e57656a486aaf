/**
 * Closing a session and those below it: new calls are refused, and waiting or running ones cancelled. Calls that all sessions share go on:
 * they change nothing, and others may wait for them.
 */
import { PawlError } from '../../shared/errors/failure.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Partition } from '../../shared/store/redis/keys.ts';

/** The number of calls that are read together. */
const PAGE = 500;
/**
 * At most this many calls of one session are read by its index. Beyond that, all calls in flight of the partition are read: their number is
 * bounded, a day's calls are not.
 */
const MAX_INDEXED = 10_000;
/**
 * So many sessions are closed at once. A tool that ignores its signal takes seconds to end; other sessions' calls must not run on that
 * long.
 */
const SESSIONS_AT_ONCE = 100;
/** So many calls are cancelled at once. Thousands would block this process, and let its Redis commands time out. */
const CANCELLED_AT_ONCE = 100;

export interface CloseSessionsDeps {
  readonly backend: Pick<Backend, 'ledger' | 'sessions' | 'shards'>;
  /** How long the record of a success is kept, in milliseconds. */
  readonly outcomesKeptMs: number;
  cancel(callId: string): Promise<unknown>;
  onClosed(closed: SessionRecord): Promise<void>;
}

interface Cancelling extends Pick<CloseSessionsDeps, 'backend' | 'cancel'> {
  glance(callId: string): Promise<CallRecord | undefined>;
}

export async function closeSessions(closing: CloseSessionsDeps, sessionKey: string): Promise<void> {
  const { backend, onClosed, outcomesKeptMs } = closing;
  const cancelling: Cancelling = {
    backend,
    glance: atMost(PAGE, (callId) => backend.ledger.glance(callId)),
    cancel: atMost(CANCELLED_AT_ONCE, (callId) => closing.cancel(callId)),
  };
  const keys = new Set<string>();
  // The walk goes from the top down: a session that is opened meanwhile is found as a child, or sees that its parent is closed.
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
  const cancelAll = atMost(SESSIONS_AT_ONCE, (key) => cancelIndexed(cancelling, partitions, key));
  for (const left of await Promise.all([...keys].map(cancelAll))) for (const partition of left) crowded.add(partition);
  const most = Number.POSITIVE_INFINITY;
  const cancelDelayed = (key: string) => cancelIndexed(cancelling, partitions, key, { most, only: 'delayed' });
  await Promise.all([...keys].map(atMost(SESSIONS_AT_ONCE, cancelDelayed)));
  const nowMs = await backend.ledger.now();
  // A session's index forgets calls as soon as they may have expired; those that still wait or run are among few.
  for (const partition of partitions)
    await cancelInflight(cancelling, partition, crowded.has(partition) ? nowMs : nowMs - outcomesKeptMs, keys);
  // A pending call may be older than all that.
  const { index } = backend.ledger;
  const ofSessions = [...keys].flatMap((key) => partitions.map((partition) => index.pendingOf(partition, key)));
  await cancelAmong(cancelling, (await Promise.all(ofSessions)).flat(), keys);
  // Another front door may have claimed calls before it heard that the session is closed.
  const cancelNewest = atMost(SESSIONS_AT_ONCE, (key) => cancelIndexed(cancelling, partitions, key, { most: PAGE }));
  await Promise.all([...keys].map(cancelNewest));
}

/** The same function, of whose runs so many are under way at a time; the others wait for their turn. */
function atMost<Answer>(most: number, run: (id: string) => Promise<Answer>): (id: string) => Promise<Answer> {
  let underWay = 0;
  const waiting: (() => void)[] = [];
  return async (id) => {
    if (underWay < most) underWay += 1;
    else await new Promise<void>((begin) => waiting.push(begin));
    try {
      return await run(id);
    } finally {
      const next = waiting.shift();
      if (next === undefined) underWay -= 1;
      else next();
    }
  };
}

/** Cancels by the session's index, the newest calls first. Returns the partitions that have more than `most`. */
async function cancelIndexed(
  cancelling: Cancelling,
  partitions: readonly Partition[],
  sessionKey: string,
  { most = MAX_INDEXED, only }: { readonly most?: number; readonly only?: 'delayed' } = {},
): Promise<readonly Partition[]> {
  const { ledger } = cancelling.backend;
  let left = partitions;
  for (let offset = 0; left.length > 0 && offset < most; offset += PAGE) {
    const lists = await Promise.all(
      left.map((partition) => ledger.index.list(partition, { sessionKey, only, limit: PAGE, offset })),
    );
    await cancelAmong(cancelling, lists.flat(), new Set([sessionKey]));
    left = left.filter((_place, at) => lists[at]?.length === PAGE);
  }
  return left;
}

/** Cancels among all calls that the partition has in flight since before that time. */
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
  // The walk goes from the newest call back: when calls end meanwhile, later ones move to the front, where they are still to be read.
  for (let passed = Math.floor(inflight / PAGE) * PAGE; passed >= 0; passed -= PAGE)
    await cancelAmong(cancelling, await ledger.index.inflightBefore(partition, beforeMs, PAGE, passed), sessionKeys);
}

async function cancelAmong(
  { glance, cancel }: Cancelling,
  callIds: readonly string[],
  sessionKeys: ReadonlySet<string>,
): Promise<void> {
  for (let first = 0; first < callIds.length; first += PAGE) {
    const records = await Promise.all(callIds.slice(first, first + PAGE).map(glance));
    const found = records
      .filter((record) => record !== undefined)
      .filter(
        ({ state, cancelRequested, request: { envelope, shared } }) =>
          state === 'inflight' && !cancelRequested && shared !== true && sessionKeys.has(envelope.target.sessionKey),
      );
    await Promise.all(found.map(({ callId }) => cancel(callId).catch(unlessGone)));
  }
}

function unlessGone(error: unknown): void {
  if (!(error instanceof PawlError) || error.code !== 'UNKNOWN_CALL') throw error;
}
