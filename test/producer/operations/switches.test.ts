import { expect, test } from 'vitest';
import { z } from 'zod';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { Tier } from '../../../src/shared/tools/tool.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';

/** A tool of a tier that fails as often as it is told, with what a retry may mend. */
function flaky(name: string, tier: Tier = 'workspace', cooldownMs = 60_000) {
  const told = { failures: 0, runs: 0 };
  const tool = defineTool({
    name,
    version: '1.0.0',
    description: 'Fails as often as it is told.',
    tier,
    effects: tier === 'read-only' ? 'none' : 'idempotent',
    retry: { baseMs: 1, maxDelayMs: 1 },
    circuit: { consecutiveFailures: 3, cooldownMs },
    input: z.object({}),
    run() {
      told.runs += 1;
      if (told.runs <= told.failures) throw Object.assign(new Error('down'), { status: 503 });
      return { output: told.runs };
    },
  });
  return { tool, told };
}

const reliability = (value: SettingsInput['reliability']): Partial<SettingsInput> => ({ reliability: value });

test('open mode shadow: nothing is refused, merged or retried, and what would have been is reported and counted (R33, R34)', async () => {
  const { tool, told } = flaky('ask');
  const { session, pawl, events } = await startFleet({ tools: [tool], settings: reliability({ openMode: 'shadow' }) });
  const kinds = () =>
    events.flatMap((event) =>
      event.type === 'shadow' || event.type === 'tool_call_shadow' ? [`${event.kind} ${event.detail}`] : [],
    );
  // Merged: a key used again, with the same parameters.
  const first = await session.call(tool, {}, { idempotencyKey: 'k' });
  const again = await session.call(tool, {}, { idempotencyKey: 'k' });
  expect([first.fromCache, again.fromCache, told.runs]).toEqual([false, false, 2]);
  expect(kinds()).toEqual(['merged done']);
  // Retried: three failures, one attempt each. They open the circuit, which then refuses nothing.
  told.failures = told.runs + 3;
  for (let call = 0; call < 3; call += 1)
    expect(await session.call(tool, {})).toMatchObject({ status: 'retriable_error', attempts: 1 });
  expect(await pawl.circuits.list()).toMatchObject([{ circuit: { state: 'OPEN' }, enforcement: 'shadow' }]);
  expect((await session.call(tool, {})).status).toBe('success');
  expect(kinds()).toEqual(['merged done', 'retried HTTP_503', 'retried HTTP_503', 'retried HTTP_503', 'refused OPEN']);
  await eventually(async () => (await pawl.reliability.read()).shadow.length === 3);
  expect(new Set((await pawl.reliability.read()).shadow)).toEqual(
    new Set([
      { kind: 'merged', tool: 'tools.ask', count: 1 },
      { kind: 'retried', tool: 'tools.ask', count: 3 },
      { kind: 'refused', tool: 'tools.ask', count: 1 },
    ]),
  );
});

test('the circuit of a tool in shadow mode is watched as if it refused: after its cooldown a call is its probe, and successes close it', async () => {
  const { tool, told } = flaky('ask', 'workspace', 200);
  const { session, pawl } = await startFleet({ tools: [tool], settings: reliability({ openMode: 'shadow' }) });
  told.failures = 3;
  for (let call = 0; call < 3; call += 1) await session.call(tool, {});
  expect(await pawl.circuits.list()).toMatchObject([{ circuit: { state: 'OPEN' }, failures: 3 }]);
  await eventually(async () => {
    expect((await session.call(tool, {})).status).toBe('success');
    return (await pawl.circuits.list())[0]?.circuit.state === 'CLOSED';
  });
});

test('shadow mode tells a call that would have met a conflict, or one in flight with its parameters', async () => {
  const open = Promise.withResolvers<void>();
  const tool = defineTool({
    name: 'wait',
    version: '1.0.0',
    description: 'Waits.',
    tier: 'workspace',
    input: z.object({ label: z.string() }),
    run: async () => {
      await open.promise;
      return { output: 'done' };
    },
  });
  const { session, events } = await startFleet({ tools: [tool], settings: reliability({ openMode: 'shadow' }) });
  const calls = [
    session.call(tool, { label: 'one' }, { idempotencyKey: 'k' }),
    session.call(tool, { label: 'same' }),
    session.call(tool, { label: 'same' }),
  ];
  const told = () => events.flatMap((event) => (event.type === 'shadow' ? [`${event.kind} ${event.detail}`] : []));
  await eventually(() => told().length === 1);
  calls.push(session.call(tool, { label: 'two' }, { idempotencyKey: 'k' }));
  await eventually(() => told().length === 2);
  expect(told()).toEqual(['merged inflight', 'refused conflict']);
  open.resolve();
  expect((await Promise.all(calls)).map(({ status }) => status)).toEqual(Array(4).fill('success'));
});

test('open mode off: circuits observe and say so, close again by themselves, and refuse nothing; merging and retrying go on (R33)', async () => {
  const { tool, told } = flaky('ask', 'workspace', 200);
  const { session, pawl, events } = await startFleet({ tools: [tool], settings: reliability({ openMode: 'off' }) });
  told.failures = 3;
  expect(await session.call(tool, {}, { idempotencyKey: 'k' })).toMatchObject({ status: 'success', attempts: 4 });
  expect((await session.call(tool, {}, { idempotencyKey: 'k' })).fromCache).toBe(true);
  expect(await pawl.circuits.list()).toMatchObject([{ circuit: { state: 'OPEN' }, enforcement: 'observing' }]);
  await eventually(async () => {
    expect((await session.call(tool, {})).status).toBe('success');
    return (await pawl.circuits.list())[0]?.circuit.state === 'CLOSED';
  });
  expect(events.some(({ type }) => type === 'tool_call_shadow')).toBe(false);
});

test('staged enabling: what works is said for each tier (R34)', async () => {
  const reads = flaky('look', 'read-only');
  const writes = flaky('change');
  const { session, pawl, startWorker } = await startFleet({
    tools: [reads.tool, writes.tool],
    settings: reliability({ tiers: { workspace: { dedupe: 'shadow', retry: 'off' } } }),
  });
  const key = { idempotencyKey: 'k' };
  for (const { told } of [reads, writes]) told.failures = 1;
  expect(await session.call(reads.tool, {}, key)).toMatchObject({ status: 'success', attempts: 2 });
  expect(await session.call(writes.tool, {}, key)).toMatchObject({ status: 'retriable_error', attempts: 1 });
  expect((await session.call(reads.tool, {}, key)).fromCache).toBe(true);
  expect((await session.call(writes.tool, {}, key)).fromCache).toBe(false);
  await startWorker({ tools: [{ ...writes.tool, version: '0.9.0' }] });
  await eventually(async () => (await pawl.catalogue()).tools.length === 3, { what: 'the other version' });
  const { tools } = await pawl.reliability.read();
  expect(tools.map(({ tool }) => tool)).toEqual([...new Set(tools.map(({ tool }) => tool))].toSorted());
  expect(tools.find(({ tool }) => tool === 'tools.change')?.modes).toEqual({
    enabled: true,
    dedupe: 'shadow',
    retry: 'off',
    circuits: 'on',
  });
});

test('a circuit forced open by configuration refuses at the producer and at the worker, and is listed (R25)', async () => {
  const { tool, told } = flaky('ask');
  const tools = { ask: { circuit: { forcedOpen: true } } };
  const fleet = await startFleet({ tools: [tool], settings: { tools } });
  const message = 'ask takes no calls for now (forced by configuration).';
  const error = { code: 'CIRCUIT_OPEN', message, breakerState: 'FORCED_OPEN' };
  const refused = { status: 'circuit_open', attempts: 0, error };
  expect(await fleet.session.call(tool, {})).toMatchObject(refused);
  expect(await fleet.pawl.circuits.list()).toMatchObject([
    { key: 'tool:tools.ask', circuit: { state: 'FORCED_OPEN', reason: 'forced by configuration' } },
  ]);
  // A producer that does not know of it.
  const other = await fleet.openProducer({ tools: {} });
  const session = await other.session(fleet.session.key);
  expect(await session.call(tool, {})).toMatchObject(refused);
  expect(told.runs).toBe(0);
  // The kill switch goes before.
  await other.reliability.set(false);
  await eventually(async () => (await session.call(tool, {})).status === 'success');
});

test('R26: the loop guard warns once, then refuses; both counts are the operator’s to set, for all tools or one', async () => {
  const { tool, told } = flaky('ask');
  const other = flaky('other');
  const { session, events } = await startFleet({
    tools: [tool, other.tool],
    settings: {
      ...reliability({ loopGuard: { warnAt: 3, refuseAt: 5 } }),
      tools: { other: { loopGuard: { refuseAt: 8 } } },
    },
  });
  const codes = async (which: typeof tool, count: number) => {
    const ends: string[] = [];
    while (ends.length < count) {
      const result = await session.call(which, {});
      ends.push(result.status === 'success' ? 'ok' : result.error.code);
    }
    return ends;
  };
  expect(await codes(tool, 6)).toEqual(['ok', 'ok', 'ok', 'ok', 'LOOP_DETECTED', 'LOOP_DETECTED']);
  expect(told.runs).toBe(4);
  const heard = events.flatMap((event) => (event.type === 'loop' ? [`${event.action} ${event.repetitions}`] : []));
  expect(heard).toEqual(['warned 3', 'refused 5', 'refused 6']);
  expect(await codes(other.tool, 8)).toEqual([...Array(7).fill('ok'), 'LOOP_DETECTED']);
});

test('R26: calls that join another or get its result repeat nothing; in shadow mode the guard only tells', async () => {
  const { tool, told } = flaky('ask');
  const fleet = await startFleet({ tools: [tool], settings: reliability({ loopGuard: { warnAt: 2, refuseAt: 3 } }) });
  const all = await Promise.all(Array.from({ length: 50 }, () => fleet.session.call(tool, {}, { toolCallId: 'one' })));
  expect(new Set(all.map(({ status }) => status))).toEqual(new Set(['success']));
  expect(told.runs).toBe(1);
  const shadow = await fleet.openProducer(reliability({ openMode: 'shadow', loopGuard: { warnAt: 2, refuseAt: 3 } }));
  const session = await shadow.openSession();
  for (let call = 0; call < 4; call += 1) expect((await session.call(tool, {})).status).toBe('success');
  const heard = fleet.events.flatMap((event) => (event.type === 'shadow' ? [`${event.kind} ${event.detail}`] : []));
  expect(heard).toEqual(['refused LOOP_DETECTED', 'refused LOOP_DETECTED']);
});
