import { describe, expect, test } from 'vitest';
import { declaredToolRecord, type RegistryRecord } from '../../../../src/shared/connectors/declared-tool.ts';
import { Signer } from '../../../../src/shared/signing/signature.ts';
import { Signatures } from '../../../../src/shared/signing/signatures.ts';
import {
  DeclaredToolCopy,
  DeclaredToolRecords,
  MAX_REVISIONS,
} from '../../../../src/shared/store/connectors/declared-tools.ts';
import { FleetKeys } from '../../../../src/shared/store/redis/keys.ts';
import { cpuMsOf } from '../../../helpers/cpu.ts';
import { openBooks } from '../calls.ts';

const record = async (revision: number, change: object = {}, name = 'weather') => {
  const made = await declaredToolRecord(
    {
      kind: 'http',
      version: '1.0.0',
      description: 'Current weather.',
      inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      routing: { method: 'GET', url: 'https://weather.example.com/{city}' },
      ...change,
    },
    { name, namespace: 'tools', revision, updatedAtMs: 1, updatedBy: 'test' },
  );
  return made.record;
};

async function open() {
  const { redis, world } = await openBooks();
  const signatures = new Signatures(new Signer([{ kid: 'k', key: 'a key of this fleet alone' }]));
  return {
    specs: new DeclaredToolRecords(redis, world.prefix, signatures),
    redis,
    world,
    keys: new FleetKeys(world.prefix),
  };
}

test.each([
  ['circuit.targetParameter', { circuit: { targetParameter: 'town' } }],
  ['budget.costs[0].when', { budget: { costs: [{ when: { town: 'Paris' }, costUnits: 2 }] } }],
  ['routing.bodyFrom', { routing: { method: 'POST', bodyFrom: 'town' } }],
  ['routing.arguments.town', { routing: { method: 'GET', arguments: { town: { in: 'query' } } } }],
  ['routing.url', { routing: { method: 'GET', url: 'https://weather.example.com/{town}' } }],
  ['routing.query.q', { routing: { method: 'GET', query: { q: '{city} {town}' } } }],
  ['routing.headers.x-place', { routing: { method: 'GET', headers: { 'x-place': '{town}' } } }],
])('a declaration whose %s names no parameter is refused with those that there are', async (path, change) => {
  const routing = {
    url: 'https://weather.example.com/',
    ...((change as { routing?: object }).routing ?? { method: 'GET' }),
  };
  await expect(record(1, { ...change, routing })).rejects.toMatchObject({
    code: 'CONTRACT_INVALID',
    issues: [{ path, message: expect.stringMatching(/one of the parameters: city; got "town"/) }],
  });
  expect(await record(1, { ...change, routing, inputSchema: { type: 'object' } })).toMatchObject({ kind: 'http' });
});

describe('the registry in Redis (I7)', () => {
  test('a revision is written only over the one that its writer saw', async () => {
    const { specs } = await open();
    const writers = await Promise.all(
      ['one', 'two', 'three'].map(async (description) => specs.write(await record(1, { description }), 0)),
    );
    expect(writers.map(({ kind }) => kind).sort()).toEqual(['changed', 'changed', 'written']);
    expect(await specs.write(await record(3), 2)).toEqual({ kind: 'changed', revision: 1 });
    expect(await specs.write(await record(2, { version: '2.0.0' }), 1)).toEqual({ kind: 'written' });
    expect(await specs.read('tools.weather')).toEqual(await record(2, { version: '2.0.0' }));
    expect((await specs.history('tools.weather')).map(({ revision }) => revision)).toEqual([2, 1]);
  });

  test('a copy reads what changed, and nothing else; after a loss of Redis it begins again', async () => {
    const { specs, redis, keys } = await open();
    const told: [string, number | undefined][] = [];
    const copy = new DeclaredToolCopy(specs, (tool, changed) => told.push([tool, changed?.revision]));
    for (const name of ['a', 'b', 'c']) await specs.write(await record(1, {}, name), 0);
    await copy.catchUp();
    expect([...copy.all()].map(({ name }) => name)).toEqual(['a', 'b', 'c']);
    told.length = 0;
    await specs.write(await record(2, { enabled: false }, 'b'), 1);
    await Promise.all([copy.catchUp(), copy.catchUp(), copy.catchUp()]);
    expect(told).toEqual([['tools.b', 2]]);
    expect(copy.toolPolicyFor({ namespace: 'tools', name: 'b' })).toMatchObject({ enabled: false });
    await redis.del(keys.specs, keys.declaredToolChanges, keys.declaredToolSequence);
    await specs.write(await record(1, {}, 'd'), 0);
    await copy.catchUp();
    expect([...copy.all()].map(({ name }) => name)).toEqual(['d']);
  });

  test('what was asked for while a copy reads is in what comes next', async () => {
    const { specs } = await open();
    const copy = new DeclaredToolCopy(specs);
    const first = copy.catchUp();
    await specs.write(await record(1), 0);
    await copy.catchUp();
    expect(copy.get('tools.weather')?.revision).toBe(1);
    await first;
  });

  test('a record that no key signed, or that was signed for another tool, is not found', async () => {
    const { specs, redis, keys } = await open();
    await specs.write(await record(1), 0);
    const stored = (await redis.hget(keys.specs, 'tools.weather')) ?? '';
    await redis.hset(keys.specs, 'tools.weather', stored.replace('weather.example.com', 'evil.example.com'));
    expect(await specs.read('tools.weather')).toBeUndefined();
    await redis.hset(keys.specs, 'tools.other', stored);
    expect(await specs.read('tools.other')).toBeUndefined();
    expect(await specs.revision('tools.weather')).toBe(1);
  });

  test('keeps a bounded history, in which a definition is found as long as it is there', async () => {
    const { specs } = await open();
    const first = await record(1);
    for (let revision = 1; revision <= MAX_REVISIONS + 1; revision += 1)
      await specs.write(await record(revision, revision === 1 ? {} : { description: `no. ${revision}` }), revision - 1);
    expect(await specs.history('tools.weather')).toHaveLength(MAX_REVISIONS);
    expect(await specs.withDefinition('tools.weather', first.definition)).toBeUndefined();
    const kept = await record(2, { description: 'no. 2' });
    expect(await specs.withDefinition('tools.weather', kept.definition)).toEqual(kept);
  });

  test('3,000 declared tools are copied in well under a second, and their schemas left alone (I7)', async () => {
    const { specs, redis, keys } = await open();
    const pipeline = redis.pipeline();
    const signatures = new Signatures(new Signer([{ kid: 'k', key: 'a key of this fleet alone' }]));
    const base = await record(1);
    for (let number = 1; number <= 3_000; number += 1) {
      const made: RegistryRecord = { ...base, name: `tool_${number}` };
      const text = JSON.stringify(made);
      const tool = `tools.tool_${number}`;
      pipeline
        .hset(keys.specs, tool, `1 ${signatures.sign('spec', tool, text)} ${text}`)
        .zadd(keys.declaredToolChanges, number, tool);
    }
    await pipeline.set(keys.declaredToolSequence, 3_000).exec();
    const copy = new DeclaredToolCopy(specs);
    const spentMs = await cpuMsOf(() => copy.catchUp());
    expect([...copy.all()]).toHaveLength(3_000);
    expect(spentMs).toBeLessThan(3_000);
  });
});
