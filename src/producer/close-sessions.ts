/** Closing a session, and those below it: nothing new is accepted, and what waits or runs is cancelled. */
import type { SessionRecord } from '../shared/session.ts';
import type { Backend } from '../shared/store/backend.ts';
import type { CallRecord } from '../shared/store/call-record.ts';

/** Of one session; and of a place, in flight for longer than outcomes are kept. */
const MAX_CALLS = 10_000;
/** Thousands at once would hold up whatever else this process does, and let commands to Redis time out here. */
const CANCELLED_AT_ONCE = 100;

export interface ClosingParts {
  readonly backend: Pick<Backend, 'ledger' | 'sessions' | 'shards'>;
  /** How long a success is kept. */
  readonly outcomesKeptMs: number;
  calls(sessionKey: string, limit: number): Promise<readonly CallRecord[]>;
  cancel(callId: string): Promise<unknown>;
  onClosed(closed: SessionRecord): Promise<void>;
}

export async function closeSessions(parts: ClosingParts, sessionKey: string): Promise<void> {
  const { backend, calls, cancel, onClosed } = parts;
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
  for (const key of keys) {
    const inflight = (await calls(key, MAX_CALLS)).filter(({ state }) => state === 'inflight');
    for (let first = 0; first < inflight.length; first += CANCELLED_AT_ONCE)
      await Promise.all(inflight.slice(first, first + CANCELLED_AT_ONCE).map(({ callId }) => cancel(callId)));
  }
  await cancelOld(parts, keys);
}

/** A session's index forgets calls as soon as they may have expired; those that still wait or run are among few. */
async function cancelOld(
  { backend: { ledger, shards }, outcomesKeptMs, cancel }: ClosingParts,
  sessionKeys: ReadonlySet<string>,
): Promise<void> {
  const beforeMs = (await ledger.now()) - outcomesKeptMs;
  for (const place of shards.places()) {
    for (const callId of await ledger.inflightBefore(place, beforeMs, MAX_CALLS)) {
      const record = await ledger.glance(callId);
      if (record !== undefined && sessionKeys.has(record.request.envelope.target.sessionKey)) await cancel(callId);
    }
  }
}
