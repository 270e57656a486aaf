import { runInNewContext } from 'node:vm';
import { describe, expect, inject, test } from 'vitest';
import { SESSION_KINDS } from '../../../src/shared/sessions/channel-kinds.ts';
import { SESSION_CAPABILITIES } from '../../../src/shared/sessions/session.ts';
import {
  CAPABILITIES,
  type Capability,
  type Channel,
  type StoredMemory,
} from '../../../src/shared/tools/capabilities.ts';
import type { Agents } from '../../../src/shared/tools/sub-agent.ts';
import {
  type CapabilityOptions,
  capabilitiesFor,
  type GrantedCapabilities,
} from '../../../src/workers/context/capabilities.ts';
import { temporaryFolder } from '../../helpers/context.ts';

const memory: StoredMemory = { search: async () => [], store: async () => ({ id: 'memory-1' }) };
const channel: Channel = { kind: 'console', send: async () => {} };
const report = async () => ({ agentId: 'agent', state: 'closed' }) as const;
const agents: Agents = {
  spawn: report,
  send: report,
  resume: report,
  close: report,
  look: async () => [],
  haveAnswered: async () => true,
};

function granted(options: Partial<CapabilityOptions> = {}): GrantedCapabilities {
  return capabilitiesFor({
    session: { kind: 'main', workspaceRoot: temporaryFolder() },
    callId: 'call',
    signal: new AbortController().signal,
    env: process.env,
    memory,
    channel,
    agents,
    sandbox: inject('sandbox'),
    ...options,
  });
}

/** One use of each capability. All but `network` succeed where the capability is granted. */
const uses: Readonly<Record<Capability, (capabilities: GrantedCapabilities) => Promise<unknown>>> = {
  'workspace:read': ({ workspace }) => workspace.list('.'),
  'workspace:write': ({ workspace }) => workspace.write('file', 'x'),
  processes: ({ processes }) => processes.run({ argv: ['true'] }),
  'memory:search': (capabilities) => capabilities.memory.search('x'),
  'memory:store': (capabilities) => capabilities.memory.store('x'),
  channel: (capabilities) => capabilities.channel.send('x'),
  agents: (capabilities) => capabilities.agents.close('agent'),
  network: ({ fetch }) => fetch('http://127.0.0.1:1/').catch((error) => expect(error.message).toContain('loopback')),
};

describe.each(SESSION_KINDS)('a %s session (A17)', (kind) => {
  test.each(CAPABILITIES)('%s', async (capability) => {
    const capabilities = granted({ session: { kind, workspaceRoot: temporaryFolder() } });
    const has = SESSION_CAPABILITIES[kind].includes(capability);
    expect(capabilities.has(capability)).toBe(has);
    if (has) {
      await uses[capability](capabilities);
      capabilities.demand(capability);
    } else {
      const denied = {
        code: 'PERMISSION_DENIED',
        message: `A ${kind} session does not have the capability ${capability}.`,
      };
      await expect(uses[capability](capabilities)).rejects.toMatchObject(denied);
      expect(() => capabilities.demand(capability)).toThrow(expect.objectContaining(denied));
    }
  });
});

test('I23: records of a session that has seen text from outside are tainted', async () => {
  const stored: unknown[] = [];
  const store: StoredMemory['store'] = async (_text, options) => {
    stored.push(options);
    return { id: 'memory-1' };
  };
  const session = { kind: 'main', workspaceRoot: temporaryFolder() } as const;
  const taint = [{ source: 'tools.web_fetch', atMs: 1 }];
  for (const seen of [session, { ...session, taint }])
    await granted({ session: seen, memory: { ...memory, store } }).memory.store('x', { source: 's', tainted: false });
  expect(stored).toEqual([
    { source: 's', tainted: false },
    { source: 's', tainted: true },
  ]);
});

describe('least privilege (A9, A10)', () => {
  test('a tool that declares its needs gets no other capability', async () => {
    const capabilities = granted({ needs: ['workspace:read'] });
    expect(CAPABILITIES.filter((each) => capabilities.has(each))).toEqual(['workspace:read']);
    await expect(capabilities.workspace.write('file', 'x')).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'The tool does not declare that it needs workspace:write; it declares workspace:read.',
    });
  });

  test('a tool of the read-only tier gets no capability that changes anything, even when it declares one', () => {
    const capabilities = granted({ tier: 'read-only', needs: ['workspace:read', 'workspace:write', 'processes'] });
    expect(CAPABILITIES.filter((each) => capabilities.has(each))).toEqual(['workspace:read']);
    expect(CAPABILITIES.filter((each) => granted({ tier: 'read-only' }).has(each))).toEqual([
      'workspace:read',
      'memory:search',
      'network',
    ]);
  });

  test('a capability that is not configured throws at its first use', async () => {
    const capabilities = capabilitiesFor({
      session: { kind: 'main' },
      callId: 'call',
      signal: new AbortController().signal,
      env: {},
    });
    expect(CAPABILITIES.filter((each) => capabilities.has(each))).toEqual(['network']);
    await expect(capabilities.memory.search('x')).rejects.toThrow('No memory store is configured');
    await expect(capabilities.channel.send('x')).rejects.toThrow('The session has no channel to people');
    await expect(capabilities.processes.run({ argv: ['true'] })).rejects.toThrow('The session has no workspace');
    expect(() => capabilities.workspace.root).toThrow('The session has no workspace');
  });

  test('the workspace is checked at its first use, once, and not for a tool that touches no file', async () => {
    let checks = 0;
    const refusalReason = () => {
      checks += 1;
      return 'It is of another tenant.';
    };
    const capabilities = granted({ session: { kind: 'main', workspaceRoot: temporaryFolder(), refusalReason } });
    await capabilities.memory.store('x');
    await capabilities.channel.send('x');
    expect(checks).toBe(0);
    for (const capability of ['workspace:read', 'workspace:write', 'processes'] as const)
      await expect(uses[capability](capabilities)).rejects.toThrow('It is of another tenant.');
    expect(() => capabilities.workspace.root).toThrow('It is of another tenant.');
    expect(checks).toBe(1);
  });

  test('assembling opens nothing: a missing workspace fails only the tools that use it', async () => {
    const capabilities = granted({ session: { kind: 'main', workspaceRoot: '/no/such/folder' } });
    await expect(capabilities.workspace.read('file')).rejects.toMatchObject({ code: 'NOT_FOUND' });
    expect(await capabilities.memory.store('x')).toEqual({ id: 'memory-1' });
  });
});

type Handles = Record<string, Record<string, (...values: unknown[]) => Promise<unknown>>>;
/** Each method with arguments that it takes, of which the test replaces one at a time. */
const METHODS: Readonly<Record<string, readonly unknown[]>> = {
  'workspace.read': ['a', { maxBytes: 1 }],
  'workspace.list': ['a'],
  'workspace.write': ['a', 'text', { expected: 'absent' }],
  'workspace.commit': [[{ kind: 'write', path: 'a', content: 'text' }]],
  'workspace.search': [{ glob: '*' }],
  'processes.run': [{ argv: ['true'], env: { A: 'b' }, timeoutMs: 1 }],
  'terminals.start': [{ argv: ['true'], timeoutMs: 1, waitMs: 1 }],
  'terminals.write': ['terminal', 'text', 1],
  'memory.search': ['query', { limit: 1 }],
  'memory.store': ['text', { ttlMs: 1 }],
  'memory.get': ['id'],
  'memory.forget': ['id'],
  'channel.send': [{ text: 'text' }],
  'channel.ask': [{ text: 'text', timeoutMs: 1 }],
  'agents.spawn': ['text', 'type'],
  'agents.send': ['agent', 'text', true],
  'agents.resume': ['agent'],
  'agents.look': [['agent']],
  'agents.haveAnswered': [['agent']],
  'agents.close': ['agent'],
};
const WRONG = [null, 5.5, Number.NaN, false, [5], { other: 1 }, () => 1, Symbol('s'), 10n];

/** The capabilities over handles that count their uses. */
function counted() {
  let uses = 0;
  const handle = (part: string) => {
    const use = async () => {
      uses += 1;
    };
    const names = Object.keys(METHODS).flatMap((each) =>
      each.startsWith(`${part}.`) ? [each.slice(part.length + 1)] : [],
    );
    return { kind: 'console', ...Object.fromEntries(names.map((name) => [name, use])) } as never;
  };
  const attempt = { sideEffects: 0 };
  const parts = ['terminals', 'memory', 'channel', 'agents'] as const;
  const handles = Object.fromEntries(parts.map((part) => [part, handle(part)]));
  const capabilities = granted({ attempt, ...handles }) as unknown as Handles;
  return {
    call(method: string, values: readonly unknown[]) {
      const [part = '', name = ''] = method.split('.');
      return capabilities[part]?.[name]?.(...values);
    },
    counts: () => [uses, attempt.sideEffects],
  };
}

test.each(Object.entries(METHODS))('%s names a wrong argument, and does nothing', async (method, usual) => {
  const handles = counted();
  const call = (values: readonly unknown[]) => handles.call(method, values);
  const isUsual = (value: unknown, index: number) => typeof value === typeof usual[index] && typeof value === 'boolean';
  for (const index of usual.keys())
    for (const value of WRONG.filter((each) => !isUsual(each, index))) {
      // A number of milliseconds may have a fraction.
      if (value === 5.5 && typeof usual[index] === 'number') continue;
      await expect(call(usual.with(index, value))).rejects.toMatchObject({
        code: 'RESULT_INVALID',
        message: expect.stringMatching(`^ctx\\.${method}: .+ (?:must|has|is required)`),
      });
    }
  for (const [index, value] of usual.entries())
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      for (const member of Object.keys(value))
        await expect(call(usual.with(index, { ...value, [member]: Symbol('s') }))).rejects.toMatchObject({
          message: expect.stringContaining(`.${member} must be`),
        });
  expect(handles.counts()).toEqual([0, 0]);
});

/** Values of the right types in unusual forms. */
class Labels {
  readonly topic = 'tea';
}
const endless = Number.POSITIVE_INFINITY;
test.each<[method: string, ...values: unknown[]]>([
  ['workspace.read', 'a', { maxBytes: endless }],
  ['workspace.read', 'a', { maxBytes: undefined }],
  ['workspace.write', 'b', runInNewContext('new Uint8Array([97])')],
  ['workspace.write', 'b', Buffer.from('a'), { expected: undefined }],
  ['workspace.commit', runInNewContext('[{ kind: "write", path: "b", content: "text" }]')],
  ['workspace.search', { glob: '*', limit: endless, contextLines: undefined }],
  ['processes.run', { argv: ['true'], env: process.env, timeoutMs: endless, maxOutputBytes: endless }],
  ['processes.run', { argv: Object.freeze(['true']), env: Object.assign(Object.create(null), { A: 'b' }) }],
  ['terminals.start', { argv: ['true'], env: new Labels(), timeoutMs: endless, waitMs: 1 }],
  ['memory.search', 'query', { limit: endless, metadata: new Labels() }],
  ['memory.store', 'text', { ttlMs: endless, metadata: runInNewContext('({ topic: "tea" })') }],
  ['memory.store', 'text', { ttlMs: undefined, metadata: undefined, id: undefined }],
  ['channel.send', { text: 'text', format: undefined }],
  ['channel.ask', { text: 'text', options: undefined, timeoutMs: undefined }],
  ['agents.spawn', 'text', undefined],
  ['agents.send', 'agent', 'text', undefined],
])('%s takes what its type allows, in every form: %#', async (method, ...values) => {
  const handles = counted();
  await handles.call('workspace.write', ['a', 'text']);
  await handles.call(method, values);
});

test('objects without members of their own are no texts by name', async () => {
  for (const env of [new Map([['A', 'b']]), new Headers({ a: 'b' })])
    await expect(counted().call('processes.run', [{ argv: ['true'], env }])).rejects.toThrow('env must be an object');
});
