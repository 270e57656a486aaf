/** The ledger's counts of each tier, summed over its shards; tiers in order. */
import type { Backend } from '../../shared/store/backend.ts';
import { addCounts } from '../../shared/store/queues/shards.ts';

type Records = Pick<Backend, 'ledger' | 'shards'>;

/** Counts of calls in flight, delayed calls, pending calls, and all records. */
export function tierCounts({ ledger, shards }: Records) {
  return shards.sumByTier((partition) => ledger.index.counts(partition), addCounts);
}

/** The number of call records of each tool (`namespace.name`). */
export function tierSizes({ ledger, shards }: Records): Promise<ReadonlyMap<string, number>[]> {
  return shards.sumByTier(
    (partition) => ledger.index.sizes(partition),
    (one, other) => {
      const sum = new Map(one);
      for (const [tool, count] of other) sum.set(tool, (sum.get(tool) ?? 0) + count);
      return sum;
    },
  );
}

/** How many dead letters each tier has, in the order of the tiers. */
export function tierDeadLetters({ deadLetters, shards }: Pick<Backend, 'deadLetters' | 'shards'>): Promise<number[]> {
  return shards.sumByTier(
    (partition) => deadLetters.count(partition),
    (one, other) => one + other,
  );
}

/** How many calls of each tier were moved to segments, and how many of its segments are lost. */
export function tierSegments({ ledger, shards }: Records) {
  return shards.sumByTier((partition) => ledger.access.segments.counts(ledger.keys(partition)), addCounts);
}
