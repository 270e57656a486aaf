/** @module-tag slow */
import { expect, test } from 'vitest';
import type { ToolResultEnvelope } from '../../src/index.ts';
import type { CircuitListing } from '../../src/types.ts';
import { eventually } from '../helpers/signal.ts';
import { type Fleet, type FleetOptions, SHORT_LOCK_MS, startFleet } from './fixtures/fleet.ts';
import { type Service, startService, type Visit } from './fixtures/service.ts';

const WORKERS = 4;
const CONCURRENCY = 3;
/** Of `ask_or_refuse` and `ask_or_park`, see `fixtures/tools.ts`. */
const COOLDOWN_MS = 60_000;
/** The default of every tier but read-only. */
const FAILURES_TO_OPEN = 5;

type Tool = 'ask_or_refuse' | 'ask_or_park';

async function setUp({ workers = WORKERS, concurrency = CONCURRENCY, ...more }: FleetOptions = {}) {
  const [fleet, service] = await Promise.all([startFleet({ workers, concurrency, ...more }), startService()]);
  let number = 0;
  const ask = (tool: Tool = 'ask_or_refuse') =>
    fleet.session.call(tool, { url: service.url }, { idempotencyKey: `ask-${number++}` });
  const askMany = (count: number, tool: Tool = 'ask_or_refuse') =>
    Promise.all(Array.from({ length: count }, () => ask(tool)));
  return { fleet, service, ask, askMany };
}

async function circuitOf(fleet: Fleet, tool: Tool = 'ask_or_refuse'): Promise<CircuitListing['circuit'] | undefined> {
  return (await fleet.pawl.circuits.list()).find(({ key }) => key === `tool:tools.${tool}`)?.circuit;
}

/** As if a minute and more had passed for the circuit: its cooldown is over, and so is the lease of a probe. */
async function letTimePass(fleet: Fleet): Promise<void> {
  const key = 'tool:tools.ask_or_refuse';
  const partition = { tier: 'system', shard: 0 } as const;
  const { breakers } = fleet.pawl.backend;
  const circuit = await breakers.read(partition, key);
  if (circuit.state === 'CLOSED') throw new Error('the circuit is closed');
  const earlier = (atMs: number) => atMs - COOLDOWN_MS;
  const probe = 'probe' in circuit && circuit.probe && { ...circuit.probe, untilMs: earlier(circuit.probe.untilMs) };
  const aged = {
    ...circuit,
    epoch: circuit.epoch + 1,
    openedAtMs: earlier(circuit.openedAtMs ?? 0),
    ...(probe && { probe }),
  };
  expect(await breakers.change({ partition, key }, circuit, aged, 0)).toMatchObject({ changed: true });
}

/** Fails call by call until the circuit refuses, and returns what the calls came to. */
async function takeDown(fleet: Fleet, service: Service, ask: () => Promise<ToolResultEnvelope>) {
  service.behave('down');
  const results: ToolResultEnvelope[] = [];
  while ((await circuitOf(fleet))?.state !== 'OPEN') results.push(await ask());
  return results;
}

const statuses = (results: readonly ToolResultEnvelope[]) => [...new Set(results.map(({ status }) => status))];
const startedAfter = (visit: Visit | undefined, earlier: Visit | undefined) =>
  (visit?.startedAtMs ?? 0) >= (earlier?.endedAtMs ?? Number.POSITIVE_INFINITY);

test('a service that goes down is left alone by 4 workers, probed by one at a time, and open to all after two successes (TR-8, TR-9)', async () => {
  const { fleet, service, askMany } = await setUp();
  expect(statuses(await askMany(16))).toEqual(['success']);

  // Down: the failures that open the circuit, and what was on its way when they came back.
  service.forget();
  service.behave('down', 20);
  const refused = await askMany(100);
  // Each call that reached the service ends with its own failure, unless its retry was refused.
  for (const { status, attempts } of refused)
    expect(status).toMatch(attempts === 0 ? /^circuit_open$/ : /^(retriable_error|circuit_open)$/);
  expect(service.visits.length).toBeGreaterThanOrEqual(FAILURES_TO_OPEN);
  expect(service.visits.length).toBeLessThanOrEqual(FAILURES_TO_OPEN + WORKERS * CONCURRENCY - 1);
  // A refusal spends no attempt: each attempt that is told of reached the service.
  expect(refused.reduce((sum, { attempts }) => sum + attempts, 0)).toBe(service.visits.length);

  // Open: refused before anything is written.
  service.forget();
  const before = await fleet.pawl.backend.ledger.index.counts({ tier: 'system', shard: 0 });
  const again = await askMany(50);
  expect(statuses(again)).toEqual(['circuit_open']);
  expect(again[0]).toMatchObject({
    attempts: 0,
    error: { code: 'CIRCUIT_OPEN', breakerState: 'OPEN', retriable: true },
  });
  expect(again[0]?.error?.retryAfterMs).toBeLessThanOrEqual(COOLDOWN_MS);
  expect(await fleet.pawl.backend.ledger.index.counts({ tier: 'system', shard: 0 })).toEqual(before);
  expect(service.visits).toEqual([]);

  // Still down after the cooldown: of many calls one gets through, and its failure starts the cooldown again.
  await letTimePass(fleet);
  await eventually(async () => {
    for (const { status, attempts } of await askMany(30))
      expect(status).toBe(attempts === 0 ? 'circuit_open' : 'retriable_error');
    return service.visits.length > 0;
  });
  expect(service.visits).toHaveLength(1);
  expect(await circuitOf(fleet)).toMatchObject({ state: 'OPEN', reason: 'a probe failed' });

  // Up again: one probe at a time, two successes, then everybody.
  await letTimePass(fleet);
  service.forget();
  service.behave('up', 40);
  await eventually(async () => {
    await askMany(5);
    return (await circuitOf(fleet))?.state === 'CLOSED';
  });
  const [first, second, ...others] = service.visits;
  expect(startedAfter(second, first), 'the second probe waits for the first').toBe(true);
  for (const other of others) expect(startedAfter(other, second), 'the rest waits for both').toBe(true);
  service.behave('up');
  expect(statuses(await askMany(60))).toEqual(['success']);
});

test('an outage that every worker has seen by itself ends with the cooldown as well', async () => {
  const { fleet, service, ask, askMany } = await setUp({ workers: 2, concurrency: 8 });
  service.behave('down', 20);
  const ends = await askMany(32);
  expect(ends.map(({ status }) => status)).toContain('circuit_open');
  for (const { status, error } of ends) if (status !== 'circuit_open') expect(error?.code).toBe('HTTP_503');
  await letTimePass(fleet);
  service.behave('up');
  await eventually(async () => (await ask()).status === 'success', { what: 'the first probe' });
  expect(await ask()).toMatchObject({ status: 'success', attempts: 1 });
  expect(statuses(await askMany(32))).toEqual(['success']);
});

test('one call after the other, exactly 5 failures reach the service; a killed probe frees the circuit when its lease ends (TR-8, TR-9)', async () => {
  const { fleet, service, ask, askMany } = await setUp({ workers: 3, lockDurationMs: SHORT_LOCK_MS });
  const results = await takeDown(fleet, service, ask);
  expect(service.visits).toHaveLength(FAILURES_TO_OPEN);
  expect(results.map(({ status, attempts }) => `${status} ${attempts}`)).toEqual([
    'retry_exhausted 4',
    'retriable_error 1',
  ]);

  await letTimePass(fleet);
  service.forget();
  service.behave('hold');
  const held = await eventually(async () => {
    const submission = await fleet.session.submit('ask_or_refuse', { url: service.url });
    return submission.kind === 'pending' && submission;
  });
  const probe = await eventually(() => service.visits[0]);
  await fleet.workerOf(probe.pid).kill();
  expect(await circuitOf(fleet)).toMatchObject({ state: 'HALF_OPEN' });
  expect(statuses(await askMany(10))).toEqual(['circuit_open']);
  expect(service.visits).toHaveLength(1);

  await letTimePass(fleet);
  service.behave('up');
  await eventually(async () => (await ask()).status === 'success', { what: 'the next probe' });
  await ask();
  expect(await circuitOf(fleet)).toMatchObject({ state: 'CLOSED' });
  expect(['success', 'circuit_open']).toContain((await held.result).status);
});

test('an operator forces a circuit open, and only a reset ends that; a tool that parks waits for it without spending an attempt (R25)', async () => {
  const { fleet, service, ask, askMany } = await setUp({ workers: 2 });
  await ask();
  service.forget();
  await fleet.pawl.circuits.set('force_open', { tool: 'ask_or_refuse' });
  const refused = await eventually(async () => {
    const result = await ask();
    return result.status === 'circuit_open' && result;
  });
  expect(refused).toMatchObject({ attempts: 0, error: { breakerState: 'FORCED_OPEN' } });
  service.forget();
  await letTimePass(fleet);
  expect(statuses(await askMany(5))).toEqual(['circuit_open']);
  expect(service.visits).toEqual([]);
  await fleet.pawl.circuits.set('reset', { tool: 'ask_or_refuse' });
  await eventually(async () => (await ask()).status === 'success');
  expect(statuses(await askMany(20))).toEqual(['success']);

  service.forget();
  await fleet.pawl.circuits.set('force_open', { tool: 'ask_or_park' });
  const submission = await fleet.session.submit('ask_or_park', { url: service.url }, { idempotencyKey: 'parked' });
  const job = () => fleet.pawl.read(submission.callId ?? '');
  await eventually(async () => (await delayedJobs(fleet)) === 1, { what: 'the parked job' });
  expect(await job()).toMatchObject({ state: 'inflight', fence: 0, attempts: [] });
  expect(service.visits).toEqual([]);
  // Others are not held up by it.
  expect(await ask()).toMatchObject({ status: 'success' });
  service.forget();
  await fleet.pawl.circuits.set('reset', { tool: 'ask_or_park' });
  expect(await submission.result).toMatchObject({ status: 'success', attempts: 1 });
  expect(service.visits).toHaveLength(1);
});

function delayedJobs({ pawl, world }: Fleet): Promise<number> {
  return pawl.backend.redis.zcard(`${world.prefix}:{system}:system:delayed`);
}
