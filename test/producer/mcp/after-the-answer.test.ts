/** What happens to a call after its request was answered with something else than its result. */
import { PassThrough } from 'node:stream';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { createMcpServer } from '../../../src/producer/mcp/server.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { startRig } from '../http/rig.ts';

test('no progress is notified for a request that was answered, and its call is handed on', async () => {
  const tokens: string[] = [];
  const pay = defineTool({
    name: 'pay',
    version: '1.0.0',
    description: 'Asks a bank for a payment.',
    tier: 'read-only',
    input: z.object({}),
    async run(_params, ctx) {
      tokens.push(await ctx.completionToken());
      return ctx.pending({ expiresInMs: 3_600_000 });
    },
  });
  const { pawl } = await startRig({ tools: [pay] });
  const followed: string[] = [];
  const deps = { pawl, follow: ({ callId }: { callId: string }) => void followed.push(callId) };
  const [input, output] = [new PassThrough(), new PassThrough()];
  const sent: string[] = [];
  output.on('data', (lines) => void sent.push(...String(lines).trim().split('\n')));
  const create = () => createMcpServer(deps, { id: 'stdio', role: 'admin' }, 'stdio-session');
  const connection = serveStdio(create, { transport: new StdioServerTransport(input, output) });
  onTestFinished(() => connection.close());
  const request = async (id: string, method: string, params: object) => {
    input.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    return eventually(() => sent.map((line) => JSON.parse(line)).find((message) => message.id === id));
  };
  const clientInfo = { name: 't', version: '1' };
  await request('open', 'initialize', { protocolVersion: '2025-11-25', capabilities: {}, clientInfo });
  const call = { name: 'pay', arguments: {}, _meta: { progressToken: 'p' } };
  const { result } = await request('call', 'tools/call', call);
  const callId = result._meta['pawl/callId'];
  const arrived = signal();
  onTestFinished(
    pawl.follow(callId, {
      onEvents: (events) => events.some(({ type }) => type === 'progress') && arrived.fire(),
      onEnd() {},
    }),
  );
  await pawl.complete(tokens[0] ?? '', { progress: 1, total: 2 });
  await arrived.promise;
  await request('after', 'ping', {});
  expect(sent.filter((line) => line.includes('notifications/progress'))).toEqual([]);
  expect(followed).toEqual([callId]);
});
