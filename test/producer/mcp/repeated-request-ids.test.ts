/** Two requests of one session with the same JSON-RPC ID, as two clients behind one session send them: no answer reaches the other one. */
import { expect, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { signal } from '../../helpers/signal.ts';
import { type Answer, type Rig, startRig } from '../http/rig.ts';

const ACCEPT = { accept: 'application/json, text/event-stream' };

async function openLegacySession(rig: Rig) {
  const post = (json: unknown, headers: Record<string, string> = {}, abort?: AbortSignal): Promise<Answer> =>
    rig.ask('/mcp', { method: 'POST', json, headers: { ...ACCEPT, ...headers }, ...(abort && { signal: abort }) });
  const clientInfo = { name: 'test', version: '1' };
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo };
  const { headers } = await post({ jsonrpc: '2.0', id: 'open', method: 'initialize', params });
  const session = { 'mcp-session-id': headers.get('mcp-session-id') ?? '', 'mcp-protocol-version': '2025-11-25' };
  return (json: unknown, abort?: AbortSignal) => post(json, session, abort);
}

const callOf = (id: string | number, text: string) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'hold', arguments: { text } },
});

function holdingTool() {
  const started = signal();
  const release = signal();
  const tool = defineTool({
    name: 'hold',
    version: '1.0.0',
    description: 'Holds a text.',
    tier: 'read-only',
    input: z.object({ text: z.string() }),
    async run({ text }) {
      if (!text.startsWith('slow')) return { output: text };
      started.fire();
      await release.promise;
      return { output: text };
    },
  });
  return { tool, started, release };
}

test.each([1, 0, 'a', ''])(
  'a request with the ID %j of an open one is refused, and both keep their own',
  async (id) => {
    const { tool, started, release } = holdingTool();
    const post = await openLegacySession(await startRig({ tools: [tool] }));
    const slow = post(callOf(id, 'slow'));
    await started.promise;
    for (const body of [callOf(id, 'other'), [callOf('b', 'other'), callOf(id, 'other')]]) {
      const { status, body: refused } = await post(body);
      expect(status).toBe(400);
      expect(refused).toMatchObject({
        id,
        error: { code: -32_600, message: expect.stringContaining('an ID of its own') },
      });
    }
    const other = typeof id === 'number' ? String(id) : 7;
    expect((await post(callOf(other, 'quick'))).text).toContain('"text":"quick"');
    release.fire();
    expect((await slow).text).toContain('"text":"slow"');
    expect((await post(callOf(id, 'again'))).text).toContain('"text":"again"');
  },
);

test('a batch that repeats an ID is refused before any of it runs', async () => {
  const { tool } = holdingTool();
  const rig = await startRig({ tools: [tool] });
  const post = await openLegacySession(rig);
  const batch = [callOf(1, 'one'), callOf(1, 'two')];
  const { status, body } = await post(batch);
  expect([status, body.id, body.error.code]).toEqual([400, 1, -32_600]);
  expect((await rig.ask('/mcp', { method: 'POST', json: batch, headers: ACCEPT })).body.error.code).toBe(-32_600);
  const { text } = await post([callOf(1, 'one'), callOf(2, 'two')]);
  for (const output of ['one', 'two']) expect(text).toContain(`"text":"${output}"`);
});

test('the ID of a request that was cancelled, or refused by the protocol, is free', async () => {
  const { tool, started, release } = holdingTool();
  const post = await openLegacySession(await startRig({ tools: [tool] }));
  const abort = new AbortController();
  const slow = post(callOf(1, 'slow'), abort.signal).catch(() => undefined);
  await started.promise;
  const params = { requestId: 1 };
  expect((await post({ jsonrpc: '2.0', method: 'notifications/cancelled', params })).status).toBe(202);
  abort.abort();
  await slow;
  expect((await post(callOf(1, 'quick'))).text).toContain('"text":"quick"');
  expect((await post({ ...callOf(2, 'quick'), jsonrpc: '1.0' })).status).toBe(400);
  expect((await post(callOf(2, 'quick'))).text).toContain('"text":"quick"');
  release.fire();
});

test('a stream ends when all of its requests are answered or cancelled', async () => {
  const post = async (tool: ReturnType<typeof holdingTool>['tool']) =>
    openLegacySession(await startRig({ tools: [tool] }));
  const cancel = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } };
  const one = holdingTool();
  const postOne = await post(one.tool);
  const alone = postOne(callOf(1, 'slow'));
  await one.started.promise;
  await postOne(cancel);
  expect((await alone).text).not.toContain('"id":1');
  one.release.fire();

  const two = holdingTool();
  const postTwo = await post(two.tool);
  const batch = postTwo([callOf(1, 'slow'), callOf(2, 'slow, too')]);
  await two.started.promise;
  await postTwo(cancel);
  two.release.fire();
  const { text } = await batch;
  expect(text).toContain('"text":"slow, too"');
  expect(text).not.toContain('"id":1');
});
