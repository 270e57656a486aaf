/** Tools whose target is a parameter: what fails there counts for that target, and not for the tool. */
import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import {
  circuitKey,
  circuitTarget,
  mayUseCircuit,
  targetOfCircuit,
  toolOfCircuit,
} from '../../../src/shared/circuits/circuit-key.ts';
import { PartitionKeys } from '../../../src/shared/store/redis/keys.ts';
import { webFetch } from '../../../src/workers/tools/web-fetch.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

test.each([
  ['https://Example.com/a?b#c', 'example.com'],
  ['https://user:secret@example.com./a', 'example.com'],
  ['http://example.com:8080/a', 'example.com:8080'],
  ['http://[::1]:8080/a', '[::1]:8080'],
  ['https://example.com:443/', 'example.com'],
  ['Example.COM', 'example.com'],
  ['Example.com.:8080', 'example.com:8080'],
  ['docs', 'docs'],
  ['Docs', 'Docs'],
  ['docs/Read.me', 'docs/Read.me'],
  [' a@b c ', 'a_b_c'],
  [`a${'b'.repeat(300)}`, `a${'b'.repeat(259)}`],
  ['', undefined],
  [7, '7'],
  [true, undefined],
  [['https://b.example/x', 'https://a.example/y', 'https://b.example/z'], 'a.example,b.example'],
  [['https://a.example/'], 'a.example'],
  [[7, null], '7'],
  [[], undefined],
  [[{}, true], undefined],
  [null, undefined],
  [{ url: 'https://example.com' }, undefined],
])('of %j the target is %j', (value, target) => {
  expect(circuitTarget(value)).toBe(target);
});

test.each([undefined, 'acme', 'a:b'])(
  'the circuit of a target names its tool and its target, also for the tenant %s',
  (tenantId) => {
    for (const target of ['example.com', '[::1]:8080', 'docs']) {
      const key = circuitKey({ hint: 'tool', tool: 'tools.web_fetch', target, tenantId });
      expect([toolOfCircuit(key), targetOfCircuit(key)]).toEqual(['tools.web_fetch', target]);
      expect(mayUseCircuit(key, 'tools.web_fetch')).toBe(false);
    }
    const own = circuitKey({ hint: 'tool', tool: 'tools.web_fetch', tenantId });
    expect([toolOfCircuit(own), targetOfCircuit(own)]).toEqual(['tools.web_fetch', undefined]);
    expect(
      toolOfCircuit(circuitKey({ hint: 'dependency', tool: 'tools.a', dependency: 'b', target: 'c' })),
    ).toBeUndefined();
  },
);

const OPENS_SOON = { consecutiveFailures: 3 };

test.each([undefined, 'acme'])(
  'a target that fails closes the tool for no other target (tenant %s)',
  async (tenantId) => {
    const { tool, contexts } = scripted(
      'reach',
      (_ctx, { url }) => {
        if (String(url).includes('dead')) throw httpError(503);
        return { output: 'reached' };
      },
      { circuit: { ...OPENS_SOON, targetParameter: 'url' }, retry: { maxAttempts: 1 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    const session = await fleet.pawl.openSession({ actorId: 'ada', ...(tenantId === undefined ? {} : { tenantId }) });
    const reach = (url: unknown) => session.call('reach', { url }, { idempotencyKey: randomUUID() });
    for (const host of ['dead.example', 'dead.example:8080'])
      for (let path = 0; path < OPENS_SOON.consecutiveFailures; path += 1)
        expect((await reach(`https://${host}/${path}`)).error?.code).toBe('HTTP_503');
    const ran = contexts.length;
    for (const host of ['dead.example', 'DEAD.example:8080']) {
      const refused = await reach(`https://${host}/other`);
      expect(refused).toMatchObject({ status: 'circuit_open', error: { code: 'CIRCUIT_OPEN' } });
      expect(refused.error?.message).toContain(host.toLowerCase());
    }
    expect(contexts.length).toBe(ran);
    // Beside them the tool is as it was: for other hosts, and for what names none.
    for (const url of ['https://alive.example/', 'https://dead.example:9090.alive/', 'no address', 5])
      expect((await reach(url)).status).toBe(String(url).includes('dead') ? 'retry_exhausted' : 'success');
    const at = tenantId === undefined ? '' : `@${tenantId}`;
    const open = (await fleet.pawl.circuits.list())
      .filter(({ circuit }) => circuit.state === 'OPEN')
      .map(({ key }) => key);
    expect(open.sort()).toEqual(
      [`tool:tools.reach:dead.example${at}`, `tool:tools.reach:dead.example:8080${at}`].sort(),
    );
  },
);

test('an operator closes all targets of a tool by its name, forces one open by its key, and all by the tool’s own', async () => {
  const { tool } = scripted('reach', () => ({ output: 'reached' }), { circuit: { targetParameter: 'url' } });
  const { pawl, session } = await startFleet({ tools: [tool] });
  const reach = async (url: string) => (await session.call('reach', { url }, { idempotencyKey: randomUUID() })).status;
  const key = 'tool:tools.reach:a.example';
  await pawl.circuits.set('force_open', { key });
  await expect.poll(() => reach('https://a.example')).toBe('circuit_open');
  expect(await reach('https://b.example')).toBe('success');
  await pawl.circuits.set('reset', { tool: 'reach' });
  await expect.poll(() => reach('https://a.example')).toBe('success');
  await pawl.circuits.set('force_open', { tool: 'reach' });
  await expect.poll(() => reach('https://b.example')).toBe('circuit_open');
  expect((await pawl.circuits.list()).map((circuit) => circuit.key).sort()).toEqual(['tool:tools.reach', key]);
});

test('two dead links leave web_fetch to all other pages', async () => {
  const server = createServer((_asked, response) =>
    response.writeHead(200, { 'content-type': 'text/plain' }).end('alive'),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const alive = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  // Nobody listens there.
  const dead = ['127.0.0.1:1', '127.0.0.1:2'];
  const { pawl } = await startFleet({ tools: [webFetch], settings: { allowedHosts: [alive, ...dead] } });
  const session = await pawl.openSession({ actorId: 'ada', tenantId: 'acme' });
  const fetched = (host: string) =>
    session.call('web_fetch', { url: `http://${host}/` }, { idempotencyKey: randomUUID() });
  for (let time = 0; time < 4; time += 1)
    for (const host of dead) expect((await fetched(host)).status).not.toBe('success');
  for (const host of dead) expect((await fetched(host)).status).toBe('circuit_open');
  expect((await fetched(alive)).status).toBe('success');
});

test('a host that redirects is not blamed for dead links behind it, and still for its own failures', async () => {
  const server = createServer(({ url = '', headers }, response) => {
    const [, host] = /^\/to\/(.+)$/.exec(url) ?? [];
    if (host === 'broken')
      response.writeHead(302, { location: `http://localhost:${headers.host?.split(':')[1]}/503` }).end();
    else if (host !== undefined) response.writeHead(302, { location: `http://${host}/` }).end();
    else response.writeHead(url === '/503' ? 503 : 200, { 'content-type': 'text/plain' }).end('said');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  // The server refuses IPv6, which `localhost` may mean first.
  const allowedHosts = [`127.0.0.1:${port}`, `localhost:${port}`, '127.0.0.1:1'];
  const { pawl } = await startFleet({ tools: [webFetch], settings: { allowedHosts } });
  const session = await pawl.openSession({ actorId: 'ada' });
  const fetched = async (path: string) => {
    const url = `http://127.0.0.1:${port}/${path}`;
    return (await session.call('web_fetch', { url }, { idempotencyKey: randomUUID() })).status;
  };
  for (const link of ['to/127.0.0.1:1', 'to/broken'])
    for (let time = 0; time < 4; time += 1) expect(await fetched(link)).toBe('retry_exhausted');
  expect(await fetched('page')).toBe('success');
  for (let time = 0; time < 4; time += 1) expect(await fetched('503')).not.toBe('success');
  expect(await fetched('page')).toBe('circuit_open');
});

test('however many targets fail, the circuits that are kept have a bound, and those that are no targets stay', async () => {
  const { pawl } = await startFleet({ tools: [], workers: 0 });
  const partition = { tier: 'read-only', shard: 0 } as const;
  const { breakers, redis } = pawl.backend;
  const open = { state: 'OPEN', epoch: 1, openedAtMs: 0, cooldownMs: 1, failures: 1, reason: 'why' } as const;
  const closed = { state: 'CLOSED', epoch: 0 } as const;
  const kept = ['tool:tools.a', 'tool:tools.a@acme', 'dependency:b', 'global'];
  for (const key of kept) await breakers.change({ partition, key }, closed, open, 0);
  for (let batch = 0; batch < 25; batch += 1)
    await Promise.all(
      Array.from({ length: 100 }, (_, index) =>
        breakers.change({ partition, key: `tool:tools.a:host-${batch}-${index}` }, closed, open, 0),
      ),
    );
  expect(await redis.hlen(new PartitionKeys(pawl.settings.prefix, partition).circuits)).toBeLessThanOrEqual(2_010);
  const listed = await breakers.list(partition);
  for (const key of kept) expect(listed.has(key)).toBe(true);
});
