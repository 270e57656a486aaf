import { rmSync } from 'node:fs';
import { expect, test } from 'vitest';
import { z } from 'zod';
import {
  callsFindings,
  checkFleet,
  clockFinding,
  segmentFindings,
  shardsFindings,
  signatureFinding,
  tierKeyFindings,
  workersFinding,
} from '../../../src/cli/doctor/doctor-fleet.ts';
import { defineTool } from '../../../src/index.ts';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { ONE_SHARD_EACH } from '../../../src/shared/queues/shards.ts';
import { keyFingerprints } from '../../../src/shared/signing/signature.ts';
import { Catalogue, publishedTool } from '../../../src/shared/store/fleet/catalogue.ts';
import { Limits } from '../../../src/shared/store/limits/concurrency-limits.ts';
import { Shards } from '../../../src/shared/store/queues/shards.ts';
import { FleetKeys } from '../../../src/shared/store/redis/keys.ts';
import { TIERS } from '../../../src/shared/tools/tool.ts';
import { openBooks } from '../../shared/store/calls.ts';
import { done, filesIn, moverOf, openWithFiles } from '../../shared/store/segments/moved-calls.ts';

const key = (kid: string, key: string) => ({ kid, key: key.padEnd(16, key) });
const [OLD, NEW, OTHER] = [key('k1', 'old'), key('k2', 'new'), key('k1', 'other')];
const worker = (...keys: readonly (typeof OLD)[]) => ({ host: 'w', pid: 7, signing: keyFingerprints(keys) });
const here = (...signingKeys: readonly (typeof OLD)[]) => ({ redisUrl: 'redis://x', signingKeys: [...signingKeys] });

test.each([
  ['the same key', here(OLD), worker(OLD), 'ok'],
  ['a change of keys under way: each verifies what the other signs with', here(OLD, NEW), worker(NEW, OLD), 'ok'],
  ['another key of the same name', here(OLD), worker(OTHER), 'fail'],
  ['a key that the other side has not got yet', here(NEW, OLD), worker(OLD), 'fail'],
  ['none here', here(), worker(OLD), 'fail'],
  ['none there', here(OLD), worker(), 'fail'],
  ['none anywhere', here(), worker(), 'warn'],
])('signing keys: %s', (_case, settings, peer, state) => {
  const finding = signatureFinding(settings, [worker(...settings.signingKeys), peer]);
  expect(finding.state).toBe(state);
  if (state === 'fail') expect(finding.message).toContain('w pid 7 (');
  for (const { key: secret } of [OLD, NEW, OTHER]) expect(JSON.stringify(finding)).not.toContain(secret);
});

const systemWorker = (...keys: readonly (typeof OLD)[]) => ({
  host: 'w',
  pid: 7,
  tiers: ['system' as const, 'read-only' as const],
  ...(keys.length === 0 ? {} : { tierSigning: { system: keyFingerprints(keys) } }),
});

test.each([
  ['no keys anywhere', [], [], undefined],
  ['the same key', [OLD], [OLD], 'ok'],
  ['a change of keys under way: the new one is known here already', [NEW, OLD], [OLD], 'ok'],
  ['a worker that has the new key too early', [OLD], [NEW, OLD], 'fail'],
  ['another key of the same name', [OLD], [OTHER], 'fail'],
  ['none here', [], [OLD], 'fail'],
  ['none there', [OLD], [], 'fail'],
] as const)('keys of a tier: %s', (_case, own, theirs, state) => {
  const workerKeys = own.length === 0 ? {} : { system: [...own] };
  const [finding] = tierKeyFindings({ workerKeys }, [systemWorker(...theirs)]);
  expect(finding?.state).toBe(state);
  if (state === 'fail') expect(finding?.message).toContain('w pid 7 signs tools of system with');
  for (const { key: secret } of [OLD, NEW, OTHER]) expect(JSON.stringify(finding ?? {})).not.toContain(secret);
});

test('an embedded fleet signs with the key of its data folder', () => {
  expect(signatureFinding({ redisUrl: undefined, signingKeys: [] }, [worker(OLD)]).state).toBe('ok');
});

test('clocks: a difference above a second is reported, with the worker and the difference', () => {
  const at = (clockAheadMs: number) => ({ host: 'w', pid: 7, clockAheadMs });
  expect(clockFinding([at(900), { host: 'old', pid: 1 }], -900).state).toBe('ok');
  const wrong = clockFinding([at(-61_000)], 2_500);
  expect(wrong).toMatchObject({ state: 'warn', fix: expect.stringContaining('NTP') });
  expect(wrong.message).toContain('this machine is 2.5 s ahead of Redis, w pid 7 is 61.0 s behind Redis');
});

test('tiers without a worker: worth knowing, and something to mend once calls wait', () => {
  const quiet = TIERS.map(() => ({ waiting: 0 }));
  expect(workersFinding([{ tiers: [...TIERS] }], quiet).state).toBe('ok');
  expect(workersFinding([{ tiers: ['read-only'] }], quiet).state).toBe('warn');
  const waiting = TIERS.map((tier) => ({ waiting: tier === 'system' ? 2 : 0 }));
  expect(workersFinding([{ tiers: ['read-only'] }], waiting)).toMatchObject({
    state: 'fail',
    message: expect.stringContaining('2 calls of the tier system wait'),
    fix: `start one with 'pawl worker --tiers workspace,system,elevated'`,
  });
});

test('calls: calls in doubt and calls of dead workers are reported with the command that lists them', () => {
  const [quiet, busy] = [
    { inDoubt: 0, stale: 0 },
    { inDoubt: 2, stale: 1 },
  ];
  expect(callsFindings([quiet, quiet])).toEqual([]);
  expect(callsFindings([quiet, busy])).toMatchObject([
    {
      state: 'warn',
      message: expect.stringContaining('2 calls in doubt'),
      fix: expect.stringContaining('--state unresolved'),
    },
    { state: 'warn', message: expect.stringContaining('1 call lost'), fix: expect.stringContaining('--state running') },
  ]);
});

test('settings of tools: the calls under each limit, a tool that no worker has, and a parameter that its tool has not', async () => {
  const { redis, world } = await openBooks();
  const tool = defineTool({
    name: 'search',
    version: '1.0.0',
    description: 'Searches.',
    tier: 'read-only',
    input: z.strictObject({}),
    run: () => ({ output: '' }),
  });
  await new Catalogue(redis, world.prefix).publish([publishedTool(tool, Date.now())]);
  const limits = { concurrency: 1, perSecond: 9 };
  const settings = resolveSettings({
    options: {
      redisUrl: world.redisUrl,
      prefix: world.prefix,
      tools: { search: { limits, circuit: { targetParameter: 'url' } }, serach: { limits } },
      tenants: { acme: { limits: { perSecond: 3 } }, 'trial-*': { limits } },
    },
  });
  for (const jobId of ['a', 'b'])
    await new Limits(redis, world.prefix).acquire({ name: 'policy:tools.search', ...limits }, { jobId }, 30_000);
  await redis.zadd(new FleetKeys(world.prefix).limit('tenant:acme:acme').asking, 1, 'c', 2, 'd');
  const findings = await checkFleet(redis, settings);
  expect(findings.filter(({ check }) => check === 'circuits')).toMatchObject([
    {
      state: 'warn',
      message: 'circuit.targetParameter of tools.search must name a parameter, and the tool has none; got "url"',
    },
  ]);
  expect(findings.filter(({ check }) => check === 'limits')).toEqual([
    {
      check: 'limits',
      state: 'ok',
      message: 'tools.search: 1 of 1 run, 1 wait, 9 starts a second; tenant acme: 3 starts a second, 2 wait to start',
    },
    expect.objectContaining({ state: 'warn', message: 'tools.serach.limits: no worker offers a tool of this name' }),
  ]);
});

test('shards: a layout that an operator has set is reported, as a fault if another one is configured', () => {
  const set = (current: number, highest: number) => ({ ...ONE_SHARD_EACH, system: { current, highest, isSet: true } });
  expect(shardsFindings(ONE_SHARD_EACH, { system: 4 })).toEqual([]);
  expect(shardsFindings(set(2, 4), { system: 2 })).toEqual([{ check: 'shards', state: 'ok', message: 'system 2' }]);
  expect(shardsFindings(set(2, 2), { system: 4 })).toMatchObject([
    { state: 'warn', message: expect.stringContaining('system has 2, not 4') },
  ]);
});

test('segments: no finding without any; a missing one or another store is reported', async () => {
  const { books, folder } = await openWithFiles();
  const settingsWith = (change: SettingsInput) =>
    resolveSettings({ options: { redisUrl: books.world.redisUrl, prefix: books.world.prefix, ...change } });
  const check = async (change: SettingsInput) => {
    const shards = new Shards(books.redis, books.world.prefix);
    await shards.reload();
    return segmentFindings(books.redis, settingsWith(change), shards);
  };
  const here = { blobStore: `file:${folder}` };
  expect(await check(here)).toEqual([]);
  await done(books);
  await moverOf(books).run();
  expect(await check(here)).toMatchObject([{ state: 'ok', message: expect.stringContaining('1 call left Redis') }]);
  expect(await check({})).toMatchObject([{ state: 'fail', fix: expect.stringContaining('PAWL_BLOB_STORE') }]);
  expect(await check({ blobStore: 'file', segmentsAfterMs: 1_000 })).toMatchObject([
    { state: 'fail', message: expect.stringContaining('file:FOLDER') },
  ]);
  for (const file of filesIn(folder)) rmSync(file);
  expect(await check(here)).toMatchObject([{ state: 'fail', message: expect.stringContaining('1 segment') }]);
});
