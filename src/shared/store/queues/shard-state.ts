/** The states of partitions and tiers as counts, each partition read in one step. */

import type { Redis } from '../redis/connection.ts';
import { type Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import type { Shards } from './shards.ts';

export interface ShardState {
  readonly inflight: number;
  /** Held by workers. */
  readonly running: number;
  /** Until the time of a retry. */
  readonly delayed: number;
  /** Until their callers want them to start. They are not counted in `inflight`. */
  readonly starting: number;
  readonly awaitingApproval: number;
  /** Completed by outside systems; not in flight. */
  readonly pending: number;
  /** Could run now, and no worker has taken them. */
  readonly waiting: number;
  /** Calls of unknown outcome that no operator has resolved. */
  readonly inDoubt: number;
  /** Among the oldest calls in flight. */
  readonly oldestWaitMs: number;
  /** Running with a lease that has ended, among the oldest calls in flight. */
  readonly stale: number;
}

/** The number of jobs that are read of each partition. */
const LOOKED_AT = 500;
const stateScript = new Script(new URL('./shard-state.lua', import.meta.url));

export async function readShardState(redis: Redis, prefix: string, partition: Partition): Promise<ShardState> {
  const keys = new PartitionKeys(prefix, partition);
  const counts = (await stateScript.run(
    redis,
    [keys.inflight, keys.job('active'), keys.job('delayed'), `${keys.approvals}s:pending`, keys.inDoubt, keys.pending],
    [keys.records, LOOKED_AT],
  )) as number[];
  const [inflight = 0, running = 0, delayed = 0, awaitingApproval = 0, inDoubt = 0, oldestWaitMs = 0, stale = 0] =
    counts;
  const [starting = 0, unapproved = 0, pending = 0] = counts.slice(7);
  const approved = starting - unapproved;
  return {
    inflight: Math.max(0, inflight - starting),
    running,
    // A call that awaits an approval or a completion has a delayed job, which ends the waiting.
    delayed: Math.max(0, delayed - awaitingApproval - approved - pending),
    starting: approved,
    awaitingApproval,
    // Calls wait for a worker in more than one list: they are what is in flight and neither runs nor waits for something else.
    waiting: Math.max(0, inflight - running - Math.max(delayed - pending, awaitingApproval + approved)),
    inDoubt,
    oldestWaitMs,
    stale,
    pending,
  };
}

/** The states of all tiers, in order. */
export function readTierStates(redis: Redis, prefix: string, shards: Pick<Shards, 'ofTiers'>): Promise<ShardState[]> {
  return shards.ofTiers((partition) => readShardState(redis, prefix, partition), together);
}

function together(one: ShardState, other: ShardState): ShardState {
  return {
    inflight: one.inflight + other.inflight,
    running: one.running + other.running,
    delayed: one.delayed + other.delayed,
    starting: one.starting + other.starting,
    awaitingApproval: one.awaitingApproval + other.awaitingApproval,
    waiting: one.waiting + other.waiting,
    inDoubt: one.inDoubt + other.inDoubt,
    oldestWaitMs: Math.max(one.oldestWaitMs, other.oldestWaitMs),
    stale: one.stale + other.stale,
    pending: one.pending + other.pending,
  };
}
