import { setImmediate } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type ClosingParts, closeSessions } from '../../src/producer/close-sessions.ts';
import { findCalls } from '../../src/producer/find-calls.ts';
import type { CallRecord } from '../../src/shared/store/call-record.ts';

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

test('closing a session of thousands of calls leaves room for others: it looks at, and cancels, some hundred at a time', async () => {
  const callIds = Array.from({ length: 3_000 }, (_, number) => `r0.${number}`);
  const looks = counted();
  const cancellations = counted();
  const ledger = {
    list: async (_place: unknown, { limit, offset = 0 }: { readonly limit: number; readonly offset?: number }) =>
      callIds.slice(offset, offset + limit),
    glance: (callId: string) => {
      const envelope = { toolNamespace: 'tools', toolName: 'slow', target: { sessionKey: 'trip' } };
      return looks.during({ callId, state: 'inflight', createdAtMs: 0, request: { envelope } } as CallRecord);
    },
    now: async () => 0,
    inflightBefore: async () => [],
  };
  const place = { tier: 'read-only', shard: 0 } as const;
  await closeSessions(
    {
      backend: {
        ledger,
        sessions: { close: async () => undefined, tree: async () => ['trip'] },
        shards: { places: () => [place] },
      } as unknown as ClosingParts['backend'],
      outcomesKeptMs: 0,
      calls: async (sessionKey, limit) =>
        (await findCalls([place], ledger, { sessionKey, limit, isSeen: () => true })).records,
      cancel: (callId) => cancellations.during(callId),
      onClosed: async () => {},
    },
    'trip',
  );
  expect({ looks: looks.seen.all, cancelled: cancellations.seen.all }).toEqual({ looks: 3_000, cancelled: 3_000 });
  expect(looks.seen.most).toBeLessThanOrEqual(500);
  expect(cancellations.seen.most).toBeLessThanOrEqual(100);
});
