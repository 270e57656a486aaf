import { describe, expect, test } from 'vitest';
import { openSessionSchema, SESSION_CAPABILITIES, SESSION_KINDS, SESSION_TIERS } from '../../src/shared/session.ts';
import { CAPABILITIES, TIERS } from '../../src/shared/tool.ts';

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
    ['channel.kind', { channel: { kind: 'smoke' } }],
    ['skills', { skills: Array.from({ length: 65 }, () => 'x') }],
    ['', { knid: 'main' }],
  ])('%s is named when it is wrong: %j', (path, open) => {
    const parsed = openSessionSchema.safeParse(open);
    expect(parsed.error?.issues.map((issue) => issue.path.join('.'))).toContain(path);
  });
});
