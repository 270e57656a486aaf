/** The states of partitions and tiers as counts, each partition read in one step. */
import type { Redis } from '../redis/connection.ts';
import { type Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { addCounts, type Shards } from './shards.ts';

export interface ShardState {
  readonly inflight: number;
  /** Held by workers. */
  readonly running: number;
  /** Waiting for a retry, or parked. */
  readonly delayed: number;
  /** Delayed until the start that their callers chose. They are not counted in `inflight`. */
  readonly starting: number;
  readonly awaitingApproval: number;
  /** Completed by outside systems; not in flight. */
  readonly pending: number;
  /** Ready to run, not fetched by a worker yet. */
  readonly waiting: number;
  /** Calls of unknown outcome that no operator has resolved. */
  readonly inDoubt: number;
  /** The longest wait among the oldest calls in flight. */
  readonly oldestWaitMs: number;
  /** Running calls whose lease has ended, among the oldest calls in flight. */
  readonly stale: number;
}

/** The number of calls that are read in each partition. */
const MAX_CALLS_READ = 500;
const stateScript = new Script(new URL('./shard-state.lua', import.meta.url));

export async function readShardState(redis: Redis, prefix: string, partition: Partition): Promise<ShardState> {
  const keys = new PartitionKeys(prefix, partition);
  const counts = (await stateScript.run(
    redis,
    [keys.inflight, keys.job('active'), keys.job('delayed'), `${keys.approvals}s:pending`, keys.inDoubt, keys.pending],
    [keys.records, MAX_CALLS_READ],
  )) as number[];
  const [inflight = 0, running = 0, delayed = 0, awaitingApproval = 0, inDoubt = 0, oldestWaitMs = 0, stale = 0] =
    counts;
  const [starting = 0, unapproved = 0, pending = 0] = counts.slice(7);
  const approved = starting - unapproved;
  return {
    inflight: Math.max(0, inflight - starting),
    running,
    // A call that awaits an approval or a completion has a delayed job, which ends the wait at its deadline.
    delayed: Math.max(0, delayed - awaitingApproval - approved - pending),
    starting: approved,
    awaitingApproval,
    // Calls wait for a worker in more than one list, so they are counted as the rest of those in flight.
    waiting: Math.max(0, inflight - running - Math.max(delayed - pending, awaitingApproval + approved)),
    inDoubt,
    oldestWaitMs,
    stale,
    pending,
  };
}

/** The states of all tiers, in order. */
export function readTierStates(redis: Redis, prefix: string, shards: Pick<Shards, 'sumByTier'>): Promise<ShardState[]> {
  return shards.sumByTier((partition) => readShardState(redis, prefix, partition), addStates);
}

function addStates(one: ShardState, other: ShardState): ShardState {
  return { ...addCounts(one, other), oldestWaitMs: Math.max(one.oldestWaitMs, other.oldestWaitMs) };
}
