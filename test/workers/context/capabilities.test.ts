import { describe, expect, test } from 'vitest';
import { SESSION_KINDS } from '../../../src/shared/sessions/channel-kinds.ts';
import { SESSION_CAPABILITIES } from '../../../src/shared/sessions/session.ts';
import {
  type Agents,
  CAPABILITIES,
  type Capability,
  type Channel,
  type StoredMemory,
} from '../../../src/shared/tools/tool.ts';
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
