import { expect, test } from 'vitest';
import { z } from 'zod';
import { type ServerFacts, serverFaults, unfitServer } from '../../../src/shared/config/durability.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import type { Effects } from '../../../src/shared/retries/effects.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { Tier } from '../../../src/shared/tools/tool.ts';

function toolOf(name: string, tier: Tier, effects: Effects) {
  const input = z.strictObject({});
  return defineTool({ name, version: '1.0.0', description: name, tier, effects, input, run: () => ({ output: null }) });
}

const reader = toolOf('reader', 'read-only', 'none');
const payer = toolOf('payer', 'workspace', 'once');
const deleter = toolOf('deleter', 'elevated', 'idempotent');
const GOOD: ServerFacts = { version: '7.0.15', evictionPolicy: 'noeviction', persistence: 'everysec' };

test('a Redis that evicts is refused by tools with effects once and of the elevated tier, with the command that mends it', () => {
  const evicting = { ...GOOD, evictionPolicy: 'allkeys-lru' };
  const settings = resolveSettings({});
  expect(serverFaults(evicting, [reader], settings)).toEqual([]);
  for (const tool of [payer, deleter]) {
    const [fault] = serverFaults(evicting, [reader, tool], settings);
    expect(fault).toMatchObject({ setting: 'maxmemory-policy', fix: 'CONFIG SET maxmemory-policy noeviction' });
    expect(fault?.message).toMatch(new RegExp(`allkeys-lru.*tools\\.${tool.name} `));
    expect(fault?.message).not.toContain('reader');
  }
  expect(serverFaults(GOOD, [reader, payer, deleter], settings)).toEqual([]);
  expect(serverFaults({ ...GOOD, evictionPolicy: undefined }, [payer], settings)).toEqual([]);
});

test.each([
  ['always', GOOD, 'appendfsync', 'CONFIG SET appendfsync always'],
  ['always', { ...GOOD, persistence: 'none' }, 'appendfsync', 'appendonly yes'],
  ['always', { ...GOOD, persistence: 'unloadable' }, 'appendfsync', 'ACL SETUSER default'],
  ['always', { ...GOOD, persistence: 'always' }, undefined, ''],
  ['waitaof', GOOD, 'version', 'Redis 7.2'],
  ['waitaof', { ...GOOD, version: '8.0.2', persistence: 'none' }, 'appendonly', 'appendonly yes'],
  ['waitaof', { ...GOOD, version: '8.0.2', persistence: 'unloadable' }, 'appendonly', 'ACL SETUSER default'],
  ['waitaof', { ...GOOD, version: '7.2.0' }, undefined, ''],
] as const)('durability %s for a tool with effects once on %o', (durability, server, setting, fix) => {
  for (const settings of [{ durability }, { tools: { payer: { durability } } }]) {
    const faults = serverFaults(server, [reader, payer], resolveSettings({ options: settings }));
    expect(faults.map((fault) => fault.setting)).toEqual(setting === undefined ? [] : [setting]);
    if (setting !== undefined) expect(faults[0]?.fix).toContain(fix);
  }
  // What may run again loses nothing that matters.
  expect(serverFaults(server, [reader], resolveSettings({ options: { durability } }))).toEqual([]);
});

test('the error names every fault, its setting and its remedy', () => {
  const settings = resolveSettings({ options: { durability: 'always' } });
  const error = unfitServer(serverFaults({ ...GOOD, evictionPolicy: 'volatile-lru' }, [payer], settings));
  expect(error.code).toBe('CONFIGURATION');
  expect(error.issues?.map(({ path }) => path)).toEqual(['maxmemory-policy', 'appendfsync']);
  expect(error.message).toContain('CONFIG SET maxmemory-policy noeviction');
});
