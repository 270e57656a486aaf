import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { Pawl } from '../../../../src/producer/client.ts';
import { startHttpServer } from '../../../../src/producer/http/server.ts';
import { silentLogger } from '../../../../src/shared/telemetry/log.ts';
import { defineTool } from '../../../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../../../src/shared/tools/tool.ts';
import { eventually, signal } from '../../../helpers/signal.ts';
import { openEvents } from '../event-stream.ts';
import { type Rig, startRig, testTools } from '../rig.ts';

/** Reports its progress step by step, as the test lets it; its first attempt fails. */
function stepTool() {
  const steps = [signal(), signal(), signal()] as const;
  const tool: AnyTool = defineTool({
    name: 'step',
    version: '1.0.0',
    description: 'Goes step by step.',
    tier: 'read-only',
    input: z.object({}),
    retry: { baseMs: 1, maxDelayMs: 1 },
    async run(_params, ctx) {
      if (ctx.attempt === 1) throw Object.assign(new Error('busy'), { status: 503 });
      for (const [index, step] of steps.entries()) {
        await step.promise;
        ctx.progress({ progress: index + 1, total: steps.length, message: `step ${index + 1}` });
      }
      return { output: 'there' };
    },
  });
  return { tool, steps };
}

async function anotherServer({ settings }: Rig) {
  const pawl = await Pawl.open({ settings, log: silentLogger, defaultWorkspaceRoot: process.cwd() });
  onTestFinished(() => pawl.close());
  const server = await startHttpServer({ pawl, settings, log: silentLogger, port: 0 });
  onTestFinished(() => server.close());
  return server;
}

const types = (events: readonly { readonly type: string }[]) => events.map(({ type }) => type);

describe('/v1/calls/{callId}/events', () => {
  test('streams all events of a call in order, and ends with it', async () => {
    const { tool, steps } = stepTool();
    const { call, server } = await startRig({ tools: [tool] });
    const { callId } = (await call({ tool: 'step', session: 's' }, { wait: 0 })).body;
    const stream = await openEvents(`${server.url}/v1/calls/${callId}/events`);
    expect(stream.status).toBe(200);
    expect(stream.headers.get('content-type')).toContain('text/event-stream');
    for (const [index, step] of steps.entries()) {
      step.fire();
      await eventually(() => stream.events.filter(({ type }) => type === 'progress').length > index);
    }
    await stream.ended;
    expect(types(stream.events)).toEqual([
      'queued',
      'attempt',
      'retrying',
      'attempt',
      'progress',
      'progress',
      'progress',
      'settled',
    ]);
    const [queued, first, retrying, second, , , last, settled] = stream.events.map(({ data }) => data);
    expect(queued).toMatchObject({ callId, tool: 'step', session: 's' });
    expect([first.attempt, second.attempt]).toEqual([1, 2]);
    expect(retrying).toMatchObject({ attempt: 1, reasonCode: 'HTTP_503' });
    expect(last).toEqual({ callId, progress: 3, total: 3, message: 'step 3' });
    expect(settled).toMatchObject({ state: 'done', result: { status: 'success', output: { content: 'there' } } });
    const ids = stream.events.map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
  });

  test('Last-Event-ID resumes after that event, also on a server that has not seen the call', async () => {
    const { tool, steps } = stepTool();
    const rig = await startRig({ tools: [tool] });
    const { callId } = (await rig.call({ tool: 'step', session: 's' }, { wait: 0 })).body;
    const path = `/v1/calls/${callId}/events`;
    const before = await openEvents(rig.server.url + path);
    steps[0].fire();
    const seen = await before.until('progress');
    await rig.server.close();
    await before.ended;
    await rig.pawl.close();
    steps[1].fire();
    const server = await anotherServer(rig);
    const after = await openEvents(server.url + path, seen.id);
    await after.until('progress');
    steps[2].fire();
    await after.ended;
    expect(after.events.map(({ type, data }) => [type, data.progress])).toEqual([
      ['progress', 2],
      ['progress', 3],
      ['settled', undefined],
    ]);
    const everything = await openEvents(server.url + path);
    await everything.ended;
    expect(everything.events).toHaveLength(8);
    const settled = everything.events.at(-1);
    expect((await openEvents(server.url + path, settled?.id)).status).toBe(204);
    const wrong = await openEvents(server.url + path, 'yesterday');
    expect(wrong.status).toBe(400);
  });

  test('progress from before the subscription is sent, too', async () => {
    const { tool, steps } = stepTool();
    const { call, server, pawl } = await startRig({ tools: [tool] });
    const { callId } = (await call({ tool: 'step', session: 's' }, { wait: 0 })).body;
    steps[0].fire();
    await eventually(async () => (await pawl.backend.ledger.progress(callId)).length === 1);
    const stream = await openEvents(`${server.url}/v1/calls/${callId}/events`);
    expect((await stream.until('progress')).data).toMatchObject({ progress: 1 });
    for (const step of steps) step.fire();
    await stream.ended;
    expect(types(stream.events).at(-1)).toBe('settled');
  });

  test('has the approval request of a decided call, and no queued event of a denied one', async () => {
    const tool = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Pays.',
      tier: 'elevated',
      input: z.object({}),
      run: () => ({ output: 'paid' }),
    });
    const { call, ask, server } = await startRig({ tools: [tool], tiers: ['elevated'] });
    const post = (path: string, json: object) => ask(path, { method: 'POST', json });
    const { sessionKey } = (await post('/v1/sessions', { channel: { kind: 'operator' } })).body;
    const told = async (decision: 'approve' | 'deny') => {
      const { callId } = (await call({ tool: 'pay', session: sessionKey, idempotencyKey: decision }, { wait: 0 })).body;
      const { id, digest } = (await ask(`/v1/approvals/${callId}`)).body;
      expect((await post(`/v1/approvals/${id}`, { decision, digest })).status).toBe(200);
      await ask(`/v1/calls/${callId}?wait=60000`);
      const stream = await openEvents(`${server.url}/v1/calls/${callId}/events`);
      await stream.ended;
      return types(stream.events);
    };
    expect(await told('approve')).toEqual(['approval-requested', 'queued', 'attempt', 'settled']);
    expect(await told('deny')).toEqual(['approval-requested', 'settled']);
  });

  test('is refused for an unknown or foreign call, and ends at once for HEAD', async () => {
    const { tools } = testTools();
    const apiTokens = [
      { token: 'token-of-acme', role: 'agent' as const, tenantId: 'acme' },
      { token: 'token-of-other', role: 'agent' as const, tenantId: 'other' },
    ];
    const { call, ask, server } = await startRig({ tools, settings: { apiTokens } });
    const json = { tool: 'echo', params: { text: 'x' }, session: 's' };
    const { callId } = (await call(json, { token: 'token-of-acme' })).body;
    const path = `/v1/calls/${callId}/events`;
    expect((await ask(path)).status).toBe(401);
    expect((await ask(path, { token: 'token-of-other' })).status).toBe(404);
    expect((await ask(path, { token: 'token-of-acme', method: 'HEAD' })).status).toBe(200);
    const stream = await openEvents(server.url + path, undefined, 'token-of-acme');
    await stream.ended;
    expect(types(stream.events)).toEqual(['queued', 'attempt', 'settled']);
  });

  test('80 followers of 16 calls on one server all hear everything, and leave nothing behind', async () => {
    const { tools, release } = testTools();
    const { call, server, pawl, ask } = await startRig({ tools });
    const calls = await Promise.all(
      Array.from({ length: 16 }, (_, index) => call({ tool: 'hold', session: `s${index}` }, { wait: 0 })),
    );
    const streams = await Promise.all(
      Array.from({ length: 80 }, (_, index) =>
        openEvents(`${server.url}/v1/calls/${calls[index % calls.length]?.body.callId}/events`),
      ),
    );
    await Promise.all(streams.map((stream) => stream.until('queued')));
    expect((await ask('/healthz')).status).toBe(200);
    release.fire();
    await Promise.all(streams.map(({ ended }) => ended));
    for (const { events } of streams) expect(types(events)).toEqual(['queued', 'attempt', 'settled']);
    expect(await pawl.calls.backlog()).toBe(0);
  });
});

test('a server that is closed in the middle of a wait loses no result: the same key finds it at the next', async () => {
  const { tools, started, release } = testTools();
  const rig = await startRig({ tools });
  const json = { tool: 'hold', session: 's', idempotencyKey: 'k' };
  const waiting = rig.call(json, { wait: 60_000 });
  await started.promise;
  await rig.server.close();
  const { status, body } = await waiting;
  expect([status, body.state]).toEqual([202, 'inflight']);
  const next = await anotherServer(rig);
  const joined = fetch(`${next.url}/v1/calls?wait=60000`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(json),
  });
  const looked = fetch(`${next.url}/v1/calls/${body.callId}?wait=60000`);
  release.fire();
  expect(await (await joined).json()).toMatchObject({ callId: body.callId, output: { content: 'held' } });
  expect(await (await looked).json()).toMatchObject({ state: 'done', result: { output: { content: 'held' } } });
});

describe('Idempotency-Key', () => {
  test('is the caller’s key: a quoted or a bare one names the same call, and other parameters are 422', async () => {
    const { tools, runs } = testTools();
    const { call } = await startRig({ tools });
    const json = (text: string) => ({ tool: 'echo', params: { text }, session: 's' });
    const first = await call(json('x'), { headers: { 'idempotency-key': '"trip 1"' } });
    const again = await call(json('x'), { headers: { 'idempotency-key': 'trip 1' } });
    const named = await call({ ...json('x'), idempotencyKey: 'trip 1' });
    expect([first, again, named].map(({ body }) => body.fromCache)).toEqual([false, true, true]);
    expect(runs()).toBe(1);
    const other = await call(json('y'), { headers: { 'idempotency-key': '"trip 1"' } });
    expect([other.status, other.body.error.code]).toEqual([422, 'IDEMPOTENCY_CONFLICT']);
  });

  test('that differs from the body’s, or is none, is 400', async () => {
    const { call } = await startRig();
    const json = { tool: 'echo', session: 's', idempotencyKey: 'a' };
    for (const key of ['"b"', '""', 'x'.repeat(1_025)]) {
      const { status, body } = await call(json, { headers: { 'idempotency-key': key } });
      expect([status, body.error.code], key.slice(0, 5)).toEqual([400, 'CONTRACT_INVALID']);
    }
  });
});
