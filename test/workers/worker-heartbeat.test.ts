import { expect, test } from 'vitest';
import { z } from 'zod';
import { Signatures } from '../../src/shared/signing/signatures.ts';
import type { Backend } from '../../src/shared/store/backend.ts';
import { Catalogue, publishedTool } from '../../src/shared/store/fleet/catalogue.ts';
import { FleetKeys } from '../../src/shared/store/redis/keys.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import { WorkerHeartbeat } from '../../src/workers/worker-heartbeat.ts';
import { openBooks } from '../shared/store/calls.ts';

const DAY_MS = 24 * 3_600_000;

/** Workers that offer one version of a tool, each with a definition of its own. */
async function openFleet() {
  const { redis, world, ledger } = await openBooks();
  const catalogue = new Catalogue(redis, world.prefix);
  const backend = {
    catalogue,
    ledger,
    signatures: new Signatures(),
    clock: { ownAheadMs: 0 },
    audit: () => Promise.resolve(),
  } as unknown as Backend;
  let bounded = 0;
  const worker = (workerId: string, description: string) => {
    const tool = defineTool({
      name: 'note',
      version: '1.0.0',
      description,
      tier: 'workspace',
      input: z.object({}),
      run: () => ({ output: null }),
    });
    return new WorkerHeartbeat({
      backend,
      workerId,
      tiers: ['workspace'],
      concurrency: 1,
      log: silentLogger,
      published: [publishedTool(tool, 1)],
      startedAtMs: 1,
      running: () => 0,
      kinds: () => [],
      async boundDelays() {
        bounded += 1;
      },
    });
  };
  const published = async () => (await catalogue.read()).tools.map(({ description }) => description);
  const { tools, workers, workerLoads } = new FleetKeys(world.prefix);
  const lose = () => Promise.all([tools, workers, workerLoads].map((key) => redis.unlink(key)));
  /** What was written before seems to be a day older, as after Redis' clock was set forward. */
  const age = async () => {
    const written = (await catalogue.read()).tools;
    await catalogue.publish(written.map((tool) => ({ ...tool, seenAtMs: tool.seenAtMs - DAY_MS })));
    for (const id of await redis.zrange(workers, '0', '-1')) await redis.zincrby(workers, -DAY_MS, id);
  };
  return { catalogue, worker, published, lose, age, bounded: () => bounded };
}

test('the latest definition of a version stays offered while a worker with an earlier one renews what it offers', async () => {
  const { worker, published } = await openFleet();
  const [old, young] = [worker('old', 'Old.'), worker('young', 'Young.')];
  await old.publish();
  await young.publish();
  expect(await published()).toEqual(['Young.']);
  await old.renewPublished();
  await old.learnPeers();
  expect(await published()).toEqual(['Young.']);
});

test('a definition that no living worker runs any more gives way to the one that they run', async () => {
  const { catalogue, worker, published } = await openFleet();
  const [old, young, twin] = [worker('old', 'Old.'), worker('young', 'Young.'), worker('twin', 'Young.')];
  await old.publish();
  await young.publish();
  await twin.publish();
  await catalogue.leave('young');
  await old.learnPeers();
  expect(await published(), 'its twin still runs it').toEqual(['Young.']);
  await catalogue.leave('twin');
  await old.learnPeers();
  expect(await published()).toEqual(['Old.']);
});

test('a worker that does not say its definitions may run what is offered', async () => {
  const { catalogue, worker, published } = await openFleet();
  const [old, young] = [worker('old', 'Old.'), worker('young', 'Young.')];
  await old.publish();
  await young.publish();
  const {
    definitions: _,
    seenAtMs: __,
    ...record
  } = (await catalogue.read()).workers.find(({ id }) => id === 'young') as NonNullable<
    Awaited<ReturnType<Catalogue['read']>>['workers'][number]
  >;
  await catalogue.beat(record);
  await old.learnPeers();
  expect(await published()).toEqual(['Young.']);
});

test('when Redis has lost the catalogue, the tools are there again with the worker', async () => {
  const { worker, published, lose } = await openFleet();
  const only = worker('only', 'Here.');
  await only.publish();
  await lose();
  expect(await published()).toEqual([]);
  await only.beat();
  expect(await published()).toEqual(['Here.']);
});

test('a worker whose tools seem to have expired, as Redis’ clock was set, publishes them again with its next heartbeat, and bounds the delays', async () => {
  const { worker, published, age, bounded } = await openFleet();
  const only = worker('only', 'Only.');
  await only.publish();
  await age();
  expect(await published()).toEqual([]);
  await only.beat();
  expect([await published(), bounded()]).toEqual([['Only.'], 1]);
  await only.beat();
  expect(bounded()).toBe(1);
});
