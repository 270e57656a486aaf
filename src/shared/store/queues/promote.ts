/** Changes the times at which delayed jobs are due. */
import { partitionOf } from '../../calls/call-id.ts';
import type { Redis } from '../redis/connection.ts';
import { type Partition, PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { callOfJob } from './jobs.ts';

const promoteScript = new Script(new URL('./promote.lua', import.meta.url));
const boundScript = new Script(new URL('./bound-delays.lua', import.meta.url));

/**
 * Promotes a parked call: its delayed job becomes due at once. `absent`: the job is already queued, not parked yet, or removed. `ended`: its
 * call has ended.
 */
export async function promote(redis: Redis, prefix: string, jobId: string): Promise<'promoted' | 'absent' | 'ended'> {
  const { callId } = callOfJob(jobId);
  const partition = partitionOf(callId);
  if (partition === undefined) return 'absent';
  const keys = new PartitionKeys(prefix, partition);
  const [code] = await promoteScript.run(redis, [keys.record(callId), keys.job('')], [jobId]);
  return code as 'promoted' | 'absent' | 'ended';
}

/** Bounds the delays of retries and parked calls, which last for too long where Redis' clock was set back. */
export async function boundDelays(redis: Redis, prefix: string, partition: Partition): Promise<void> {
  const keys = new PartitionKeys(prefix, partition);
  await boundScript.run(redis, [keys.job(''), keys.record('')], []);
}
