/** What policy decides on a call of `shell`, unless a test changes the request. */
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { evaluate } from '../../../src/shared/policy/policy.ts';
import type { PolicyRequest } from '../../../src/shared/policy/policy-request.ts';

export const policyOf = (policy: object) => resolveSettings({ options: { policy } }).policy;

export function resultOf(policy: object, change: Partial<PolicyRequest> = {}) {
  return evaluate({
    tool: { name: 'shell', tier: 'system', effects: 'once' },
    session: { kind: 'main', sessionKey: 'trip', agentId: 'helper', tenantId: 'acme' },
    channel: 'operator',
    policy: policyOf(policy),
    ...change,
  });
}
