import { expect, test } from 'vitest';
import { z } from 'zod';
import { settingsSchema } from '../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { MAX_TIMER_MS } from '../../../src/shared/util/time.ts';

/** The longest of each time that can be configured. */
const WEEK_MS = 7 * 24 * 3_600_000;
const CENTURY_MS = 100 * 365 * 24 * 3_600_000;
const LONGEST: Readonly<Record<string, number>> = {
  lockDurationMs: WEEK_MS,
  stalledIntervalMs: WEEK_MS,
  drainMs: WEEK_MS,
  toolWaitMs: WEEK_MS,
  'policy.approvalLimitMs': WEEK_MS,
  'tools.shell.timeoutMs': WEEK_MS,
  'tools.shell.retry.baseMs': WEEK_MS,
  'tools.shell.retry.maxDelayMs': WEEK_MS,
  'tools.shell.retry.maxElapsedMs': WEEK_MS,
  'tools.shell.retry.budget.windowMs': CENTURY_MS,
  'tools.shell.circuit.windowMs': CENTURY_MS,
  'tools.shell.circuit.cooldownMs': CENTURY_MS,
  'tools.shell.circuit.probeLeaseMs': CENTURY_MS,
  'tools.shell.loopGuard.windowMs': CENTURY_MS,
  'tools.shell.ttl.doneMs': CENTURY_MS,
  'tools.shell.ttl.failedMs': CENTURY_MS,
  'tools.shell.ttl.failedKeptMs': CENTURY_MS,
  'tools.shell.ttl.cancelledMs': CENTURY_MS,
  'defaults.retry.maxElapsedMs': WEEK_MS,
  'defaults.circuit.cooldownMs': CENTURY_MS,
  'reliability.loopGuard.windowMs': CENTURY_MS,
  'memory.ttlMs': CENTURY_MS,
  'ttl.doneMs': CENTURY_MS,
  'ttl.failedMs': CENTURY_MS,
  'ttl.cancelledMs': CENTURY_MS,
  'budgets.tenants.acme.windowMs': CENTURY_MS,
};

test.each(Object.entries(LONGEST))('%s has a maximum, which is named', (path, longest) => {
  const withTime = (ms: unknown) => ({
    file: path.split('.').reduceRight<unknown>((value, key) => ({ [key]: value }), ms) as Record<string, unknown>,
  });
  expect(() => resolveSettings(withTime(longest))).not.toThrow();
  for (const ms of [longest + 1, 1e15, Number.POSITIVE_INFINITY, Number.NaN, 1.5, -1])
    expect(() => resolveSettings(withTime(ms)), String(ms)).toThrow(
      expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining(path) }),
    );
});

test('the longest interval fits into a timer, also where a few of them are waited for', () => {
  expect(WEEK_MS * 3).toBeLessThan(MAX_TIMER_MS);
  expect(() => resolveSettings({ environment: { PAWL_STALLED_INTERVAL_MS: '2592000000' } })).toThrow(
    'PAWL_STALLED_INTERVAL_MS (stalledIntervalMs)',
  );
});

test('every time in the configuration has a maximum', () => {
  const unbounded: string[] = [];
  const look = (schema: unknown, path: string): void => {
    if (typeof schema !== 'object' || schema === null) return;
    for (const [name, part] of Object.entries(schema)) {
      if (/Ms$/.test(name) && !/"maximum":/.test(JSON.stringify(part))) unbounded.push(`${path}.${name}`);
      look(part, `${path}.${name}`);
    }
  };
  look(z.toJSONSchema(settingsSchema, { io: 'input', unrepresentable: 'any' }), '');
  expect(unbounded.filter((path) => !path.endsWith('maxTimeMs'))).toEqual([]);
});
