import { describe, expect, test } from 'vitest';
import { PawlError } from '../../../../src/shared/errors/failure.ts';
import { jobIdOf, KEPT_PER_SECOND } from '../../../../src/shared/store/queues/jobs.ts';
import {
  begin,
  CIRCUIT,
  callIdFor,
  claimOf,
  failureOutcome,
  jobOf,
  openBooks,
  PLACE,
  SUCCESS,
  settle,
  started,
} from '../calls.ts';
import { inbox, jobExists, STANDINGS } from './ledger-rig.ts';

describe('R15: claiming', () => {
  test('claim and job are one step: the job is in the queue, under the call’s ID and generation', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    expect(await books.ledger.claim(claim)).toEqual({ kind: 'claimed', callId: claim.callId });
    const keys = books.ledger.keys(PLACE);
    expect(await books.redis.lrange(keys.job('wait'), 0, -1)).toEqual([jobIdOf(claim.callId, claim.generation)]);
    const job = await books.redis.hgetall(keys.job(jobIdOf(claim.callId, claim.generation)));
    expect(job).toMatchObject({ name: 'note', timestamp: claim.generation });
    expect(JSON.parse(job['data'] ?? '')).toEqual(jobOf(claim));
    expect(JSON.parse(job['opts'] ?? '')).toMatchObject({ attempts: 1, removeOnComplete: { count: 500 } });
  });

  test('a claim that names a step of a driver is refused unless the step is written, and that driver still drives', async () => {
    const books = await openBooks();
    const record = `${books.ledger.keys(PLACE).base}:a group`;
    const claimUnder = (name: string, step: { fence: number; number: number }) =>
      books.ledger.claim(claimOf(name, { step: { record, ...step } }));
    await books.redis.hset(record, 'fence', 2, 'step:1', '{}');
    for (const step of [
      { fence: 1, number: 1 },
      { fence: 2, number: 2 },
      { fence: 3, number: 1 },
    ]) {
      await expect(claimUnder('a', step)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
      expect(await books.ledger.read(claimOf('a').callId)).toBeUndefined();
    }
    expect(await claimUnder('a', { fence: 2, number: 1 })).toMatchObject({ kind: 'claimed' });
    // A driver that has stood still gets no answer from the record either.
    await expect(claimUnder('a', { fence: 1, number: 1 })).rejects.toThrow(/driven by another process/);
  });

  test('of the jobs that many producers submit within a second, a sample is kept for Bull Board, and that alone', async () => {
    const books = await openBooks();
    const keys = books.ledger.keys(PLACE);
    const claims = Array.from({ length: 3 * KEPT_PER_SECOND }, (_, number) =>
      claimOf(`call ${number}`, { keepJob: number % 2 === 0, inboxId: `producer-${number % 4}` }),
    );
    // Within one second, however slow the machine is.
    await books.redis.set(keys.job('kept'), 2, 'PX', 60_000);
    await Promise.all(claims.map((claim) => books.ledger.claim(claim)));
    const kept = await Promise.all(
      claims.map(async ({ callId, generation, keepJob: mayBe }) => {
        const options = await books.redis.hget(keys.job(jobIdOf(callId, generation)), 'opts');
        const isKept = (JSON.parse(options ?? '') as { removeOnComplete: unknown }).removeOnComplete !== true;
        expect(isKept && !mayBe).toBe(false);
        return isKept;
      }),
    );
    expect(kept.filter(Boolean)).toHaveLength(KEPT_PER_SECOND - 2);
    await books.redis.del(keys.job('kept'));
    await books.ledger.claim(claimOf('a second later'));
    expect(await books.redis.pttl(keys.job('kept'))).toBeGreaterThan(0);
  });

  test('R14: the record holds who asked for what, since when, and where it stands', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    const beforeMs = await books.ledger.now();
    await books.ledger.claim(claim);
    const record = await books.ledger.read(claim.callId);
    expect(record).toEqual({
      callId: claim.callId,
      state: 'inflight',
      phase: 'queued',
      generation: claim.generation,
      fence: 0,
      request: claim.request,
      paramsDigest: claim.paramsDigest,
      circuit: CIRCUIT,
      attempts: [],
      lostAttempts: 0,
      createdAtMs: expect.any(Number),
      updatedAtMs: record?.createdAtMs,
      cancelRequested: false,
      version: 1,
      readAtMs: expect.any(Number),
    });
    expect(record?.createdAtMs).toBeGreaterThanOrEqual(beforeMs);
    expect(record?.request.envelope).toMatchObject({
      requestId: expect.any(String),
      toolCallId: 'model-a',
      toolName: 'note',
      target: { sessionKey: 'session-1', actorId: 'ada' },
    });
  });

  test('of a hundred who claim at once one gets it, and there is one job', async () => {
    const books = await openBooks();
    const answers = await Promise.all(Array.from({ length: 100 }, () => books.ledger.claim(claimOf('a'))));
    expect(answers.filter((answer) => answer.kind === 'claimed')).toHaveLength(1);
    expect(answers.filter((answer) => answer.kind === 'inflight')).toHaveLength(99);
    expect(await books.redis.llen(books.ledger.keys(PLACE).job('wait'))).toBe(1);
  });

  test('TR-2: a claim of a running call returns its phase and age; only an enforced caller is notified of its end', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    expect(await books.ledger.claim(claimOf('a', { inboxId: 'waits' }))).toEqual({
      kind: 'inflight',
      callId: claim.callId,
      phase: 'queued',
      ageMs: expect.any(Number),
    });
    await books.ledger.claim(claimOf('a', { inboxId: 'leaves', mode: 'bestEffort' }));
    await settle(books, claim, (await started(books, claim)).fence);
    expect(await inbox(books, 'waits')).toHaveLength(1);
    expect(await inbox(books, 'leaves')).toHaveLength(0);
  });

  test('TR-3: who asks after a success gets the stored outcome, byte for byte', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const outcome = { ...SUCCESS, output: { content: { b: 1, a: [1e21, 'ü\u0000'] } } };
    await settle(books, claim, (await started(books, claim)).fence, outcome);
    for (const mode of ['enforced', 'bestEffort', 'disabled'] as const) {
      const answer = await books.ledger.claim(claimOf('a', { mode }));
      expect(answer).toMatchObject({ kind: 'ended', callId: claim.callId, state: 'done', ageMs: expect.any(Number) });
      expect(JSON.stringify(answer.kind === 'ended' && answer.outcome)).toBe(JSON.stringify(outcome));
    }
  });

  test.each(['running', 'done'] as const)(
    'TR-4: the same key with other parameters is a conflict while the call is %s, and nothing is written',
    async (stand) => {
      const books = await openBooks();
      const { claim } = await STANDINGS[stand](books);
      const fields = () => books.redis.hgetall(books.ledger.keys(PLACE).record(claim.callId));
      const before = await fields();
      expect(await books.ledger.claim(claimOf('a', { paramsDigest: 'other', inboxId: 'other' }))).toEqual({
        kind: 'conflict',
        callId: claim.callId,
      });
      expect(await fields()).toEqual(before);
    },
  );

  test('R12: a failure is replayed; bestEffort runs a retriable one again', async () => {
    const books = await openBooks();
    for (const [name, code, again] of [
      ['refused', 'HTTP_4XX', false],
      ['down', 'HTTP_503', true],
    ] as const) {
      const claim = claimOf(name);
      await books.ledger.claim(claim);
      await settle(books, claim, (await started(books, claim)).fence, failureOutcome(code));
      expect(await books.ledger.claim(claimOf(name))).toMatchObject({ kind: 'ended', state: 'failed' });
      const { callId, paramsDigest } = claim;
      const told = await books.ledger.ended({ callId, paramsDigest, mode: 'bestEffort' });
      expect(told === undefined, name).toBe(again);
      const repeated = await books.ledger.claim(claimOf(name, { mode: 'bestEffort' }));
      expect(repeated.kind, name).toBe(again ? 'claimed' : 'ended');
    }
  });

  test('a call that runs again counts its fences on: a straggler of the first run stays refused', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const straggler = await started(books, claim);
    const second = await started(books, claim);
    await settle(books, claim, second.fence, failureOutcome('HTTP_503'));
    const repeated = claimOf('a', { mode: 'bestEffort' });
    await books.ledger.claim(repeated);
    const anew = await started(books, repeated);
    expect(anew.fence).toBeGreaterThan(second.fence);
    expect(anew.recovered).toBe(false);
    expect(await settle(books, claim, straggler.fence)).toBe('fenced');
    expect(await settle(books, claim, second.fence)).toBe('fenced');
  });

  test('a text that is no call ID is a typed error', async () => {
    const { ledger } = await openBooks();
    await expect(ledger.claim({ ...claimOf('a'), callId: 'wait' })).rejects.toThrow(PawlError);
    expect(await ledger.read('wait')).toBeUndefined();
  });
});

describe('ruling 3: derived calls merge while one is in flight', () => {
  const merged = (name: string, change: Parameters<typeof claimOf>[1] = {}) =>
    claimOf(name, { mergeId: 'w0.slot', paramsDigest: 'same', ...change });

  test('the second joins the first, stays with it, and can read it under its own ID', async () => {
    const books = await openBooks();
    const leader = merged('leader');
    await books.ledger.claim(leader);
    expect(await books.ledger.claim(merged('follower'))).toMatchObject({ kind: 'inflight', callId: leader.callId });
    await settle(books, leader, (await started(books, leader)).fence);
    expect(await books.ledger.claim(merged('follower'))).toMatchObject({ kind: 'ended', callId: leader.callId });
    expect(await books.ledger.read(callIdFor('follower'))).toMatchObject({ callId: leader.callId, state: 'done' });
  });

  test('the third, after the end, is a call of its own', async () => {
    const books = await openBooks();
    const leader = merged('leader');
    await books.ledger.claim(leader);
    await settle(books, leader, (await started(books, leader)).fence);
    const next = merged('next');
    expect(await books.ledger.claim(next)).toEqual({ kind: 'claimed', callId: next.callId });
    expect(await books.ledger.claim(merged('after next'))).toMatchObject({ kind: 'inflight', callId: next.callId });
  });

  test('bestEffort meets it and is not tied to it', async () => {
    const books = await openBooks();
    const leader = merged('leader');
    await books.ledger.claim(leader);
    const other = merged('other', { mode: 'bestEffort' });
    expect(await books.ledger.claim(other)).toMatchObject({ kind: 'inflight', callId: leader.callId });
    await settle(books, leader, (await started(books, leader)).fence);
    expect(await books.ledger.claim(other)).toEqual({ kind: 'claimed', callId: other.callId });
  });

  test('when the record of the first has expired, the second is a call of its own', async () => {
    const books = await openBooks();
    const leader = merged('leader');
    await books.ledger.claim(leader);
    await books.ledger.claim(merged('follower'));
    await books.redis.del(books.ledger.keys(PLACE).record(leader.callId));
    expect(await books.ledger.read(callIdFor('follower'))).toBeUndefined();
    const again = merged('follower');
    expect(await books.ledger.claim(again)).toEqual({ kind: 'claimed', callId: again.callId });
    expect(await books.ledger.read(again.callId)).toMatchObject({ callId: again.callId, phase: 'queued' });
  });

  test('a merged call that runs again after a failure gets a job that its worker can begin', async () => {
    const books = await openBooks();
    const leader = merged('leader');
    await books.ledger.claim(leader);
    await books.ledger.claim(merged('follower'));
    await settle(books, leader, (await started(books, leader)).fence, failureOutcome('HTTP_503'));
    const again = merged('follower', { mode: 'bestEffort' });
    const answer = await books.ledger.claim(again);
    expect(answer.kind).toBe('claimed');
    expect(await jobExists(books, answer.callId, again.generation)).toBe(true);
    expect((await begin(books, { ...again, callId: answer.callId })).kind).toBe('started');
  });
});
