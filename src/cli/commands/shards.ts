/** `pawl shards`: the number of shards of each tier, and their state. */
import type { ShardView } from '../../producer/operations/fleet-services.ts';
import { MAX_SHARDS, shardCountSchema } from '../../shared/queues/shards.ts';
import { TIERS } from '../../shared/tools/tool.ts';
import { type CliContext, pawlCommand, printResult, say, usageError, withPawl } from '../context.ts';
import { type Column, table } from '../print.ts';

const COLUMNS: readonly Column<ShardView>[] = [
  { title: 'TIER', text: ({ tier }) => tier },
  { title: 'SHARD', align: 'right', text: ({ shard }) => String(shard) },
  { title: 'NEW SESSIONS', text: ({ takesSessions }) => (takesSessions ? 'yes' : 'no') },
  { title: 'WAITING', align: 'right', text: ({ waiting }) => String(waiting) },
  { title: 'RUNNING', align: 'right', text: ({ running }) => String(running) },
  { title: 'KEPT', align: 'right', text: ({ kept }) => String(kept) },
];
const CLUSTER_COLUMNS: readonly Column<ShardView>[] = [
  { title: 'SLOT', align: 'right', text: ({ slot }) => String(slot ?? '') },
  { title: 'NODE', text: ({ node }) => node ?? '' },
];

export const listShards = pawlCommand(async (context, pawl) => {
  show(context, await pawl.shards.list());
});

export async function setShards(context: CliContext, tierName: string, count: string): Promise<number> {
  const tier = TIERS.find((candidate) => candidate === tierName);
  if (tier === undefined)
    throw usageError(`There is no tier ${JSON.stringify(tierName)}; tiers are ${TIERS.join(', ')}.`);
  const shards = shardCountSchema.safeParse(Number(count));
  if (!shards.success) throw usageError(`A tier has 1 to ${MAX_SHARDS} shards; got ${JSON.stringify(count)}.`);
  return withPawl(context, async (pawl) => {
    await pawl.shards.set(tier, shards.data);
    const listed = (await pawl.shards.list()).filter((shard) => shard.tier === tier);
    show(context, listed);
    say(context, 'this applies to new sessions; every other session stays in its shard');
  });
}

function show(context: CliContext, shards: readonly ShardView[]): void {
  const inCluster = shards.some(({ slot }) => slot !== undefined);
  const columns = inCluster ? [...COLUMNS, ...CLUSTER_COLUMNS] : COLUMNS;
  printResult(context, { shards }, table(shards, columns));
}
