/** Approvals as other systems got them wrong, each as a test; and somebody who can do all in Redis but has no key. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import type { Session } from '../../../src/producer/sessions/session.ts';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import { publishedTool } from '../../../src/shared/store/fleet/catalogue.ts';
import { jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool, Effects } from '../../../src/shared/tools/tool.ts';
import { contentOf, type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo, httpError } from '../../helpers/tools.ts';

function wire(change: { run?: (attempt: number) => void; effects?: Effects; version?: string; about?: string } = {}) {
  const ran: unknown[] = [];
  const tool = defineTool({
    name: 'wire',
    version: change.version ?? '1.0.0',
    description: change.about ?? 'Sends money.',
    tier: 'elevated',
    effects: change.effects ?? 'once',
    input: z.object({ to: z.string(), amount: z.number() }),
    run: (params, { attempt }) => {
      change.run?.(attempt);
      ran.push(params);
      return { output: { sent: params.amount } };
    },
  });
  return { tool, ran };
}

interface Asked {
  readonly id: string;
  readonly digest: string;
  readonly callId: string;
  readonly result: ReturnType<typeof pending>['result'];
}

async function start(tools: readonly AnyTool[], settings: Partial<SettingsInput> = {}, workers = 1) {
  const dataDir = mkdtempSync(join(tmpdir(), 'pawl-approvals-'));
  onTestFinished(() => rmSync(dataDir, { recursive: true, force: true }));
  const signingKeys = [{ kid: 'k1', key: 'a key that nobody else has' }];
  const fleet = await startFleet({ tools, workers, settings: { signingKeys, dataDir, ...settings } });
  const session = await fleet.pawl.openSession({ actorId: 'agent-7', channel: { kind: 'operator' } });
  const ask = async (amount: number, from: Session = session): Promise<Asked> => {
    const { callId, result } = pending(await from.submit('wire', { to: 'bob', amount }));
    const { record, digest } = await fleet.pawl.approvals.show(callId);
    return { id: record.request.id, digest, callId, result };
  };
  const approve = ({ id, digest }: Asked) =>
    fleet.pawl.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
  const deny = ({ id, digest }: Asked) => fleet.pawl.approvals.decide(id, { decision: 'deny', digest, by: 'grace' });
  return { fleet, session, ask, approve, deny };
}

/** What was refused, as the audit trail has it. */
function refusedOf({ audited }: Fleet): readonly string[] {
  return audited.flatMap((event) => (event.type === 'refused' ? [event.what] : []));
}

function inRedis(fleet: Fleet) {
  const redis = new Redis(fleet.world.redisUrl);
  const base = `${fleet.world.prefix}:{elevated}`;
  const queue = new Queue('elevated', { connection: { url: fleet.world.redisUrl }, prefix: base });
  queue.on('error', () => {});
  onTestFinished(async () => {
    await queue.close();
    redis.disconnect();
  });
  return {
    redis,
    queue,
    record: (callId: string) => `${base}:call:${callId}`,
    approval: (id: string) => `${base}:approval:${id}`,
  };
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

describe('what went wrong elsewhere', () => {
  test('Declined call executed: a denied call cannot be brought to run', async () => {
    const { tool, ran } = wire();
    const { ask, deny, approve } = await start([tool]);
    const asked = await ask(1);
    await deny(asked);
    await expect(approve(asked)).rejects.toMatchObject({ code: 'APPROVAL_STALE' });
    expect((await asked.result).error?.code).toBe('PERMISSION_DENIED');
    expect(ran).toEqual([]);
  });

  test('approve(B) ran A: a decision names its call and what it is about', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool]);
    const [a, b] = [await ask(1), await ask(2)];
    await expect(approve({ ...a, digest: b.digest })).rejects.toMatchObject({ code: 'APPROVAL_STALE' });
    await approve(b);
    expect(contentOf(await b.result)).toEqual({ sent: 2 });
    expect(ran).toEqual([{ to: 'bob', amount: 2 }]);
    expect((await fleet.pawl.approvals.show(a.id)).record.state).toBe('pending');
  });

  test('Announced before durable: a request that was announced is found', async () => {
    const { tool } = wire();
    const { fleet, session } = await start([tool]);
    const other = await fleet.openProducer();
    const found = signal<string>();
    session.events.on('approval-requested', ({ approvalId }) => {
      other.approvals.show(approvalId).then(({ record }) => found.fire(record.state), found.fail);
    });
    await session.submit('wire', { to: 'bob', amount: 1 });
    expect(await found.promise).toBe('pending');
  });

  test('Consumed, run fails, unrecoverable: the approval covers the call’s retries, until its outcome is recorded', async () => {
    const { tool, ran } = wire({
      effects: 'idempotent',
      run: (attempt) => {
        if (attempt < 3) throw httpError(503);
      },
    });
    const { ask, approve } = await start([tool]);
    const asked = await ask(1);
    await approve(asked);
    expect(await asked.result).toMatchObject({ status: 'success', attempts: 3 });
    expect(ran).toHaveLength(1);
  });

  test('Lost on restart: producer and worker end, and another pair goes on', async () => {
    const { tool, ran } = wire();
    const { fleet, ask } = await start([tool], {}, 0);
    const first = await fleet.startWorker();
    const { id, digest, callId } = await ask(1);
    await first.close(0);
    await fleet.pawl.close();
    const next = await fleet.openProducer();
    await fleet.startWorker();
    await next.approvals.decide(id, { decision: 'approve', digest, by: 'grace' });
    expect((await next.result(callId, { waitMs: 10_000 }))?.status).toBe('success');
    expect(ran).toHaveLength(1);
  });

  test('Silently skipped: a worker applies its own policy, whatever the producer decided', async () => {
    const { tool, ran } = wire();
    const lax = { ...tool, tier: 'system' as const };
    const { fleet, session } = await start([lax], {}, 0);
    const { result } = pending(await session.submit('wire', { to: 'bob', amount: 1 }));
    // The worker of the system tier says that this tool asks.
    await fleet.startWorker({ tools: [lax], settings: { policy: { global: { tools: { wire: 'ask' } } } } });
    expect((await result).error).toMatchObject({
      code: 'PERMISSION_DENIED',
      message: expect.stringContaining('no person has approved'),
    });
    expect(ran).toEqual([]);
  });

  test('Fail-open without approver: no channel is denied at once, and so is a time that runs out', async () => {
    const { tool, ran } = wire();
    const { fleet, session } = await start([tool], { policy: { approvalLimitMs: 200 } });
    expect((await fleet.session.call(tool, { to: 'bob', amount: 1 })).error?.code).toBe('PERMISSION_DENIED');
    expect((await session.call(tool, { to: 'bob', amount: 1 })).error?.code).toBe('PERMISSION_DENIED');
    expect(ran).toEqual([]);
  });

  test('Params changed after approval: the parameters are frozen with the request', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool], {}, 0);
    const asked = await ask(1);
    await approve(asked);
    const { redis, record } = inRedis(fleet);
    const stored = (await redis.hget(record(asked.callId), 'request')) ?? '';
    await redis.hset(record(asked.callId), 'request', stored.replace('"amount":1', '"amount":1000'));
    await fleet.startWorker();
    expect((await asked.result).error?.code).toBe('SIGNATURE_INVALID');
    expect(ran).toEqual([]);
  });

  test('Tool changed after approval: another definition under the same version voids it', async () => {
    const { tool } = wire();
    const changed = wire({ about: 'Sends money twice.' });
    const { fleet, ask, approve } = await start([tool], {}, 0);
    const asked = await ask(1);
    await approve(asked);
    await fleet.startWorker({ tools: [changed.tool] });
    expect((await asked.result).error).toMatchObject({
      code: 'APPROVAL_INVALID',
      message: expect.stringContaining('changed'),
    });
    expect(changed.ran).toEqual([]);
  });

  test('Sub-agent approval lost: the request is shown in the session above, and says who asks', async () => {
    const { tool } = wire();
    const { fleet, session, ask, approve } = await start([tool]);
    const deep = await (await session.branch()).branch();
    const asked = await ask(1, deep);
    const { request } = (await fleet.pawl.approvals.show(asked.id)).record;
    expect(request).toMatchObject({
      route: { sessionKey: session.key },
      session: { key: deep.key },
      actorId: 'agent-7',
    });
    await approve(asked);
    expect((await asked.result).status).toBe('success');
  });

  test('Error after approval lost: a failure is an outcome like any other', async () => {
    const { tool } = wire({
      run: () => {
        throw new Error('the bank is closed');
      },
    });
    const { fleet, ask, approve } = await start([tool]);
    const asked = await ask(1);
    await approve(asked);
    expect((await asked.result).error).toMatchObject({ code: 'TOOL_FAILED', message: 'the bank is closed' });
    expect((await fleet.pawl.read(asked.callId))?.outcome?.error?.code).toBe('TOOL_FAILED');
  });

  test('A note that cannot be written: the call ends with an error that says so, and the next one runs', async () => {
    const { tool, ran } = wire();
    const { fleet, ask, approve } = await start([tool]);
    const { dataDir } = fleet.settings;
    const inTheWay = join(dataDir, 'used-approvals');
    writeFileSync(inTheWay, '');
    const asked = await ask(1);
    await approve(asked);
    expect((await asked.result).error).toMatchObject({
      code: 'AUDIT_UNAVAILABLE',
      retriable: true,
      message: expect.not.stringContaining(dataDir),
    });
    expect(ran).toEqual([]);
    rmSync(inTheWay);
    const next = await ask(2);
    await approve(next);
    expect((await next.result).status).toBe('success');
  });

  test('A note that cannot be written any more: what the call came to stands', async () => {
    const { tool } = wire({
      run: () => {
        rmSync(inTheWay, { recursive: true });
        writeFileSync(inTheWay, '');
      },
    });
    const { fleet, session, ask, approve } = await start([tool, echo], {}, 0);
    const inTheWay = join(fleet.settings.dataDir, 'used-approvals');
    await fleet.startWorker({ concurrency: 1 });
    const asked = await ask(1);
    await approve(asked);
    expect((await asked.result).status).toBe('success');
    // The worker’s only slot is free again.
    expect(contentOf(await session.call(echo, { text: 'on' }))).toEqual({ text: 'on' });
  });

  test('Replay re-executes: asking again with the same key gives the recorded result', async () => {
    const { tool, ran } = wire();
    const { fleet, session, approve } = await start([tool]);
    const submit = () => session.submit('wire', { to: 'bob', amount: 1 }, { idempotencyKey: 'rent' });
    const { callId, result } = pending(await submit());
    const { record, digest } = await fleet.pawl.approvals.show(callId);
    await approve({ id: record.request.id, digest, callId, result });
    await result;
    expect(await (await submit()).result).toMatchObject({ status: 'success', fromCache: true });
    expect(ran).toHaveLength(1);
  });

  test('Fleet stall: a hundred calls that wait hold none of a worker’s slots', async () => {
    const { tool } = wire();
    const { fleet, session } = await start([tool, echo], {}, 0);
    await fleet.startWorker({ concurrency: 1 });
    await Promise.all(Array.from({ length: 100 }, (_, amount) => session.submit('wire', { to: 'bob', amount })));
    const { queue } = inRedis(fleet);
    await eventually(async () => (await queue.getDelayedCount()) === 100, { what: 'all of them to wait' });
    expect(await queue.getActiveCount()).toBe(0);
    expect(contentOf(await session.call(echo, { text: 'on' }))).toEqual({ text: 'on' });
  });

  test('Retry middleware eats suspend: waiting is no attempt, and moves no circuit', async () => {
    const { tool } = wire();
    const { fleet, ask, approve } = await start([tool]);
    const asked = await ask(1);
    await eventually(async () => (await fleet.pawl.approvals.list({ state: 'pending' })).length === 1);
    expect((await fleet.pawl.read(asked.callId))?.attempts).toEqual([]);
    await approve(asked);
    expect(await asked.result).toMatchObject({ status: 'success', attempts: 1 });
    expect(await fleet.pawl.circuits.list()).toEqual([]);
  });
});

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
