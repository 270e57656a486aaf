import { expect, onTestFinished, test } from 'vitest';
import type { AuditEvent } from '../../../../src/shared/audit/audit-event.ts';
import { AuditTrail } from '../../../../src/shared/store/audit/audit-trail.ts';
import { AuditService } from '../../../../src/shared/store/audit-service.ts';
import { openTrail, override, toTheEnd, writeRecords } from '../trails.ts';

test('people’s words, and that one is asked for, are in Redis before anybody hears of them', async () => {
  const { redis, keys, writer } = await openTrail();
  const asked: AuditEvent = {
    type: 'approval-requested',
    approvalId: 'a1',
    callId: 'c1',
    tool: 'bank.transfer',
    sessionKey: 's1',
    sessionActorId: 'agent-7',
    actorId: 'agent-7',
    digest: 'd',
    rule: 'elevated',
  };
  const own = writer();
  onTestFinished(() => own.close());
  for (const [index, event] of [asked, override(1)].entries()) {
    await own.record(event);
    expect(await redis.xlen(keys.pending)).toBe(index + 1);
  }
});

test('a process that chains in small blocks continues only its own chain, and reads the head again otherwise', async () => {
  const { redis, keys, writer, sealer, trail } = await openTrail();
  await writeRecords(writer(), 2_400);
  const [one, other] = [sealer(10_000), sealer(10_000)];
  expect(await one.step()).toBe('more');
  const first = await trail.head();
  if (first === undefined) throw new Error('there is no trail');
  // One that was away for longer than its lease: another one went on meanwhile.
  await redis.del(keys.writer);
  expect(await other.step()).toBe('more');
  expect(await one.step()).toBe('idle');
  await other.release();
  // And when somebody has begun another trail meanwhile.
  expect(await one.step()).toBe('more');
  await trail.restart((await trail.head()) ?? first, []);
  expect(await one.step()).toBe('idle');
  await toTheEnd(one);
  const head = await trail.head();
  const sealed = [...(await trail.recordsFrom(first.trail, 1)), ...(await trail.recordsFrom(head?.trail ?? '', 1))];
  const actions = sealed.map(({ text }) => (JSON.parse(text) as { action: string }).action);
  expect(actions).toEqual(Array.from({ length: 2_400 }, (_, number) => `number ${number}`));
  // V8 has no room in its heap for texts of more than 128 KiB.
  const blocks = await redis.xrange(keys.chain(first.trail), '-', '+');
  expect(Math.max(...blocks.map(([, fields]) => fields.join().length))).toBeLessThan(128 * 1_024);
});

test('a process that ends chains all waiting records, and gives its lease back', async () => {
  const { redis, keys, writer, sealer, trail } = await openTrail();
  await writeRecords(writer(), 2_400);
  const errors: Error[] = [];
  await new AuditService([sealer()], (error) => errors.push(error)).close();
  expect(errors).toEqual([]);
  expect(await redis.xlen(keys.pending)).toBe(0);
  expect(await trail.head()).toMatchObject({ seq: 2_400 });
  expect(await redis.exists(keys.writer)).toBe(0);
});

test('the newest are listed first, with those that are not chained yet, each once', async () => {
  const { writer, sealer, trail } = await openTrail();
  const from = writer();
  for (let number = 0; number < 5; number += 1) void from.record(override(number));
  await from.written();
  await toTheEnd(sealer());
  void from.record(override(5));
  await from.written();
  const all = await trail.newest(() => true, { limit: 10, maxRead: 1_000 });
  expect(all.map(({ record, seq }) => [record['action'], seq])).toEqual([
    ['number 5', undefined],
    ...[4, 3, 2, 1, 0].map((number) => [`number ${number}`, number + 1]),
  ]);
  const wanted = await trail.newest(({ sessionKey }) => sessionKey === 's0', { limit: 2, maxRead: 1_000 });
  expect(wanted.map(({ record }) => record['action'])).toEqual(['number 4', 'number 2']);
  const { atMs } = all[0]?.record ?? { atMs: 0 };
  expect(await trail.newest(() => true, { limit: 10, maxRead: 1_000, sinceMs: atMs + 1 })).toEqual([]);
});

test('records are listed in the order of the trail, whatever the clocks of their processes say', async () => {
  const { writer, sealer, trail } = await openTrail();
  for (let number = 0; number < 4; number += 1) {
    const from = writer({ now: () => 1_000 - number });
    void from.record(override(number));
    await from.written();
    if (number === 1) await toTheEnd(sealer());
  }
  const all = await trail.newest(() => true, { limit: 10, maxRead: 1_000 });
  expect(all.map(({ record }) => record['action'])).toEqual(['number 3', 'number 2', 'number 1', 'number 0']);
});

test('records whose trail begins while they are listed are listed all the same', async () => {
  const { redis, prefix, writer, sealer } = await openTrail();
  const from = writer();
  void from.record(override(0));
  await from.written();
  let sealed = false;
  const between = new Proxy(redis, {
    get:
      (target, name) =>
      async (...args: unknown[]) => {
        const answer = await (Reflect.get(target, name) as (...args: unknown[]) => unknown).apply(target, args);
        if (!sealed) await toTheEnd(sealer());
        sealed = true;
        return answer;
      },
  });
  const listed = await new AuditTrail(between, prefix).newest(() => true, { limit: 10, maxRead: 1_000 });
  expect(listed.map(({ record }) => record['action'])).toEqual(['number 0']);
});

test('an event that must be written is refused while Redis is away; others wait, up to a bound, and losses are reported', async () => {
  const { redis, keys, writer, lost, trail } = await openTrail();
  const used: AuditEvent = {
    type: 'approval-used',
    approvalId: 'a',
    callId: 'e0.x',
    tool: 'tools.transfer',
    sessionKey: 's',
    by: 'grace',
    fence: 1,
    worker: 'w',
  };
  await redis.set(keys.pending, 'something else');
  const from = writer();
  await expect(from.record(used)).rejects.toMatchObject({ code: 'AUDIT_UNAVAILABLE' });
  for (let number = 0; number < 20_100; number += 1) void from.record(override(number));
  await from.written();
  await redis.del(keys.pending);
  await from.record(used);
  // Closing would wait for two seconds at most.
  await from.written();
  await from.close();
  // Too many are dropped a batch at a time.
  expect(lost).toEqual([256]);
  const all = await trail.newest(() => true, { limit: 30_000, maxRead: 1_000 });
  expect(all.length).toBe(20_100 - 256 + 1);
});

test('lines that no process of Pawl wrote are shown as they are, before and after they are chained', async () => {
  const { redis, keys, writer, sealer, trail } = await openTrail();
  const own = writer();
  onTestFinished(() => own.close());
  await own.record(override(1));
  const strange = ['no record', '', 'null', '{"type":"override"}', '{"id":"x","type":"override","atMs":1e300}'];
  await redis.xadd(keys.pending, '*', 'records', strange.join('\n'));
  const look = { limit: 10, maxRead: 1_000 };
  const shown = async (sinceMs: number) => {
    const entries = await trail.newest(() => true, { ...look, sinceMs });
    return entries.map(({ record }) => (record.type === 'unreadable' ? record['text'] : record.type)).sort();
  };
  const atMs = (await trail.newest(({ type }) => type === 'override', look))[0]?.record.atMs ?? 0;
  const all = [...strange, 'override'].sort();
  expect(await shown(atMs - 1_000)).toEqual(all);
  await toTheEnd(sealer());
  expect(await redis.xlen(keys.pending)).toBe(0);
  expect(await shown(atMs - 1_000)).toEqual(all);
  expect((await trail.newest(({ type }) => type === 'unreadable', look)).map(({ seq }) => seq)).toHaveLength(5);
});
