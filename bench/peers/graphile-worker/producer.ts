/** A producer of graphile-worker. The key is the job's key: one job at a time has it. */
import { randomUUID } from 'node:crypto';
import { makeWorkerUtils } from 'graphile-worker';
import { Client, Pool } from 'pg';
import { processOptions, serve } from '../../child.ts';
import { runLoad } from '../../load.ts';
import { Replies } from '../replies.ts';

const { storeUrl } = processOptions();
const pool = new Pool({ connectionString: storeUrl, max: 10 });
pool.on('error', (error) => console.error(error));
pool.on('connect', (client) => client.on('error', (error) => console.error(error)));
const utils = await makeWorkerUtils({ pgPool: pool });
const channel = `c${randomUUID().replaceAll('-', '')}`;
const listener = new Client({ connectionString: storeUrl });
await listener.connect();
await listener.query(`listen ${channel}`);
const replies = new Replies(listener, async (keys) => {
  const { rows } = await pool.query<{ id: string; text: string }>({
    name: 'results',
    text: 'select key as id, text from results where key = any($1::text[])',
    values: [keys],
  });
  return rows;
});

async function call(key: string, resultBytes: number): Promise<string> {
  const reply = replies.wait(key);
  await utils.addJob('reply', { key, bytes: resultBytes, channel }, { jobKey: key });
  return reply;
}

serve(
  async () => {
    await listener.end();
    await utils.release();
    await pool.end();
  },
  { load: (load) => runLoad(call, load) },
);
