/** Calls that were put aside, and whose waiting is over: their delayed jobs are taken up at once. */
import { placeOf } from '../../calls/call-id.ts';
import type { Redis } from '../redis/connection.ts';
import { PartitionKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';
import { callOfJob } from './jobs.ts';

const promoteScript = new Script(new URL('./promote.lua', import.meta.url));

/** `absent`: it is on its way already, not put aside yet, or no job: it comes by itself. `ended`: its call needs it no more. */
export async function promote(redis: Redis, prefix: string, jobId: string): Promise<'promoted' | 'absent' | 'ended'> {
  const { callId } = callOfJob(jobId);
  const partition = placeOf(callId);
  if (partition === undefined) return 'absent';
  const keys = new PartitionKeys(prefix, partition);
  const [code] = await promoteScript.run(redis, [keys.record(callId), keys.job('')], [jobId]);
  return code as 'promoted' | 'absent' | 'ended';
}
