import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import type { CapabilityOwner } from '../../../src/shared/tools/capabilities.ts';
import { type MemoryDeps, openMemory } from '../../../src/workers/context/memory.ts';
import { getMemory, memoryForget, memorySearch, memoryStore } from '../../../src/workers/tools/memory.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';

function storeOf(memory: SettingsInput['memory'] = {}, parts: MemoryDeps = {}, dataDir = temporaryFolder()) {
  const opened = openMemory(resolveSettings({ options: { dataDir, memory } }), parts);
  onTestFinished(() => opened.close());
  return {
    of: (owner: Partial<CapabilityOwner> = {}) =>
      opened.open({ callId: 'call', sessionKey: 'session', actorId: 'ada', ...owner }),
    dataDir,
  };
}

const texts = (hits: readonly { readonly text: string }[]) => hits.map(({ text }) => text).toSorted();

describe.each(['sqlite', 'lancedb'] as const)('memory in %s (A24)', (kind) => {
  const store = (memory: SettingsInput['memory'] = {}, parts: MemoryDeps = {}) =>
    storeOf({ ...memory, store: kind }, parts);

  test('finds by full text, with provenance, labels and taint', async () => {
    const memory = store().of({ agentId: 'agent' });
    const { id } = await memory.store('The deploys go out on Tuesdays.', {
      metadata: { project: 'pawl' },
      source: 'https://x.example',
      tainted: true,
    });
    await memory.store('Cats sleep a lot.');
    const [hit, ...others] = await memory.search('deploy Tuesday');
    expect(others).toEqual([]);
    expect(hit).toMatchObject({
      id,
      text: 'The deploys go out on Tuesdays.',
      metadata: { project: 'pawl' },
      tainted: true,
      provenance: {
        sessionKey: 'session',
        actorId: 'ada',
        agentId: 'agent',
        callId: 'call',
        source: 'https://x.example',
      },
    });
    expect(await memory.search('nothing of the kind')).toEqual([]);
  });

  test('a second attempt of a call stores nothing twice, another call does', async () => {
    const { of } = store();
    const first = await of().store('identical text');
    expect(await of().store('identical text')).toEqual(first);
    expect(await of().search('identical')).toHaveLength(1);
    await of({ callId: 'other' }).store('identical text');
    expect(await of().search('identical')).toHaveLength(2);
  });

  test.each([
    ['東京は日本の首都です。とても大きい。', '首都 東京'],
    ['The release is 2D6FEE7aa0b1c2d3e4f5061728394a5b6c7d8e9f.', '2d6fee7aa0b1c2d3e4f5061728394a5b6c7d8e9f'],
    ['To be or not to be.', 'to be or not'],
  ])('finds what full text has no words for: %s', async (text, query) => {
    const { of } = store();
    await of().store(text);
    await of().store('Something else: 大阪, 2d6fee7.');
    await of({ tenantId: 'other' }).store(text);
    expect(texts(await of().search(query))).toEqual([text]);
    expect(await of().search(query, { metadata: { project: 'pawl' } })).toEqual([]);
    expect(await of().search(' ')).toEqual([]);
  });

  test('finds the words of a query in quotation marks, as models write phrases', async () => {
    const memory = store().of();
    await memory.store('The deploys go out on Tuesdays.');
    await memory.store('Cats sleep a lot.');
    for (const query of ['"go out on Tuesdays"', '"deploys"', '"deploys" "Tuesdays"', '"deploys'])
      expect(texts(await memory.search(query))).toEqual(['The deploys go out on Tuesdays.']);
  });

  test('a search for more metadata than a store supports is refused, and one at the limit is answered', async () => {
    const memory = store().of();
    const entries = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`k${at}`, 'v']));
    await memory.store('The cat sat.', { metadata: entries(64) });
    expect(texts(await memory.search('cat', { metadata: entries(64) }))).toEqual(['The cat sat.']);
    await expect(memory.search('cat', { metadata: entries(1_000) })).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  });

  test('no query of a tenant finds records of another', async () => {
    const { of } = store();
    await of({ tenantId: 'a' }).store('secret of a', { metadata: { k: 'v' } });
    await of().store('secret of nobody');
    for (const tenantId of ['b', "a' OR '1'='1", 'a"']) {
      const memory = of({ tenantId });
      for (const query of ['secret', "secret' OR 1=1 --", '*', 'secret OR nobody'])
        expect(await memory.search(query, { metadata: { k: "v' OR '1'='1" } })).toEqual([]);
      expect(await memory.search('secret')).toEqual([]);
    }
    expect(texts(await of({ tenantId: 'a' }).search('secret'))).toEqual(['secret of a']);
  });

  test('labels filter', async () => {
    const memory = store().of();
    await memory.store('tea in green', { metadata: { colour: 'green', drink: 'tea' } });
    await memory.store('tea in black', { metadata: { colour: "bl'ack", drink: 'tea' } });
    expect(texts(await memory.search('tea', { metadata: { colour: "bl'ack" } }))).toEqual(['tea in black']);
    expect(await memory.search('tea', { metadata: { colour: 'green', drink: 'water' } })).toEqual([]);
    expect(await memory.search('tea', { limit: 1 })).toHaveLength(1);
  });

  test('expired records are not found, and free their capacity', async () => {
    let nowMs = 1_000;
    const memory = store({ ttlMs: 100, maxRecords: 2 }, { now: () => nowMs }).of();
    await memory.store('short lived');
    await memory.store('long lived', { ttlMs: 10_000 });
    expect(texts(await memory.search('lived'))).toEqual(['long lived', 'short lived']);
    await expect(memory.store('one too many')).rejects.toMatchObject({ code: 'PRECONDITION_FAILED' });
    nowMs = 1_200;
    expect(texts(await memory.search('lived'))).toEqual(['long lived']);
    await memory.store('lived in the room that was made');
    expect(await memory.search('lived')).toHaveLength(2);
  });

  test('a full memory accepts the replacement of a record: by a second attempt, and by an existing ID', async () => {
    const memory = store({ maxRecords: 2 }).of();
    const first = await memory.store('tea at noon');
    await memory.store('tea at five', { id: "ada's" });
    expect(await memory.store('tea at noon')).toEqual(first);
    await memory.store('tea at six', { id: "ada's" });
    expect(texts(await memory.search('tea'))).toEqual(['tea at noon', 'tea at six']);
    await expect(memory.store('tea at ten')).rejects.toMatchObject({ code: 'PRECONDITION_FAILED' });
  });

  test('a text that is too long is refused', async () => {
    await expect(store({ maxTextBytes: 4 }).of().store('äöü')).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
  });

  test('several processes write at the same time, and nothing is lost', async () => {
    const { of, dataDir } = store();
    const script = fileURLToPath(new URL('../fixtures/store-memories.ts', import.meta.url));
    const marks = ['alpha', 'beta', 'gamma'];
    await Promise.all(marks.map((mark) => promisify(execFile)(process.execPath, [script, dataDir, mark, '8', kind])));
    for (const mark of marks) expect(await of().search(mark, { limit: 50 })).toHaveLength(8);
  });
});

test('without LanceDB the error names the package to install', async () => {
  const load = async () => Promise.reject(new Error("Cannot find package '@lancedb/lancedb'"));
  await expect(storeOf({ store: 'lancedb' }, { load }).of().search('x')).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message: expect.stringContaining('npm install @lancedb/lancedb'),
  });
});

test.each(['sqlite', 'lancedb'] as const)(
  'with an embedding endpoint, texts are found by meaning in %s',
  async (kind) => {
    const vectors: Record<string, number[]> = {
      automobile: [1, 0, 0],
      'a red car': [0.9, 0.1, 0],
      'a green apple': [0, 0.2, 0.9],
    };
    const asked: unknown[] = [];
    const server = createServer(async (request, response) => {
      let body = '';
      for await (const chunk of request) body += String(chunk);
      const { input, model } = JSON.parse(body) as { input: [string]; model: string };
      asked.push([request.url, request.headers.authorization, model]);
      response.end(JSON.stringify({ data: [{ embedding: vectors[input[0]] ?? [0, 0, 1] }] }));
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await new Promise((resolve) => server.once('listening', resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
    const memory = storeOf({ store: kind, embedding: { url, model: 'small', apiKey: 'key' } }).of();
    await memory.store('a red car');
    await memory.store('a green apple');
    expect((await memory.search('automobile'))[0]?.text).toBe('a red car');
    expect(asked[0]).toEqual(['/v1/embeddings', 'Bearer key', 'small']);
  },
);

test('an embedding that breaks off is a broken connection, not an answer in another form', async () => {
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-length': 100 }).write('{"data"', () => response.destroy());
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once('listening', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const memory = storeOf({ store: 'sqlite', embedding: { url, model: 'small' } }).of();
  await expect(memory.store('a red car')).rejects.toMatchObject({ code: 'CONNECTION_RESET' });
});

describe('the tools (A16)', () => {
  test('memory_store and memory_search (A12)', async () => {
    const ctx = testContext({ memory: storeOf().of() });
    const stored = await memoryStore.run(
      memoryStore.parse({ text: 'The key is under the mat.', source: 'ada', ttl_days: 1 }),
      ctx,
    );
    expect(stored).toMatchObject({ artifacts: [{ kind: 'memory-record', reference: stored.output.id }] });
    const found = await memorySearch.run(memorySearch.parse({ query: 'key mat' }), ctx);
    expect(found).toMatchObject({
      output: { results: [{ text: 'The key is under the mat.', source: 'ada', tainted: false }] },
      tainted: false,
    });
  });

  test('get_memory loads one entry by its ID, and memory_forget deletes it (C19, I13)', async () => {
    const memory = storeOf();
    const ctx = testContext({ memory: memory.of() });
    const { id } = await memory
      .of()
      .store('It’s Tuesday.', { metadata: { project: 'pawl' }, source: 'web', tainted: true });
    const { id: kept } = await memory.of().store('It’s Wednesday.');
    expect(await getMemory.run({ id }, ctx)).toMatchObject({
      output: { id, text: 'It’s Tuesday.', metadata: { project: 'pawl' }, source: 'web', sessionKey: 'session' },
      tainted: true,
    });
    expect((await memoryForget.run({ id }, ctx)).output).toEqual({ forgotten: true });
    expect((await memoryForget.run({ id }, ctx)).output).toEqual({ forgotten: false });
    await expect(getMemory.run({ id }, ctx)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(texts(await memory.of().search('Tuesday'))).toEqual([]);
    expect((await getMemory.run({ id: kept }, ctx)).output).toMatchObject({ text: 'It’s Wednesday.', tainted: false });
  });

  test('an ID names only what its tenant stored and what has not expired, and a worker session forgets nothing', async () => {
    let now = 1;
    const memory = storeOf({}, { now: () => now });
    const { id } = await memory.of({ tenantId: 'a' }).store('secret of a', { ttlMs: 1_000 });
    for (const other of ['x', "x' OR '1'='1"]) {
      expect(await memory.of().get?.(other === 'x' ? id : other)).toBeUndefined();
      expect(await memory.of().forget?.(other === 'x' ? id : other)).toBe(false);
      expect(await memory.of({ tenantId: 'a' }).forget?.(other)).toBe(false);
    }
    expect(await memory.of({ tenantId: 'a' }).get?.(id)).toMatchObject({ id, text: 'secret of a' });
    const worker = testContext({ kind: 'worker', memory: memory.of({ tenantId: 'a' }) });
    expect((await getMemory.run({ id }, worker)).output.text).toBe('secret of a');
    await expect(memoryForget.run({ id }, worker)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    now += 1_000;
    expect(await memory.of({ tenantId: 'a' }).get?.(id)).toBeUndefined();
  });

  test('a custom memory store without these operations is an error', async () => {
    const own = { search: async () => [], store: async () => ({ id: 'x' }) };
    const ctx = testContext({ memory: own });
    await expect(ctx.memory.get('x')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    await expect(ctx.memory.forget('x')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  test('a worker session searches and does not store (A17, A18)', async () => {
    const ctx = testContext({ kind: 'worker', memory: storeOf().of() });
    expect((await memorySearch.run(memorySearch.parse({ query: 'x' }), ctx)).output.results).toEqual([]);
    await expect(memoryStore.run(memoryStore.parse({ text: 'x' }), ctx)).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
    });
  });
});
