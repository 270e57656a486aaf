import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { Catalogue, offerId, offerOf, type WorkerRecord } from '../../../src/shared/store/catalogue.ts';
import { FleetKeys } from '../../../src/shared/store/keys.ts';
import { defineTool } from '../../../src/shared/tool.ts';
import { openBooks } from './calls.ts';

const tool = (change: { readonly version?: string; readonly description?: string } = {}) =>
  defineTool({
    name: 'note',
    version: '1.0.0',
    description: 'Notes a text.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ text: z.string() }),
    run: () => ({ output: null }),
    ...change,
  });

const worker = (id: string, tools: readonly string[] = []): WorkerRecord => ({
  id,
  host: 'here',
  pid: 1,
  tiers: ['workspace'],
  concurrency: 4,
  running: 0,
  tools,
  startedAtMs: 1,
  pawlVersion: '0.1.0',
});

async function openCatalogue() {
  const { redis, world, ledger } = await openBooks();
  return { catalogue: new Catalogue(redis, world.prefix), redis, ledger, keys: new FleetKeys(world.prefix) };
}

describe('what workers publish', () => {
  test('an offer says all that a producer needs, and its digest names the definition', () => {
    const offer = offerOf(tool(), 5);
    expect(offer).toMatchObject({
      name: 'note',
      namespace: 'tools',
      version: '1.0.0',
      tier: 'workspace',
      effects: 'idempotent',
      inputSchema: { type: 'object' },
      seenAtMs: 5,
    });
    expect(offerOf(tool(), 99).definition).toBe(offer.definition);
    expect(offerOf(tool({ description: 'Other.' }), 5).definition).not.toBe(offer.definition);
    expect(offerId(offer)).toBe('tools.note@1.0.0');
  });

  test('can be read, with the number of living workers that run it', async () => {
    const { catalogue, ledger } = await openCatalogue();
    const offer = offerOf(tool(), await ledger.now());
    expect(await catalogue.publish([offer])).toEqual([]);
    await catalogue.beat(worker('one', [offerId(offer)]));
    await catalogue.beat(worker('two', [offerId(offer)]));
    await catalogue.beat(worker('three'));
    const content = await catalogue.read();
    expect(content.tools).toEqual([{ ...offer, workers: 2 }]);
    expect(content.workers.map(({ id }) => id).sort()).toEqual(['one', 'three', 'two']);
  });

  test('its digest names what it says, whatever somebody without a key wrote into it', async () => {
    const { catalogue, redis, keys, ledger } = await openCatalogue();
    const offer = offerOf(tool(), await ledger.now());
    const forged = { ...offer, effects: 'none', annotations: { readOnlyHint: true } } as const;
    await redis.hset(keys.tools, offerId(offer), JSON.stringify(forged));
    const [read] = (await catalogue.read()).tools;
    expect(read).toMatchObject({ effects: 'none', annotations: { readOnlyHint: true } });
    expect(read?.definition).not.toBe(offer.definition);
    await catalogue.publish([offer]);
    expect((await catalogue.read()).tools).toEqual([{ ...offer, workers: 0 }]);
  });

  test('two definitions of one version have drifted: the second to publish is told', async () => {
    const { catalogue } = await openCatalogue();
    const other = offerOf(tool({ description: 'Other.' }), 1);
    expect(await catalogue.publish([offerOf(tool(), 1), offerOf(tool({ version: '2.0.0' }), 1)])).toEqual([]);
    expect(await catalogue.publish([other])).toEqual([other]);
    expect(await catalogue.publish([])).toEqual([]);
  });

  test('is forgotten a day after the last worker that ran it', async () => {
    const { catalogue, ledger } = await openCatalogue();
    const nowMs = await ledger.now();
    await catalogue.publish([
      offerOf(tool(), nowMs - 23 * 3_600_000),
      offerOf(tool({ version: '0.9.0' }), nowMs - 25 * 3_600_000),
    ]);
    expect((await catalogue.read()).tools.map(({ version }) => version)).toEqual(['1.0.0']);
  });
});

describe('which workers live', () => {
  test('a worker that leaves is gone at once', async () => {
    const { catalogue } = await openCatalogue();
    await catalogue.beat(worker('one'));
    await catalogue.leave('one');
    expect((await catalogue.read()).workers).toEqual([]);
  });

  test('a worker that has been silent does not count, and the next beat of another forgets it', async () => {
    const { catalogue, redis, ledger, keys } = await openCatalogue();
    await catalogue.beat(worker('dead'));
    await redis.zadd(keys.workers, (await ledger.now()) - 16_000, 'dead');
    expect((await catalogue.read()).workers).toEqual([]);
    await catalogue.beat(worker('alive'));
    expect(await redis.hkeys(keys.workerLoads)).toEqual(['alive']);
    expect(await redis.zrange(keys.workers, '0', '-1')).toEqual(['alive']);
  });
});
