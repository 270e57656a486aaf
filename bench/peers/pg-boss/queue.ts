import { createHash } from 'node:crypto';
import { PgBoss } from 'pg-boss';
import { processOptions } from '../../child.ts';

export const QUEUE = 'calls';

export interface CallData {
  readonly bytes: number;
  /** The channel on which its producer listens. */
  readonly channel: string;
}

/** What is kept, and swept, as the other sides do: finished jobs for some seconds. */
const KEPT_SECONDS = 5;

export async function startBoss(): Promise<PgBoss> {
  // NOTIFY wakes the worker; its own upkeep runs as by default.
  const boss = new PgBoss({ connectionString: processOptions().storeUrl, useListenNotify: true });
  boss.on('error', (error) => console.error(error));
  await boss.start();
  return boss;
}

export async function createQueue(boss: PgBoss): Promise<void> {
  await boss.createQueue(QUEUE, { notify: true, partition: true, deleteAfterSeconds: KEPT_SECONDS, retryLimit: 3 });
}

/** Job IDs are UUIDs: one for each key. */
export function jobIdOf(key: string): string {
  const hex = createHash('sha1').update(key).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-5${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
