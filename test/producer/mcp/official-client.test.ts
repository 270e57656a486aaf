import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import type { ContentBlock } from '../../../src/shared/tools/tool-result.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { startRig, testTools } from '../http/rig.ts';
import { askingTool, connectClient, MODERN } from './mcp-client.ts';

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

  test('reads the text for people of a soft failure that says nothing else', async () => {
    const find = defineTool({
      name: 'find',
      version: '1.0.0',
      description: 'Finds nothing.',
      tier: 'read-only',
      input: z.object({ display: z.string().optional() }),
      run: ({ display }) => ({ output: '', success: false, ...(display === undefined ? {} : { display }) }),
    });
    const client = await connectClient(await startRig({ tools: [find] }), era);
    const answer = async (args: object) => client.callTool({ name: 'find', arguments: { ...args } });
    expect(await answer({ display: 'nothing found' })).toMatchObject({
      isError: true,
      content: [{ type: 'text', text: 'nothing found' }],
    });
    expect(await answer({})).toMatchObject({
      isError: true,
      content: [{ text: 'The tool answered that it failed, and gave no reason.' }],
    });
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

  test('reads content blocks that say all of an output once, in their order, and no empty text beside an image', async () => {
    const image = { type: 'image' as const, data: 'iVBORw==', mimeType: 'image/png' };
    const text = (said: string) => ({ type: 'text' as const, text: said });
    const common = { version: '1.0.0', description: 'Shows.', tier: 'read-only', input: z.object({}) } as const;
    const shows = (name: string, output: string, content: readonly ContentBlock[]) =>
      defineTool({ ...common, name, run: () => ({ output, content }) });
    const mixed = [text('one'), image, text('two')];
    const tools = [
      shows('mixed', 'one\ntwo', mixed),
      shows('picture', '', [image]),
      shows('more', 'an output', [text('and a text')]),
    ];
    const client = await connectClient(await startRig({ tools }), era);
    const shown = async (name: string) => (await client.callTool({ name, arguments: {} })).content;
    expect(await shown('mixed')).toEqual(mixed);
    expect(await shown('picture')).toEqual([image]);
    expect(await shown('more')).toEqual([text('an output'), text('and a text')]);
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
