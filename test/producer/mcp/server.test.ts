import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { PassThrough } from 'node:stream';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioServerTransport, serveStdio } from '@modelcontextprotocol/server/stdio';
import express from 'express';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { oldestOfBusiestCaller } from '../../../src/producer/mcp/legacy-sessions.ts';
import { createMcpServer } from '../../../src/producer/mcp/server.ts';
import { sendWhenReady } from '../../../src/producer/mcp/web-response.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { acceptedForm, callerAnswers, elicit } from '../../../src/shared/calls/elicitation.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { eventually, signal, within } from '../../helpers/signal.ts';
import { openReceiver } from '../../workers/callbacks/receiver.ts';
import { type Rig, rawGet, startRig, testTools } from '../http/rig.ts';

const MODERN = '2026-07-28';
const TASKS = 'io.modelcontextprotocol/tasks';
const MODERN_META = {
  'io.modelcontextprotocol/protocolVersion': MODERN,
  'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': { elicitation: {}, extensions: { [TASKS]: {} } },
};

async function connectClient(rig: Rig, era: 'legacy' | 'modern', token?: string): Promise<Client> {
  const client = new Client(
    { name: 'test', version: '1.0.0' },
    { ...(era === 'modern' ? { versionNegotiation: { mode: 'auto' } } : {}), capabilities: { elicitation: {} } },
  );
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  await client.connect(
    new StreamableHTTPClientTransport(new URL(`${rig.server.url}/mcp`), { requestInit: { headers } }),
  );
  onTestFinished(() => client.close());
  return client;
}

/** One request of the newest revision, as it stands on the wire. */
function modern(rig: Rig) {
  let id = 0;
  return async (method: string, params: Record<string, unknown>, headers: Record<string, string> = {}) => {
    id += 1;
    const name = params['name'] ?? params['taskId'];
    const { status, body, text } = await rig.ask('/mcp', {
      method: 'POST',
      headers: {
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': MODERN,
        'mcp-method': method,
        ...(name === undefined ? {} : { 'mcp-name': String(name) }),
        ...headers,
      },
      json: {
        jsonrpc: '2.0',
        id,
        method,
        params: {
          ...params,
          _meta: { ...MODERN_META, ...(params['_meta'] as object | undefined) },
        },
      },
    });
    const answer = body ?? JSON.parse(/^data: (\{.*"id".*\})$/m.exec(text)?.[1] ?? '{}');
    return { status, result: answer.result, error: answer.error };
  };
}

/** Asks for a name, once in a call that takes its time before. */
function askingTool(release?: Promise<void>, question = 'who'): AnyTool {
  return defineTool({
    name: 'asking',
    version: '1.0.0',
    description: 'Asks for a name.',
    tier: 'read-only',
    annotations: { title: 'Asking' },
    input: z.object({ greeting: z.string(), answers: callerAnswers }),
    async run({ greeting, answers }) {
      const name = acceptedForm(answers, question)?.['name'];
      if (typeof name === 'string') return { output: `${greeting}, ${name}, ${String(answers?.state)}` };
      await release;
      const requestedSchema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
      return elicit(
        { [question]: { method: 'elicitation/create', params: { mode: 'form', message: 'Who?', requestedSchema } } },
        'kept',
      );
    },
  });
}

describe.each(['legacy', 'modern'] as const)('the official client, %s era', (era) => {
  test('a closing server accepts no further call, and lets running calls continue', async () => {
    const { tools, started, release } = testTools();
    const rig = await startRig({ tools });
    const client = await connectClient(rig, era);
    client.callTool({ name: 'hold', arguments: {} }).catch(() => undefined);
    await started.promise;
    rig.server.drain();
    const late = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'echo', arguments: { text: 'x' } } };
    const refused = await rig.ask('/mcp', {
      method: 'POST',
      headers: { accept: 'application/json, text/event-stream' },
      json: late,
    });
    expect(refused.text).not.toContain('"text":"x"');
    const { calls } = (await rig.ask('/v1/calls')).body;
    expect(calls).toMatchObject([{ tool: 'hold', state: 'inflight' }]);
    release.fire();
    expect((await rig.pawl.result(calls[0].callId))?.status).toBe('success');
  });

  test('a tool that requires tasks is called directly by a client without tasks', async () => {
    const req = defineTool({
      name: 'req',
      version: '1.0.0',
      description: 'Takes long.',
      tier: 'read-only',
      annotations: { taskSupport: 'required' },
      input: z.object({}),
      run: () => ({ output: 'done' }),
    });
    const client = await connectClient(await startRig({ tools: [req] }), era);
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(['req']);
    if (era === 'legacy') {
      expect(tools[0]?.['execution']).toBeUndefined();
      expect((await client.callTool({ name: 'req', arguments: {} })).content).toEqual([{ type: 'text', text: 'done' }]);
    }
  });

  test('holds results against the declared output: a list declares none, and one that is shown in part is whole there', async () => {
    const common = { version: '1.0.0', description: 'Answers.', tier: 'read-only', input: z.object({}) } as const;
    const items = Array.from({ length: 100 }, (_, index) => `item ${index}`);
    const list = defineTool({ ...common, name: 'list', output: z.array(z.string()), run: () => ({ output: items }) });
    const long = defineTool({
      ...common,
      name: 'long',
      output: z.strictObject({ items: z.array(z.string()), total: z.number() }),
      maxOutputBytes: 200,
      run: () => ({ output: { items, total: items.length } }),
    });
    const block = z.object({ type: z.literal('text'), text: z.string() });
    const blocks = defineTool({
      ...common,
      name: 'blocks',
      output: z.object({ content: z.array(block) }),
      run: () => ({ output: { content: [{ type: 'text' as const, text: 'x' }] } }),
    });
    // Without the flag `u`, with which official clients compile the patterns of all tools at once.
    const odd = defineTool({
      ...common,
      name: 'odd',
      output: z.object({ a: z.string().regex(/^[\w-.]+$/) }),
      run: () => ({ output: { a: 'b' } }),
    });
    const id = '12345678901234567890';
    const digits = defineTool({
      ...common,
      name: 'digits',
      output: z.object({ id: z.number(), name: z.string() }),
      // Tools of connectors keep digits that a number does not hold.
      run: () => ({ output: { id: id as unknown as number, name: id } }),
    });
    const rig = await startRig({ tools: [blocks, digits, list, long, odd] });
    const client = await connectClient(rig, era);
    const { tools } = await client.listTools();
    expect(tools.map(({ name, outputSchema }) => [name, outputSchema?.['type']])).toEqual([
      ['blocks', 'object'],
      ['digits', 'object'],
      ['list', undefined],
      ['long', 'object'],
      ['odd', undefined],
    ]);
    expect(await client.callTool({ name: 'blocks', arguments: {} })).toMatchObject({
      content: [{ type: 'text', text: 'x' }],
      structuredContent: { content: [{ type: 'text', text: 'x' }] },
    });
    const listed = await client.callTool({ name: 'list', arguments: {} });
    expect(listed.content).toEqual([{ type: 'text', text: JSON.stringify(items) }]);
    const { content, structuredContent } = await client.callTool({ name: 'long', arguments: {} });
    expect(content).toEqual([{ type: 'text', text: expect.stringContaining('[cut: 200 of') }]);
    expect(structuredContent).toEqual({ items, total: 100 });
    expect(await client.callTool({ name: 'digits', arguments: {} })).toMatchObject({
      content: [{ type: 'text', text: JSON.stringify({ id, name: id }) }],
      structuredContent: { id: Number(id), name: id },
    });
  });

  test('gets parameters that are a choice as an object, faults once, and a soft failure as an error', async () => {
    const option = (op: string, properties: object) => ({
      type: 'object',
      properties: { op: { const: op }, ...properties },
      required: ['op', ...Object.keys(properties)],
      additionalProperties: false,
    });
    const list = defineUntypedTool({
      name: 'list',
      version: '1.0.0',
      description: 'A list.',
      tier: 'read-only',
      inputSchema: { oneOf: [option('add', { text: { type: 'string' } }), option('clear', {})] },
      run: () => ({ output: { done: false }, success: false }),
    });
    const client = await connectClient(await startRig({ tools: [list] }), era);
    const { tools } = await client.listTools();
    expect(tools[0]?.inputSchema).toEqual({
      type: 'object',
      description: 'Exactly one of: {op: "add", text}; {op: "clear"}.',
      properties: { op: { enum: ['add', 'clear'] }, text: { type: 'string' } },
      required: ['op'],
      additionalProperties: false,
    });
    expect(await client.callTool({ name: 'list', arguments: { op: 'clear' } })).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: '{"done":false}' }],
      structuredContent: { done: false },
    });
    expect((await client.callTool({ name: 'list', arguments: { op: 'add' } })).content).toEqual([
      { type: 'text', text: 'INVALID_PARAMS: The parameters of list are not valid:\n- text: is required and missing' },
    ]);
  });

  test('gets what is almost a result of MCP as any other output, and a resource without contents as a link', async () => {
    const common = { version: '1.0.0', description: 'Answers.', tier: 'read-only', input: z.object({}) } as const;
    const page = { content: [{ type: 'text', value: 'no text of MCP' }] };
    const uri = 'https://example.com/report.pdf';
    const link = { type: 'resource', uri, mimeType: 'application/pdf' } as const;
    const rig = await startRig({
      tools: [
        defineTool({ ...common, name: 'page', run: () => ({ output: page }) }),
        defineTool({ ...common, name: 'report', run: () => ({ output: 'made', content: [link] }) }),
      ],
    });
    const client = await connectClient(rig, era);
    expect((await client.callTool({ name: 'page', arguments: {} })).content).toEqual([
      { type: 'text', text: JSON.stringify(page) },
    ]);
    expect((await client.callTool({ name: 'report', arguments: {} })).content).toEqual([
      { type: 'text', text: 'made' },
      { type: 'resource_link', uri, name: uri, mimeType: 'application/pdf' },
    ]);
  });

  test('lists and calls tools, hears of progress, and gets errors as the specification divides them', async () => {
    const reported = signal();
    const stepper = defineTool({
      name: 'stepper',
      version: '1.0.0',
      description: 'Reports one step.',
      tier: 'read-only',
      input: z.object({}),
      async run(_params, ctx) {
        ctx.progress({ progress: 1, total: 2, message: 'half' });
        await reported.promise;
        return { output: { done: true } };
      },
    });
    const rig = await startRig({ tools: [...testTools().tools, stepper] });
    const client = await connectClient(rig, era);
    expect(client.getNegotiatedProtocolVersion()).toBe(era === 'modern' ? MODERN : '2025-11-25');
    const { tools } = await client.listTools();
    expect(tools.map(({ name }) => name)).toEqual(['acme.far.echo', 'echo', 'fail', 'hold', 'stepper']);
    expect(tools.find(({ name }) => name === 'echo')).toMatchObject({
      inputSchema: { type: 'object', required: ['text'] },
      annotations: { readOnlyHint: false, destructiveHint: true },
    });
    const echoed = await client.callTool({ name: 'echo', arguments: { text: 'hello' } });
    expect(echoed).toMatchObject({ structuredContent: { text: 'hello' }, _meta: { 'pawl/status': 'success' } });
    expect((await client.callTool({ name: 'acme.far.echo', arguments: { text: 'x' } })).content).toEqual([
      { type: 'text', text: 'far x' },
    ]);
    const invalid = await client.callTool({ name: 'echo', arguments: { text: 7 } });
    expect(invalid).toMatchObject({ isError: true, content: [{ text: expect.stringContaining('text') }] });
    expect(await client.callTool({ name: 'fail', arguments: {} })).toMatchObject({
      isError: true,
      content: [{ text: 'NOT_FOUND: it broke' }],
    });
    await expect(client.callTool({ name: 'nothing', arguments: {} })).rejects.toMatchObject({ code: -32_602 });
    const heard: unknown[] = [];
    const stepped = await client.callTool(
      { name: 'stepper', arguments: {} },
      {
        onprogress: (progress) => {
          heard.push(progress);
          reported.fire();
        },
      },
    );
    expect(stepped.structuredContent).toEqual({ done: true });
    expect(heard).toEqual([{ progress: 1, total: 2, message: 'half' }]);
  });

  test('an answer of many large parts leaves no listeners behind', async () => {
    const heard = Array.from({ length: 12 }, () => signal());
    const verbose = defineTool({
      name: 'verbose',
      version: '1.0.0',
      description: 'Reports much.',
      tier: 'read-only',
      input: z.object({}),
      async run(_params, ctx) {
        for (const [progress, { promise }] of heard.entries()) {
          ctx.progress({ progress, message: 'x'.repeat(200_000) });
          await promise;
        }
        return { output: 'said' };
      },
    });
    const warnings: Error[] = [];
    const note = (warning: Error) => void warnings.push(warning);
    process.on('warning', note);
    onTestFinished(() => void process.off('warning', note));
    const client = await connectClient(await startRig({ tools: [verbose] }), era);
    const onprogress = ({ progress }: { readonly progress: number }) => heard[progress]?.fire();
    const result = await client.callTool({ name: 'verbose', arguments: {} }, { onprogress });
    expect(result.content).toEqual([{ type: 'text', text: 'said' }]);
    expect(warnings).toEqual([]);
  });

  test('a tool that asks its caller is called again with the answer, and its state never leaves the ledger', async () => {
    const rig = await startRig({ tools: [askingTool()] });
    const client = await connectClient(rig, era);
    const { tools } = await client.listTools();
    expect(Object.keys(tools[0]?.inputSchema.properties ?? {})).toEqual(['greeting']);
    const { content } = await client.callTool({ name: 'asking', arguments: { greeting: 'Hello' } });
    expect(content).toEqual([{ type: 'text', text: 'Hello, Ada, kept' }]);
  });

  test('a client that takes its request back cancels the call', async () => {
    const { tools, started } = testTools();
    const rig = await startRig({ tools });
    const client = await connectClient(rig, era);
    const abort = new AbortController();
    const call = client.callTool({ name: 'hold', arguments: {} }, { signal: abort.signal });
    await started.promise;
    abort.abort();
    await expect(call).rejects.toThrow();
    await eventually(async () => (await rig.pawl.calls.list())[0]?.state === 'cancelled', { what: 'the cancellation' });
  });

  test('cancelling a request that joined another one’s call does not cancel the call', async () => {
    const { tools, started, release } = testTools();
    const rig = await startRig({ tools });
    const client = await connectClient(rig, era);
    const call = client.callTool({ name: 'hold', arguments: {} });
    await started.promise;
    const abort = new AbortController();
    const joined = client.callTool({ name: 'hold', arguments: {} }, { signal: abort.signal });
    const auditText = async () => JSON.stringify(await rig.pawl.audit());
    await eventually(async () => (await auditText()).includes('"merged"'), { what: 'the joining' });
    abort.abort();
    await expect(joined).rejects.toThrow();
    await client.listTools();
    release.fire();
    expect((await call).isError).toBeFalsy();
  });
});

describe('an elevated call', () => {
  const danger = defineTool({
    name: 'danger',
    version: '1.0.0',
    description: 'Needs a person.',
    tier: 'elevated',
    // However long a busy machine takes for it.
    annotations: { taskSupport: 'forbidden' },
    input: z.object({ what: z.string() }),
    run: ({ what }) => ({ output: `did ${what}` }),
  });

  test.each([
    ['approve', { content: [{ type: 'text', text: 'did x' }] }],
    ['deny', { isError: true }],
  ])('asks the person at a local client, whose %s is final', async (decision, wanted) => {
    const rig = await startRig({ tools: [danger], tiers: ['elevated'] });
    const client = await connectClient(rig, 'modern');
    const shown: string[] = [];
    client.setRequestHandler('elicitation/create', ({ params }) => {
      shown.push(params.message);
      return { action: 'accept', content: { decision } };
    });
    expect(await client.callTool({ name: 'danger', arguments: { what: 'x' } })).toMatchObject(wanted);
    expect(shown).toEqual([expect.stringContaining('Approve danger?')]);
  });

  test('stays pending where the person at a local client closes the question without an answer', async () => {
    const rig = await startRig({ tools: [danger], tiers: ['elevated'] });
    const client = await connectClient(rig, 'modern');
    client.setRequestHandler('elicitation/create', () => ({ action: 'cancel' }));
    const { isError, _meta } = await client.callTool({ name: 'danger', arguments: { what: 'x' } });
    expect({ isError, _meta }).toMatchObject({ isError: true, _meta: { 'pawl/phase': 'awaiting-approval' } });
    const { record } = await rig.pawl.approvals.show(String(_meta?.['pawl/callId']));
    expect(record.state).toBe('pending');
  });

  test('comes back as the hooks behind calls leave it', async () => {
    const hook: Hook = { name: 'hide', afterCall: () => ({ content: 'hidden' }) };
    const rig = await startRig({ tools: [danger], tiers: ['elevated'], hooks: [hook] });
    const client = await connectClient(rig, 'modern');
    client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { decision: 'approve' } }));
    const { content } = await client.callTool({ name: 'danger', arguments: { what: 'x' } });
    expect(content).toEqual([{ type: 'text', text: 'hidden' }]);
  });

  test('of a token is pending: the client learns it at once and when it repeats the request, and others decide', async () => {
    const apiTokens = [{ token: 'an-operator', role: 'operator' as const }];
    const rig = await startRig({ tools: [danger], tiers: ['elevated'], settings: { apiTokens } });
    const ask = modern(rig);
    const call = { name: 'danger', arguments: { what: 'x' } };
    const headers = { authorization: 'Bearer an-operator', 'idempotency-key': 'k' };
    const pending = await ask('tools/call', call, headers);
    expect(pending.result).toMatchObject({ isError: true, _meta: { 'pawl/phase': 'awaiting-approval' } });
    const { record, digest } = await rig.pawl.approvals.show(pending.result._meta['pawl/callId']);
    await rig.pawl.approvals.decide(record.request.id, { decision: 'approve', digest, by: 'somebody else' });
    expect((await ask('tools/call', call, headers)).result.content).toEqual([{ type: 'text', text: 'did x' }]);
  });
});

test('a call that needs a person by policy is reported at once in every tier, also when it is repeated', async () => {
  const settings = {
    policy: { global: { tools: { echo: 'ask' as const } } },
    apiTokens: [{ token: 'an-operator', role: 'operator' as const }],
  };
  const ask = modern(await startRig({ ...testTools(), settings }));
  const call = { name: 'echo', arguments: { text: 'x' } };
  const headers = { authorization: 'Bearer an-operator', 'idempotency-key': 'k' };
  for (const time of ['the first', 'the second']) {
    const { result } = await within(ask('tools/call', call, headers), 20_000, `${time} answer`);
    expect(result._meta, time).toMatchObject({ 'pawl/phase': 'awaiting-approval' });
  }
});

describe('/mcp', () => {
  test('the same key is the same call, whether it comes in _meta, as a header or as an argument', async () => {
    const { tools, runs } = testTools();
    const own = defineTool({
      name: 'own_key',
      version: '1.0.0',
      description: 'Has a parameter of that name.',
      tier: 'read-only',
      input: z.object({ idempotency_key: z.string() }),
      run: (params) => ({ output: params }),
    });
    const ask = modern(await startRig({ tools: [...tools, own] }));
    const call = { name: 'echo', arguments: { text: 'x' } };
    const first = await ask('tools/call', { ...call, _meta: { 'pawl/idempotencyKey': 'k' } });
    const again = await ask('tools/call', call, { 'idempotency-key': '"k"' });
    expect(first.result._meta).toMatchObject({ 'pawl/fromCache': false });
    expect(again.result._meta).toMatchObject({
      'pawl/fromCache': true,
      'pawl/callId': first.result._meta['pawl/callId'],
    });
    const argument = { name: 'echo', arguments: { text: 'x', idempotency_key: 'k' } };
    for (const headers of [{}, { 'idempotency-key': 'k' }])
      expect((await ask('tools/call', argument, headers)).result).toMatchObject({
        structuredContent: { text: 'x' },
        _meta: { 'pawl/callId': first.result._meta['pawl/callId'] },
      });
    expect(runs()).toBe(1);
    for (const [key, headers] of [
      [7, {}],
      ['', {}],
      ['k', { 'idempotency-key': 'other' }],
    ] as const) {
      const call = { name: 'echo', arguments: { text: 'x', idempotency_key: key } };
      expect((await ask('tools/call', call, headers)).error.code).toBe(-32_602);
    }
    const kept = await ask('tools/call', { name: 'own_key', arguments: { idempotency_key: 'mine' } });
    expect(kept.result.structuredContent).toEqual({ idempotency_key: 'mine' });
    const other = await ask('tools/call', { name: 'echo', arguments: { text: 'y' } }, { 'idempotency-key': 'k' });
    expect(other.result).toMatchObject({ isError: true, _meta: { 'pawl/error': { code: 'IDEMPOTENCY_CONFLICT' } } });
  });

  test('reports that a call waits for an outside system, also when it is repeated, and does not cancel it', async () => {
    const tokens: string[] = [];
    const pay = defineTool({
      name: 'pay',
      version: '1.0.0',
      description: 'Asks a bank for a payment.',
      tier: 'workspace',
      effects: 'once',
      input: z.object({}),
      run: (_params, ctx) => {
        tokens.push(ctx.completionToken());
        return ctx.pending({ expiresInMs: 3_600_000 });
      },
    });
    const rig = await startRig({ tools: [pay] });
    const ask = modern(rig);
    const noTasks = { 'io.modelcontextprotocol/clientCapabilities': {} };
    const call = () =>
      ask('tools/call', { name: 'pay', arguments: {}, _meta: { ...noTasks, 'pawl/idempotencyKey': 'k' } });
    for (const _time of ['first', 'again'])
      expect((await call()).result).toMatchObject({
        content: [{ type: 'text', text: expect.stringContaining('waits for an outside system') }],
        _meta: { 'pawl/phase': 'pending', 'pawl/pendingUntilMs': expect.any(Number) },
      });
    const task = await ask('tools/call', { name: 'pay', arguments: {}, _meta: { 'pawl/idempotencyKey': 'k' } });
    expect(task.result).toMatchObject({ resultType: 'task', status: 'working' });
    const state = async () => (await ask('tasks/get', { taskId: task.result.taskId })).result;
    expect(await state()).toMatchObject({ status: 'working', statusMessage: 'waits for an outside system' });
    await rig.pawl.complete(tokens[0] ?? '', { status: 'success', output: 'paid' });
    expect((await call()).result.content).toEqual([{ type: 'text', text: 'paid' }]);
    expect(await state()).toMatchObject({ status: 'completed' });
    expect(tokens).toHaveLength(1);
  });

  test('posts the end of a call to the URL that its request names; a URL that is none is -32602', async () => {
    const { tools } = testTools();
    const rig = await startRig({ tools, settings: { allowedHosts: ['127.0.0.1'] } });
    const ask = modern(rig);
    const receiver = await openReceiver();
    const call = (url: unknown) =>
      ask('tools/call', { name: 'echo', arguments: { text: 'x' }, _meta: { 'pawl/callbackUrl': url } });
    const { result } = await call(receiver.url);
    await eventually(() => receiver.received.length === 1);
    expect(JSON.parse(receiver.received[0]?.body ?? '').data.callId).toBe(result._meta['pawl/callId']);
    expect((await call('nowhere')).error).toMatchObject({
      code: -32_602,
      message: expect.stringContaining('pawl/callbackUrl'),
    });
  });

  test('starts a delayed call at its time, and reports it; the same key gives its result', async () => {
    const { tools, runs } = testTools();
    const rig = await startRig({ tools });
    const ask = modern(rig);
    const noTasks = { 'io.modelcontextprotocol/clientCapabilities': {} };
    const call = (meta: object) =>
      ask('tools/call', { name: 'echo', arguments: { text: 'x' }, _meta: { ...noTasks, ...meta } });
    const startAt = new Date(Date.now() + 3_600_000).toISOString();
    const { result } = await call({ 'pawl/startAt': startAt });
    expect(result._meta).toMatchObject({ 'pawl/phase': 'delayed', 'pawl/startAtMs': Date.parse(startAt) });
    const key = { 'pawl/idempotencyKey': 'later' };
    const soon = await call({ 'pawl/startAfterMs': 700, ...key });
    expect(soon.result).toMatchObject({
      content: [{ type: 'text', text: expect.stringContaining('has not run yet') }],
      _meta: { 'pawl/phase': 'delayed', 'pawl/startAtMs': expect.any(Number) },
    });
    expect(runs()).toBe(0);
    const { 'pawl/callId': callId } = soon.result._meta;
    expect((await rig.ask(`/v1/calls/${callId}?wait=10000`)).body).toMatchObject({ state: 'done' });
    expect((await call(key)).result).toMatchObject({
      structuredContent: { text: 'x' },
      _meta: { 'pawl/callId': callId },
    });
    expect(runs()).toBe(1);
    const task = await ask('tools/call', {
      name: 'echo',
      arguments: { text: 'task' },
      _meta: { 'pawl/startAfterMs': 600_000 },
    });
    expect(task.result).toMatchObject({ resultType: 'task', status: 'working' });
    const { calls } = (await rig.ask('/v1/calls')).body;
    for (const wrong of [
      { 'pawl/startAfterMs': 'soon' },
      { 'pawl/startAfterMs': -1 },
      { 'pawl/startAt': 'tomorrow' },
      { 'pawl/startAfterMs': 5, 'pawl/startAt': startAt },
    ]) {
      const { error } = await call(wrong);
      expect(error).toMatchObject({ code: -32_602, message: expect.stringContaining('_meta["pawl/start') });
    }
    expect((await call({ 'pawl/startAt': '2020-01-01T00:00:00Z' })).result).toMatchObject({ isError: true });
    expect((await rig.ask('/v1/calls')).body.calls).toHaveLength(calls.length);
  });

  test('a long call becomes a task, which any server reports until its end', async () => {
    const { tools, release } = testTools();
    const rig = await startRig({ tools });
    const ask = modern(rig);
    const { result: task } = await ask('tools/call', { name: 'hold', arguments: {} });
    expect(task).toMatchObject({ resultType: 'task', status: 'working', pollIntervalMs: expect.any(Number) });
    const { taskId } = task;
    expect((await ask('tasks/get', { taskId })).result).toMatchObject({ status: 'working', resultType: 'complete' });
    expect(await ask('tasks/get', { taskId }, { 'mcp-name': 'other' })).toMatchObject({
      status: 400,
      error: { code: -32_020 },
    });
    release.fire();
    const done = await eventually(async () => {
      const { result } = await ask('tasks/get', { taskId });
      return result.status === 'completed' && result;
    });
    expect(done.result).toMatchObject({ content: [{ type: 'text', text: 'held' }] });
    expect((await ask('tasks/get', { taskId: 'nothing' })).error).toMatchObject({ code: -32_602 });
    expect((await ask('tasks/result', { taskId }, { 'mcp-name': 'other' })).error).toMatchObject({ code: -32_601 });
  });

  test('results of tasks and full outputs of truncated results pass the hooks after calls', async () => {
    const { tools, release } = testTools();
    const long = defineTool({
      name: 'long',
      version: '1.0.0',
      description: 'Answers.',
      tier: 'read-only',
      input: z.object({}),
      output: z.object({ card: z.string(), rest: z.string() }),
      maxOutputBytes: 200,
      run: () => ({ output: { card: '4711', rest: 'x'.repeat(500) } }),
    });
    const hook: Hook = {
      name: 'hide',
      afterCall: ({ result, tool }) => {
        if (tool.name === 'hold') return { content: 'hidden' };
        return result.status === 'success'
          ? { content: { ...(result.output.content as object), card: '****' } }
          : undefined;
      },
    };
    const ask = modern(await startRig({ tools: [...tools, long], hooks: [hook] }));
    const { taskId } = (await ask('tools/call', { name: 'hold', arguments: {} })).result;
    release.fire();
    const done = await eventually(async () => {
      const { result } = await ask('tasks/get', { taskId });
      return result.status === 'completed' && result;
    });
    expect(done.result).toMatchObject({ content: [{ type: 'text', text: 'hidden' }] });
    const { result } = await ask('tools/call', { name: 'long', arguments: {} });
    expect(result.structuredContent).toEqual({ card: '****', rest: 'x'.repeat(500) });
    expect(JSON.stringify(result)).not.toContain('4711');
  });

  test('a task can ask, be answered and be cancelled', async () => {
    const asks = signal();
    const { tools } = testTools();
    const ask = modern(await startRig({ tools: [askingTool(asks.promise), ...tools] }));
    const { taskId } = (await ask('tools/call', { name: 'asking', arguments: { greeting: 'Hi' } })).result;
    asks.fire();
    const status = async (wanted: string) =>
      eventually(async () => {
        const { result } = await ask('tasks/get', { taskId });
        return result.status === wanted && result;
      });
    expect((await status('input_required')).inputRequests).toHaveProperty('who.method', 'elicitation/create');
    const inputResponses = { who: { action: 'accept', content: { name: 'Bo' } } };
    expect((await ask('tasks/update', { taskId, inputResponses })).result.resultType).toBe('complete');
    expect((await status('completed')).result.content[0].text).toBe('Hi, Bo, kept');
    const held = (await ask('tools/call', { name: 'hold', arguments: {} })).result;
    await ask('tasks/cancel', { taskId: held.taskId });
    await eventually(async () => (await ask('tasks/get', { taskId: held.taskId })).result.status === 'cancelled');
  });

  test('a task asks whatever its question is named', async () => {
    const asks = signal();
    const ask = modern(await startRig({ tools: [askingTool(asks.promise, 'constructor')] }));
    const { taskId } = (await ask('tools/call', { name: 'asking', arguments: { greeting: 'Hi' } })).result;
    asks.fire();
    const status = (wanted: string) =>
      eventually(
        async () => {
          const { result } = await ask('tasks/get', { taskId });
          return result.status === wanted && result;
        },
        { deadlineMs: 10_000 },
      );
    expect(Object.keys((await status('input_required')).inputRequests)).toEqual(['constructor']);
    const inputResponses = { constructor: { action: 'accept', content: { name: 'Bo' } } };
    await ask('tasks/update', { taskId, inputResponses });
    expect((await status('completed')).result.content[0].text).toBe('Hi, Bo, kept');
  });

  test('a writer to Redis without a key neither answers a task nor changes what it calls', async () => {
    const settings = { signingKeys: [{ kid: 'k', key: 'a key of this test alone' }] };
    const asks = signal();
    const rig = await startRig({ tools: [askingTool(asks.promise)], settings });
    const ask = modern(rig);
    const { taskId } = (await ask('tools/call', { name: 'asking', arguments: { greeting: 'Hi' } })).result;
    asks.fire();
    const isAsked = async () => (await ask('tasks/get', { taskId })).result.status === 'input_required';
    await eventually(isAsked);
    const { redis } = rig.pawl.backend;
    const key = new FleetKeys(rig.settings.prefix).task(taskId);
    const answer = JSON.stringify({ action: 'accept', content: { name: 'Mallory' } });
    for (const forged of [answer, ` ${JSON.stringify({ answer })}`]) {
      await redis.hset(key, 'answer:0:who', forged);
      expect(await isAsked()).toBe(true);
    }
    for (const [member, value] of Object.entries(await redis.hgetall(key)))
      await redis.hset(key, member, value.replace('Hi', 'Bye'));
    const inputResponses = { who: { action: 'accept', content: { name: 'Bo' } } };
    expect((await ask('tasks/update', { taskId, inputResponses })).error).toMatchObject({ code: -32_602 });
    expect((await rig.ask('/v1/calls')).body.calls).toHaveLength(1);
  });

  test('a Host header that is none is the client’s affair', async () => {
    const apiTokens = [{ token: 'token-of-agent', role: 'agent' as const }];
    const { server, logged } = await startRig({ settings: { apiTokens } });
    for (const host of ['a b', '[::', ''])
      expect(await rawGet(`${server.url}/mcp`, { host, authorization: 'Bearer token-of-agent' }), host).toBe(405);
    expect(logged.filter(({ level }) => level === 'error')).toEqual([]);
  });

  test('too many sessions end those of the caller with the most, the least recently used first', () => {
    const sessions = new Map(
      ['quiet', 'loud', 'loud', 'other', 'loud'].map((callerId, at) => [`s${at}`, { callerId }]),
    );
    expect(oldestOfBusiestCaller(sessions)).toBe('s1');
    sessions.delete('s1');
    expect(oldestOfBusiestCaller(sessions)).toBe('s2');
    expect(oldestOfBusiestCaller(new Map())).toBeUndefined();
  });

  test('a token limits what a client sees: tools by session, tasks by tenant, nothing for approvers', async () => {
    const { tools } = testTools();
    const apiTokens = [
      { token: 'token-of-acme', role: 'agent' as const, tenantId: 'acme' },
      { token: 'token-of-other', role: 'agent' as const, tenantId: 'other' },
      { token: 'an-approver', role: 'approver' as const },
    ];
    const rig = await startRig({ tools, settings: { apiTokens } });
    const ask = modern(rig);
    const acme = { authorization: 'Bearer token-of-acme' };
    const json = { kind: 'worker', sessionKey: 'reader' };
    await rig.ask('/v1/sessions', { method: 'POST', token: 'token-of-acme', json });
    const all = await ask('tools/list', {}, acme);
    expect(all.result.tools).toHaveLength(4);
    const reader = await ask('tools/list', { _meta: { 'pawl/session': 'reader' } }, acme);
    expect(reader.result.tools.map(({ name }: { name: string }) => name)).toEqual(['acme.far.echo', 'fail', 'hold']);
    const foreign = await ask('tools/list', {}, { authorization: 'Bearer token-of-other', 'pawl-session': 'reader' });
    expect(foreign.error.code).toBe(-32_602);
    const { taskId } = (await ask('tools/call', { name: 'hold', arguments: {} }, acme)).result;
    expect((await ask('tasks/get', { taskId }, { authorization: 'Bearer token-of-other' })).error.code).toBe(-32_602);
    expect((await ask('tools/list', {})).status).toBe(401);
    expect((await ask('tools/list', {}, { authorization: 'Bearer an-approver' })).status).toBe(403);
    await ask('tasks/cancel', { taskId }, acme);
  });

  test('an invalid message is refused by the protocol’s rules, without details of this server', async () => {
    const rig = await startRig();
    const post = (raw: string, headers: Record<string, string> = {}) =>
      rig.ask('/mcp', { method: 'POST', raw, headers });
    expect(await post('{')).toMatchObject({ status: 400, body: { error: { code: -32_700 } } });
    expect((await post('{}', { 'content-type': 'text/plain' })).status).toBe(415);
    expect((await post('[]')).status).toBe(400);
    expect((await post('{"jsonrpc":"2.0","id":1,"method":"ping"}', { 'mcp-session-id': 'gone' })).status).toBe(404);
    expect((await rig.ask('/mcp')).status).toBe(405);
  });
});

test('I17: the turn that a client names counts to its budget', async () => {
  const rig = await startRig(testTools());
  const json = { sessionKey: 'turns', budget: { perTurn: { calls: 1 } } };
  await rig.ask('/v1/sessions', { method: 'POST', json });
  const call = modern(rig);
  const echo = async (text: string, turn: string, headers: Record<string, string> = {}) => {
    const _meta = { 'pawl/session': 'turns', ...(turn === '' ? {} : { 'pawl/turn': turn }) };
    const { result, error } = await call('tools/call', { name: 'echo', arguments: { text }, _meta }, headers);
    return error?.code ?? result._meta['pawl/error']?.code ?? 'done';
  };
  expect(await echo('a', '1')).toBe('done');
  expect(await echo('b', '1')).toBe('BUDGET_EXHAUSTED');
  expect(await echo('c', '', { 'pawl-turn': '1' })).toBe('BUDGET_EXHAUSTED');
  expect(await echo('d', '2')).toBe('done');
  expect(await echo('e', 'x'.repeat(121))).toBe(-32_602);
});

test('a call continues the trace of its client from `_meta` or a header, and ignores an invalid one', async () => {
  const rig = await startRig(testTools());
  const call = modern(rig);
  const traceOf = async (text: string, traceparent?: string, headers: Record<string, string> = {}) => {
    const _meta = traceparent === undefined ? {} : { traceparent };
    const { result } = await call('tools/call', { name: 'echo', arguments: { text }, _meta }, headers);
    return (await rig.pawl.read(result._meta['pawl/callId']))?.request.envelope.trace.traceparent;
  };
  const traceparent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`;
  expect(await traceOf('a', traceparent)).toBe(traceparent);
  expect(await traceOf('b', undefined, { traceparent })).toBe(traceparent);
  expect(await traceOf('c', 'anything', {})).toBeUndefined();
});

test('MCP clients are refused at a full backlog, as all others are', async () => {
  const { tools, started, release } = testTools();
  const rig = await startRig({ tools, settings: { http: { maxBacklog: 1 } } });
  const call = modern(rig);
  await rig.call({ tool: 'hold', session: 's' }, { wait: 0 });
  await started.promise;
  const echo = async () => (await call('tools/call', { name: 'echo', arguments: { text: 'x' } })).error;
  // The count before the first call still stands for half a second.
  expect(await eventually(echo)).toMatchObject({ code: -32_603, data: { code: 'RATE_LIMITED' } });
  release.fire();
});

test('one key is one call, whether it comes over HTTP or MCP, in a header or in the request', async () => {
  const rig = await startRig(testTools());
  const params = { text: 'x' };
  const call = modern(rig);
  const over = async (more: object, headers: Record<string, string>) => {
    const _meta = { 'pawl/session': 'both', ...more };
    const { result, error } = await call('tools/call', { name: 'echo', arguments: params, _meta }, headers);
    return error ?? result._meta['pawl/callId'];
  };
  for (const [key, header] of [
    ['plain', 'plain'],
    ['a"b', '"a\\"b"'],
  ] as const) {
    const { callId } = (await rig.call({ tool: 'echo', params, session: 'both', idempotencyKey: key })).body;
    expect(await over({ 'pawl/idempotencyKey': key }, {})).toBe(callId);
    expect(await over({}, { 'idempotency-key': header })).toBe(callId);
  }
  expect(await over({ 'pawl/idempotencyKey': 7 }, {})).toMatchObject({ code: -32_602 });
});

test('methods that MCP does not have are refused with those that it has', async () => {
  const { ask } = await startRig(testTools());
  const refused = await ask('/mcp', { method: 'PUT', json: {} });
  expect(refused.status).toBe(405);
  expect(refused.headers.get('allow')).toBe('POST, GET, DELETE');
});

test.each([
  [
    '2025-11-25',
    'initialize',
    { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 't', version: '1' } },
  ],
  [MODERN, 'subscriptions/listen', { notifications: { toolsListChanged: true }, _meta: MODERN_META }],
])('a client on standard streams, in the era %s, is notified when tools come or go', async (_era, method, params) => {
  const { pawl } = await startRig(testTools());
  const [input, output] = [new PassThrough(), new PassThrough()];
  const sent: string[] = [];
  output.on('data', (line) => void sent.push(String(line)));
  const create = () => createMcpServer({ pawl, version: '0.0.0' }, { id: 'stdio', role: 'admin' }, 'stdio-session');
  const connection = serveStdio(create, { transport: new StdioServerTransport(input, output) });
  onTestFinished(() => connection.close());
  input.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })}\n`);
  await eventually(() => sent.length > 0, { what: 'an answer' });
  await pawl.registry.patch('echo', { enabled: false }, { by: 'test' });
  await eventually(() => sent.join('').includes('notifications/tools/list_changed'), { what: 'the news' });
});

test.each([
  ['one message', () => Response.json({ id: 1 }), 'event: message\ndata: {"id":1}\n\n'],
  [
    'a stream',
    () => new Response('data: {"id":2}\n\n', { headers: { 'content-type': 'text/event-stream' } }),
    'data: {"id":2}\n\n',
  ],
])(
  'an answer that takes long, %s, is not silent: nothing between the two gives it up',
  async (_what, answer, ending) => {
    const there = signal<Response>();
    const app = express();
    app.post('/', (_request, response) => sendWhenReady(response, there.promise, 1));
    const server = app.listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'POST' });
    expect(response.headers.get('content-type')).toContain('text/event-stream');
    there.fire(answer());
    const text = await response.text();
    expect(text.replace(/^(?:: still here\n\n)+/, '')).toBe(ending);
    expect(text).not.toBe(ending);
  },
);

test('an answer that comes soon is sent as it is, its status included', async () => {
  const rig = await startRig(testTools());
  const { status, error } = await modern(rig)('resources/list', {});
  expect({ status, error }).toMatchObject({ status: 404, error: { code: -32_601 } });
});
