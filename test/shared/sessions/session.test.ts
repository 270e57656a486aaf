import { describe, expect, test } from 'vitest';
import { SESSION_KINDS } from '../../../src/shared/sessions/channel-kinds.ts';
import {
  newSession,
  openSessionSchema,
  parseOpenSession,
  SESSION_CAPABILITIES,
  SESSION_TIERS,
  type SessionRecord,
  withTaint,
} from '../../../src/shared/sessions/session.ts';
import { CAPABILITIES } from '../../../src/shared/tools/capabilities.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';

describe('what a session’s kind allows (A9, A17, A18)', () => {
  const reads = ['workspace:read', 'memory:search', 'network'];
  test.each(
    SESSION_KINDS.flatMap((kind) =>
      CAPABILITIES.map((capability) => ({
        kind,
        capability,
        allowed: kind !== 'worker' || reads.includes(capability),
      })),
    ),
  )('a $kind session has $capability: $allowed', ({ kind, capability, allowed }) => {
    expect(SESSION_CAPABILITIES[kind].includes(capability)).toBe(allowed);
  });

  test.each(
    SESSION_KINDS.flatMap((kind) =>
      TIERS.map((tier) => ({ kind, tier, allowed: kind !== 'worker' || tier === 'read-only' })),
    ),
  )('a $kind session may call tools of the tier $tier: $allowed', ({ kind, tier, allowed }) => {
    expect(SESSION_TIERS[kind].includes(tier)).toBe(allowed);
  });
});

describe('what opens a session', () => {
  test('nothing at all opens a main session', () => {
    expect(openSessionSchema.parse({})).toEqual({ kind: 'main' });
  });

  test.each([
    ['kind', { kind: 'root' }],
    ['sessionKey', { sessionKey: '' }],
    ['sessionKey', { sessionKey: 'x'.repeat(257) }],
    ['actorId', { actorId: 7 }],
    ['workspaceRoot', { workspaceRoot: '' }],
    ['workspaceRoot', { workspaceRoot: '/a/\0' }],
    ['channel.kind', { channel: { kind: 'smoke' } }],
    ['skills', { skills: Array.from({ length: 65 }, () => 'x') }],
    ['', { knid: 'main' }],
  ])('%s is named when it is wrong: %j', (path, open) => {
    const parsed = openSessionSchema.safeParse(open);
    expect(parsed.error?.issues.map((issue) => issue.path.join('.'))).toContain(path);
  });
});

test('a session has a bounded number of sessions above it, which its record names', () => {
  const open = (sessionKey: string, above?: SessionRecord) =>
    newSession({ kind: 'branch', sessionKey }, above, { sessionKey, workspaceRoot: '/', createdAtMs: 0 });
  let deepest = open('0');
  for (let depth = 1; depth <= 100; depth += 1) deepest = open(String(depth), deepest);
  expect(deepest.ancestors).toHaveLength(100);
  expect(() => open('101', deepest)).toThrow(expect.objectContaining({ code: 'CONTRACT_INVALID' }));
});

test('I23: a session names each source of taint once, and a bounded number of them', () => {
  const clean: SessionRecord = {
    sessionKey: 's',
    kind: 'main',
    state: 'open',
    actorId: 'ada',
    workspaceRoot: '/tmp',
    createdAtMs: 1,
  };
  const once = withTaint(clean, ['a', 'b'], 5);
  expect(once.taint).toEqual([
    { source: 'a', atMs: 5 },
    { source: 'b', atMs: 5 },
  ]);
  expect(withTaint(once, ['b'], 9)).toBe(once);
  const full = withTaint(
    once,
    Array.from({ length: 100 }, (_, index) => `t${index}`),
    6,
  );
  expect(full.taint).toHaveLength(32);
  expect(withTaint(full, ['more'], 7)).toBe(full);
});

describe('what a program describes freely', () => {
  const own: Record<string, unknown> = {};
  own['self'] = own;
  const deep = JSON.parse(`${'{"a":'.repeat(5_000)}1${'}'.repeat(5_000)}`) as object;
  test.each([
    ['holds itself', own, 'a value that holds itself'],
    ['is nested very deep', deep, 'a value more than 1000 levels deep'],
    ['has a bigint', { n: 1n }, 'bigint'],
  ])('is refused by its place when it %s', (_what, value, kind) => {
    const places = {
      'agent.permissions': { agent: { id: 'a', permissions: value } },
      channel: { channel: { kind: 'operator', value } },
    };
    for (const [path, open] of Object.entries(places)) {
      let refused: unknown;
      try {
        parseOpenSession(open as never);
      } catch (error) {
        refused = error;
      }
      const issue = {
        path: expect.stringMatching(new RegExp(`^${path}`)),
        message: `must be JSON-serializable; got ${kind}`,
      };
      expect(refused).toMatchObject({ code: 'CONTRACT_INVALID', issues: [issue] });
    }
  });
});
