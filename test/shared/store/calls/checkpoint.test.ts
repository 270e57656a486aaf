import { expect, test } from 'vitest';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import { begin, claimOf, failureOutcome, openBooks, settle, started } from '../calls.ts';

test('the next attempt gets the last checkpoint, and the end of the call removes it', async () => {
  const books = await openBooks();
  const { ledger, redis } = books;
  const claim = claimOf('a');
  await ledger.claim(claim);
  const first = await started(books, claim);
  expect(first.checkpoint).toBeUndefined();
  expect(await ledger.checkpoint(claim.callId, first.fence, '{"page":1}')).toBe('written');
  expect(await ledger.checkpoint(claim.callId, first.fence, '{"page":2}')).toBe('written');
  await ledger.postpone(claim.callId, first.fence, { phase: 'waiting-retry', attempts: [], delayMs: 0 });

  const second = await started(books, claim);
  expect(second.checkpoint).toBe('{"page":2}');
  // A call that is released to wait keeps it, and so does one whose worker is lost.
  await ledger.postpone(claim.callId, second.fence, { phase: 'queued', attempts: [], delayMs: 0 });
  expect((await started(books, claim)).checkpoint).toBe('{"page":2}');
  const fourth = await started(books, claim);
  expect(fourth).toMatchObject({ checkpoint: '{"page":2}', recovered: true });

  await settle(books, claim, fourth.fence);
  expect(await redis.hexists(ledger.access.callKeys(claim.callId).record(claim.callId), 'checkpoint')).toBe(0);
});

test('a stale attempt and one whose call has ended write no checkpoint', async () => {
  const books = await openBooks();
  const { ledger } = books;
  const claim = claimOf('a');
  await ledger.claim(claim);
  const stale = await started(books, claim);
  const next = await started(books, claim);
  expect(await ledger.checkpoint(claim.callId, next.fence, '2')).toBe('written');
  expect(await ledger.checkpoint(claim.callId, stale.fence, '1')).toBe('fenced');
  expect((await started(books, claim)).checkpoint).toBe('2');
  await settle(books, claim, next.fence + 1);
  expect(await ledger.checkpoint(claim.callId, next.fence + 1, '3')).toBe('ended');
});

test('a cancelled call and one that runs again after its failure have no checkpoint', async () => {
  const books = await openBooks();
  const { ledger } = books;
  const claim = claimOf('a', { mode: 'bestEffort' });
  await ledger.claim(claim);
  const { fence } = await started(books, claim);
  await ledger.checkpoint(claim.callId, fence, '1');
  await ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 60_000 });
  const outcome = failureOutcome('CANCELLED');
  const endings = {
    state: 'cancelled',
    beforeStart: outcome,
    betweenAttempts: outcome,
    ttlMs: 60_000,
    freeAfterMs: 0,
  } as const;
  expect(await ledger.cancel(claim.callId, endings)).toMatchObject({ kind: 'cancelled' });
  const again = claimOf('a');
  expect((await ledger.claim(again)).kind).toBe('claimed');
  expect((await started(books, again)).checkpoint).toBeUndefined();
});

test('a checkpoint that no worker of this fleet signed ends the call', async () => {
  const books = await openBooks();
  const signatures = new Signatures(new Signer([{ kid: 'k', key: 'secret' }]));
  const ledger = new Ledger(books.redis, books.world.prefix, 60_000, signatures);
  const claim = claimOf('a', { generation: String(Date.now()) });
  await ledger.claim(claim);
  const { fence } = await started({ ...books, ledger }, claim);
  await ledger.checkpoint(claim.callId, fence, '1');
  const record = ledger.access.callKeys(claim.callId).record(claim.callId);
  const stored = (await books.redis.hget(record, 'checkpoint')) ?? '';
  expect((await started({ ...books, ledger }, claim)).checkpoint).toBe('1');
  await books.redis.hset(record, 'checkpoint', stored.replace(/1$/, '2'));
  expect((await begin({ ...books, ledger }, claim)).kind).toBe('forged');
});

test('a call that gets on is not blamed for the workers that were lost before', async () => {
  const books = await openBooks();
  const { ledger, redis } = books;
  const claim = claimOf('a');
  await ledger.claim(claim);
  const record = ledger.access.callKeys(claim.callId).record(claim.callId);
  let attempt = await started(books, claim);
  for (let step = 0; step < 30; step += 1) {
    attempt = await started(books, claim);
    expect(Number(await redis.hget(record, 'blamed'))).toBeGreaterThan(0);
    await ledger.checkpoint(claim.callId, attempt.fence, String(step < 25 ? step : 'the same'));
  }
  // It was forgiven 20 times, and then no more.
  expect(await redis.hmget(record, 'forgiven', 'blamed')).toEqual(['20', '10']);

  const standing = claimOf('b');
  await ledger.claim(standing);
  const { fence } = await started(books, standing);
  await ledger.checkpoint(standing.callId, fence, '1');
  const second = await started(books, standing);
  await ledger.checkpoint(standing.callId, second.fence, '1');
  const other = ledger.access.callKeys(standing.callId).record(standing.callId);
  expect(await redis.hmget(other, 'forgiven', 'blamed')).toEqual([null, '1']);
});
