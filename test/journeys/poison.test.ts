/** @module-tag slow */
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { startServer } from '../chaos/server.ts';
import { temporaryFolder } from '../helpers/context.ts';
import { eventually } from '../helpers/signal.ts';
import { startFleet } from './fixtures/fleet.ts';

/** Soon over; a worker that stands still for longer loses what it runs, which ends well all the same. */
const LOCK_MS = 1_500;

test('a call that kills its workers is quarantined after 3 starts, the last one alone, and the fleet and all other calls live on', async () => {
  const { session, workers, effects, pawl } = await startFleet({ workers: 4, concurrency: 2, lockDurationMs: LOCK_MS });
  const poison = await session.submit('poison', {}, { idempotencyKey: 'poison' });
  const others = Array.from({ length: 60 }, (_, number) =>
    session.call(
      'record_idempotent',
      { label: `other-${number}`, beforeMs: 50 },
      { idempotencyKey: `other-${number}` },
    ),
  );
  const result = await poison.result;
  expect(result).toMatchObject({ status: 'error', error: { code: 'POISONED', retriable: false, terminal: true } });
  expect(result.attempts).toBe(3);
  const starts = effects(poison.callId);
  expect(starts.map(({ fence }) => fence)).toEqual([1, 2, 3]);
  const killed = new Set(starts.map(({ pid }) => pid));
  expect(killed.size).toBe(3);

  const ends = await Promise.all(others);
  expect(ends.filter(({ status }) => status !== 'success')).toEqual([]);
  const living = workers.filter(({ pid }) => !killed.has(pid));
  const { workers: listed } = await eventually(async () => {
    const catalogue = await pawl.catalogue();
    return living.every(({ pid }) => catalogue.workers.some((worker) => worker.pid === pid)) && catalogue;
  });
  expect(listed.length).toBeGreaterThanOrEqual(1);
  const again = await session.call('poison', {}, { idempotencyKey: 'poison' });
  expect(again).toMatchObject({ fromCache: true, error: result.error, callId: poison.callId });
  expect(effects(poison.callId)).toHaveLength(3);
  // Whoever is left still works.
  const runners = await Promise.all(Array.from({ length: 20 }, () => session.call('who_runs', {})));
  for (const { output } of runners) expect(living.map(({ pid }) => pid)).toContain(output?.content);
});

test('calls that only shared a worker with a poisonous one are not quarantined with it', async () => {
  const { session, effects, workers, addWorker } = await startFleet({
    workers: 1,
    concurrency: 16,
    lockDurationMs: LOCK_MS,
  });
  const innocents = await Promise.all(
    Array.from({ length: 5 }, (_, number) =>
      session.submit('record_idempotent', { beforeMs: 300 }, { idempotencyKey: `innocent-${number}` }),
    ),
  );
  await eventually(() => effects().length === innocents.length, { what: 'the begin of all innocents' });
  const poison = await session.submit('poison', {}, { idempotencyKey: 'poison' });
  for (const starts of [1, 2, 3]) {
    await eventually(() => effects(poison.callId).length === starts, { what: `start ${starts} of the poison` });
    await workers.at(-1)?.ended;
    await addWorker();
  }
  expect(await poison.result).toMatchObject({ status: 'error', error: { code: 'POISONED' }, attempts: 3 });
  const ends = await Promise.all(innocents.map(({ result }) => result));
  expect(ends.map(({ status, error }) => error?.code ?? status)).toEqual(innocents.map(() => 'success'));
});

test('a call that was only running in workers that were killed runs alone, and succeeds', async () => {
  const { session, effects, workers, addWorker, gate, pawl } = await startFleet({ lockDurationMs: LOCK_MS });
  const open = gate('open');
  const innocent = await session.submit('record_idempotent', { gate: open.path }, { idempotencyKey: 'innocent' });
  for (const starts of [1, 2, 3, 4]) {
    await eventually(() => effects(innocent.callId).length === starts, { what: `start ${starts}` });
    if (starts === 3) {
      // This one runs it alone, and is stopped: it waits for its call, until it is killed.
      workers.at(-1)?.signal('SIGTERM');
      const isDraining = async () => (await pawl.catalogue()).workers.every(({ draining }) => draining === true);
      await eventually(isDraining, { what: 'the drain' });
    }
    if (starts < 4) await workers.at(-1)?.kill();
    if (starts < 4) await addWorker();
  }
  const other = session.call('record_idempotent', {}, { idempotencyKey: 'other' });
  open.open();
  expect(await innocent.result).toMatchObject({ status: 'success', attempts: 4 });
  expect((await other).status).toBe('success');
  // It had its worker to itself.
  const [end, next] = ['effect', 'begin'].map((phase, at) =>
    effects().find((line) => line.phase === phase && (line.callId === innocent.callId) === (at === 0)),
  );
  expect(next?.mono).toBeGreaterThanOrEqual(end?.mono ?? Number.POSITIVE_INFINITY);
});

test('a call whose worker lives through outages of Redis is not blamed for them', async () => {
  const server = await startServer(join(temporaryFolder(), 'redis'));
  onTestFinished(() => server[Symbol.asyncDispose]());
  const options = { lockDurationMs: LOCK_MS, redisUrl: server.url, env: { LOG_LEVEL: 'warn' } };
  const { session, effects, workers, gate } = await startFleet(options);
  const [worker] = workers;
  const open = gate('open');
  const innocent = await session.submit('record_idempotent', { gate: open.path }, { idempotencyKey: 'innocent' });
  for (const outage of [1, 2, 3]) {
    await eventually(() => effects(innocent.callId).length === outage, { what: `start ${outage}` });
    server.signal('SIGSTOP');
    const gaveUp = () => (worker?.stdout() + (worker?.stderr() ?? '')).split('"lease_lost"').length > outage;
    await eventually(gaveUp, { what: `end ${outage}` });
    server.signal('SIGCONT');
  }
  await eventually(() => effects(innocent.callId).length === 4, { what: 'the last start' });
  open.open();
  expect(await innocent.result).toMatchObject({ status: 'success', attempts: 4 });
});
