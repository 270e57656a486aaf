import { afterAll, beforeAll, expect, test } from 'vitest';
import { type CliFixture, openPlace } from '../pawl.ts';

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('pawl shards shows each shard of each tier, and spreads new sessions among more or fewer', async () => {
  const env = { PAWL_SHARDS: 'read-only=3,system=2' };
  const set = await place.run(['shards', 'set', 'read-only', '2', '--json'], { env });
  expect(set.code).toBe(0);
  expect(JSON.parse(set.stdout).shards).toEqual(
    [0, 1, 2].map((shard) => ({
      tier: 'read-only',
      shard,
      takesSessions: shard < 2,
      waiting: 0,
      running: 0,
      kept: 0,
    })),
  );
  const { stdout } = await place.run(['shards'], { env });
  expect(stdout.split('\n').map((line) => line.trim().split(/ {2,}/).slice(0, 3).join(' '))).toEqual([
    'TIER SHARD NEW SESSIONS',
    'read-only 0 yes',
    'read-only 1 yes',
    'read-only 2 no',
    'workspace 0 yes',
    'system 0 yes',
    'system 1 yes',
    'elevated 0 yes',
    '',
  ]);
});

test('a wrong tier or number is a usage error that lists the valid ones', async () => {
  const tier = await place.run(['shards', 'set', 'fast', '2']);
  expect([tier.code, tier.stderr]).toEqual([
    2,
    'pawl: There is no tier "fast"; tiers are read-only, workspace, system, elevated.\n',
  ]);
  const number = await place.run(['shards', 'set', 'system', '65']);
  expect([number.code, number.stderr]).toEqual([2, 'pawl: A tier has 1 to 64 shards; got "65".\n']);
});
