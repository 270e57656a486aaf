import { expect, test } from 'vitest';
import { isOutOfReach } from '../../../src/shared/policy/policy.ts';
import { policySettingsSchema } from '../../../src/shared/policy/policy-file.ts';
import type { SessionRecord } from '../../../src/shared/sessions/session.ts';

type Change = Partial<Omit<Parameters<typeof isOutOfReach>[0], 'session'>> & {
  readonly session?: Partial<SessionRecord>;
};

const shell = { name: 'shell', namespace: 'tools', tier: 'system' } as const;

function isShown(policy: object, change: Change = {}): boolean {
  const session = { kind: 'main' as const, sessionKey: 's', ...change.session };
  return !isOutOfReach({ tool: shell, ...change, session, policy: policySettingsSchema.parse(policy) });
}

test.each<[string, object, Change?]>([
  ['nothing is said of it', {}],
  ['its tier is denied to another agent', { agents: { researcher: { tiers: { system: 'deny' } } } }],
  ['a person decides on it', { global: { tools: { shell: 'ask' } } }],
  [
    'the tool’s own decision stands for its tier’s',
    { global: { tiers: { system: 'deny' }, tools: { shell: 'allow' } } },
  ],
  [
    'some commands are allowed',
    { global: { tiers: { system: 'deny' }, tools: { shell: { commands: [{ prefix: ['git'], decision: 'allow' }] } } } },
  ],
  ['some commands are denied', { global: { tools: { shell: { commands: [{ prefix: ['rm'], decision: 'deny' }] } } } }],
  ['only some hosts and paths are allowed', { global: { tools: { shell: { hosts: ['a.test'], paths: ['src/*'] } } } }],
  ['tainted calls are denied', { global: { taint: 'deny' } }],
  ['a channel decides', { channels: { '*': { tools: { shell: 'deny' } } } }],
])('a tool is shown where %s', (_what, policy, change) => {
  expect(isShown(policy, change)).toBe(true);
});

test.each<[string, object, Change?]>([
  [
    'its tier is denied to the session’s agent',
    { agents: { researcher: { tiers: { system: 'deny' } } } },
    { session: { agentId: 'researcher' } },
  ],
  ['it is denied to a tenant', { tenants: { acme: { tools: { shell: 'deny' } } } }, { session: { tenantId: 'acme' } }],
  [
    'it is denied to a session above',
    { sessions: { top: { tools: { 'sh*': 'deny' } } } },
    { session: { ancestors: ['top'] } },
  ],
  [
    'all that is said of commands denies, too',
    { global: { tools: { shell: { decision: 'deny', commands: [{ prefix: ['rm'], decision: 'deny' }] } } } },
  ],
  [
    'it is not for sessions of the kind, whatever the command',
    {
      global: {
        tools: { shell: { sessionKinds: ['branch'], commands: [{ prefix: ['git'], decision: 'allow' }] } },
      },
    },
  ],
  [
    'one layer denies what a command of another allows',
    {
      global: { tools: { shell: 'deny' } },
      sessions: { s: { tools: { shell: { commands: [{ prefix: ['git'], decision: 'allow' }] } } } },
    },
  ],
  ['configuration disables it', {}, { toolPolicy: { enabled: false } }],
  ['the registry disables it', {}, { registry: { enabled: false } }],
  ['its tier is not for the kind of session', {}, { session: { kind: 'worker' } }],
])('a tool is not shown where %s', (_what, policy, change) => {
  expect(isShown(policy, change)).toBe(false);
});
