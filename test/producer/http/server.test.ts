import { describe, expect, onTestFinished, test } from 'vitest';
import { openBoard } from '../../../src/cli/processes/bull-board.ts';
import { Pawl } from '../../../src/producer/client.ts';
import { BOARD_PATH, startHttpServer } from '../../../src/producer/http/server.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { startServer } from '../../chaos/server.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { startWire } from '../../helpers/proxy.ts';
import { eventually, within } from '../../helpers/signal.ts';
import { createWorld } from '../../helpers/world.ts';
import { askServer, rawGet, startRig, testTools } from './rig.ts';

const clean = (text: string) => {
  expect(text).not.toMatch(/\.ts\b|node_modules|\/src\/|^\s+at /m);
};

describe('hostile requests', () => {
  test('a body that is too large, not JSON or of another type is refused, and the server continues', async () => {
    const { call, ask, logged } = await startRig(testTools());
    const post = (raw: string, headers = {}) => ask('/v1/calls', { method: 'POST', raw, headers });
    const large = await call({ tool: 'echo', session: 's', params: { text: 'x'.repeat(10_000_000) } });
    expect(large).toMatchObject({ status: 413, body: { error: { code: 'PAYLOAD_TOO_LARGE' } } });
    for (const raw of ['{"tool": ', 'null', '"text"', '{"a":1}}', '\u0000', '{"tool":"echo\u0000"}'])
      expect(await post(raw), raw).toMatchObject({
        status: 400,
        body: { error: { code: 'CONTRACT_INVALID', issues: [{ path: 'body' }] } },
      });
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', ''])
      expect(await post('{"tool":"echo"}', { 'content-type': type }), type).toMatchObject({
        status: 415,
        body: { error: { code: 'UNSUPPORTED_MEDIA_TYPE' } },
      });
    expect((await post('{}', { 'content-type': 'application/json; charset=koi8-r' })).status).toBe(415);
    expect((await ask('/v1/calls', { method: 'POST' })).body.error.issues[0].path).toBe('body');
    expect(logged.filter(({ level }) => level === 'error')).toEqual([]);
    expect((await call({ tool: 'echo', session: 's', params: { text: 'still here' } })).status).toBe(200);
  });

  test('deep JSON, inherited names and NUL are typed errors or work', async () => {
    const { call, ask, logged } = await startRig(testTools());
    for (const [open, close] of [
      ['[', ']'],
      ['{"a":', '}'],
    ] as const) {
      const deep = `${open.repeat(100_000)}1${close.repeat(100_000)}`;
      const answer = await ask('/v1/calls', {
        method: 'POST',
        raw: `{"tool":"echo","session":"s","params":{"text":${deep}}}`,
      });
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'CONTRACT_INVALID' } } });
    }
    const inherited = await ask('/v1/calls', {
      method: 'POST',
      raw: '{"tool":"echo","session":"s","params":{"__proto__":{"text":"x"},"constructor":1}}',
    });
    expect(inherited).toMatchObject({ status: 400, body: { error: { code: 'INVALID_PARAMS' } } });
    const odd = {
      tool: 'echo',
      session: 's\u0000:{}*',
      params: { text: '\u0000\ud83d\ude00' },
      idempotencyKey: 'a\u0000b',
    };
    expect(await call(odd)).toMatchObject({ status: 200, body: { output: { content: { text: odd.params.text } } } });
    expect((await ask(`/v1/sessions/${encodeURIComponent(odd.session)}`)).body.sessionKey).toBe(odd.session);
    expect(await call({ ...odd, tool: '__proto__', idempotencyKey: 'b' })).toMatchObject({ status: 404 });
    expect((await ask('/v1/sessions/%zz')).status).toBe(400);
    expect(logged.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('unknown routes are 404, wrong methods 405 with the allowed ones, and no response reveals files', async () => {
    const { ask } = await startRig();
    for (const path of ['/v1', '/v1/nothing', '/v1/calls/a/b/c', '/V2/calls', '/..%2f..%2fetc/passwd']) {
      const answer = await ask(path);
      expect(answer, path).toMatchObject({ status: 404, body: { error: { code: 'NOT_FOUND' } } });
      clean(answer.text);
    }
    for (const [method, path, allowed] of [
      ['PUT', '/v1/calls', 'POST, GET, HEAD'],
      ['OPTIONS', '/v1/calls', 'POST, GET, HEAD'],
      ['POST', '/v1/sessions/x', 'GET, HEAD, PATCH, DELETE'],
      ['POST', '/healthz', 'GET, HEAD'],
      ['DELETE', '/debug/tool-reliability', 'GET, HEAD, POST'],
      ['GET', '/v1/calls/x/resolution', 'POST'],
    ] as const) {
      const answer = await ask(path, { method });
      expect(answer, `${method} ${path}`).toMatchObject({
        status: 405,
        body: { error: { code: 'METHOD_NOT_ALLOWED' } },
      });
      expect(answer.headers.get('allow')).toBe(allowed);
    }
  });

  test('answers carry headers that keep pages of others out, and no name of the software', async () => {
    const { ask } = await startRig();
    const { headers } = await ask('/healthz');
    expect(headers.get('x-powered-by')).toBeNull();
    expect(headers.get('etag')).toBeNull();
    expect(headers.get('access-control-allow-origin')).toBeNull();
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('content-security-policy')).toContain("default-src 'none'");
  });
});

describe('the address', () => {
  test('without tokens the server binds to loopback only, whatever the settings', async () => {
    const { pawl, settings } = await startRig();
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    for (const host of ['0.0.0.0', '::', '192.168.1.4', 'example.com', '127.evil.example'])
      await expect(startHttpServer({ pawl, settings, log, port: 0, host })).rejects.toMatchObject({
        code: 'CONFIGURATION',
        message: expect.stringContaining('PAWL_API_TOKENS'),
      });
    const open = await startHttpServer({
      pawl,
      settings: { ...settings, apiTokens: [{ token: 'long-enough', role: 'admin' }] },
      log,
      port: 0,
      host: '0.0.0.0',
    });
    expect((await askServer(open.url, '/healthz')).status).toBe(200);
    await open.close();
  });

  test('without tokens no server starts that programs in the sandbox could reach, to approve their own calls', async () => {
    const { pawl, settings } = await startRig();
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    const networked = { ...settings, sandboxNetwork: 'on' } as const;
    await expect(startHttpServer({ pawl, settings: networked, log, port: 0 })).rejects.toMatchObject({
      code: 'CONFIGURATION',
      message: expect.stringContaining('could approve their own calls'),
    });
    const apiTokens = [{ token: 'long-enough', role: 'admin' as const }];
    const server = await startHttpServer({ pawl, settings: { ...networked, apiTokens }, log, port: 0 });
    expect((await askServer(server.url, '/v1/approvals')).status).toBe(401);
    await server.close();
  });

  test('a port that is taken is a CONFIGURATION error that names it', async () => {
    const { pawl, settings, server } = await startRig();
    const port = Number(new URL(server.url).port);
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    await expect(startHttpServer({ pawl, settings, log, port })).rejects.toMatchObject({
      code: 'CONFIGURATION',
      message: expect.stringContaining(String(port)),
    });
  });

  test('without tokens, other host names and origins are refused: DNS rebinding finds nothing', async () => {
    const { server } = await startRig();
    const { port } = new URL(server.url);
    const get = (headers: Record<string, string>) => rawGet(`${server.url}/v1/sessions`, headers);
    for (const host of [`localhost:${port}`, `127.0.0.1:${port}`, `[::1]:${port}`, 'LOCALHOST'])
      expect(await get({ host }), host).toBe(200);
    for (const host of [`evil.example:${port}`, `localhost.evil.example:${port}`, '127.0.0.1.nip.io', '10.0.0.1'])
      expect(await get({ host }), host).toBe(403);
    const host = `localhost:${port}`;
    expect(await get({ host, origin: `http://${host}` })).toBe(200);
    for (const origin of ['http://evil.example', 'null', 'http://localhost:1', `https://${host}`])
      expect(await get({ host, origin }), origin).toBe(403);
  });
});

describe('health and closing', () => {
  test('readyz is 503 while Redis is out of reach, calls are 503 with Retry-After, and both come back', async () => {
    const world = await createWorld();
    const wire = await startWire(world.redisUrl);
    const { ask, call, server } = await startRig({ redisUrl: wire.url });
    expect(await ask('/readyz')).toMatchObject({ status: 200, body: { status: 'ready' } });
    await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 's' } });
    wire.cut();
    const away = await eventually(async () => {
      const answer = await ask('/readyz');
      return answer.status === 503 ? answer : undefined;
    });
    expect(away.body).toEqual({ status: 'not ready', reason: 'redis out of reach' });
    expect((await ask('/healthz')).status).toBe(200);
    for (const answer of [
      await call({ tool: 'echo', session: 'unknown', params: { text: 'x' } }),
      await ask('/v1/calls'),
      await ask('/debug/tool-reliability'),
      await ask('/v1/sessions', { method: 'POST', json: {} }),
    ]) {
      expect(answer).toMatchObject({ status: 503, body: { error: { code: 'BACKEND_UNAVAILABLE' } } });
      expect(answer.headers.get('retry-after')).toBe('1');
      expect(answer.text).not.toMatch(/127\.0\.0\.1|ECONN|retries/);
    }
    const board = await ask('/queues/api/queues');
    expect(board).toMatchObject({ status: 503, body: { error: { code: 'BACKEND_UNAVAILABLE' } } });
    expect((await ask('/metrics')).status).toBe(200);
    wire.heal();
    await eventually(async () => (await ask('/readyz')).status === 200);
    expect((await ask('/v1/calls')).status).toBe(200);
    await server.close();
  }, 40_000);

  test('a Redis that refuses writes is not ready, and the reason does not quote its message', async () => {
    const redis = await startServer(temporaryFolder());
    onTestFinished(() => redis[Symbol.asyncDispose]());
    const { ask, call } = await startRig({ redisUrl: redis.url });
    await ask('/v1/sessions', { method: 'POST', json: { sessionKey: 's' } });
    for (const [setting, value, back, lack] of [
      ['maxmemory', '1', '0', 'redis is full (maxmemory)'],
      ['min-replicas-to-write', '1', '0', 'redis has too few replicas'],
    ] as const) {
      await redis.admin.config('SET', setting, value);
      expect(await ask('/readyz')).toMatchObject({ status: 503, body: { status: 'not ready', reason: lack } });
      for (const answer of [
        await call({ tool: 'echo', session: 'unknown', params: { text: 'x' } }),
        await ask('/v1/sessions', { method: 'POST', json: {} }),
      ])
        expect(answer).toMatchObject({
          status: 503,
          body: { error: { code: 'BACKEND_UNAVAILABLE', message: `The queue accepts no calls: ${lack}.` } },
        });
      await redis.admin.config('SET', setting, back);
      expect((await ask('/readyz')).status).toBe(200);
    }
  }, 40_000);

  test('readyz is 503 within seconds, even if Redis does not answer', async () => {
    const world = await createWorld();
    const wire = await startWire(world.redisUrl);
    const { ask } = await startRig({ redisUrl: wire.url });
    expect((await ask('/readyz')).status).toBe(200);
    wire.silence();
    expect(await within(ask('/readyz'), 8_000, 'an answer')).toMatchObject({ status: 503 });
    expect((await within(ask('/metrics'), 8_000, 'metrics')).status).toBe(200);
  }, 40_000);

  test('a draining server is not ready, accepts no further call, and answers waiting requests with the state of their call', async () => {
    const { tools, started, release } = testTools();
    const { call, ask, server, pawl } = await startRig({ tools });
    const waiting = call({ tool: 'hold', session: 's', idempotencyKey: 'k' });
    await within(started.promise, 30_000, 'the tool');
    server.drain();
    const told = await waiting;
    expect(told).toMatchObject({ status: 202, body: { state: 'inflight', phase: 'running' } });
    expect(told.headers.get('connection')).toBe('close');
    expect(await ask('/readyz')).toMatchObject({ status: 503, body: { reason: 'draining' } });
    expect(await call({ tool: 'fail', session: 's' })).toMatchObject({
      status: 503,
      body: { error: { code: 'BACKEND_UNAVAILABLE' } },
    });
    expect((await ask(`/v1/calls/${told.body.callId}`)).status).toBe(200);
    release.fire();
    expect(await pawl.result(told.body.callId, { waitMs: 5_000 })).toMatchObject({ status: 'success' });
  });

  test('closing ends within seconds despite waiting requests, and closes every connection', async () => {
    const { tools, started } = testTools();
    const { call, server, pawl, board, world } = await startRig({ tools });
    const waiting = call({ tool: 'hold', session: 's' });
    await within(started.promise, 30_000, 'the tool');
    const [answer] = await Promise.all([waiting, within(server.close(), 4_000, 'the end of the server')]);
    expect(answer.status).toBe(202);
    await expect(askServer(server.url, '/healthz')).rejects.toThrow();
    await server.close();
    await board.close();
    await pawl.close();
    await eventually(async () => {
      // The worker is closed later; BullMQ names its blocking connections after the queue.
      const left = (await world.connections()).filter((name) => !/worker|[{]/.test(name));
      expect(left).toEqual([]);
      return true;
    });
  });
});

test('a board whose packages are not installed answers with the command that installs them', async () => {
  const { pawl } = await startRig();
  const { settings } = pawl;
  const { url: redisUrl, shards, redis } = pawl.backend;
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const load = () => Promise.reject(new Error("Cannot find package '@bull-board/api'"));
  const board = openBoard({ settings, redisUrl, redis, shards, basePath: BOARD_PATH, log }, load);
  const server = await startHttpServer({ pawl, settings, log, port: 0, board: board.router });
  onTestFinished(() => server.close());
  const answer = await fetch(`${server.url}/queues`);
  expect(answer.status).toBe(404);
  expect(await answer.json()).toMatchObject({
    error: { code: 'NOT_FOUND', message: expect.stringContaining('npm install @bull-board/api @bull-board/express') },
  });
  await board.close();
});

test('a front door with its board ends although Redis is away', async () => {
  const { pawl: inside, world } = await startRig();
  const wire = await startWire(world.redisUrl);
  const settings = resolveSettings({ options: { redisUrl: wire.url, prefix: inside.settings.prefix } });
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const pawl = await Pawl.open({ settings, log, defaultWorkspaceRoot: process.cwd() });
  const { redis, shards } = pawl.backend;
  const board = openBoard({ settings, redisUrl: wire.url, redis, shards, basePath: BOARD_PATH, log });
  const server = await startHttpServer({ pawl, settings, log, port: 0, board: board.router });
  expect((await askServer(server.url, '/queues/api/queues')).status).toBe(200);
  wire.cut();
  await eventually(async () => (await askServer(server.url, '/readyz')).status === 503);
  const closed = server.close().then(() => board.close());
  await within(
    closed.then(() => pawl.close()),
    60_000,
    'the end of a front door without Redis',
  );
});

test('the settings give host and port when nothing else does', async () => {
  const { pawl } = await startRig();
  const settings = resolveSettings({ options: { httpPort: 0, httpHost: 'localhost', prefix: pawl.settings.prefix } });
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const server = await startHttpServer({ pawl, settings, log });
  expect(server.url).toMatch(/^http:\/\/localhost:\d+$/);
  await server.close();
});
