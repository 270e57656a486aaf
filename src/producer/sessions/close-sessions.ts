/**
 * Closing a session, and those below it: nothing new is accepted, and what waits or runs is cancelled. What all sessions share goes on: it
 * changes nothing, and others may wait for it.
 */
import { PawlError } from '../../shared/errors/failure.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { Place } from '../../shared/store/redis/keys.ts';

/** Calls that are looked at together. */
const PAGE = 500;
/** Of one session in one place: beyond that, all that the place has in flight is looked at, which is bounded, and a day's calls are not. */
const MAX_INDEXED = 10_000;
/** One whose tool does not heed its signal takes seconds to end: those of other sessions are not left running for as long. */
const SESSIONS_AT_ONCE = 100;
/** Thousands at once would hold up whatever else this process does, and let commands to Redis time out here. */
const CANCELLED_AT_ONCE = 100;

export interface ClosingParts {
  readonly backend: Pick<Backend, 'ledger' | 'sessions' | 'shards'>;
  /** How long a success is kept. */
  readonly outcomesKeptMs: number;
  cancel(callId: string): Promise<unknown>;
  onClosed(closed: SessionRecord): Promise<void>;
}

interface Cancelling extends Pick<ClosingParts, 'backend' | 'cancel'> {
  glance(callId: string): Promise<CallRecord | undefined>;
}

export async function closeSessions(closing: ClosingParts, sessionKey: string): Promise<void> {
  const { backend, onClosed, outcomesKeptMs } = closing;
  const parts: Cancelling = {
    backend,
    glance: atMost(PAGE, (callId) => backend.ledger.glance(callId)),
    cancel: atMost(CANCELLED_AT_ONCE, (callId) => closing.cancel(callId)),
  };
  const keys = new Set<string>();
  // From above: what is opened below one meanwhile is there when its children are looked for, or sees that it is closed.
  for (let open = [sessionKey]; open.length > 0; ) {
    for (const key of open) {
      const closed = await backend.sessions.close(key);
      if (closed !== undefined) await onClosed(closed);
    }
    for (const key of open) keys.add(key);
    open = (await backend.sessions.tree(sessionKey)).filter((key) => !keys.has(key));
  }
  const places = backend.shards.places();
  const crowded = new Set<Place>();
  const cancelAll = atMost(SESSIONS_AT_ONCE, (key) => cancelIndexed(parts, places, key, MAX_INDEXED));
  for (const left of await Promise.all([...keys].map(cancelAll))) for (const place of left) crowded.add(place);
  const nowMs = await backend.ledger.now();
  // A session's index forgets calls as soon as they may have expired; those that still wait or run are among few.
  for (const place of places)
    await cancelInflight(parts, place, crowded.has(place) ? nowMs : nowMs - outcomesKeptMs, keys);
  // Another front door may have claimed calls before it heard that the session is closed.
  const cancelNewest = atMost(SESSIONS_AT_ONCE, (key) => cancelIndexed(parts, places, key, PAGE));
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

/** By the index of the session, the newest first; answers with the places where it goes on beyond `most`. */
async function cancelIndexed(
  parts: Cancelling,
  places: readonly Place[],
  sessionKey: string,
  most: number,
): Promise<readonly Place[]> {
  const { ledger } = parts.backend;
  let left = places;
  for (let offset = 0; left.length > 0 && offset < most; offset += PAGE) {
    const lists = await Promise.all(left.map((place) => ledger.list(place, { sessionKey, limit: PAGE, offset })));
    await cancelAmong(parts, lists.flat(), new Set([sessionKey]));
    left = left.filter((_place, at) => lists[at]?.length === PAGE);
  }
  return left;
}

/** Among all that the place has in flight since before that time. */
async function cancelInflight(
  parts: Cancelling,
  place: Place,
  beforeMs: number,
  sessionKeys: ReadonlySet<string>,
): Promise<void> {
  const { ledger } = parts.backend;
  const oldest = await ledger.inflightBefore(place, beforeMs, PAGE);
  if (oldest.length < PAGE) return cancelAmong(parts, oldest, sessionKeys);
  const { inflight } = await ledger.counts(place);
  // From the newest back: what ends meanwhile moves those behind it to the front, where they are still to be looked at.
  for (let passed = Math.floor(inflight / PAGE) * PAGE; passed >= 0; passed -= PAGE)
    await cancelAmong(parts, await ledger.inflightBefore(place, beforeMs, PAGE, passed), sessionKeys);
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
