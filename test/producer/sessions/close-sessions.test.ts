import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type CloseSessionsDeps, closeSessions } from '../../../src/producer/sessions/close-sessions.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import type { CallRecord } from '../../../src/shared/store/calls/call-record.ts';

/** Commands under way at a time, at most. */
function counted() {
  let underWay = 0;
  const seen = { most: 0, all: 0 };
  const during = async <T>(value: T): Promise<T> => {
    underWay += 1;
    seen.all += 1;
    seen.most = Math.max(seen.most, underWay);
    await setImmediate();
    underWay -= 1;
    return value;
  };
  return { seen, during };
}

/** One place with these calls, the oldest first. Those without a state are in flight. */
function placeWith(
  calls: readonly { readonly session: string; readonly state?: 'done' }[],
  { below = [], ends }: { readonly below?: readonly string[]; readonly ends?: (callId: string) => Promise<void> } = {},
) {
  const looks = counted();
  const cancellations = counted();
  const sessions = new Map(calls.map(({ session }, number) => [`r0.${number}`, session]));
  const inflight = new Set([...sessions.keys()].filter((_callId, number) => calls[number]?.state === undefined));
  const ledger = {
    readBrief: (callId: string) => {
      const state = inflight.has(callId) ? 'inflight' : 'done';
      const envelope = { target: { sessionKey: sessions.get(callId) } };
      return looks.during({ callId, state, cancelRequested: false, request: { envelope } } as CallRecord);
    },
    isInflight: async (callId: string) => inflight.has(callId),
    now: async () => 1_000,
    index: {
      // None of them is delayed.
      list: async (_place: unknown, select: { sessionKey: string; only?: string; limit: number; offset: number }) =>
        [...sessions]
          .filter(([, session]) => session === select.sessionKey && select.only !== 'delayed')
          .map(([callId]) => callId)
          .reverse()
          .slice(select.offset, select.offset + select.limit),
      counts: async () => ({ inflight: inflight.size }),
      // All were claimed at 500.
      pendingOfSession: async () => [],
      inflightBefore: async (_place: unknown, beforeMs: number, limit: number, passed = 0) =>
        beforeMs < 500 ? [] : [...inflight].slice(passed, passed + limit),
    },
  };
  const close = (cancelled: (callId: string) => void = () => {}) =>
    closeSessions(
      {
        backend: {
          ledger,
          sessions: { close: async () => undefined, tree: async () => ['trip', ...below] },
          shards: { partitions: () => [{ tier: 'read-only', shard: 0 }] },
        } as unknown as CloseSessionsDeps['backend'],
        outcomeTtlMs: 1_000,
        cancel: async (callId) => {
          inflight.delete(callId);
          await cancellations.during(callId);
          await ends?.(callId);
          cancelled(callId);
        },
        onClosed: async () => {},
      },
      'trip',
    );
  const leftOf = (session: string) => [...inflight].filter((callId) => sessions.get(callId) === session);
  return { sessions, inflight, leftOf, close, looks: looks.seen, cancellations: cancellations.seen };
}

const many = (length: number, session: string, state?: 'done') =>
  Array.from({ length }, () => ({ session, ...(state === undefined ? {} : { state }) }));

test('closing a session of thousands of calls leaves room for others: it looks at, and cancels, some hundred at a time', async () => {
  const partition = placeWith([...many(3_000, 'trip'), ...many(3_000, 'other')]);
  await partition.close();
  expect(partition.cancellations.all).toBe(3_000);
  expect(partition.leftOf('other')).toHaveLength(3_000);
  expect(partition.looks.most).toBeLessThanOrEqual(500);
  expect(partition.cancellations.most).toBeLessThanOrEqual(100);
  // Not at those of others, and a second time at the newest only.
  expect(partition.looks.all).toBeLessThanOrEqual(3_500);
});

test('a call that takes its time to end keeps no session below from being cancelled meanwhile', async () => {
  const [first, last] = ['r0.0', 'r0.1'];
  const { promise: told, resolve: tell } = Promise.withResolvers<void>();
  const ends = async (callId: string) => {
    if (callId === last) tell();
    else if (callId === first) await told;
  };
  const { close, inflight } = placeWith([{ session: 'trip' }, { session: 'leg' }], { below: ['leg'], ends });
  await close();
  expect([...inflight]).toEqual([]);
});

test('closing cancels all calls of a session, however many it made', async () => {
  const partition = placeWith(many(30_000, 'trip'));
  await partition.close();
  expect(partition.leftOf('trip')).toEqual([]);
  expect(partition.cancellations.most).toBeLessThanOrEqual(100);
});

test('closing cancels a call that waits behind thousands that have ended, while those of others end', async () => {
  const partition = placeWith([
    ...many(1_000, 'other'),
    { session: 'trip' },
    ...many(12_000, 'trip', 'done'),
    ...many(500, 'other'),
    { session: 'trip' },
  ]);
  await partition.close(() => {
    for (const callId of partition.leftOf('other').slice(0, 600)) partition.inflight.delete(callId);
  });
  expect(partition.leftOf('trip')).toEqual([]);
  expect(partition.leftOf('other')).not.toEqual([]);
});

test('closing cancels a call, too, that another front door claimed before it heard of it', async () => {
  const partition = placeWith(many(1, 'trip'));
  await partition.close((cancelled) => {
    if (cancelled !== 'r0.0') return;
    partition.sessions.set('r0.1', 'trip');
    partition.inflight.add('r0.1');
  });
  expect(partition.cancellations.all).toBe(2);
});

test('a call whose record expires meanwhile does not keep the others from being cancelled', async () => {
  const partition = placeWith(many(200, 'trip'));
  await partition.close((callId) => {
    if (callId === 'r0.199') throw new PawlError('UNKNOWN_CALL');
  });
  expect(partition.leftOf('trip')).toEqual([]);
});
