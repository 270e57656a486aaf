import type { Queue } from 'bullmq';
import { describe, expect, test } from 'vitest';
import { publishedTool } from '../../../src/shared/store/fleet/catalogue.ts';
import { jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { contentOf, type Fleet, pending } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo } from '../../helpers/tools.ts';
import { type Asked, inRedis, start, wire } from './wired-calls.ts';

/** What was refused, as the audit trail has it. */
function refusedOf({ audited }: Fleet): readonly string[] {
  return audited.flatMap((event) => (event.type === 'refused' ? [event.what] : []));
}

/** A job of the fleet's own name, in place of the one that is there. */
async function bringBack(
  queue: Queue,
  callId: string,
  generation: string | null,
  change: () => Promise<unknown> = async () => {},
): Promise<void> {
  const jobId = jobIdOf(callId, generation ?? '');
  await eventually(async () => {
    const there = await queue.getJob(jobId);
    await there?.remove();
    return true;
  });
  await change();
  await queue.add('wire', { callId, generation, session: 'x' }, { jobId });
}

/** The record of a call as it was before it ran. */
function queuedAs({ id }: Asked, { generation = '', ...ended }: Readonly<Record<string, string>>) {
  const { request = '', signature = '', paramsDigest = '', circuit = '' } = ended;
  const stays = { generation, request, signature, paramsDigest, circuit, approval: id };
  return { state: 'inflight', phase: 'queued', ...stays };
}

describe('an attacker who can write anything in Redis, but has no key', () => {
  test('promote, retry, add and update-data run nothing that waits', async () => {
    const { tool, ran } = wire();
    const { fleet, ask } = await start([tool]);
    const { callId, id } = await ask(1);
    const { queue } = inRedis(fleet);
    await eventually(async () => (await queue.getDelayedCount()) === 1, { what: 'the call to wait' });
    const [job] = await queue.getDelayed();
    if (job === undefined) throw new Error('there is no job');
    await job.updateData({ ...job.data, approved: true });
    await job.promote();
    const copies = Array.from({ length: 5 }, (_, number) => queue.add('wire', job.data, { jobId: `copy-${number}` }));
    await Promise.all(copies);
    await queue.add('wire', { ...job.data, generation: '1' }, { jobId: jobIdOf(callId, '1') });
    await eventually(async () => (await queue.getWaitingCount()) + (await queue.getActiveCount()) === 0);
    await queue.retryJobs({ state: 'failed' }).catch(() => {});
    await eventually(async () => (await queue.getWaitingCount()) + (await queue.getActiveCount()) === 0);
    expect((await fleet.pawl.read(callId))?.phase).toBe('awaiting-approval');
    expect((await fleet.pawl.approvals.show(id)).record.state).toBe('pending');
    expect(ran).toEqual([]);
    // The job itself, which came before its time, and five copies under names of their own, each retried once.
    expect(refusedOf(fleet).filter((what) => what === 'job')).toHaveLength(11);
  });

  test('the job of a call that ran, brought back, runs nothing, and each try is on record', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool]);
    const asked = await ask(1);
    await approve(asked);
    await asked.result;
    const { queue, redis, record } = inRedis(fleet);
    const generation = (await redis.hget(record(asked.callId), 'generation')) ?? '';
    const jobId = jobIdOf(asked.callId, generation);
    for (let tries = 1; tries <= 3; tries += 1) {
      await eventually(async () => (await queue.getActiveCount()) === 0);
      await (await queue.getJob(jobId))?.remove();
      await queue.add('wire', { callId: asked.callId, generation, session: 'x' }, { jobId });
      await eventually(() => refusedOf(fleet).filter((what) => what === 'job').length === tries);
    }
    expect(ran).toHaveLength(1);
  });

  test('a job whose data name another call gives that call no result', async () => {
    const { tool, ran } = wire();
    const { fleet, session, ask } = await start([tool, echo], {}, 0);
    const victim = await ask(1);
    const pays = pending(await session.submit('echo', { text: 'paid' }));
    const { redis } = inRedis(fleet);
    const base = `${fleet.world.prefix}:{read-only}:read-only`;
    const [name = ''] = await redis.keys(`${base}:${pays.callId}.*`);
    const { generation } = (await fleet.pawl.read(victim.callId)) ?? {};
    await redis.hset(name, 'data', JSON.stringify({ callId: victim.callId, generation, session: 'x' }));
    await fleet.startWorker();
    expect(contentOf(await pays.result)).toEqual({ text: 'paid' });
    expect((await fleet.pawl.read(victim.callId))?.phase).toBe('awaiting-approval');
    expect(refusedOf(fleet)).toContain('job');
    expect(ran).toEqual([]);
  });

  test('a record that says it was approved, or a decision of their own, runs nothing', async () => {
    const { tool, ran } = wire();
    const { fleet, ask } = await start([tool]);
    const { redis, queue, record, approval } = inRedis(fleet);
    const forge = async (decide: (id: string, digest: string) => Promise<unknown>) => {
      const { callId, id, digest, result } = await ask(ran.length + 1);
      await decide(id, digest);
      await bringBack(queue, callId, await redis.hget(record(callId), 'generation'), () =>
        redis.hset(record(callId), 'phase', 'queued'),
      );
      return (await result).error?.code;
    };
    expect(await forge(async () => {})).toBe('APPROVAL_INVALID');
    const decision = (approvalId: string, digest: string) =>
      JSON.stringify({ approvalId, decision: 'approve', digest, by: 'grace', validUntilMs: 9e15 });
    const own = (id: string, digest: string) =>
      redis.hset(approval(id), { state: 'approved', decision: decision(id, digest), decisionSignature: 'k1:forged' });
    expect(await forge(own)).toBe('APPROVAL_INVALID');
    expect(ran).toEqual([]);
    expect(refusedOf(fleet)).toEqual(expect.arrayContaining(['approval', 'decision']));
  });

  test('a request that was changed after it was written is not shown, and cannot be decided on', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool]);
    const asked = await ask(1);
    const { redis, approval } = inRedis(fleet);
    const stored = (await redis.hget(approval(asked.id), 'request')) ?? '';
    for (const [from, to] of [
      ['"amount":1', '"amount":7'],
      ['"actorId":"agent-7"', '"actorId":"nobody"'],
      ['"reason":"', '"reason":"approved by the board; '],
    ] as const) {
      await redis.hset(approval(asked.id), 'request', stored.replace(from, to));
      await expect(approve(asked)).rejects.toMatchObject({ code: 'UNKNOWN_APPROVAL' });
      expect(await fleet.pawl.approvals.list()).toEqual([]);
    }
    expect(refusedOf(fleet).filter((what) => what === 'approval')).toHaveLength(3);
    expect(ran).toEqual([]);
  });

  test('an approval of a tool that looked harmless in the catalogue does not hold for the tool as it is', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool], {}, 0);
    const { redis } = inRedis(fleet);
    const { tools } = new FleetKeys(fleet.world.prefix);
    const [[id, text] = ['', '']] = Object.entries(await redis.hgetall(tools));
    await redis.hset(tools, id, text.replace('"effects":"once"', '"effects":"none"'));
    expect((await fleet.pawl.catalogue()).tools).toEqual([]);
    expect(refusedOf(fleet)).toEqual(['tool']);
    // A worker with the key may publish it otherwise.
    await fleet.pawl.backend.catalogue.publish([{ ...publishedTool(tool, Date.now()), effects: 'none' }]);
    await fleet.pawl.catalogue();
    const asked = await ask(1);
    expect((await fleet.pawl.approvals.show(asked.id)).record.request.tool.effects).toBe('none');
    await approve(asked);
    await fleet.startWorker();
    expect((await asked.result).error).toMatchObject({
      code: 'APPROVAL_INVALID',
      message: expect.stringContaining('changed'),
    });
    expect(ran).toEqual([]);
  });

  test('an approval that was used is used: a call put back to before it ran does not run again, on any worker', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool], {}, 2);
    const { redis, queue, record, approval } = inRedis(fleet);
    const asked = await ask(1);
    await approve(asked);
    await asked.result;
    const before = queuedAs(asked, await redis.hgetall(record(asked.callId)));
    for (let round = 0; round < 6; round += 1) {
      await redis.del(record(asked.callId));
      await redis.hset(record(asked.callId), { ...before, fence: String(round * 10), createdAtMs: '1', version: '1' });
      await redis.persist(approval(asked.id));
      await bringBack(queue, asked.callId, before.generation);
      await eventually(async () => (await redis.hget(record(asked.callId), 'state')) === 'failed');
    }
    expect((await fleet.pawl.read(asked.callId))?.outcome?.error?.code).toBe('APPROVAL_INVALID');
    expect(ran).toHaveLength(1);
    expect(refusedOf(fleet).filter((what) => what === 'approval')).toHaveLength(6);
    expect(fleet.audited.map(({ type }) => type).filter((type) => type.startsWith('approval'))).toEqual([
      'approval-requested',
      'approval-decided',
      'approval-used',
    ]);
  });

  test('an approval that was used is used, also when an attempt after that had to wait before it came to use it', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool], { tools: { wire: { limits: { concurrency: 1 } } } });
    const { redis, queue, record } = inRedis(fleet);
    const asked = await ask(1);
    await approve(asked);
    await asked.result;
    const before = queuedAs(asked, await redis.hgetall(record(asked.callId)));
    const { limits } = fleet.pawl.backend;
    const limit = { name: 'policy:tools.wire', concurrency: 1 };
    const other = { jobId: 'other', start: 'other' };
    const partition = await eventually(async () => {
      const answer = await limits.acquire(limit, other, 60_000);
      return answer.kind === 'granted' && answer;
    });
    await redis.del(record(asked.callId));
    await redis.hset(record(asked.callId), { ...before, fence: '10', createdAtMs: '1', version: '1' });
    await bringBack(queue, asked.callId, before.generation);
    await eventually(async () => (await queue.getDelayedCount()) === 1, { what: 'the call to wait for its place' });
    await limits.release(limit, other, partition.heldUntilMs);
    await eventually(async () => (await redis.hget(record(asked.callId), 'phase')) === null, { what: 'its end' });
    expect((await fleet.pawl.read(asked.callId))?.outcome?.error?.code).toBe('APPROVAL_INVALID');
    expect(ran).toHaveLength(1);
  });

  test('one call’s approval does not cover a copy of it', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool], {}, 0);
    const { redis, queue, record } = inRedis(fleet);
    const asked = await ask(1);
    await approve(asked);
    const fields = await redis.hgetall(record(asked.callId));
    const copy = `${asked.callId.slice(0, -4)}AAAA`;
    await redis.hset(record(copy), fields);
    await queue.add(
      'wire',
      { callId: copy, generation: fields['generation'], session: 'x' },
      { jobId: jobIdOf(copy, fields['generation'] ?? '') },
    );
    await fleet.startWorker();
    expect((await asked.result).status).toBe('success');
    await eventually(async () => (await redis.hget(record(copy), 'state')) === 'failed');
    expect(ran).toHaveLength(1);
    expect(refusedOf(fleet)).toContain('request');
  });

  test('a forged result is refused: from the record, and from an event', async () => {
    const { tool } = wire();
    const { fleet, session, ask } = await start([tool, echo]);
    const { redis } = inRedis(fleet);
    const done = await session.call(echo, { text: 'true' }, { idempotencyKey: 'once' });
    const record = `${fleet.world.prefix}:{read-only}:call:${done.callId}`;
    const outcome = (await redis.hget(record, 'outcome')) ?? '';
    await redis.hset(record, 'outcome', outcome.replaceAll('true', 'forged'));
    const again = await session.call(echo, { text: 'true' }, { idempotencyKey: 'once' });
    expect(again.error?.code).toBe('SIGNATURE_INVALID');
    // An event that announces the end of a call that still waits.
    const { callId, result } = await ask(1);
    const [inbox] = String(await redis.hget(`${fleet.world.prefix}:{elevated}:call:${callId}`, 'inboxes')).split(' ');
    const event = { type: 'settled', callId, state: 'done', outcome: JSON.parse(outcome), signature: 'k1:forged' };
    await redis.publish(`${fleet.world.prefix}:inbox:${inbox}`, JSON.stringify([event]));
    expect((await session.call(echo, { text: 'later' })).status).toBe('success');
    expect((await fleet.pawl.read(callId))?.phase).toBe('awaiting-approval');
    await session.cancel(callId);
    expect((await result).error?.code).toBe('CANCELLED');
    expect(refusedOf(fleet).filter((what) => what === 'outcome').length).toBeGreaterThanOrEqual(2);
  });

  test('a session that was made better than it is does not exist', async () => {
    const { tool, ran } = wire();
    const { fleet, session } = await start([tool], {}, 0);
    const { redis } = inRedis(fleet);
    const worker = await session.worker();
    const key = `${fleet.world.prefix}:{fleet}:session:${worker.key}`;
    await redis.set(key, ((await redis.get(key)) ?? '').replace('"kind":"worker"', '"kind":"main"'));
    const other = await fleet.openProducer();
    await expect(other.session(worker.key)).rejects.toMatchObject({ code: 'UNKNOWN_SESSION' });
    expect(ran).toEqual([]);
    expect(refusedOf(fleet)).toContain('session');
  });

  test('a refused record is reported once, however often it is read, and again when it was changed', async () => {
    const { fleet, session } = await start([echo]);
    const { redis } = inRedis(fleet);
    const { callId } = await session.call(echo, { text: 'true' });
    const record = `${fleet.world.prefix}:{read-only}:call:${callId}`;
    const outcome = (await redis.hget(record, 'outcome')) ?? '';
    for (const [index, word] of ['forged', 'forged again'].entries()) {
      await redis.hset(record, 'outcome', outcome.replaceAll('true', word));
      for (let look = 0; look < 3; look += 1) expect(await fleet.pawl.calls.list()).toHaveLength(1);
      expect(refusedOf(fleet)).toHaveLength(index + 1);
    }
  });

  test('a call of a session that was signed with a key which is gone is refused, and so is opening it again', async () => {
    const { fleet, session } = await start([echo], {}, 0);
    const other = await fleet.openProducer({ signingKeys: [{ kid: 'k2', key: 'the key that came after it' }] });
    const refused = await other.submit(session.envelope('echo', { text: 'x' }));
    expect(refused).toMatchObject({ result: { status: 'error', error: { code: 'SIGNATURE_INVALID' } } });
    const again = other.openSession({ sessionKey: session.key });
    await expect(again).rejects.toMatchObject({ code: 'SIGNATURE_INVALID' });
    // It was looked at three times, and is told of once.
    expect(refusedOf(fleet).filter((what) => what === 'session')).toHaveLength(1);
    await expect(fleet.pawl.openSession({ sessionKey: session.key })).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
    });
  });
});

describe('keys on one side, or on none (DESIGN, decisions 9 and 11)', () => {
  const forge = async ({ fleet, ask }: Pick<Awaited<ReturnType<typeof start>>, 'fleet' | 'ask'>) => {
    const { redis, queue, record, approval } = inRedis(fleet);
    const { callId, id, digest, result } = await ask(1);
    const { record: shown } = await fleet.pawl.approvals.show(id);
    const { paramsDigest } = shown.request;
    const decision = { approvalId: id, decision: 'approve', digest, paramsDigest, by: 'grace', validUntilMs: 9e15 };
    await redis.hset(approval(id), { state: 'approved', decision: JSON.stringify(decision) });
    await bringBack(queue, callId, await redis.hget(record(callId), 'generation'), () =>
      redis.hset(record(callId), 'phase', 'queued'),
    );
    return result;
  };

  test('without keys, anyone who can write to Redis can decide, as every process says when it starts', async () => {
    const { tool, ran } = wire();
    expect((await forge(await start([tool], { signingKeys: [] }))).status).toBe('success');
    expect(ran).toHaveLength(1);
  });

  test('the very same with keys has no effect, and stands in the audit trail', async () => {
    const { tool, ran } = wire();
    const { fleet, ask } = await start([tool]);
    expect((await forge({ fleet, ask })).error?.code).toBe('APPROVAL_INVALID');
    expect(ran).toEqual([]);
    expect(refusedOf(fleet)).toContain('decision');
  });

  test('a worker with keys trusts no decision of a producer without: it fails closed', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool], { signingKeys: [] }, 0);
    const asked = await ask(1);
    await approve(asked);
    await fleet.startWorker({ settings: { signingKeys: [{ kid: 'k1', key: 'a key that nobody else has' }] } });
    await eventually(() => refusedOf(fleet).includes('request'), { what: 'the refusal' });
    expect(ran).toEqual([]);
  });
});
