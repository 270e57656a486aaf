import { describe, expect, test } from 'vitest';
import type { AttemptRecord } from '../../../../src/shared/calls/call-state.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import {
  type Books,
  begin,
  CIRCUIT,
  callIdFor,
  claimOf,
  failureOutcome,
  jobOf,
  LEASE_MS,
  openBooks,
  PLACE,
  settle,
  started,
} from '../calls.ts';
import { cancel, inbox, STANDINGS } from './ledger-rig.ts';

describe('attempts and fences (DESIGN, decision 4)', () => {
  test('beginning takes the next fence and a lease', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const attempt = await started(books, claim);
    expect(attempt).toMatchObject({
      fence: 1,
      request: claim.request,
      earlierAttempts: [],
      lostAttempts: 0,
      recovered: false,
      firstStartedAtMs: attempt.nowMs,
      circuit: CIRCUIT,
      cancelRequested: false,
    });
    expect(await books.ledger.read(claim.callId)).toMatchObject({
      phase: 'running',
      fence: 1,
      worker: 'worker-1',
      startedAtMs: attempt.nowMs,
      lockUntilMs: attempt.nowMs + LEASE_MS,
    });
  });

  test('an attempt that left no record is counted as lost and written down', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const first = await started(books, claim);
    const second = await started(books, claim);
    expect(second).toMatchObject({ fence: 2, recovered: true, lostAttempts: 1, firstStartedAtMs: first.nowMs });
    expect(second.earlierAttempts).toEqual([
      {
        attempt: 1,
        fence: 1,
        worker: 'worker-1',
        startedAtMs: first.nowMs,
        finishedAtMs: second.nowMs,
        status: 'lost',
        retriable: false,
      },
    ]);
  });

  test('an attempt that left no record stays to be decided on when its worker releases it or asks twice', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await started(books, claim);
    const taker = await started(books, claim);
    await books.ledger.postpone(claim.callId, taker.fence, {
      phase: 'queued',
      attempts: taker.earlierAttempts,
      delayMs: 0,
    });
    const next = await begin(books, claim, 'next');
    const again = await begin(books, claim, 'next');
    expect([next, again]).toMatchObject([
      { fence: 3, recovered: true, lostAttempts: 1, earlierAttempts: taker.earlierAttempts },
      { fence: 3, recovered: true, lostAttempts: 1, earlierAttempts: taker.earlierAttempts },
    ]);
  });

  test('beginning twice with one token, because the first answer was lost, is one attempt', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const one = await begin(books, claim, 'same');
    const two = await begin(books, claim, 'same');
    expect([one, two]).toMatchObject([{ fence: 1 }, { fence: 1, recovered: false, lostAttempts: 0 }]);
  });

  test('only the newest fence settles, and an outcome is never overwritten', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const first = await started(books, claim);
    const second = await started(books, claim);
    expect(await settle(books, claim, first.fence)).toBe('fenced');
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight' });
    expect(await settle(books, claim, second.fence)).toBe('settled');
    const kept = await books.ledger.outcome(claim.callId);
    for (const fence of [first.fence, second.fence, 99])
      expect(await settle(books, claim, fence, failureOutcome('HTTP_503'))).toBe('ended');
    expect(await books.ledger.outcome(claim.callId)).toEqual(kept);
    expect(await settle(books, { callId: callIdFor('nobody') }, 1)).toBe('gone');
  });

  test('a job of an older generation, or of no record, is stale; one of a settled call is ended', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    expect((await begin(books, claim)).kind).toBe('stale');
    await books.ledger.claim(claim);
    expect((await begin(books, { ...claim, generation: '1' })).kind).toBe('stale');
    await settle(books, claim, (await started(books, claim)).fence);
    expect((await begin(books, claim)).kind).toBe('ended');
  });

  test('an attempt that is not due yet says for how long', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await books.ledger.postpone(claim.callId, (await started(books, claim)).fence, {
      phase: 'waiting-retry',
      attempts: [],
      delayMs: 50_000,
    });
    const answer = await begin(books, claim);
    expect(answer).toMatchObject({ kind: 'early' });
    expect(answer.kind === 'early' && answer.remainingMs).toBeGreaterThan(30_000);
  });

  test('a circuit that is not closed is returned instead, and nothing is written; the probe passes', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const open = { state: 'OPEN', epoch: 1, openedAtMs: 1, cooldownMs: 1, failures: 5, reason: 'why' } as const;
    await books.breakers.change({ partition: PLACE, key: CIRCUIT }, { state: 'CLOSED', epoch: 0 }, open, 0);
    const before = await books.ledger.read(claim.callId);
    expect(await begin(books, claim)).toMatchObject({
      kind: 'circuit',
      circuit: CIRCUIT,
      fence: 0,
      earlierAttempts: [],
    });
    expect({ ...(await books.ledger.read(claim.callId)), readAtMs: 0 }).toEqual({ ...before, readAtMs: 0 });
    const options = { workerId: 'worker-1', leaseMs: LEASE_MS, token: 'probe' };
    expect((await books.ledger.begin(jobOf(claim), { ...options, probeEpoch: 7 })).kind).toBe('circuit');
    expect((await books.ledger.begin(jobOf(claim), { ...options, probeEpoch: 1 })).kind).toBe('started');
  });

  test('DESIGN, decision 11: a request that was not signed with the fleet’s key is forged', async () => {
    const { redis, world } = await openBooks();
    const signed = (key: string) =>
      new Ledger(redis, world.prefix, 60_000, new Signatures(new Signer([{ kid: 'k', key }])));
    const options = { workerId: 'w', leaseMs: LEASE_MS, token: 't' };
    const claim = claimOf('a');
    await signed('stranger').claim(claim);
    expect(await signed('fleet').begin(jobOf(claim), options)).toEqual({ kind: 'forged', fence: 1 });
    const own = { ...claimOf('b'), generation: String(Date.now()) };
    await signed('fleet').claim(own);
    expect((await signed('fleet').begin(jobOf(own), options)).kind).toBe('started');
    // Its signature is as old as its generation says.
    const old = claimOf('c');
    await signed('fleet').claim(old);
    expect((await signed('fleet').begin(jobOf(old), options)).kind).toBe('forged');
    // That of a delayed call is valid from its start on, however long ago the call was submitted.
    const later = claimOf('d');
    const delayed = { ...later, request: { ...later.request, startAtMs: Date.now() - 1_000 } };
    await signed('fleet').claim(delayed);
    expect((await signed('fleet').begin(jobOf(delayed), options)).kind).toBe('started');
  });
});

describe('postponing', () => {
  const attempt: AttemptRecord = {
    attempt: 1,
    fence: 1,
    worker: 'worker-1',
    startedAtMs: 10,
    finishedAtMs: 20,
    status: 'error',
    retriable: true,
    errorCode: 'HTTP_503',
    delayMs: 100,
  };

  test('keeps the attempt, gives the lease back and tells those who wait', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    const event = { type: 'retrying', callId: claim.callId, attempt: 1, delayMs: 0, reasonCode: 'HTTP_503' };
    await books.ledger.postpone(claim.callId, fence, {
      phase: 'waiting-retry',
      attempts: [attempt],
      delayMs: 0,
      event,
    });
    const record = await books.ledger.read(claim.callId);
    expect(record).toMatchObject({ state: 'inflight', phase: 'waiting-retry', attempts: [attempt] });
    expect(record).not.toHaveProperty('worker');
    expect(record).not.toHaveProperty('lockUntilMs');
    expect(await inbox(books)).toEqual([event]);
    const next = await started(books, claim);
    expect(next).toMatchObject({ fence: 2, recovered: false, lostAttempts: 0, earlierAttempts: [attempt] });
  });

  test('a call whose cancellation is asked for is not postponed', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    await cancel(books, claim.callId);
    expect(await books.ledger.postpone(claim.callId, fence, { phase: 'queued', attempts: [], delayMs: 0 })).toBe(
      'cancelled',
    );
  });
});

describe('a call that was running in workers that were lost', () => {
  interface Lost {
    readonly worker: string;
    /** It ran nothing else, and was lost in the tool's code or before it. */
    readonly alone?: 'in code' | 'before';
    readonly stopped?: boolean;
    /** It lives, and says before or after the call was recovered that Redis did not answer it. */
    readonly excused?: 'before' | 'after';
  }
  let calls = 0;

  /** What the next worker is told that takes the call over, after each of these was lost with it. */
  async function lostWith(books: Books, lost: readonly Lost[]) {
    calls += 1;
    const claim = claimOf(`lost ${calls}`);
    await books.ledger.claim(claim);
    const begin = (workerId: string, options: object) => {
      calls += 1;
      return books.ledger.begin(jobOf(claim), { workerId, leaseMs: LEASE_MS, token: `lost ${calls}`, ...options });
    };
    let excuse = async () => {};
    for (const { worker, alone, stopped = false, excused } of lost) {
      const answer = await begin(worker, { alone: alone !== undefined });
      if (answer.kind !== 'started') throw new Error(`no attempt began: ${answer.kind}`);
      await excuse();
      if (alone === 'in code') await books.ledger.reachCode(claim.callId, answer.fence);
      if (stopped) await books.ledger.markStopped([PLACE], worker);
      excuse = async () => {
        if (excused !== undefined) await books.ledger.excuse(claim.callId, answer.fence, worker);
      };
      if (excused === 'before') await excuse();
    }
    const taken = await begin('next', { suspects: 'refuse' });
    const started = await begin('next', {});
    return {
      runsAlone: taken.kind === 'suspect' && taken.runsAlone,
      isPoison: started.kind === 'started' && started.isPoison,
    };
  }

  const [one, two] = [{ worker: 'one' }, { worker: 'two' }];
  const alone = (worker: string) => ({ worker, alone: 'in code' as const });
  const stopped = { worker: 'stopped', stopped: true };
  const late = { ...alone('three'), excused: 'after' as const };
  const beforeCode = (count: number) =>
    Array.from({ length: count }, (_, n) => ({ worker: `b${n}`, alone: 'before' as const }));
  test.each<[string, readonly Lost[], boolean, boolean]>([
    ['one worker', [one], false, false],
    ['two workers', [one, two], true, false],
    ['many workers that ran others beside it', Array.from({ length: 9 }, (_, n) => ({ worker: `w${n}` })), true, false],
    ['two workers, and one that ran nothing else', [one, two, alone('three')], false, true],
    ['two workers, and some before the tool’s code', [one, two, ...beforeCode(9)], true, false],
    ['two workers, and many before the tool’s code', [one, two, ...beforeCode(10)], false, true],
    ['one of two workers that was stopped', [one, { ...two, stopped: true }], false, false],
    ['a stopped worker that ran nothing else', [one, two, { ...alone('three'), stopped: true }], true, false],
    ['one of two workers that lives', [one, { ...two, excused: 'before' }], false, false],
    ['a living worker that ran nothing else', [one, two, { ...alone('three'), excused: 'before' }], true, false],
    ['one of two workers that says late that it lives', [one, { ...two, excused: 'after' }, stopped], false, false],
    ['one that ran nothing else, and says late that it lives', [one, two, late, stopped], true, false],
  ])('%s', async (_what, lost, runsAlone, isPoison) => {
    expect(await lostWith(await openBooks(), lost)).toEqual({ runsAlone, isPoison });
  });

  test.each([1, 2, 4, 9])(
    'where %i workers are lost without it as well, it takes as many proofs more, up to five',
    async (others) => {
      const books = await openBooks();
      for (let number = 0; number < others; number += 1) await lostWith(books, [{ worker: `neighbour ${number}` }]);
      const needed = Math.min(5, 1 + others);
      const proofs = (count: number) => [one, two, ...Array.from({ length: count }, (_, n) => alone(`alone ${n}`))];
      expect(await lostWith(books, proofs(needed - 1))).toEqual({ runsAlone: true, isPoison: false });
      expect(await lostWith(books, proofs(needed))).toEqual({ runsAlone: false, isPoison: true });
    },
  );

  test('a loss that proved nothing proves nothing later, when the other lost workers are forgotten', async () => {
    const books = await openBooks();
    await lostWith(books, [{ worker: 'neighbour' }]);
    const claim = claimOf('parked');
    await books.ledger.claim(claim);
    const begin = (token: string) =>
      books.ledger.begin(jobOf(claim), { workerId: token, leaseMs: LEASE_MS, token, alone: true });
    for (const token of ['one', 'two']) await begin(token);
    const { fence } = (await begin('three')) as { readonly fence: number };
    await books.ledger.reachCode(claim.callId, fence);
    const taker = await begin('four');
    expect(taker).toMatchObject({ kind: 'started', isPoison: false });
    const { fence: last, earlierAttempts } = taker as Extract<typeof taker, { kind: 'started' }>;
    await books.ledger.postpone(claim.callId, last, { phase: 'queued', attempts: earlierAttempts, delayMs: 0 });
    await books.redis.del(books.ledger.keys(PLACE).lostWorkers);
    expect(await begin('five')).toMatchObject({ kind: 'started', recovered: true, isPoison: false });
  });
});
