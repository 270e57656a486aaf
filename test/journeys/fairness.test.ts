import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/index.ts';
import { eventually, within } from '../helpers/signal.ts';
import { startFleet } from './fixtures/fleet.ts';

const BACKLOG = 30;

test('a person, another tenant and background work each get their turns beside one session’s backlog', async () => {
  const fleet = await startFleet({ workers: 1, concurrency: 1 });
  const { redisUrl, prefix } = fleet.world;
  const pawl = await connect({ redisUrl, prefix, logLevel: 'silent', tenants: { 'large-*': { weight: 4 } } });
  onTestFinished(() => pawl.close());
  const open = (sessionKey: string, more = {}) =>
    pawl.openSession({ sessionKey, workspaceRoot: fleet.folder, ...more });
  const gate = fleet.gate('held');
  const ends: Promise<unknown>[] = [];
  const submit = async (session: Awaited<ReturnType<typeof open>>, count: number, params = {}) => {
    for (let number = 0; number < count; number += 1) {
      const key = `${session.key}-${number}`;
      const { result } = await session.submit('record_once', { label: key, ...params }, { idempotencyKey: key });
      ends.push(Promise.resolve(result));
    }
  };
  await submit(await open('holds'), 1, { gate: gate.path });
  await eventually(() => fleet.effects().length === 1, { what: 'a worker at work' });
  await submit(await open('loud'), BACKLOG);
  await submit(await open('batch', { importance: 'background' }), 6);
  await submit(await open('large', { tenantId: 'large-1' }), 12);
  await submit(await open('person'), 1);
  gate.open();
  for (const result of await within(Promise.all(ends), 50_000, 'all calls'))
    expect(result).toMatchObject({ status: 'success', attempts: 1 });
  const order = fleet.effects().filter(({ phase }) => phase === 'begin');
  const startedAmong = (first: number, session: string) =>
    order.slice(1, 1 + first).filter(({ key }) => key.startsWith(`${session}-`)).length;
  expect(startedAmong(18, 'person')).toBe(1);
  expect(startedAmong(20, 'large'), 'four turns while the others have one').toBe(12);
  expect(startedAmong(36, 'batch'), 'not starved').toBeGreaterThanOrEqual(2);
  expect(startedAmong(36, 'batch'), 'behind the normal calls').toBeLessThanOrEqual(4);
});
