import { expect, test } from 'vitest';
import { ONE_SHARD_EACH } from '../../../src/shared/queues/shards.ts';
import { ServedQueues } from '../../../src/workers/queue/served-queues.ts';

const TIER = 'read-only';

test('a shard that could not be served when it was new, because Redis refused that, is served at the next look', async () => {
  const told: string[] = [];
  let [highest, refuses] = [1, false];
  const shards = {
    get layout() {
      return { ...ONE_SHARD_EACH, [TIER]: { current: highest, highest, isSet: true } };
    },
    partitions: () => Array.from({ length: highest }, (_, shard) => ({ tier: TIER, shard }) as const),
  };
  const queues = new ServedQueues({
    shards,
    tiers: [TIER],
    concurrency: 1,
    recordCount: async () => 0,
    open({ shard }) {
      const tell = (what: string) => async () => void told.push(`${what} ${shard}`);
      const run = async () => {
        if (refuses) throw new Error('OOM command not allowed');
        told.push(`run ${shard}`);
      };
      return { run, share: tell('share'), stopFetching: tell('put back'), close: tell('close'), closeLocks() {} };
    },
  });
  await queues.refresh();
  [highest, refuses] = [2, true];
  await expect(queues.refresh()).rejects.toThrow('OOM');
  refuses = false;
  await queues.refresh();
  expect(told.filter((each) => each.startsWith('run'))).toEqual(['run 0', 'run 1']);
});
