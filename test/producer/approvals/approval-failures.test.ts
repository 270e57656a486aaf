/** Approvals as other systems got them wrong, each as a test; and somebody who can do all in Redis but has no key. */
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { contentOf, pending } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { echo, httpError } from '../../helpers/tools.ts';
import { inRedis, start, wire } from './wired-calls.ts';

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
