import { describe, expect, test } from 'vitest';
import { POLICY_DECISIONS, type PolicyDecision } from '../../../src/shared/policy/policy-file.ts';
import { toolLimits } from '../../../src/shared/policy/policy-layers.ts';
import { taintOf } from '../../../src/shared/policy/taint.ts';
import { SESSION_KINDS, type SessionKind } from '../../../src/shared/sessions/channel-kinds.ts';
import { newSession, type SessionRecord } from '../../../src/shared/sessions/session.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';
import { policyOf, resultOf } from './policy-result.ts';

const STRICTNESS: readonly PolicyDecision[] = POLICY_DECISIONS;

test('every cell of tier × session kind × layer × decision names its deciding rule, and no layer loosens another', () => {
  const LAYERS = { global: [], tenants: ['acme'], agents: ['helper'], channels: ['operator'], sessions: ['trip'] };
  let cells = 0;
  for (const tier of TIERS)
    for (const kind of SESSION_KINDS) {
      const request = {
        tool: { name: 'shell', tier, effects: 'once' as const },
        session: { kind, sessionKey: 'trip', agentId: 'helper', tenantId: 'acme' },
      };
      const without = resultOf({}, request);
      expect(without.rule).toMatch(/^built-in\./);
      for (const [group, [name]] of Object.entries(LAYERS))
        for (const decision of POLICY_DECISIONS) {
          const layer = { tools: { shell: decision } };
          const result = resultOf({ [group]: name === undefined ? layer : { [name]: layer } }, request);
          const path = name === undefined ? `policy.${group}` : `policy.${group}.${name}`;
          const stricter = STRICTNESS.indexOf(decision) > STRICTNESS.indexOf(without.decision);
          expect(result.rule).toBe(stricter ? `${path}.tools.shell` : without.rule);
          expect(result.decision).toBe(stricter ? decision : without.decision);
          expect(result.rulings).toContainEqual(expect.objectContaining({ decision, rule: `${path}.tools.shell` }));
          expect(result.reason).not.toBe('');
          cells += 1;
        }
    }
  expect(cells).toBe(4 * 3 * 5 * 3);
});

describe('layers (A3, I3)', () => {
  test('deny wins, wherever it stands', () => {
    const policy = { global: { tools: { '*': 'deny' } }, sessions: { trip: { tools: { shell: 'allow' } } } };
    expect(resultOf(policy)).toMatchObject({ decision: 'deny', rule: 'policy.global.tools.*' });
  });

  test('inside one layer, a tool’s rule stands for its tier’s, and a name for a pattern', () => {
    const tiers = { system: 'deny' };
    expect(resultOf({ global: { tiers } })).toMatchObject({ decision: 'deny', rule: 'policy.global.tiers.system' });
    expect(resultOf({ global: { tiers, tools: { shell: 'ask' } } }).rule).toBe('policy.global.tools.shell');
    expect(resultOf({ global: { tools: { 's*': 'deny', shell: 'ask' } } }).decision).toBe('ask');
  });

  test('what restricts a session restricts those below it, however deep, and whatever they are called', () => {
    const open = (kind: SessionKind, sessionKey: string, above?: SessionRecord) =>
      newSession({ kind, sessionKey }, above, { sessionKey, workspaceRoot: '/', createdAtMs: 0 });
    const branch = open('branch', 'free', open('main', 'trip'));
    const deepest = open('worker', 'agent-1', branch);
    expect(deepest.ancestors).toEqual(['trip', 'free']);
    for (const session of [branch, deepest])
      for (const name of ['trip', 'tr*']) {
        const policy = { sessions: { [name]: { tools: { read: { decision: 'deny', perSession: 3 } } } } };
        const request = { session, tool: { name: 'read', tier: 'read-only' as const } };
        expect(resultOf(policy, request)).toMatchObject({
          decision: 'deny',
          rule: `policy.sessions.${name}.tools.read`,
        });
        expect(toolLimits({ ...request, policy: policyOf(policy) })).toHaveLength(1);
      }
    const others = { sessions: { free: { tools: { '*': 'deny' } } } };
    expect(resultOf(others, { session: open('branch', 'next', open('main', 'trip')) }).decision).toBe('allow');
  });

  test('layers that concern others say nothing', () => {
    const deny = { tools: { shell: 'deny' } };
    expect(resultOf({ tenants: { other: deny }, agents: { other: deny }, channels: { none: deny } }).decision).toBe(
      'allow',
    );
  });

  test('a tool can be kept for sessions of some kinds', () => {
    const policy = { global: { tools: { shell: { sessionKinds: ['main'] } } } };
    const branch = { session: { kind: 'branch' as const } };
    expect(resultOf(policy).decision).toBe('allow');
    expect(resultOf(policy, branch)).toMatchObject({
      decision: 'deny',
      rule: 'policy.global.tools.shell.sessionKinds',
    });
  });

  test('a wrong entry is named with its path', () => {
    expect(() => policyOf({ global: { tools: { shell: 'perhaps' } } })).toThrow(/policy\.global\.tools\.shell/);
  });
});

test('I23: parameters from outside send a call with effects to a person, when policy says so', () => {
  const policy = { global: { taint: 'ask' } };
  const taint = taintOf(['turn:1', 'taint:web_fetch']);
  expect(resultOf(policy, { taint })).toMatchObject({ decision: 'ask', reason: expect.stringContaining('web_fetch') });
  expect(resultOf(policy).decision).toBe('allow');
  expect(resultOf(policy, { taint, tool: { name: 'read', tier: 'read-only', effects: 'none' } }).decision).toBe(
    'allow',
  );
});

test('I23: what the session had seen when the call was made counts like what the call says of itself, once', () => {
  const session = {
    taint: [
      { source: 'web', atMs: 5 },
      { source: 'mail', atMs: 9 },
    ],
  };
  expect(taintOf(['taint:web', 'taint:user'], session)).toEqual(['web', 'user', 'mail']);
  expect(taintOf([], session, 5)).toEqual(['web']);
  expect(taintOf(undefined)).toEqual([]);
});
