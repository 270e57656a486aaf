/** A producer of pg-boss. The key is the job's ID, which the table holds once. */
import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { processOptions, serve } from '../../child.ts';
import { runLoad } from '../../load.ts';
import { Replies } from '../replies.ts';
import { type CallData, jobIdOf, QUEUE, startBoss } from './queue.ts';

const boss = await startBoss();
const table = (await boss.getQueue(QUEUE))?.table;
const channel = `c${randomUUID().replaceAll('-', '')}`;
const listener = new Client({ connectionString: processOptions().storeUrl });
await listener.connect();
await listener.query(`listen ${channel}`);
const replies = new Replies(listener, async (ids) => {
  const { rows } = await boss
    .getDb()
    .executeSql(`select id, output->>'text' as text from pgboss.${table} where id = any($1::uuid[])`, [ids]);
  return rows;
});

async function call(key: string, resultBytes: number): Promise<string> {
  const id = jobIdOf(key);
  const reply = replies.wait(id);
  const data: CallData = { bytes: resultBytes, channel };
  await boss.send(QUEUE, data, { id });
  return reply;
}

serve(
  async () => {
    await listener.end();
    await boss.stop({ graceful: false });
  },
  { load: (load) => runLoad(call, load) },
);
