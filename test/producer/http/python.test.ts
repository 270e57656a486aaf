import { execFile, spawnSync } from 'node:child_process';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { Pawl } from '../../../src/producer/client.ts';
import { startHttpServer } from '../../../src/producer/http/server.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { startRig, testTools } from './rig.ts';

const EXAMPLE = fileURLToPath(new URL('../../../examples/quick_start.py', import.meta.url));
const isThere = spawnSync('python3', ['--version']).status === 0;

const python = async (url: string, ...args: string[]) => {
  const env = { ...process.env, PAWL_URL: url };
  return JSON.parse((await promisify(execFile)('python3', [EXAMPLE, ...args], { env })).stdout);
};

test.skipIf(!isThere)('the Python quick start does not wait for a budget that never fills again', async () => {
  const { tools } = testTools();
  const rig = await startRig({ tools });
  await rig.pawl.openSession({ sessionKey: 'python', budget: { calls: 0 } });
  expect(await python(rig.server.url, 'echo', '{"text": "x"}')).toMatchObject({ error: { code: 'BUDGET_EXHAUSTED' } });
});

test.skipIf(!isThere)(
  'the Python quick start gets its result, also from a server that was restarted meanwhile',
  async () => {
    const { tools, started, release } = testTools();
    const rig = await startRig({ tools });
    const { url } = rig.server;
    expect(await python(url, 'echo', '{"text": "x"}', 'k')).toMatchObject({ output: { content: { text: 'x' } } });
    expect(await python(url, 'echo', '{"text": "x"}', 'k')).toMatchObject({ fromCache: true });
    expect(await python(url, 'ecko', '{}')).toMatchObject({ error: { code: 'UNKNOWN_TOOL', suggestions: ['echo'] } });
    const waiting = python(url, 'hold', '{}', 'h');
    await started.promise;
    await rig.server.close();
    await rig.pawl.close();
    const pawl = await Pawl.open({ settings: rig.settings, log: silentLogger, defaultWorkspaceRoot: process.cwd() });
    onTestFinished(() => pawl.close());
    const { settings } = rig;
    const server = await startHttpServer({ pawl, settings, log: silentLogger, port: Number(new URL(url).port) });
    onTestFinished(() => server.close());
    release.fire();
    expect(await waiting).toMatchObject({ status: 'success', output: { content: 'held' } });
  },
);

const PAGE = '<html><body>Bad gateway</body></html>';
const HTML = { 'content-type': 'text/html' };
const JSON_TYPE = { 'content-type': 'application/json' };
/** What a proxy sends in place of the answer of a server that restarts. */
const NO_ANSWERS: Record<string, (response: ServerResponse) => void> = {
  '502': (response) => response.writeHead(502, HTML).end(PAGE),
  '503 without a time': (response) => response.writeHead(503, HTML).end(PAGE),
  '503 with a date': (response) =>
    response.writeHead(503, { ...HTML, 'retry-after': 'Fri, 31 Dec 1999 23:59:59 GMT' }).end(PAGE),
  '504': (response) => response.writeHead(504, HTML).end(PAGE),
  'a refusal that breaks off': (response) => {
    response.writeHead(500, { ...JSON_TYPE, 'content-length': 100 }).write('{"error"', () => response.destroy());
  },
  'a result that breaks off': (response) => {
    response.writeHead(200, { ...JSON_TYPE, 'content-length': 100 }).write('{"status"', () => response.destroy());
  },
  'no HTTP': (response) => response.socket?.end('hello\r\n\r\n'),
};

/** A proxy that answers the first request itself. */
async function openProxy(url: string, answerFirst: (response: ServerResponse) => void): Promise<string> {
  let count = 0;
  const proxy = createServer(async (request, response) => {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    count += 1;
    if (count === 1) return answerFirst(response);
    const headers = { ...JSON_TYPE, 'idempotency-key': String(request.headers['idempotency-key']) };
    const answer = await fetch(url + request.url, { method: 'POST', headers, body: Buffer.concat(parts) });
    response.writeHead(answer.status, JSON_TYPE).end(await answer.text());
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void proxy.close());
  await new Promise((resolve) => proxy.once('listening', resolve));
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

test.skipIf(!isThere).each(Object.entries(NO_ANSWERS))(
  'the Python quick start asks again after %s in place of an answer',
  async (_kind, answerFirst) => {
    const { tools, runs } = testTools();
    const rig = await startRig({ tools });
    const proxy = await openProxy(rig.server.url, answerFirst);
    expect(await python(proxy, 'echo', '{"text": "x"}')).toMatchObject({ output: { content: { text: 'x' } } });
    expect(runs()).toBe(1);
  },
);

test.skipIf(!isThere)('the Python quick start names an address that is not Pawl’s', async () => {
  for (const code of [200, 404]) {
    const proxy = await openProxy('', (response) => response.writeHead(code, HTML).end(PAGE));
    await expect(python(proxy, 'echo', '{}')).rejects.toThrow(`answered ${code} and no JSON`);
  }
});
