import { expect, test } from 'vitest';
import { tenantWeight } from '../../../src/shared/limits/tenant.ts';
import { queueNameOf } from '../../../src/shared/queues/priority.ts';

test('a tenant’s own weight counts before a pattern’s, and of patterns the first that fits', () => {
  const settings = { 'trial-*': { weight: 0.5 }, '*-7': { weight: 3 }, 'trial-9': { weight: 2 } };
  const weights = ['trial-9', 'trial-7', 'acme-7', 'acme'].map((tenantId) => tenantWeight(settings, tenantId));
  expect(weights).toEqual([2, 0.5, 3, 1]);
  expect(tenantWeight(settings, undefined)).toBe(1);
});

test('a line begins with its weight, the tenant’s times that of the importance', () => {
  expect(queueNameOf('background', 'acme', 4)).toBe('0.5 background acme');
  expect(queueNameOf('normal', undefined, 1)).toBe('1 normal ');
});
