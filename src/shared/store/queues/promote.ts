/** Promoting parked calls: their delayed jobs become due at once. */
import { partitionOf } from '../../calls/call-id.ts';
import type { Redis } from '../redis/connection.ts';
import { PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { callOfJob } from './jobs.ts';

const promoteScript = new Script(new URL('./promote.lua', import.meta.url));

/** `absent`: the job is already queued, not parked yet, or removed. `ended`: its call has ended. */
export async function promote(redis: Redis, prefix: string, jobId: string): Promise<'promoted' | 'absent' | 'ended'> {
  const { callId } = callOfJob(jobId);
  const partition = partitionOf(callId);
  if (partition === undefined) return 'absent';
  const keys = new PartitionKeys(prefix, partition);
  const [code] = await promoteScript.run(redis, [keys.record(callId), keys.job('')], [jobId]);
  return code as 'promoted' | 'absent' | 'ended';
}
