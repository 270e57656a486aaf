/**
 * A worker of pg-boss: jobs fetched in batches and settled together, woken by NOTIFY, at once for more while batches are full.
 * pg-boss tells callers nothing of a job's end, so a trigger on the queue's table does.
 */
import { Client } from 'pg';
import { processOptions, serve } from '../../child.ts';
import { replyText } from '../../reply-text.ts';
import { noteRun } from '../../runs.ts';
import { type CallData, createQueue, QUEUE, startBoss } from './queue.ts';

const { storeUrl, concurrency } = processOptions();
const boss = await startBoss();
await createQueue(boss);
const queue = await boss.getQueue(QUEUE);
const client = new Client({ connectionString: storeUrl });
await client.connect();
await client.query(`
  create or replace function tell_caller() returns trigger language plpgsql as $$
  begin
    perform pg_notify(new.data->>'channel', new.id::text);
    return null;
  end $$;
  create or replace trigger tell_caller after update of state on pgboss.${queue?.table}
    for each row when (new.state = 'completed') execute function tell_caller();
`);
await client.end();
await boss.work<CallData, unknown, { batchSize: number; perJobResults: true; burstWhenBatchFull: boolean }>(
  QUEUE,
  { batchSize: concurrency, perJobResults: true, burstWhenBatchFull: true },
  async (jobs) =>
    jobs.map(({ id, data }) => {
      noteRun();
      return { id, status: 'completed', output: { text: replyText(data.bytes) } };
    }),
);
serve(() => boss.stop({ graceful: true, timeout: 1_000 }), {});
