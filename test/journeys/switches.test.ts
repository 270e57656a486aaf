/** @module-tag slow */
import { expect, test as it, onTestFinished } from 'vitest';
import { connect, type Pawl, type Session, type ToolResultEnvelope } from '../../src/index.ts';
import { eventually } from '../helpers/signal.ts';
import { type Fleet, startFleet } from './fixtures/fleet.ts';
import { startService } from './fixtures/service.ts';

const CALLS = 24;

/** A producer that its configuration switched off, and a session on it. */
async function switchedOff(fleet: Fleet): Promise<{ pawl: Pawl; session: Session }> {
  const { redisUrl, prefix } = fleet.world;
  const pawl = await connect({ redisUrl, prefix, logLevel: 'silent', reliability: { enabled: false } });
  onTestFinished(() => pawl.close());
  return { pawl, session: await pawl.session('journey') };
}

const many = (call: (number: number) => Promise<ToolResultEnvelope>) =>
  Promise.all(Array.from({ length: CALLS }, (_, number) => call(number)));
const statuses = (results: readonly ToolResultEnvelope[]) => [...new Set(results.map(({ status }) => status))];
const attempts = (results: readonly ToolResultEnvelope[]) => [...new Set(results.map((result) => result.attempts))];

it('TOOL_RELIABILITY_ENABLED=false is a direct call: as many effects as calls, one attempt each, no circuit; and on again without a restart (TR-14, R33)', async () => {
  const off = { TOOL_RELIABILITY_ENABLED: 'false' };
  const [fleet, service] = await Promise.all([startFleet({ workers: 3, env: off }), startService()]);
  const { pawl, session } = await switchedOff(fleet);

  // The same key, the same parameters: calls of their own, with a record, a fence and a result each.
  const same = await many(() => session.call('record_once', { label: 'same' }, { idempotencyKey: 'same' }));
  expect(statuses(same)).toEqual(['success']);
  expect(same.some(({ fromCache }) => fromCache)).toBe(false);
  expect(new Set(same.map(({ callId }) => callId)).size).toBe(CALLS);
  expect(fleet.effects().filter(({ phase }) => phase === 'effect')).toHaveLength(CALLS);
  expect(await pawl.read(same[0]?.callId ?? '')).toMatchObject({ state: 'done', fence: 1, attempts: [{ fence: 1 }] });

  // A service that is down: every call reaches it, once.
  service.behave('down');
  const ask = (pause: Session = session) => pause.call('ask_or_refuse', { url: service.url });
  const down = await many(() => ask());
  expect(statuses(down)).toEqual(['retriable_error']);
  expect(attempts(down)).toEqual([1]);
  expect(service.visits).toHaveLength(CALLS);
  expect(await pawl.circuits.list()).toEqual([]);

  // What is no part of the layer works on: cancellation, and least privilege.
  const gate = fleet.gate('never');
  const held = await session.submit('record_none', { gate: gate.path });
  if (held.kind !== 'pending') throw new Error('the call was answered');
  await eventually(() => fleet.effects(held.callId).length > 0);
  expect(await pawl.cancel(held.callId)).toMatchObject({ settlement: 'cancelled' });
  const below = await session.worker();
  expect(await below.call('record_once', { label: 'x' })).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });

  // On again: the same processes merge, retry and open circuits.
  await pawl.reliability.set(true, { reason: 'mended' });
  service.forget();
  await eventually(async () => (await ask()).attempts > 1);
  await eventually(async () => (await ask()).status === 'circuit_open', { what: 'the circuit' });
  const before = fleet.effects().length;
  const merged = await many(() => session.call('record_once', { label: 'on' }, { idempotencyKey: 'on' }));
  expect(statuses(merged)).toEqual(['success']);
  expect(fleet.effects().length - before, 'one begin and one effect').toBe(2);
});

it('disable and enable reach every producer and worker within a second, for all tools or one (TR-14, R25)', async () => {
  const [fleet, service] = await Promise.all([startFleet({ workers: 2 }), startService()]);
  const other = await connect({ redisUrl: fleet.world.redisUrl, prefix: fleet.world.prefix, logLevel: 'silent' });
  onTestFinished(() => other.close());
  const session = await other.session('journey');
  let number = 0;
  const isDirect = async (tool: string) => {
    number += 1;
    const key = { idempotencyKey: `${tool} ${number}` };
    const first = await session.call(tool, { label: 'x' }, key);
    const second = await session.call(tool, { label: 'x' }, key);
    if (first.status !== 'success' || second.status !== 'success') throw new Error(JSON.stringify([first, second]));
    return !second.fromCache;
  };
  expect(await isDirect('record_once')).toBe(false);

  await fleet.pawl.reliability.set(false, { tool: 'record_once', reason: 'wrong replays' });
  await eventually(() => isDirect('record_once'));
  expect(await isDirect('record_keyed')).toBe(false);

  await fleet.pawl.reliability.set(false);
  await eventually(() => isDirect('record_keyed'));
  service.behave('down');
  await eventually(async () => (await session.call('ask_or_refuse', { url: service.url })).attempts === 1);
  const outage = await many((call) =>
    session.call('ask_or_refuse', { url: service.url }, { idempotencyKey: `o${call}` }),
  );
  expect(attempts(outage)).toEqual([1]);
  expect(statuses(outage)).toEqual(['retriable_error']);

  // Said, and heard: three of five times within a second, whatever else the machine does.
  const tookMs: number[] = [];
  for (const on of [true, false, true, false, true]) {
    const saidAtMs = performance.now();
    await fleet.pawl.reliability.set(on, { tool: 'record_once' });
    await eventually(async () => (await isDirect('record_once')) !== on);
    tookMs.push(performance.now() - saidAtMs);
  }
  expect(tookMs.toSorted((a, b) => a - b)[2], `${tookMs}`).toBeLessThan(1_000);

  // A word about all takes back those about single tools.
  await fleet.pawl.reliability.set(true);
  await eventually(async () => !(await isDirect('record_once')));
  const { enabled, words, tools } = await other.reliability.read();
  expect({ enabled, words }).toMatchObject({ enabled: true, words: { all: { enabled: true }, tools: {} } });
  expect(tools.every(({ modes }) => modes.enabled)).toBe(true);
});
