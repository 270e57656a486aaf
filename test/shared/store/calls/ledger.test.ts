import { describe, expect, test } from 'vitest';
import type { AttemptRecord } from '../../../../src/shared/calls/call-state.ts';
import { resultError } from '../../../../src/shared/calls/outcome.ts';
import { PawlError } from '../../../../src/shared/errors/failure.ts';
import { retryAllowance } from '../../../../src/shared/retries/retry-budget.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import { Ledger } from '../../../../src/shared/store/calls/ledger.ts';
import {
  MAX_EVENT_OUTCOME_BYTES,
  MAX_INLINE_OUTCOME_BYTES,
  type WriteAnswer,
} from '../../../../src/shared/store/calls/settle.ts';
import { jobIdOf, KEPT_PER_SECOND } from '../../../../src/shared/store/queues/jobs.ts';
import type { SettledEvent } from '../../../../src/shared/store/queues/result-inbox.ts';
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
  SUCCESS,
  settle,
  started,
} from '../calls.ts';

const CANCELLED = failureOutcome('CANCELLED');

function cancel({ ledger }: Books, callId: string, state: 'cancelled' | 'failed' = 'cancelled') {
  return ledger.cancel(callId, {
    state,
    beforeStart: { ...CANCELLED, settlement: 'cancelled-before-start' },
    betweenAttempts: { ...CANCELLED, settlement: 'cancelled' },
    ttlMs: 50_000,
    inboxId: 'canceller',
  });
}

async function jobExists({ redis, ledger }: Books, callId: string, generation: string): Promise<boolean> {
  return (await redis.exists(ledger.keys(PLACE).job(jobIdOf(callId, generation)))) === 1;
}

async function inbox({ redis, ledger }: Books, id = 'producer-1'): Promise<Record<string, unknown>[]> {
  const events = await redis.lrange(ledger.keys(PLACE).inbox(id), 0, -1);
  return events.map((event) => JSON.parse(event) as Record<string, unknown>);
}

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

describe('settling', () => {
  test('writes the end, takes the running parts away, and tells every producer that waits, once', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    for (const inboxId of ['producer-1', 'producer-2', 'producer-1', 'producer-10'])
      await books.ledger.claim(claimOf('a', { inboxId }));
    const { fence, nowMs } = await started(books, claim);
    await settle(books, claim, fence, SUCCESS, { ttlMs: 40_000 });
    const record = await books.ledger.read(claim.callId);
    expect(record).toMatchObject({ state: 'done', outcome: SUCCESS, version: 2, fence: 1 });
    expect(record?.expiresAtMs).toBeGreaterThanOrEqual(nowMs + 40_000);
    const fields = await books.redis.hkeys(books.ledger.keys(PLACE).record(claim.callId));
    for (const gone of ['phase', 'inboxes', 'lockUntilMs', 'worker', 'token', 'cancelRequested'])
      expect(fields).not.toContain(gone);
    for (const id of ['producer-1', 'producer-2', 'producer-10'])
      expect(await inbox(books, id)).toEqual([
        { type: 'settled', callId: claim.callId, state: 'done', atMs: expect.any(Number), outcome: SUCCESS },
      ]);
    expect(await books.ledger.index.counts(PLACE)).toEqual({ inflight: 0, delayed: 0, pending: 0, calls: 1 });
  });

  test.each([
    ['done', 86_400_000],
    ['failed', 300_000],
    ['cancelled', 7_000],
  ] as const)(
    'R16: a record that is %s lives exactly for its TTL, and one in flight does not expire',
    async (state, ttlMs) => {
      const books = await openBooks();
      const claim = claimOf('a');
      await books.ledger.claim(claim);
      const record = books.ledger.keys(PLACE).record(claim.callId);
      expect(await books.redis.pttl(record)).toBe(-1);
      const { fence } = await started(books, claim);
      expect(await books.redis.pttl(record)).toBe(-1);
      const beganAtMs = performance.now();
      await settle(books, claim, fence, SUCCESS, { state, ttlMs });
      const leftMs = await books.redis.pttl(record);
      expect(leftMs).toBeLessThanOrEqual(ttlMs);
      expect(leftMs).toBeGreaterThan(ttlMs - (performance.now() - beganAtMs) - 2);
    },
  );

  test('a large outcome is kept once, travels by reference, and expires with its record', async () => {
    const books = await openBooks();
    const keys = books.ledger.keys(PLACE);
    const large = { ...SUCCESS, output: { content: 'x'.repeat(MAX_INLINE_OUTCOME_BYTES) } };
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, large, { ttlMs: 33_000 });
    expect(await inbox(books)).toEqual([
      { type: 'settled', callId: claim.callId, state: 'done', atMs: expect.any(Number) },
    ]);
    expect(await books.redis.hexists(keys.record(claim.callId), 'outcome')).toBe(0);
    expect(await books.ledger.outcome(claim.callId)).toEqual(large);
    expect(await books.ledger.read(claim.callId)).toMatchObject({ outcome: large });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', outcome: large });
    const at = (await books.redis.hget(keys.record(claim.callId), 'outcomeAt')) ?? '';
    expect(at).toContain(`:outcome:${claim.callId}:`);
    const times = await Promise.all([
      books.redis.pexpiretime(keys.record(claim.callId)),
      books.redis.pexpiretime(at),
    ]).catch(() => undefined);
    if (times !== undefined) expect(times[0]).toBe(times[1]);
    expect(await books.redis.pttl(at)).toBeLessThanOrEqual(33_000);
  });

  test('an outcome that has just the largest size that travels comes with its event, and a larger one does not', async () => {
    const books = await openBooks();
    const empty = { ...SUCCESS, output: { content: '' } };
    const room = MAX_EVENT_OUTCOME_BYTES - JSON.stringify(empty).length;
    const told = async (name: string, length: number) => {
      const claim = claimOf(name);
      await books.ledger.claim(claim);
      const outcome = { ...SUCCESS, output: { content: 'x'.repeat(length) } };
      await settle(books, claim, (await started(books, claim)).fence, outcome);
      return 'outcome' in ((await inbox(books)).at(-1) ?? {});
    };
    expect(await told('a', room)).toBe(true);
    expect(await told('b', room + 1)).toBe(false);
  });

  test('one that does not travel is kept in one piece beside its record, which the event names', async () => {
    const books = await openBooks();
    const record = books.ledger.keys(PLACE).record(callIdFor('a'));
    const outcome = { ...SUCCESS, output: { content: 'é'.repeat(MAX_EVENT_OUTCOME_BYTES) } };
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    await settle(books, claim, (await started(books, claim)).fence, outcome, { ttlMs: 3_300_000 });
    const [event] = (await inbox(books)) as unknown as [SettledEvent];
    expect(event).toMatchObject({ type: 'settled', state: 'done', textId: '1-0' });
    const at = (await books.redis.hget(record, 'outcomeAt')) ?? '';
    expect(await books.redis.get(at)).toBe(JSON.stringify(outcome));
    expect(await books.redis.hmget(record, 'outcome', 'outcomeParts')).toEqual([null, null]);
    // The answer was lost, and it is written again.
    expect(await settle(books, claim, 1, outcome, { ttlMs: 3_300_000 })).toBe('ended');
    expect(await books.redis.pttl(at)).toBeGreaterThan(3_200_000);
    expect(await books.ledger.outcome(claim.callId, event)).toEqual(outcome);
    // Whoever names another text learns what the record says.
    expect(await books.ledger.outcome(claim.callId, { ...event, textId: '2-0' })).toEqual(outcome);
    expect(await books.ledger.readBrief(claim.callId)).toMatchObject({ outcome });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', outcome });
    expect(await books.ledger.index.flush(PLACE, {})).toMatchObject({ flushed: 1 });
    expect(await books.redis.exists(at)).toBe(0);
  });

  test('a text that an attempt of a forgotten life left behind is not taken for the outcome of one with its number', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence, nowMs } = await started(books, claim);
    const keys = books.ledger.keys(PLACE);
    await books.redis.set(keys.outcome(claim.callId, `${fence}-${nowMs - 60_000}`), '"of another life"');
    const outcome = { ...SUCCESS, output: { content: 'x'.repeat(MAX_EVENT_OUTCOME_BYTES) } };
    const attempt: AttemptRecord = {
      attempt: 1,
      fence,
      worker: 'worker-1',
      startedAtMs: nowMs,
      finishedAtMs: nowMs,
      status: 'success',
      retriable: false,
    };
    const ending = { callId: claim.callId, fence, state: 'done', outcome, attempts: [attempt], ttlMs: 60_000 } as const;
    expect(await books.ledger.settle({ ...ending, outcomeJson: JSON.stringify(outcome) })).toBe('settled');
    expect(await books.ledger.outcome(claim.callId)).toEqual(outcome);
  });

  test('a call does not end while the text of its outcome is not there', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    const outcome = { ...SUCCESS, output: { content: 'x'.repeat(MAX_EVENT_OUTCOME_BYTES) } };
    const { set } = books.redis;
    books.redis.set = (() => Promise.reject(new Error('OOM'))) as unknown as typeof set;
    await expect(settle(books, claim, fence, outcome)).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight', phase: 'running' });
    books.redis.set = set;
    expect(await settle(books, claim, fence, outcome)).toBe('settled');
  });

  test('a success is added to the circuit’s window of its epoch, and to no other', async () => {
    const books = await openBooks();
    for (const [name, epoch] of [
      ['a', 0],
      ['b', 3],
    ] as const) {
      const claim = claimOf(name);
      await books.ledger.claim(claim);
      const { fence } = await started(books, claim);
      await books.ledger.settle({
        callId: claim.callId,
        fence,
        state: 'done',
        outcome: SUCCESS,
        outcomeJson: JSON.stringify(SUCCESS),
        attempts: [],
        ttlMs: 1_000,
        sample: { circuit: CIRCUIT, epoch, windowSize: 20, windowMs: 120_000 },
      });
    }
    expect(await books.breakers.window(PLACE, CIRCUIT)).toEqual([{ atMs: expect.any(Number), ok: true }]);
  });
});

/** A call in each of the places where it can stand, with the fence that its last attempt had. */
const STANDINGS = {
  queued: async (books: Books) => {
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    return { claim, fence: 0 };
  },
  running: async (books: Books) => {
    const { claim } = await STANDINGS.queued(books);
    return { claim, fence: (await started(books, claim)).fence };
  },
  'waiting-retry': async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await books.ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 0 });
    return { claim, fence };
  },
  'handed-back': async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await books.ledger.postpone(claim.callId, fence, { phase: 'queued', attempts: [], delayMs: 0 });
    return { claim, fence };
  },
  done: async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await settle(books, claim, fence);
    return { claim, fence };
  },
  failed: async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await settle(books, claim, fence, failureOutcome('HTTP_4XX'));
    return { claim, fence };
  },
  unknown: async (books: Books) => {
    const { claim, fence } = await STANDINGS.running(books);
    await settle(books, claim, fence, failureOutcome('OUTCOME_UNKNOWN'));
    return { claim, fence };
  },
  cancelled: async (books: Books) => {
    const { claim } = await STANDINGS.queued(books);
    await cancel(books, claim.callId);
    return { claim, fence: 0 };
  },
  gone: async (_books: Books) => ({ claim: claimOf('nobody'), fence: 1 }),
} as const;
type Stand = keyof typeof STANDINGS;

describe('what every script answers in every state', () => {
  test.each<[Stand, WriteAnswer]>([
    ['queued', 'postponed'],
    ['running', 'postponed'],
    ['done', 'ended'],
    ['failed', 'ended'],
    ['cancelled', 'ended'],
    ['gone', 'ended'],
  ])('postpone: %s', async (stand, answer) => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS[stand](books);
    expect(
      await books.ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 100 }),
    ).toBe(answer);
    if (answer === 'postponed')
      expect(await books.ledger.postpone(claim.callId, fence + 1, { phase: 'queued', attempts: [], delayMs: 0 })).toBe(
        'fenced',
      );
  });

  test('a budget of retries that is empty is kept for as long as calls ask for a retry', async () => {
    const books = await openBooks();
    const claim = claimOf('a');
    await books.ledger.claim(claim);
    const { fence } = await started(books, claim);
    const allowance = retryAllowance('tools.note', undefined, { floor: 1, windowMs: 50_000 });
    const bucket = books.ledger.keys(PLACE).retries(allowance.bucket);
    const retry = () =>
      books.ledger.postpone(claim.callId, fence, { phase: 'waiting-retry', attempts: [], delayMs: 0, allowance });
    await books.redis.set(bucket, '0.8', 'PX', 1_000);
    expect(await retry()).toBe('exhausted');
    expect(await books.redis.pttl(bucket)).toBeGreaterThan(40_000);
    expect(await books.redis.get(bucket)).toBe('0.8');
  });

  test.each<[Stand, string]>([
    ['queued', 'cancelled'],
    ['running', 'requested'],
    ['waiting-retry', 'cancelled'],
    ['handed-back', 'cancelled'],
    ['done', 'too-late'],
    ['failed', 'too-late'],
    ['unknown', 'too-late'],
    ['cancelled', 'too-late'],
    ['gone', 'gone'],
  ])('cancel: %s', async (stand, answer) => {
    const books = await openBooks();
    const { claim } = await STANDINGS[stand](books);
    expect((await cancel(books, claim.callId)).kind).toBe(answer);
  });

  test.each<[Stand, string]>([
    ['queued', 'refused'],
    ['running', 'refused'],
    ['done', 'refused'],
    ['failed', 'refused'],
    ['unknown', 'resolved'],
    ['cancelled', 'refused'],
    ['gone', 'gone'],
  ])('resolve: %s', async (stand, answer) => {
    const books = await openBooks();
    const { claim } = await STANDINGS[stand](books);
    const before = await books.ledger.outcome(claim.callId);
    expect(await books.ledger.resolve(claim.callId, 'done', SUCCESS, 9_000)).toBe(answer);
    if (answer === 'refused') expect(await books.ledger.outcome(claim.callId)).toEqual(before);
  });

  test.each<[Stand, string, string]>([
    ['queued', 'refused', 'refused'],
    ['running', 'refused', 'refused'],
    ['waiting-retry', 'refused', 'refused'],
    ['done', 'refused', 'refused'],
    ['failed', 'refused', 'refused'],
    ['unknown', 'queued', 'refused'],
    ['cancelled', 'refused', 'refused'],
  ])('requeue: %s, resolved: %s, missing: %s', async (stand, resolved, missing) => {
    for (const [because, answer] of [
      ['resolved', resolved],
      ['missing', missing],
    ] as const) {
      const books = await openBooks();
      const { claim } = await STANDINGS[stand](books);
      const record = await books.ledger.read(claim.callId);
      if (record === undefined) throw new Error('there is no record');
      expect(await books.ledger.requeue(record, because, '1800000000000')).toBe(answer);
      expect(await jobExists(books, claim.callId, '1800000000000')).toBe(answer === 'queued');
    }
  });

  test.each<[Stand, boolean]>([
    ['queued', false],
    ['running', false],
    ['waiting-retry', false],
    ['done', true],
    ['failed', true],
    ['unknown', true],
    ['cancelled', true],
    ['gone', false],
  ])('TR-3: of a call that is %s the record alone tells what a claim would, or nothing', async (stand, known) => {
    const books = await openBooks();
    const { claim } = await STANDINGS[stand](books);
    const { callId, paramsDigest, mode } = claim;
    const ended = await books.ledger.ended({ callId, paramsDigest, mode });
    expect(ended !== undefined).toBe(known);
    expect(await books.ledger.ended({ callId, paramsDigest: 'other', mode })).toBe(undefined);
    if (known)
      expect(await books.ledger.claim({ ...claim, request: { ...claim.request, idempotencyKey: 'again' } })).toEqual({
        ...ended,
        ageMs: expect.any(Number),
      });
  });

  test('requeue: gone', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.queued(books);
    const record = await books.ledger.read(claim.callId);
    await books.redis.del(books.ledger.keys(PLACE).record(claim.callId));
    if (record === undefined) throw new Error('there is no record');
    expect(await books.ledger.requeue(record, 'missing', '1800000000000')).toBe('gone');
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

describe('telling', () => {
  test('renews the lease, passes progress on, and learns of a cancellation', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    const event = { type: 'progress', callId: claim.callId, progress: 1 };
    expect(await books.ledger.renewLease(claim.callId, fence, 90_000, event)).toEqual({
      renewed: true,
      cancelRequested: false,
    });
    const record = await books.ledger.read(claim.callId);
    expect((record?.lockUntilMs ?? 0) - (record?.readAtMs ?? 0)).toBeGreaterThan(LEASE_MS);
    expect(await inbox(books)).toEqual([event]);
    await cancel(books, claim.callId);
    expect(await books.ledger.renewLease(claim.callId, fence, 1_000)).toEqual({ renewed: true, cancelRequested: true });
  });

  test('a worker that lost the call is notified', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    await started(books, claim);
    expect(await books.ledger.renewLease(claim.callId, fence, 1_000)).toMatchObject({ renewed: false });
    const done = await STANDINGS.done(await openBooks());
    expect(await books.ledger.renewLease(done.claim.callId, 5, 1_000)).toMatchObject({ renewed: false });
  });
});

describe('cancelling', () => {
  test('ends a call that never ran as cancelled-before-start, and tells the caller and the canceller', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.queued(books);
    expect(await cancel(books, claim.callId)).toEqual({
      kind: 'cancelled',
      jobId: jobIdOf(claim.callId, claim.generation),
    });
    const record = await books.ledger.read(claim.callId);
    expect(record).toMatchObject({ state: 'cancelled', outcome: { settlement: 'cancelled-before-start' }, version: 2 });
    expect(record).not.toHaveProperty('phase');
    expect(await books.redis.pttl(books.ledger.keys(PLACE).record(claim.callId))).toBeLessThanOrEqual(50_000);
    for (const id of ['producer-1', 'canceller'])
      expect(await inbox(books, id)).toMatchObject([{ type: 'settled', state: 'cancelled' }]);
    expect((await begin(books, claim)).kind).toBe('ended');
    expect(await books.ledger.index.counts(PLACE)).toMatchObject({ inflight: 0 });
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', state: 'cancelled' });
  });

  test('ends a call that waits for its next attempt as cancelled', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS['waiting-retry'](books);
    await cancel(books, claim.callId);
    expect(await books.ledger.read(claim.callId)).toMatchObject({ outcome: { settlement: 'cancelled' } });
  });

  test('asks the worker of a running one, by record and by news', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.running(books);
    const listener = books.redis.duplicate();
    try {
      const heard = new Promise((resolve) => listener.on('message', (_channel, text) => resolve(JSON.parse(text))));
      await listener.subscribe(`${books.world.prefix}:news`);
      await cancel(books, claim.callId);
      expect(await heard).toEqual({ type: 'cancel', callId: claim.callId, because: 'cancelled' });
    } finally {
      listener.disconnect();
    }
    expect(await books.ledger.read(claim.callId)).toMatchObject({ state: 'inflight', cancelRequested: true });
  });

  test('a deadline that passes afterwards does not take the cancellation back', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.running(books);
    await cancel(books, claim.callId);
    await cancel(books, claim.callId, 'failed');
    expect(await books.ledger.read(claim.callId)).toMatchObject({ cancelRequested: true });
  });

  test('a deadline alone cancels no call', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.running(books);
    expect((await cancel(books, claim.callId, 'failed')).kind).toBe('requested');
    expect(await books.ledger.read(claim.callId)).toMatchObject({ cancelRequested: false });
  });
});

describe('resolving an unknown outcome', () => {
  test('as succeeded: replayed from then on, with the new time to live', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.unknown(books);
    await books.ledger.resolve(claim.callId, 'done', SUCCESS, 90_000);
    expect(await books.ledger.claim(claimOf('a'))).toMatchObject({ kind: 'ended', state: 'done' });
    const leftMs = await books.redis.pttl(books.ledger.keys(PLACE).record(claim.callId));
    expect(leftMs).toBeLessThanOrEqual(90_000);
    expect(leftMs).toBeGreaterThan(60_000);
    expect(await books.ledger.resolve(claim.callId, 'failed', CANCELLED, 9_000)).toBe('refused');
  });

  test('as retry: queued under a new generation, without an end to its life, the old job is stale', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.unknown(books);
    const record = await books.ledger.read(claim.callId);
    if (record === undefined) throw new Error('there is no record');
    await books.ledger.requeue(record, 'resolved', '1800000000000', 'asks');
    expect(await books.redis.pttl(books.ledger.keys(PLACE).record(claim.callId))).toBe(-1);
    expect(await books.ledger.read(claim.callId)).toMatchObject({
      state: 'inflight',
      phase: 'queued',
      lostAttempts: 0,
    });
    expect(await books.ledger.read(claim.callId)).not.toHaveProperty('outcome');
    expect((await begin(books, claim)).kind).toBe('stale');
    const again = { ...claim, generation: '1800000000000' };
    expect(await started(books, again)).toMatchObject({ fence: fence + 1, recovered: false });
    await settle(books, again, fence + 1);
    expect(await inbox(books, 'asks')).toHaveLength(1);
    expect(await books.ledger.index.counts(PLACE)).toMatchObject({ inflight: 0 });
  });

  test('a message that quotes the code does not make another failure resolvable', async () => {
    const books = await openBooks();
    const { claim, fence } = await STANDINGS.running(books);
    const error = { ...resultError({ ...failure, message: '"code":"OUTCOME_UNKNOWN"' }, 'error') };
    await settle(books, claim, fence, { ...failureOutcome('HTTP_4XX'), error });
    expect(await books.ledger.resolve(claim.callId, 'done', SUCCESS, 9_000)).toBe('refused');
  });
  const failure = {
    code: 'HTTP_4XX',
    class: 'caller',
    retriable: false,
    nothingHappened: false,
    againstCircuit: false,
  } as const;
});

describe('a job that is gone', () => {
  test.each(['queued', 'running', 'waiting-retry'] as const)(
    'a %s call without a job is queued again',
    async (stand) => {
      const books = await openBooks();
      const { claim } = await STANDINGS[stand](books);
      const keys = books.ledger.keys(PLACE);
      await books.redis.del(keys.job(jobIdOf(claim.callId, claim.generation)), keys.job('wait'));
      const record = await books.ledger.read(claim.callId);
      if (record === undefined) throw new Error('there is no record');
      expect(await books.ledger.requeue(record, 'missing', '1800000000000')).toBe('queued');
      expect(await jobExists(books, claim.callId, '1800000000000')).toBe(true);
      expect((await begin(books, { ...claim, generation: '1800000000000' })).kind).toBe('started');
    },
  );

  test('of two who miss it at the same time, one queues the call again', async () => {
    const books = await openBooks();
    const { claim } = await STANDINGS.queued(books);
    const keys = books.ledger.keys(PLACE);
    await books.redis.del(keys.job(jobIdOf(claim.callId, claim.generation)), keys.job('wait'));
    const record = await books.ledger.read(claim.callId);
    if (record === undefined) throw new Error('there is no record');
    expect(await books.ledger.requeue(record, 'missing', '1800000000000')).toBe('queued');
    // Its attempt may have begun: another job would run the call a second time.
    expect(await books.ledger.requeue(record, 'missing', '1800000000001')).toBe('refused');
    expect((await begin(books, { ...claim, generation: '1800000000000' })).kind).toBe('started');
  });
});

describe('indexes', () => {
  test('list the newest first, by place and by session, and those in flight by age', async () => {
    const books = await openBooks();
    const claims = [claimOf('a'), claimOf('b', { sessionKey: 'session-2' }), claimOf('c')];
    for (const claim of claims) {
      await books.ledger.claim(claim);
      // Two claims of one millisecond have no order.
      const { createdAtMs = 0 } = (await books.ledger.read(claim.callId)) ?? {};
      while ((await books.ledger.now()) <= createdAtMs);
    }
    const [a, b, c] = claims.map((claim) => claim.callId);
    expect(await books.ledger.index.list(PLACE, { limit: 10 })).toEqual([c, b, a]);
    expect(await books.ledger.index.list(PLACE, { limit: 2 })).toEqual([c, b]);
    expect(await books.ledger.index.list(PLACE, { limit: 10, sessionKey: 'session-1' })).toEqual([c, a]);
    expect(await books.ledger.index.inflightBefore(PLACE, (await books.ledger.now()) + 1, 2)).toEqual([a, b]);
    expect(await books.ledger.index.inflightBefore(PLACE, 0, 2)).toEqual([]);
  });

  test('are pruned where no call is claimed any more', async () => {
    const books = await openBooks(50);
    const keys = books.ledger.keys(PLACE);
    await books.redis.rpush(keys.calls, 'old', ...Array.from({ length: 2_500 }, (_, n) => `old-${n}`));
    await books.ledger.claim(claimOf('new'));
    const nowMs = await books.ledger.now();
    await books.ledger.index.prune(PLACE, nowMs);
    expect(await books.redis.lrange(keys.calls, 0, -1)).toEqual([claimOf('new').callId]);
    await books.ledger.index.prune(PLACE, nowMs + 60_000);
    expect(await books.redis.llen(keys.calls)).toBe(0);
  });

  test('a call that runs again holds up no older ones, and stands in front', async () => {
    const books = await openBooks();
    const keys = books.ledger.keys(PLACE);
    const [again, between] = [claimOf('again'), claimOf('between')];
    await books.ledger.claim(between);
    const nowMs = await books.ledger.now();
    await books.redis.hset(keys.record(between.callId), 'createdAtMs', nowMs - 1_000);
    await books.ledger.claim(again);
    // As in an index that is too long to be searched when a call runs again.
    await books.redis.rpush(keys.calls, again.callId, ...Array.from({ length: 20 }, (_, n) => `gone-${n}`));
    await books.ledger.index.prune(PLACE, nowMs);
    expect(await books.redis.lrange(keys.calls, 0, -1)).toEqual([again.callId, between.callId]);
  });

  test('forget what is older than the longest life of a record', async () => {
    const books = await openBooks(50);
    const keys = books.ledger.keys(PLACE);
    for (let index = 0; index < 20; index += 1) await books.redis.rpush(keys.calls, `old ${index}`);
    await books.redis.rpush(keys.sessionCalls('session-1'), 'old');
    // One claim in sixteen looks: a few hundred make it as good as certain.
    for (let index = 0; index < 400 && (await books.redis.lpos(keys.calls, 'old 0')) !== null; index += 1)
      await books.ledger.claim(claimOf(`new ${index}`));
    for (const key of [keys.calls, keys.sessionCalls('session-1')])
      expect((await books.redis.lrange(key, 0, -1)).filter((callId) => callId.startsWith('old'))).toEqual([]);
    const leftMs = await books.redis.pttl(keys.sessionCalls('session-1'));
    expect(leftMs).toBeLessThanOrEqual(100);
  });
});

describe('a call that was running in workers that were lost', () => {
  interface Lost {
    readonly worker: string;
    /** It ran nothing else, and was lost in the tool's code or before it. */
    readonly alone?: 'in code' | 'before';
    readonly stopped?: boolean;
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
    for (const { worker, alone, stopped = false } of lost) {
      const answer = await begin(worker, { alone: alone !== undefined });
      if (alone === 'in code' && answer.kind === 'started') await books.ledger.reachCode(claim.callId, answer.fence);
      if (stopped) await books.ledger.markStopped([PLACE], worker);
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
});
