import { describe, expect, test } from 'vitest';
import { approvalView } from '../../../src/producer/http/core/views.ts';
import type { SessionEvents } from '../../../src/producer/sessions/session.ts';
import { DECISION_VALID_MS, digestOf, expiredOutcome } from '../../../src/shared/approvals/approval.ts';
import type { ApprovalRecord } from '../../../src/shared/store/approvals/approvals.ts';
import { jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { uuidv7 } from '../../../src/shared/util/time.ts';
import { OrphanSweep } from '../../../src/workers/queue/orphan-sweep.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';
import { ask, KEYS, transfer, waiting, withChannel } from './waiting-calls.ts';

/** Takes the call's job out of its queue, as somebody who deletes it by hand, and lets a worker look for what lacks one. */
async function loseJob({ pawl }: Fleet, callId: string): Promise<void> {
  const { ledger, redis, shards } = pawl.backend;
  const keys = ledger.keys({ tier: 'elevated', shard: 0 });
  const record = await ledger.read(callId);
  const jobId = jobIdOf(callId, record?.generation ?? '');
  await eventually(async () => (await redis.zrem(keys.job('delayed'), jobId)) === 1, { what: 'a job put aside' });
  await redis.del(keys.job(jobId));
  // Only what has been in flight for a while is looked at.
  await redis.zadd(keys.inflight, 1, callId);
  await new OrphanSweep(ledger, silentLogger).run(shards.partitions(['elevated']));
  expect(await redis.exists(keys.job(jobIdOf(callId, (await ledger.read(callId))?.generation ?? '')))).toBe(1);
}

test('a lost job is found behind older calls that wait for people', async () => {
  const { tool } = transfer();
  const fleet = await startFleet({ tools: [tool], settings: KEYS });
  const session = await withChannel(fleet);
  const { ledger, redis, shards } = fleet.pawl.backend;
  const keys = ledger.keys({ tier: 'elevated', shard: 0 });
  const calls = [];
  for (const amount of [1, 2, 3]) calls.push(pending(await session.submit('transfer', { to: 'bob', amount })));
  await waiting(fleet, calls.length);
  const callIds = calls.map(({ callId }) => callId);
  await Promise.all(callIds.map((callId, index) => redis.zadd(keys.inflight, index + 1, callId)));
  const [, , last = ''] = callIds;
  const job = keys.job(jobIdOf(last, (await ledger.read(last))?.generation ?? ''));
  await redis.del(job);
  const sweep = new OrphanSweep(ledger, silentLogger, 2);
  for (const found of [0, 1]) {
    await sweep.run(shards.partitions(['elevated']));
    expect(await redis.exists(job)).toBe(found);
  }
});

test('however many wait for others, those that the caller may see are listed', async () => {
  const { tool } = transfer();
  const fleet = await startFleet({ tools: [tool], settings: KEYS });
  const session = await withChannel(fleet);
  const amounts = Array.from({ length: 220 }, (_, index) => index + 1);
  await Promise.all(amounts.map((amount) => session.submit('transfer', { to: 'bob', amount })));
  const last = await session.submit('transfer', { to: 'ann', amount: 1 });
  const { callId } = pending(last);
  await waiting(fleet, 100);
  const isSeen = ({ request }: ApprovalRecord) => request.callId === callId;
  const seen = await eventually(async () => {
    const listed = await fleet.pawl.approvals.list({ state: 'pending', isSeen });
    return listed.length > 0 && listed;
  });
  expect(seen).toHaveLength(1);
  expect(await fleet.pawl.approvals.list({ state: 'pending', limit: 500 })).toHaveLength(221);
});

test('what waits is listed as soon as its caller knows that it waits', async () => {
  const previewing = signal();
  const { tool } = transfer();
  const slow = { ...tool, preview: () => previewing.promise.then(() => ({ summary: 'Send it' })) };
  const fleet = await startFleet({ tools: [slow], settings: KEYS });
  const { callId } = pending(await (await withChannel(fleet)).submit('transfer', { to: 'bob', amount: 5 }));
  const listing = fleet.pawl.approvals.list({ state: 'pending' });
  previewing.fire();
  expect((await listing).map(({ record }) => record)).toMatchObject([{ request: { callId } }]);
});

describe('A4, A7: an elevated call waits for a person', () => {
  test('a call that waits for a person can still be approved after its job was lost', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const { submission, digest, id } = await ask(fleet, await withChannel(fleet));
    await loseJob(fleet, submission.callId);
    await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    expect(await submission.result).toMatchObject({ status: 'success' });
    expect(ran).toEqual([{ to: 'bob', amount: 5 }]);
  });

  test('it runs once it is approved, and the session hears that it was asked for', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool, echo], settings: KEYS, concurrency: 1 });
    const session = await withChannel(fleet);
    const heard: SessionEvents['approval-requested'][0][] = [];
    session.events.on('approval-requested', (event) => heard.push(event));
    const { submission, record, digest, id } = await ask(fleet, session);
    expect(heard).toMatchObject([{ callId: submission.callId, approvalId: id, digest, shownIn: session.key }]);
    expect(record).toMatchObject({
      state: 'pending',
      preview: { summary: 'Send 5 to bob' },
      request: { actorId: 'agent-7', callId: submission.callId, reason: expect.stringContaining('person') },
    });
    expect((await fleet.pawl.read(submission.callId))?.phase).toBe('awaiting-approval');
    // Fleet stall: nothing of the worker's one slot is held.
    expect(contentOf(await session.call(echo, { text: 'still here' }))).toEqual({ text: 'still here' });
    const decided = await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    expect(decided.record.state).toBe('approved');
    expect(contentOf(await submission.result)).toEqual({ sent: 5 });
    expect(ran).toHaveLength(1);
  });

  test('denied, it ends as PERMISSION_DENIED with the reason, and nothing runs', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const { submission, digest, id } = await ask(fleet, await withChannel(fleet));
    await fleet.pawl.approvals.decide(id, { decision: 'deny', digest, by: 'grace', reason: 'too much' });
    expect(await submission.result).toMatchObject({
      status: 'error',
      error: { code: 'PERMISSION_DENIED', message: 'grace denied the call: too much' },
    });
    expect(ran).toEqual([]);
  });

  test('without a decision it expires, by itself', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: { ...KEYS, policy: { approvalLimitMs: 400 } } });
    const session = await withChannel(fleet);
    const result = await session.call('transfer', { to: 'bob', amount: 5 });
    expect(result.error).toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'The call was not approved within 0.4 s.',
    });
    expect((await fleet.pawl.approvals.list({ state: 'expired' })).length).toBe(1);
    expect(ran).toEqual([]);
  });

  test('asked for again, a call is the same for as long as a person may decide, however short outcomes are kept', async () => {
    const { tool } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: { ...KEYS, ttl: { doneMs: 1 } } });
    const session = await withChannel(fleet);
    const { submission } = await ask(fleet, session);
    const [slot = ''] = (await fleet.world.keys()).filter((key) => key.includes(':merge:'));
    const keptMs = await fleet.pawl.backend.redis.pttl(slot);
    expect(keptMs).toBeGreaterThan(fleet.settings.policy.approvalLimitMs / 2);
    const again = pending(await session.submit('transfer', { to: 'bob', amount: 5 }));
    expect(again.callId).toBe(submission.callId);
    await fleet.pawl.cancel(again.callId);
    expect((await again.result).error?.code).toBe('CANCELLED');
  });

  test('a decision is there for as long as it holds, however short outcomes are kept', async () => {
    const { tool, ran } = transfer();
    const settings = { ...KEYS, tools: { transfer: { ttl: { doneMs: 1 } } } };
    const fleet = await startFleet({ tools: [tool], settings, workers: 0 });
    const session = await withChannel(fleet);
    const { submission, digest, id } = await ask(fleet, session);
    await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    const { redis, ledger } = fleet.pawl.backend;
    const { approvals } = ledger.keys({ tier: 'elevated', shard: 0 });
    expect(await redis.pttl(`${approvals}:${id}`)).toBeGreaterThan(DECISION_VALID_MS);
    await fleet.startWorker();
    expect((await submission.result).status).toBe('success');
    expect(ran).toHaveLength(1);
  });

  test('cancelled, the approval is cancelled with the call', async () => {
    const { tool } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const session = await withChannel(fleet);
    const { submission, digest, id } = await ask(fleet, session);
    expect((await session.cancel(submission.callId)).settlement).toBe('cancelled-before-start');
    expect((await fleet.pawl.approvals.show(id)).record.state).toBe('cancelled');
    await expect(fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' })).rejects.toMatchObject({
      code: 'APPROVAL_STALE',
    });
  });

  test('edited parameters run in place of the call’s own; what the tool’s schema refuses is refused', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const { submission, digest, id } = await ask(fleet, await withChannel(fleet));
    const decide = (params: Record<string, unknown>) =>
      fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace', params });
    await expect(decide({ to: 'bob', amount: 'all' })).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
    await decide({ to: 'bob', amount: 1 });
    expect(contentOf(await submission.result)).toEqual({ sent: 1 });
    expect(ran).toEqual([{ to: 'bob', amount: 1 }]);
  });

  test('edited parameters that policy denies do not run', async () => {
    const { tool, ran } = transfer();
    const policy = { global: { tools: { transfer: { paths: ['bob', 'ada'] } } } };
    const fleet = await startFleet({ tools: [tool], settings: KEYS, workers: 0 });
    await fleet.startWorker({ settings: { policy } });
    const { submission, digest, id } = await ask(fleet, await withChannel(fleet));
    const params = { to: 'mallory', amount: 5 };
    const decision = { decision: 'approve', digest, by: 'grace', params } as const;
    const informed = await fleet.openProducer({ policy });
    await expect(informed.approvals.decide(id, decision)).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('mallory'),
    });
    // Nobody has decided yet; where the policy is the worker's alone, it says so.
    await fleet.pawl.approvals.decide(id, decision);
    expect((await submission.result).error).toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('mallory'),
    });
    expect(ran).toEqual([]);
  });

  test('edited parameters run in place of the call’s own, also where the worker’s policy does not ask any more', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [{ ...tool, tier: 'workspace' }], settings: KEYS });
    const asking = await fleet.openProducer({ policy: { global: { tools: { transfer: 'ask' } } } });
    const session = await asking.openSession({ actorId: 'agent-7', channel: { kind: 'operator' } });
    const { submission, digest, id } = await ask(fleet, session, { to: 'bob', amount: 1000 });
    const params = { to: 'bob', amount: 100 };
    await asking.approvals.decide(id, { decision: 'approve', digest, by: 'grace', params });
    expect(contentOf(await submission.result)).toEqual({ sent: 100 });
    expect(ran).toEqual([params]);
  });

  test('a layer for channels in the worker’s policy holds, also where the producer’s has none', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [{ ...tool, tier: 'workspace' }], settings: KEYS, workers: 0 });
    const policy = {
      channels: { operator: { tools: { transfer: 'deny' } }, none: { tiers: { workspace: 'allow' } } },
    } as const;
    await fleet.startWorker({ settings: { policy } });
    const params = { to: 'bob', amount: 5 };
    const session = await withChannel(fleet);
    const below = await session.branch();
    for (const denied of [session, below])
      expect((await denied.call('transfer', params)).error).toMatchObject({ code: 'PERMISSION_DENIED' });
    expect(contentOf(await fleet.session.call('transfer', params))).toEqual({ sent: 5 });
    expect(ran).toHaveLength(1);
  });

  test('a request that is submitted twice asks once', async () => {
    const { tool } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const session = await withChannel(fleet);
    const asked: string[] = [];
    session.events.on('approval-requested', ({ approvalId }) => asked.push(approvalId));
    const params = { to: 'bob', amount: 5 };
    const options = { requestId: uuidv7(), idempotencyKey: 'k' };
    const first = pending(await session.submit(tool, params, options));
    const [listed] = await waiting(fleet);
    const { id = '', createdAtMs = 0 } = listed?.record.request ?? {};
    // What was handed in at another time is another submission of it.
    await eventually(async () => (await fleet.pawl.backend.ledger.now()) > createdAtMs + 1, {
      what: 'the next moment',
    });
    const second = pending(await session.submit(tool, params, options));
    expect(second.callId).toBe(first.callId);
    const told = fleet.audited.filter(({ type }) => type === 'approval-requested');
    expect([asked, told]).toMatchObject([[id], [{ approvalId: id }]]);
  });

  test('a call that all sessions share is not shared by a session that must ask a person for it', async () => {
    const { tool, ran } = transfer();
    const look = { ...tool, tier: 'read-only', effects: 'none' } as const;
    const settings = {
      ...KEYS,
      tools: { transfer: { scope: 'global' } },
      policy: { agents: { 'on-trial': { tools: { transfer: 'ask' } } } },
    } as const;
    const fleet = await startFleet({ tools: [look], settings });
    const trial = await fleet.pawl.openSession({ agentId: 'on-trial', channel: { kind: 'operator' } });
    const [params, edited, key] = [{ to: 'bob', amount: 5 }, { to: 'bob', amount: 1 }, { idempotencyKey: 'k' }];
    expect(contentOf(await fleet.session.call('transfer', params, key))).toEqual({ sent: 5 });
    const { callId, result } = pending(await trial.submit('transfer', params, key));
    const { digest } = await fleet.pawl.approvals.show(callId);
    await fleet.pawl.approvals.decide(callId, { decision: 'approve', digest, by: 'grace', params: edited });
    expect(contentOf(await result)).toEqual({ sent: 1 });
    // What they made of it is nobody else's.
    const other = await fleet.pawl.openSession();
    expect(contentOf(await other.call('transfer', params, key))).toEqual({ sent: 5 });
    expect(ran).toEqual([params, edited]);
  });

  test('the caller who asked cannot approve, but may deny', async () => {
    const { tool } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const { submission, digest, id } = await ask(fleet, await withChannel(fleet));
    const by = 'agent-7';
    await expect(fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by })).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    });
    await fleet.pawl.approvals.decide(id, { decision: 'deny', digest, by });
    expect((await submission.result).error?.code).toBe('PERMISSION_DENIED');
  });

  test('C24: a standing approval covers later calls like it, in this session only', async () => {
    const { tool, ran } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const session = await withChannel(fleet);
    const { submission, digest, id } = await ask(fleet, session);
    await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace', remember: true });
    await submission.result;
    expect(contentOf(await session.call(tool, { to: 'bob', amount: 5 }))).toEqual({ sent: 5 });
    expect(ran).toHaveLength(2);
    pending(await session.submit('transfer', { to: 'bob', amount: 6 }));
    pending(await (await withChannel(fleet)).submit('transfer', { to: 'bob', amount: 5 }));
    await waiting(fleet, 2);
  });
});

describe('A5, A6: who is asked', () => {
  test('a branch’s request climbs to the first session with a channel', async () => {
    const { tool } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const main = await withChannel(fleet);
    const deep = await (await main.branch()).branch();
    const { record } = await ask(fleet, deep);
    expect(record.request).toMatchObject({ session: { key: deep.key }, route: { sessionKey: main.key } });
  });

  test('without a channel the call is denied at once, and nothing is written', async () => {
    const { tool } = transfer();
    const fleet = await startFleet({ tools: [tool], settings: KEYS });
    const branch = await fleet.session.branch();
    const result = await branch.call('transfer', { to: 'bob', amount: 5 });
    expect(result.error).toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining("channel: { kind: 'operator' }"),
    });
    expect(await fleet.pawl.approvals.list()).toEqual([]);
  });
});

test.each([
  ['with keys', KEYS],
  ['without', {}],
])('a list reads what is large a few at a time, once, and still says how each stands (%s)', async (_, settings) => {
  const { tool } = transfer();
  const fleet = await startFleet({ tools: [tool], settings, workers: 0 });
  const session = await withChannel(fleet);
  const large = 'x'.repeat(100_000);
  for (let amount = 0; amount < 30; amount += 1) await session.submit('transfer', { to: large, amount });
  const { redis, approvals, ledger } = fleet.pawl.backend;
  const keys = ledger.keys({ tier: 'elevated', shard: 0 });
  const read = redis.hgetall.bind(redis);
  let [reading, most, reads] = [0, 0, 0];
  redis.hgetall = (async (key: string) => {
    // The client's own timers read other records.
    if (!key.startsWith(`${keys.approvals}:`)) return read(key);
    reading += 1;
    reads += 1;
    most = Math.max(most, reading);
    return read(key).finally(() => {
      reading -= 1;
    });
  }) as typeof redis.hgetall;
  const list = async () => {
    [most, reads] = [0, 0];
    return fleet.pawl.approvals.listBrief();
  };
  const first = await list();
  expect(first.map(({ record }) => record.shortened)).toEqual(Array.from({ length: 30 }, () => true));
  expect(JSON.stringify(first).length).toBeLessThan(1_000_000);
  expect(reads).toBe(30);
  expect(most).toBeLessThanOrEqual(8);
  expect(await list()).toEqual(first);
  expect(reads).toBe(0);

  const [{ record, digest } = expect.fail(), { record: other } = expect.fail()] = first;
  const { id } = record.request;
  await approvals.addPreview(other.request.id, { summary: 'Send it' });
  const params = { to: 'bob', amount: 1 };
  await fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace', params });
  await fleet.pawl.cancel(first[2]?.record.request.callId ?? '');
  const [approved, shown, cancelled] = await list();
  expect(approved?.record).toMatchObject({ state: 'approved', decision: { by: 'grace', params } });
  expect(shown?.record).toMatchObject({ state: 'pending', preview: { summary: 'Send it' } });
  expect(cancelled?.record.state).toBe('cancelled');
  expect(reads).toBe(2);
  // Whoever asks for it by itself gets the whole.
  expect((await fleet.pawl.approvals.show(id)).record.request.params).toEqual(expect.objectContaining({ to: large }));
  const similar = await fleet.pawl.approvals.similarTo(other);
  expect(similar).toMatchObject([{ request: { id, params: { to: expect.stringMatching(/^x+… /) } } }]);
});

const atMostOneDecision = async (races: number) => {
  const { tool, ran } = transfer();
  const fleet = await startFleet({ tools: [tool], settings: KEYS, concurrency: 32 });
  const other = await fleet.openProducer();
  const hasty = await fleet.openProducer({ ...KEYS, policy: { approvalLimitMs: 300 } });
  const session = await withChannel(fleet);
  const hastySession = await hasty.session(session.key);
  const { approvals, ledger } = fleet.pawl.backend;
  const states: Record<string, number> = {};
  const race = async (number: number) => {
    // Every fifth race is run while the time to decide ends.
    const from = number % 5 === 0 ? hastySession : session;
    const submission = pending(await from.submit('transfer', { to: 'bob', amount: number }));
    const record = await approvals.read((await approvals.idOfCall(submission.callId)) ?? '');
    if (record === undefined) throw new Error('there is no approval');
    const { id, expiresAtMs } = record.request;
    const digest = digestOf(record.request);
    if (number % 5 === 0) await eventually(async () => (await ledger.now()) >= expiresAtMs - 4, { everyMs: 1 });
    const racers = [
      () => fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' }).then(() => 'approved'),
      () => other.approvals.decide(id, { decision: 'approve', digest, by: 'joan' }).then(() => 'approved'),
      () => other.approvals.decide(id, { decision: 'deny', digest, by: 'joan' }).then(() => 'denied'),
      () =>
        approvals
          .expire(record, expiredOutcome(record.request))
          .then(({ kind }) => (kind === 'decided' ? 'expired' : '')),
      () => session.cancel(submission.callId).then(({ settlement }) => settlement),
    ];
    const answers = await Promise.all(
      racers.map(async (run, index) => {
        for (let trips = (number * 7 + index * 3) % 11; trips > 0; trips -= 1) await ledger.now();
        return run().catch(() => 'refused');
      }),
    );
    const state = (await approvals.read(id))?.state ?? 'gone';
    const decided = answers.filter((answer) => ['approved', 'denied', 'expired'].includes(answer));
    // A worker, or somebody who came too late to decide, may have let it expire.
    if (state === 'expired') expect(decided).not.toContain('approved');
    else expect(decided).toEqual(state === 'cancelled' ? [] : [state]);
    const result = await submission.result;
    expect(result.status === 'success' && state !== 'approved').toBe(false);
    states[state] = (states[state] ?? 0) + 1;
  };
  for (let from = 0; from < races; from += 50)
    await Promise.all(Array.from({ length: 50 }, (_, index) => race(from + index)));
  expect(Object.keys(states).sort()).toEqual(['approved', 'cancelled', 'denied', 'expired']);
  expect(ran.length).toBeLessThanOrEqual(states['approved'] ?? 0);
  expect(new Set(ran.map((params) => (params as { amount: number }).amount)).size).toBe(ran.length);
};

for (const { races, tags } of [
  { races: 250, tags: [] },
  { races: 1_000, tags: ['slow'] },
])
  test(
    `${races} races of approve, deny, expire and cancel: one decision each, at most one effect`,
    {
      tags,
    },
    () => atMostOneDecision(races),
  );

test('a call that names another actor is shown and recorded as its session’s actor’s, too', async () => {
  const { tool, ran } = transfer();
  const fleet = await startFleet({ tools: [tool], settings: KEYS });
  const session = await withChannel(fleet);
  const own = session.envelope('transfer', { to: 'bob', amount: 5 });
  const target = { ...own.target, actorId: 'alice' };
  const submission = pending(await fleet.pawl.submit({ ...own, target }));
  const [listed] = await waiting(fleet);
  if (listed === undefined) throw new Error('no approval');
  expect(approvalView(listed)).toMatchObject({ requestedBy: 'agent-7', actorId: 'alice' });
  const names = { actorId: 'alice', sessionActorId: 'agent-7' };
  expect(fleet.audited.filter(({ type }) => type === 'call' || type === 'approval-requested')).toMatchObject([
    { type: 'call', ...names },
    { type: 'approval-requested', ...names },
  ]);
  // Naming another actor makes nobody another person.
  const { digest } = listed;
  for (const by of ['agent-7', 'alice'])
    await expect(
      fleet.pawl.approvals.decide(submission.callId, { decision: 'approve', digest, by }),
    ).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  await fleet.pawl.approvals.decide(submission.callId, { decision: 'approve', digest, by: 'grace' });
  expect(await submission.result).toMatchObject({ status: 'success' });
  expect(ran).toHaveLength(1);
});
