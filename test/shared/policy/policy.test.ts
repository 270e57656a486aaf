import { describe, expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { requirePermission } from '../../../src/shared/policy/policy.ts';
import type { PolicyRequest } from '../../../src/shared/policy/policy-request.ts';
import { SESSION_KINDS } from '../../../src/shared/sessions/channel-kinds.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';

function result(change: Partial<PolicyRequest>): string {
  try {
    const { decision } = requirePermission({
      tool: { name: 'note', tier: 'workspace' },
      session: { kind: 'main' },
      ...change,
    });
    return decision === 'allow' ? 'permitted' : decision;
  } catch (error) {
    if (!(error instanceof PawlError) || error.code !== 'PERMISSION_DENIED') throw error;
    return error.message;
  }
}

describe('who may call what (A3, A17)', () => {
  test('a worker session has read-only tools, the others all but elevated ones, for which a person is asked', () => {
    const permitted = SESSION_KINDS.map((kind) => [
      kind,
      TIERS.filter((tier) => result({ session: { kind }, tool: { name: 'note', tier } }) === 'permitted'),
    ]);
    expect(Object.fromEntries(permitted)).toEqual({
      main: ['read-only', 'workspace', 'system'],
      branch: ['read-only', 'workspace', 'system'],
      worker: ['read-only'],
    });
  });

  test('a refusal names tool, tier and reason', () => {
    expect(result({ toolPolicy: { enabled: false } })).toBe(
      'note (tier workspace) is denied: the tool is disabled by configuration.',
    );
    expect(result({ session: { kind: 'worker' } })).toContain('a worker session may only use the tiers read-only');
    expect(result({ tool: { name: 'note', tier: 'elevated' } })).toBe('ask');
    expect(result({ queueTier: 'read-only' })).toContain('the queue of another tier');
  });

  test('dedupeMode "disabled" needs a read-only tool, or a policy that allows it', () => {
    const tool = { name: 'note', tier: 'read-only' } as const;
    expect(() => result({ dedupeMode: 'disabled' })).toThrow(
      expect.objectContaining({ code: 'DEDUPE_REQUIRED', message: expect.stringContaining('allowDisabledDedupe') }),
    );
    // What is denied anyway is denied for that.
    expect(result({ dedupeMode: 'disabled', session: { kind: 'worker' } })).toContain('read-only');
    expect(result({ dedupeMode: 'disabled', tool })).toBe('permitted');
    expect(result({ dedupeMode: 'disabled', toolPolicy: { allowDisabledDedupe: true } })).toBe('permitted');
    expect(result({ dedupeMode: 'bestEffort' })).toBe('permitted');
  });
});
