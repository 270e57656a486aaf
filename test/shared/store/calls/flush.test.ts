/** Forgetting calls (R11, R25, R34), and how long they can be found. */
import { describe, expect, test } from 'vitest';
import { markInDoubt, resultError } from '../../../../src/shared/calls/outcome.ts';
import { resolveSettings } from '../../../../src/shared/config/resolve-settings.ts';
import { failureOf } from '../../../../src/shared/errors/failure.ts';
import { longestRetentionMs } from '../../../../src/shared/store/calls/call-index.ts';
import { startFleet } from '../../../helpers/fleet.ts';
import { echo } from '../../../helpers/tools.ts';
import { type Books, claimOf, failureOutcome, openBooks, PLACE, SUCCESS, settle, started } from '../calls.ts';

const UNSETTLED = {
  ...failureOutcome('CANCELLED'),
  error: markInDoubt(resultError(failureOf('CANCELLED'), 'error')),
  settlement: 'unsettled',
} as const;

async function ended(books: Books, name: string, ...[outcome, state]: [typeof UNSETTLED, 'cancelled'] | []) {
  const claim = claimOf(name);
  await books.ledger.claim(claim);
  const { fence } = await started(books, claim);
  await settle(books, claim, fence, outcome ?? SUCCESS, state === undefined ? {} : { state });
  return claim;
}

describe('what is forgotten', () => {
  test('a call that was cancelled while it ran is forgotten when it is named, and not with the others', async () => {
    const books = await openBooks();
    const unsettled = await ended(books, 'a', UNSETTLED, 'cancelled');
    const done = await ended(books, 'b');
    expect(await books.ledger.index.flush(PLACE, {})).toEqual({ flushed: 1, inflight: 0, unresolved: 1 });
    expect(await books.ledger.read(done.callId)).toBeUndefined();
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', state: 'cancelled' });
    expect((await books.ledger.index.list(PLACE, { only: 'inDoubt', limit: 9 })).length).toBe(1);
    expect(await books.ledger.index.forget(unsettled.callId)).toEqual({ flushed: 1, inflight: 0, unresolved: 0 });
    expect((await books.ledger.index.list(PLACE, { only: 'inDoubt', limit: 9 })).length).toBe(0);
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'claimed' });
  });

  test('a session whose records have expired has nothing to forget, however many calls it made', async () => {
    const books = await openBooks();
    const { redis, ledger } = books;
    const index = ledger.keys(PLACE).sessionCalls('session-1');
    const kept = await ended(books, 'a');
    await redis.lpush(index, ...Array.from({ length: 450 }, (_, number) => claimOf(`${number}`).callId));
    const nothing = { flushed: 0, inflight: 0, unresolved: 0 };
    expect(await ledger.index.flush(PLACE, { sessionKey: 'session-1' })).toEqual({ ...nothing, flushed: 1 });
    expect(await ledger.read(kept.callId)).toBeUndefined();
    expect(await redis.llen(index)).toBe(0);
  });

  test('by its ID, one in flight and one of unknown outcome stay; one that is not there is none', async () => {
    const books = await openBooks();
    const running = claimOf('a');
    await books.ledger.claim(running);
    expect(await books.ledger.index.forget(running.callId)).toEqual({ flushed: 0, inflight: 1, unresolved: 0 });
    const unknown = claimOf('b');
    await books.ledger.claim(unknown);
    const { fence } = await started(books, unknown);
    await settle(books, unknown, fence, failureOutcome('OUTCOME_UNKNOWN'));
    expect(await books.ledger.index.forget(unknown.callId)).toEqual({ flushed: 0, inflight: 0, unresolved: 1 });
    expect(await books.ledger.index.forget(claimOf('c').callId)).toBeUndefined();
  });

  test('a producer forgets one call, says so in the audit trail, and refuses an ID that names none', async () => {
    const { pawl, session, audited } = await startFleet({ tools: [echo] });
    const call = (key: string) => session.call('echo', { text: key }, { idempotencyKey: key });
    const { callId = '' } = (await session.submit('echo', { text: 'a' }, { idempotencyKey: 'a' })) as {
      callId?: string;
    };
    await call('a');
    await call('b');
    expect(await pawl.calls.flush({ callId })).toEqual({ flushed: 1, inflight: 0, unresolved: 0 });
    expect(audited).toContainEqual(expect.objectContaining({ type: 'override', what: 'flush', callId }));
    expect([(await call('a')).fromCache, (await call('b')).fromCache]).toEqual([false, true]);
    await expect(pawl.calls.flush({ callId: claimOf('c').callId })).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });
});

describe('how long calls can be found', () => {
  const KEPT = { ttl: { doneMs: 1_000 }, tools: { echo: { ttl: { doneMs: 3_600_000 } } } };

  test('as long as the records of any tool are kept', () => {
    expect(longestRetentionMs(resolveSettings({ options: KEPT }))).toBe(3_600_000);
    const failures = { tools: { echo: { ttl: { failedMs: 200_000_000 } } } };
    expect(longestRetentionMs(resolveSettings({ options: failures }))).toBe(200_000_000);
    expect(longestRetentionMs(resolveSettings({}))).toBe(86_400_000);
  });

  test('a call that a tool keeps for longer than others is listed, and forgotten, as long as it is replayed', async () => {
    const { pawl, session } = await startFleet({ tools: [echo], settings: KEPT });
    const call = () => session.call('echo', { text: 'a' }, { idempotencyKey: 'a' });
    await call();
    const { ledger, shards } = pawl.backend;
    const laterMs = (await ledger.now()) + 60_000;
    await Promise.all(shards.partitions().map((partition) => ledger.index.prune(partition, laterMs)));
    expect(await pawl.calls.list({ limit: 10 })).toHaveLength(1);
    expect((await call()).fromCache).toBe(true);
    expect(await pawl.calls.flush()).toMatchObject({ flushed: 1 });
    expect((await call()).fromCache).toBe(false);
  });
});
