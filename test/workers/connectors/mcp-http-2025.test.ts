import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { type ClientRequest, createServer, type ServerResponse } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { pipeline, Readable } from 'node:stream';
import { json } from 'node:stream/consumers';
import type { ReadableStream } from 'node:stream/web';
import { setTimeout as sleep } from 'node:timers/promises';
import { McpServer, WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { contentOf, pending } from '../../helpers/fleet.ts';
import { freePort } from '../../helpers/free-port.ts';
import { startScript } from '../../helpers/process.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { startMcpFleet } from './mcp-rig.ts';
import { connectionTo, tap } from './wiretap.ts';

test('an MCP server over streamable HTTP, of the era 2025-11-25: the official one, killed in the middle of a call (C22)', async () => {
  const folder = dirname(
    createRequire(import.meta.url).resolve('@modelcontextprotocol/server-everything/package.json'),
  );
  const port = await freePort();
  const start = async () => {
    const env = { PORT: String(port) };
    const server = startScript(join(folder, 'dist/index.js'), ['streamableHttp'], { env });
    await server.line('listening on port');
    return server;
  };
  const server = await start();
  const wire = await tap(`http://127.0.0.1:${port}`);
  const fleet = await startMcpFleet({ settings: { allowedHosts: [wire.host] } });
  const outcome = await fleet.bring('everything', connectionTo(wire.url), { readOnly: ['echo'] });
  expect(outcome).toMatchObject({ state: 'declared', resources: true });
  const call = (name: string, params: Record<string, unknown>) =>
    fleet.session.call(name, params, { namespace: 'mcp.everything' });
  expect(contentOf(await call('echo', { message: 'hi' }))).toBe('Echo: hi');
  expect(wire.seen.at(-1)).toMatchObject({ 'mcp-session-id': expect.any(String) });

  const progressed = signal();
  fleet.session.events.on('progress', () => progressed.fire());
  const long = call('trigger-long-running-operation', { duration: 60, steps: 60 });
  await progressed.promise;
  await server.kill();
  expect(await long).toMatchObject({ status: 'retriable_error', attempts: 1, error: { code: 'CONNECTION_RESET' } });
  await start();
  await eventually(async () => contentOf(await call('echo', { message: `again ${Math.random()}` })));
});

const jsonError = (message: string, code = -32_000) => ({ jsonrpc: '2.0', error: { code, message }, id: null });
const NO_SESSION = [400, jsonError('Bad Request: No valid session ID provided')] as const;

/**
 * A hand-written server of the era 2025-11-25 that keeps sessions; `onCall` answers the calls. `forgotten` is its
 * answer to an unknown session: a status and a body, in which an undefined `id` is replaced by the request's.
 */
async function handWritten(
  onCall: (tool: string, id: number, response: ServerResponse) => void,
  forgotten: readonly [status: number, body: object | string] = NO_SESSION,
  onResume?: (response: ServerResponse, event: string) => void,
  wakesAfterMs = 0,
) {
  let calls = 0;
  const sessions = new Set<string>();
  /** Lists of tools that are refused from now on. */
  const refusals: number[] = [];
  const cancelled = signal();
  let awake: Promise<void> | undefined;
  const tools = ['echo', 'break', 'hold'].map((name) => ({ name, inputSchema: { type: 'object' } }));
  const server = createServer(async (asked, response) => {
    awake ??= sleep(wakesAfterMs);
    await awake;
    const answer = (status: number, body?: object | string, headers = {}) =>
      response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
    const event = asked.headers['last-event-id'];
    if (asked.method === 'GET' && event !== undefined && onResume !== undefined)
      return onResume(response, String(event));
    if (asked.method !== 'POST') return answer(405);
    const { id, method, params } = (await json(asked)) as {
      id?: number;
      method: string;
      params: { name: string; protocolVersion: string };
    };
    if (method === 'initialize') {
      const session = `session-${sessions.size}-${Math.random()}`;
      sessions.add(session);
      const serverInfo = { name: 'hand-written', version: '1.0.0' };
      const result = { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo };
      return answer(200, { jsonrpc: '2.0', id, result }, { 'mcp-session-id': session });
    }
    const asksIn = asked.headers['mcp-session-id'];
    if (!sessions.has(String(asksIn))) {
      const [status, body] = asksIn === undefined ? NO_SESSION : forgotten;
      return answer(status, status === 200 && typeof body === 'object' ? { ...body, id } : body);
    }
    if (id === undefined) {
      answer(202);
      if (method === 'notifications/cancelled') cancelled.fire();
      return;
    }
    const refused = method === 'tools/list' ? refusals.shift() : undefined;
    if (refused !== undefined) return answer(refused);
    if (method === 'tools/list') return answer(200, { jsonrpc: '2.0', id, result: { tools } });
    calls += 1;
    if (params.name !== 'echo') return onCall(params.name, id, response);
    return answer(200, { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'echoed' }] } });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const stop = () => {
    server.close();
    server.closeAllConnections();
  };
  onTestFinished(stop);
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const fleet = await startMcpFleet({ settings: { allowedHosts: [host] } });
  await fleet.bring('old', connectionTo(`http://${host}/mcp`));
  const call = (name: string) => fleet.session.call(name, {}, { namespace: 'mcp.old' });
  return { fleet, sessions, refusals, cancelled, stop, call, calls: () => calls };
}

describe('an MCP server over streamable HTTP, of the era 2025-11-25, written by hand', () => {
  test.each(['ends', 'is cut'])('whose stream %s without the answer: a typed error at once', async (how) => {
    const { call } = await handWritten((_tool, _id, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(': hello\n\n', () => (how === 'ends' ? response.end() : response.destroy()));
    });
    expect((await call('break')).error).toMatchObject({ code: 'CONNECTION_RESET' });
    expect(contentOf(await call('echo'))).toBe('echoed');
  });

  test('whose stream is resumed and brings nothing is asked from the same event, less and less often', async () => {
    const events: string[] = [];
    let firstAtMs = 0;
    let id = 0;
    const { call } = await handWritten(
      (_tool, asked, response) => {
        id = asked;
        response.writeHead(200, { 'content-type': 'text/event-stream' }).end('id: first\nretry: 1\ndata:\n\n');
      },
      NO_SESSION,
      (response, event) => {
        events.push(event);
        if (events.length === 1) firstAtMs = performance.now();
        const answered = { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'resumed' }] } };
        const text = events.length < 3 ? ': nothing\n\n' : `data: ${JSON.stringify(answered)}\n\n`;
        response.writeHead(200, { 'content-type': 'text/event-stream' }).end(text);
      },
    );
    expect(contentOf(await call('break'))).toBe('resumed');
    expect(events).toEqual(['first', 'first', 'first']);
    expect(performance.now() - firstAtMs).toBeGreaterThan(2_000);
  });

  test.each([
    'the stream of its own call is cut',
    'the connection of its own call is reset',
    'the session is forgotten',
  ])('answers a call to its end when another one fails because %s', async (how) => {
    const held = signal<() => void>();
    const { sessions, call } = await handWritten((tool, id, response) => {
      if (tool === 'hold') {
        const answered = { jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'held' }] } };
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(': hello\n\n', () =>
          held.fire(() => response.end(`event: message\ndata: ${JSON.stringify(answered)}\n\n`)),
        );
      } else if (how === 'the stream of its own call is cut') {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write(': hello\n\n', () => response.destroy());
      } else response.destroy();
    });
    const holding = call('hold');
    const release = await held.promise;
    if (how === 'the session is forgotten') {
      sessions.clear();
      expect(await call('echo')).toMatchObject({ status: 'success', attempts: 1 });
    } else expect((await call('break')).error).toMatchObject({ code: 'CONNECTION_RESET' });
    expect(contentOf(await call('echo'))).toBe('echoed');
    release();
    expect(contentOf(await holding)).toBe('held');
  });

  test.each(['application/json', 'text/event-stream'])('that answers with more than 32 MiB of %s', async (type) => {
    const { sessions, call } = await handWritten((_tool, id, response) => {
      const result = { content: [{ type: 'text', text: 'x'.repeat(33 * 1_024 * 1_024) }] };
      const answer = JSON.stringify({ jsonrpc: '2.0', id, result });
      response.writeHead(200, { 'content-type': type });
      response.end(type === 'application/json' ? answer : `event: message\ndata: ${answer}\n\n`);
    });
    expect(contentOf(await call('echo'))).toBe('echoed');
    const before = sessions.size;
    expect(await call('break')).toMatchObject({ attempts: 1, error: { code: 'RESULT_TOO_LARGE' } });
    expect(contentOf(await call('echo'))).toBe('echoed');
    expect(sessions.size).toBe(before);
  });

  test('may be silent for as long as the call has time: its connections have no limit of their own', async () => {
    const limits: unknown[] = [];
    const note = (message: unknown) =>
      limits.push((message as { request: ClientRequest }).request.socket?.timeout ?? 0);
    subscribe('http.client.response.finish', note);
    onTestFinished(() => void unsubscribe('http.client.response.finish', note));
    const { call } = await handWritten(() => undefined);
    limits.length = 0;
    expect(contentOf(await call('echo'))).toBe('echoed');
    expect(new Set(limits)).toEqual(new Set([0]));
  });

  test('that has to wake up for its first answer is waited for', async () => {
    const { call } = await handWritten(() => undefined, undefined, undefined, 6_000);
    expect(contentOf(await call('echo'))).toBe('echoed');
  });

  test('that ends the stream of a cancelled call keeps its connection', async () => {
    const [called, ended] = [signal(), signal()];
    let stream: ServerResponse | undefined;
    const { fleet, sessions, cancelled, call } = await handWritten((_tool, _id, response) => {
      stream = response.writeHead(200, { 'content-type': 'text/event-stream' });
      stream.write(': hello\n\n', () => called.fire());
      stream.on('close', () => ended.fire());
    });
    expect(contentOf(await call('echo'))).toBe('echoed');
    const before = sessions.size;
    const { callId } = pending(await fleet.session.submit('break', {}, { namespace: 'mcp.old' }));
    await called.promise;
    await fleet.session.cancel(callId);
    await cancelled.promise;
    stream?.end();
    await ended.promise;
    expect(contentOf(await call('echo'))).toBe('echoed');
    expect(sessions.size).toBe(before);
  });

  test.each<readonly [number, object | string]>([
    NO_SESSION,
    [400, jsonError('Bad Request: Server not initialized')],
    [400, jsonError('Server has not been initialised yet')],
    [400, 'Received request before initialization was complete'],
    [400, jsonError('Bad Request: Mcp-Session-Id header is required')],
    [404, jsonError('Session not found', -32_001)],
    [404, 'Not Found'],
    [410, ''],
    [200, jsonError('Server not initialized')],
    [200, jsonError('Session not initialized', -32_002)],
    [200, jsonError('Session not found', -32_001)],
    [200, jsonError('Session not found')],
    [200, jsonError('Session expired, please reconnect')],
    [200, jsonError('Invalid Request: unknown session', -32_600)],
    [200, jsonError('Please initialize first', -32_002)],
    [401, 'Unauthorized: Session not found'],
    [403, jsonError('Unknown session')],
    [409, 'session closed'],
    [412, 'Mcp-Session-Id unknown'],
    [422, 'Unexpected message, expect initialize request'],
    [200, jsonError('Received request before initialization was complete', -32_600)],
    [401, '{"error":"invalid_session"}'],
    [403, '{"code":"SESSION_EXPIRED"}'],
    [409, '{"error":"mcp_session_not_found"}'],
    [422, '{"error":"session_not_initialized"}'],
    [400, ''],
    [400, jsonError('Bad Request')],
    [400, '<html><title>400 Bad Request</title></html>'],
  ])(
    'that no longer knows the session, and answers %i %j: the call is made once, in a new one',
    async (...forgotten) => {
      const { sessions, call, calls } = await handWritten(() => undefined, forgotten);
      expect(contentOf(await call('echo'))).toBe('echoed');
      sessions.clear();
      expect(await call('echo')).toMatchObject({ status: 'success', attempts: 1 });
      expect(calls()).toBe(2);
      expect(sessions.size).toBe(1);
    },
  );

  test.each([
    [400, 'the parameter city is missing'],
    [401, 'your login has expired'],
    [403, 'this tool may not be used in your session'],
    [403, '{"error":"session_not_allowed"}'],
    [409, 'another session holds the file'],
  ])(
    'that refuses a request of a session which it knows with %i says why, and keeps the session',
    async (status, why) => {
      const { sessions, call } = await handWritten((_tool, _id, response) => {
        response.writeHead(status, { 'content-type': 'text/plain' }).end(why);
      });
      const before = sessions.size;
      const { error, attempts } = await call('break');
      expect(error).toMatchObject({ code: `HTTP_${status}`, message: expect.stringContaining(why) });
      expect(attempts).toBe(1);
      expect(contentOf(await call('echo'))).toBe('echoed');
      expect(sessions.size).toBe(before + 1);
    },
  );

  test('that refuses a request with a page that never ends is reported by its status', async () => {
    const { call } = await handWritten((_tool, _id, response) => {
      response.writeHead(403, { 'content-type': 'text/plain' }).write('not');
    });
    expect((await call('break')).error).toMatchObject({ code: 'HTTP_403' });
  });

  test('whose tool has an unknown session of its own: the call is not made again, and the next one has a new session', async () => {
    const why = 'The browser was closed: its session has expired';
    const { sessions, call, calls } = await handWritten((_tool, id, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ ...jsonError(why), id }));
    });
    expect(contentOf(await call('echo'))).toBe('echoed');
    expect(await call('break')).toMatchObject({ attempts: 1, error: { code: 'MCP_ERROR' } });
    expect(calls()).toBe(2);
    const before = sessions.size;
    expect(contentOf(await call('echo'))).toBe('echoed');
    expect(sessions.size).toBe(before + 1);
  });

  test.each([400, 500])(
    'that no longer knows the session, and answers %i for another reason: the next call has a new one',
    async (status) => {
      const { sessions, call, calls } = await handWritten(() => undefined, [status, 'it is of no use']);
      expect(contentOf(await call('echo'))).toBe('echoed');
      sessions.clear();
      const { error, attempts } = await call('echo');
      expect(error).toMatchObject({ code: `HTTP_${status}`, message: expect.stringContaining('it is of no use') });
      expect(attempts).toBe(1);
      expect(contentOf(await call('echo'))).toBe('echoed');
      expect([calls(), sessions.size]).toEqual([2, 1]);
    },
  );

  test.each([429, 503])(
    'that answers %i when its tools are listed before a call: the call was not made, and is made later',
    async (status) => {
      const { sessions, refusals, call } = await handWritten(() => undefined);
      expect(contentOf(await call('echo'))).toBe('echoed');
      sessions.clear();
      refusals.push(status);
      expect(await call('echo')).toMatchObject({ status: 'success', attempts: 2 });
    },
  );

  test('that restarts while a call connects to it: the call is made once', async () => {
    const { sessions, call, calls } = await handWritten(() => undefined);
    vi.spyOn(sessions, 'add').mockReturnValueOnce(sessions);
    expect([(await call('echo')).status, calls()]).toEqual(['success', 1]);
  });

  test('that is down and refuses connections: nothing happened, so the call is retried', async () => {
    const { stop, call } = await handWritten(() => undefined);
    expect(contentOf(await call('echo'))).toBe('echoed');
    stop();
    const { attempts, error } = await call('echo');
    expect(error).toMatchObject({ code: 'CONNECTION_REFUSED' });
    expect(attempts).toBeGreaterThan(1);
  });
});

test('a restarted server of the official SDK is initialized again, and each call is made once, also of many at once', async () => {
  let calls = 0;
  /** The server's program creates it at its start. */
  const start = async () => {
    const transport = new WebStandardStreamableHTTPServerTransport({ sessionIdGenerator: () => crypto.randomUUID() });
    const server = new McpServer({ name: 'official', version: '1.0.0' });
    server.registerTool('echo', { inputSchema: z.object({}) }, () => {
      calls += 1;
      return { content: [{ type: 'text', text: 'echoed' }] };
    });
    await server.connect(transport);
    return transport;
  };
  let running = await start();
  const http = createServer(async (asked, response) => {
    const { method = 'GET', headers, url } = asked;
    const body = method === 'POST' ? { body: JSON.stringify(await json(asked)) } : {};
    const told = new Request(`http://local${url}`, { method, headers: headers as Record<string, string>, ...body });
    const answer = await running.handleRequest(told);
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body === null) response.end();
    else pipeline(Readable.fromWeb(answer.body as ReadableStream), response, () => response.destroy());
  });
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    http.close();
    http.closeAllConnections();
  });
  const host = `127.0.0.1:${(http.address() as AddressInfo).port}`;
  const fleet = await startMcpFleet({ settings: { allowedHosts: [host] } });
  await fleet.bring('official', connectionTo(`http://${host}/mcp`));
  const call = () => fleet.session.call('echo', {}, { namespace: 'mcp.official', idempotencyKey: crypto.randomUUID() });
  // The import has used the first session.
  running = await start();
  expect(await call()).toMatchObject({ status: 'success', attempts: 1 });
  running = await start();
  expect(await call()).toMatchObject({ status: 'success', attempts: 1 });
  expect(calls).toBe(2);
  running = await start();
  const many = await Promise.all(Array.from({ length: 8 }, call));
  expect([calls, many.filter(({ status, attempts }) => status === 'success' && attempts === 1)]).toEqual([10, many]);
});
