/** Rows of the tool contract that no other test shows, on real Redis and workers. */
import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { connect, startWorker } from '../../../src/index.ts';
import { publishedToolFor } from '../../../src/producer/mcp/tools.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import type { ToolResultEnvelope } from '../../../src/shared/calls/envelope.ts';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import type { PublishedTool } from '../../../src/shared/store/fleet/catalogue.ts';
import { publishBroadcast } from '../../../src/shared/store/redis/broadcasts.ts';
import { openConnection } from '../../../src/shared/store/redis/connection.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { DEFAULT_NAMESPACE, isMutating, type ToolAnnotations } from '../../../src/shared/tools/tool.ts';
import type { ToolContext } from '../../../src/shared/tools/tool-context.ts';
import { defineUntypedTool, functionTool } from '../../../src/shared/tools/tool-forms.ts';
import { cached, filtered, toolset } from '../../../src/shared/tools/toolset.ts';
import { register } from '../../../src/workers/attempt/attempt-state.ts';
import { baseTools } from '../../../src/workers/tools/index.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { contentOf, startFleet } from '../../helpers/fleet.ts';
import { signal, within } from '../../helpers/signal.ts';
import { echo, scripted } from '../../helpers/tools.ts';

const base = { version: '1.0.0', description: 'Does it.', tier: 'workspace' } as const;

test('A8, D8, C11: the context tells who calls, in which turn and with which settings; hooks and tool share its values', async () => {
  const { tool, contexts } = scripted('look', (ctx) => ({ output: ctx.values.get('greeting') }), { annotations: {} });
  const hook: Hook = {
    name: 'greeter',
    beforeCall: () => ({ carry: { asked: 'politely' } }),
    beforeAttempt: ({ values }) => void values.set('greeting', `asked ${values.get('asked')}`),
  };
  const settings = { tools: { look: { config: { model: 'small', limit: 3 } } } };
  const { pawl } = await startFleet({ tools: [tool], hooks: [hook], settings });
  const session = await pawl.openSession({ actorId: 'ada', agentId: 'agent-1', tenantId: 'acme' });
  expect(contentOf(await session.call(tool, {}, { turnId: 'turn-7', idempotencyKey: 'k' }))).toBe('asked politely');
  const ctx = contexts[0] as ToolContext;
  expect(ctx).toMatchObject({
    sessionKey: session.key,
    sessionKind: 'main',
    agentId: 'agent-1',
    actorId: 'ada',
    tenantId: 'acme',
    turnId: 'turn-7',
    idempotencyKey: 'k',
    config: { model: 'small', limit: 3 },
  });
  expect(ctx.callId).toMatch(/^w0\./);
});

test('A13: a parent reads what its worker session’s tool returned as data, also in another process', async () => {
  const report = defineTool({
    ...base,
    name: 'report',
    tier: 'read-only',
    input: z.object({}),
    output: z.object({ rows: z.array(z.number()) }),
    run: () => ({
      output: { rows: [1, 2] },
      display: 'Two rows',
      artifacts: [{ kind: 'other' as const, reference: 'report:1' }],
    }),
  });
  const { session, openProducer } = await startFleet({ tools: [report] });
  const helper = await session.worker();
  const result = await helper.call(report, {});
  // Typed by the tool.
  const total = result.status === 'success' ? result.output.content.rows.reduce((sum, row) => sum + row, 0) : 0;
  expect(total).toBe(3);
  const elsewhere = await (await openProducer()).result(result.callId ?? '');
  expect(elsewhere).toMatchObject({
    output: { content: { rows: [1, 2] }, metadata: { display: 'Two rows', artifacts: [{ reference: 'report:1' }] } },
  });
});

test('A23: what is no tool is not taken: a free function, a tool without a tier', async () => {
  const free = async () => 1;
  await expect(startWorker({ tools: [free as never] })).rejects.toMatchObject({ code: 'CONFIGURATION' });
  const untiered = {
    ...base,
    name: 'x',
    tier: undefined as never,
    inputSchema: { type: 'object' },
    run: () => ({ output: 1 }),
  };
  expect(() => defineUntypedTool(untiered)).toThrow(/tier must be one of read-only, workspace, system, elevated/);
});

test('C1, C10, D1: specification, function and schema of each tool are registered under one name, however it was defined', () => {
  const typed = defineTool({
    ...base,
    name: 'typed',
    input: z.object({ n: z.number() }),
    run: async ({ n }) => ({ output: n }),
  });
  const plain = defineUntypedTool({
    ...base,
    name: 'plain',
    inputSchema: { type: 'object' },
    run: () => ({ output: 1 }),
  });
  const short = functionTool('short', 'Adds one.', z.object({ n: z.number() }), ({ n }) => n + 1);
  const registry = register([typed, plain, short]);
  expect([...registry.keys()]).toEqual(['tools.typed', 'tools.plain', 'tools.short']);
  expect(registry.get('tools.typed')?.validate({ n: 'one' })).toMatchObject([{ path: 'n' }]);
  expect(new Set([...registry.values()].map(({ definition }) => definition)).size).toBe(3);
  expect(() => register([typed, typed])).toThrow('Two tools are named tools.typed');
});

test('C2, C13: a call finds its tool by namespace and name, and only that; a neighbour of the same name is another tool', async () => {
  const other = defineTool({
    ...base,
    name: 'echo',
    namespace: 'other',
    tier: 'read-only',
    input: z.object({ text: z.string() }),
    run: () => ({ output: 'other' }),
  });
  const { session } = await startFleet({ tools: [echo, other] });
  expect(contentOf(await session.call('echo', { text: 'a' }))).toEqual({ text: 'a' });
  expect(contentOf(await session.call('echo', { text: 'a' }, { namespace: 'other' }))).toBe('other');
  expect(await session.call('echo', { text: 'a' }, { namespace: 'nobody' })).toMatchObject({
    error: { code: 'UNKNOWN_TOOL' },
  });
});

test('D3: hints inform models and people, and permit nothing', async () => {
  const annotations: ToolAnnotations = {
    readOnlyHint: true,
    destructiveHint: false,
    idempotentHint: true,
    openWorldHint: false,
    editHint: true,
  };
  const tool = defineTool({
    ...base,
    name: 'claims',
    tier: 'elevated',
    annotations,
    input: z.object({}),
    run: () => ({ output: 1 }),
  });
  const { pawl } = await startFleet({ tools: [tool] });
  const { tools } = await pawl.catalogue();
  expect(tools.find(({ name }) => name === 'claims')?.annotations).toEqual(annotations);
  const session = await pawl.openSession({ kind: 'worker' });
  expect(await session.call(tool, {})).toMatchObject({ error: { code: 'PERMISSION_DENIED' } });
});

test('D9: a tool gets its input and its context, and leaves the caller’s parameters as they were', async () => {
  const tool = defineTool({
    ...base,
    name: 'spoil',
    effects: 'idempotent',
    input: z.looseObject({ list: z.array(z.number()) }),
    run: (params) => {
      params.list.push(99);
      return { output: params.list };
    },
  });
  const { session } = await startFleet({ tools: [tool] });
  const params = { list: [1] };
  expect(contentOf(await session.call(tool, params, { idempotencyKey: 'a' }))).toEqual([1, 99]);
  expect(params).toEqual({ list: [1] });
});

test('D14, D15: the toolkit has the compared systems’ tools, and each says whether a call of it changes something', () => {
  const names = baseTools.map(({ name }) => name);
  const toolkit = [
    'read',
    'write',
    'edit',
    'apply_patch',
    'list_dir',
    'glob',
    'grep_files',
    'shell',
    'shell_command',
    'web_fetch',
    'web_search',
  ];
  expect(names).toEqual(expect.arrayContaining(toolkit));
  expect(baseTools.every(({ namespace }) => namespace === DEFAULT_NAMESPACE)).toBe(true);
  const changing = toolkit.filter((name) => isMutating(baseTools.find((tool) => tool.name === name) ?? echo, {}));
  expect(changing).toEqual(['write', 'edit', 'apply_patch', 'shell', 'shell_command']);
});

test('C17: read_file is a second name of read, at every front door, unless another tool has it', async () => {
  const read = baseTools.find(({ name }) => name === 'read') ?? echo;
  const { pawl } = await startFleet({ tools: [read] });
  const session = await pawl.openSession({ workspaceRoot: temporaryFolder() });
  const missing = { path: 'no-such-file' };
  const code = (result: ToolResultEnvelope) => [result.toolName, result.error?.code];
  expect(code(await session.call('read_file', missing))).toEqual(['read', 'NOT_FOUND']);
  const exported = await session.toolsFor('openai');
  expect(exported.tools.map(({ name }) => name)).toEqual(['read']);
  const call = { kind: 'function', name: 'read_file', arguments: missing } as const;
  expect(decodeCall(exported, [read], call)).toEqual({ namespace: 'tools', name: 'read', params: missing });
  expect((await publishedToolFor(pawl, session.key, 'read_file')).name).toBe('read');
  const nodes = { a: { tool: 'read_file', params: missing } };
  expect(await session.plan({ nodes })).toMatchObject({ nodes: { a: { tool: 'read' } } });
  const batch = await session.batch([{ tool: 'read_file', params: missing }]);
  expect(batch.map(code)).toEqual([['read', 'NOT_FOUND']]);
  expect((await session.call('read_file', missing, { namespace: 'other' })).error?.code).toBe('UNKNOWN_TOOL');

  const own = scripted('read_file', () => ({ output: 'own' })).tool;
  const { session: other } = await startFleet({ tools: [read, own] });
  expect(contentOf(await other.call('read_file', {}))).toBe('own');
  // It keeps the name where it may not be called.
  const fleet = await startFleet({ tools: [read, own], settings: { tools: { read_file: { enabled: false } } } });
  expect((await fleet.session.call('read_file', {})).error?.code).toBe('PERMISSION_DENIED');
  await expect(publishedToolFor(fleet.pawl, fleet.session.key, 'read_file')).rejects.toThrow('Unknown tool: read_file');
});

test('D10: connect({ toolsets }) decides for each request what a session is shown, not what it may call', async () => {
  const quiet = scripted('quiet', () => ({ output: 1 })).tool;
  const { world } = await startFleet({ tools: [echo, quiet] });
  const asked: (string | undefined)[] = [];
  const shown = toolset<PublishedTool>('shown', ({ session, published }) => {
    asked.push(session?.actorId);
    return published;
  });
  const pawl = await connect({
    redisUrl: world.redisUrl,
    prefix: world.prefix,
    logLevel: 'silent',
    toolsets: [filtered(shown, ({ name }) => name === 'echo')],
  });
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession({ actorId: 'ada' });
  const exported = await session.toolsFor('openai');
  expect(exported.tools.map(({ name }) => name)).toEqual(['echo']);
  expect((await pawl.catalogue(session.key)).tools.map(({ name }) => name)).toEqual(['echo']);
  expect(asked).toEqual(['ada', 'ada']);
  expect((await session.call(quiet, {})).status).toBe('success');
});

test('D10: what a cached toolset found is shown again and again', async () => {
  const { world } = await startFleet({ tools: [echo] });
  const all = toolset<PublishedTool>('all', ({ published }) => published);
  const pawl = await connect({
    redisUrl: world.redisUrl,
    prefix: world.prefix,
    logLevel: 'silent',
    toolsets: [cached(all, 600_000)],
  });
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession();
  const shown = async () => (await pawl.publishedFor(session.record)).map(({ name }) => name);
  expect(await shown()).toEqual(['echo']);
  expect(await shown()).toEqual(['echo']);
});

test('A15: the parent session hears of arguments that stayed wrong in another process, no other session does, and no one hears a forgery', async () => {
  const book = defineTool({ ...base, name: 'book', input: z.object({ seats: z.int() }), run: () => ({ output: 1 }) });
  const signingKeys = [{ kid: 'k1', key: 'k'.repeat(32) }];
  const { pawl, session, openProducer, world } = await startFleet({ tools: [book], settings: { signingKeys } });
  const other = await pawl.openSession();
  const elsewhere = await openProducer();
  const branch = await elsewhere.openSession({ kind: 'branch', parent: session.key });
  const [heard, misheard] = [signal<object>(), [] as object[]];
  session.events.on('invalid-params', (event) => heard.fire(event));
  other.events.on('invalid-params', (event) => misheard.push(event));
  const intruder = openConnection({ url: world.redisUrl, name: `${world.prefix}:intruder`, mode: 'fail-fast' });
  onTestFinished(() => intruder.disconnect());
  const news = { type: 'invalid-params', sessionKey: session.key, from: 'x' } as const;
  await publishBroadcast(intruder, world.prefix, { ...news, event: '{"toolName":"forged"}' });
  const result = await branch.callWithReask('book', { seats: 'many' }, { ask: ({ params }) => params });
  expect(await within(heard.promise, 30_000, 'word from below')).toEqual({
    sessionKey: branch.key,
    toolName: 'book',
    reasks: 2,
    result: JSON.parse(JSON.stringify(result)),
  });
  expect(misheard).toEqual([]);
  session.events.removeAllListeners('invalid-params');
});

test('C4, C16: models that know a local shell or a web search of their own get these on request', async () => {
  const { session } = await startFleet({
    tools: baseTools.filter(({ name }) => name === 'shell' || name === 'web_search'),
  });
  const native = await session.toolsFor('openai', { native: true });
  expect(native.tools).toEqual(
    expect.arrayContaining([{ type: 'local_shell' }, expect.objectContaining({ type: 'web_search' })]),
  );
  const action = {
    type: 'exec',
    command: ['ls', '-l'],
    env: {},
    working_directory: 'src',
    timeout_ms: 1_000,
    user: null,
  };
  expect(await session.decode(native, { kind: 'local-shell', action })).toEqual({
    namespace: 'tools',
    name: 'shell',
    params: { command: ['ls', '-l'], workdir: 'src', timeout_ms: 1_000 },
  });
  expect((await session.toolsFor('openai')).tools.map(({ type }) => type)).toEqual(['function', 'function']);
});
