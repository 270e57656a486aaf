/** @module-tag slow */
import { expect, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { startFleet } from './fixtures/fleet.ts';

/** Soon over; a worker that stands still for longer loses what it runs, which ends well all the same. */
const LOCK_MS = 1_500;

test('a call that kills its workers is set aside after 2 starts, and the fleet and all other calls live on', {
  timeout: 40_000,
}, async () => {
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
  expect(result.attempts).toBe(2);
  const starts = effects(poison.callId);
  expect(starts.map(({ fence }) => fence)).toEqual([1, 2]);
  const killed = new Set(starts.map(({ pid }) => pid));
  expect(killed.size).toBe(2);

  const ends = await Promise.all(others);
  expect(ends.filter(({ status }) => status !== 'success')).toEqual([]);
  const living = workers.filter(({ pid }) => !killed.has(pid));
  const { workers: listed } = await eventually(async () => {
    const catalogue = await pawl.catalogue();
    return living.every(({ pid }) => catalogue.workers.some((worker) => worker.pid === pid)) && catalogue;
  });
  expect(listed.length).toBeGreaterThanOrEqual(2);
  const again = await session.call('poison', {}, { idempotencyKey: 'poison' });
  expect(again).toMatchObject({ fromCache: true, error: result.error, callId: poison.callId });
  expect(effects(poison.callId)).toHaveLength(2);
  // Whoever is left still works.
  const runners = await Promise.all(Array.from({ length: 20 }, () => session.call('who_runs', {})));
  for (const { output } of runners) expect(living.map(({ pid }) => pid)).toContain(output?.content);
});

test('calls that only shared a worker with a poisonous one are not set aside with it', {
  timeout: 40_000,
}, async () => {
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
  for (const starts of [1, 2]) {
    await eventually(() => effects(poison.callId).length === starts, { what: `start ${starts} of the poison` });
    await workers.at(-1)?.ended;
    await addWorker();
  }
  expect(await poison.result).toMatchObject({ status: 'error', error: { code: 'POISONED' }, attempts: 2 });
  const ends = await Promise.all(innocents.map(({ result }) => result));
  expect(ends.map(({ status, error }) => error?.code ?? status)).toEqual(innocents.map(() => 'success'));
});
