/**
 * A worker of graphile-worker, set up for throughput as its documentation says: a local queue, and completions in batches. It keeps
 * no results, so the task writes its result, once for each key, and notifies its caller, in one statement.
 */
import { Logger, run } from 'graphile-worker';
import { Pool } from 'pg';
import { processOptions, serve } from '../../child.ts';
import { replyText } from '../../reply-text.ts';
import { noteRun } from '../../runs.ts';

const KEPT_SECONDS = 5;
const SWEEP_MS = 1_000;

const { storeUrl, concurrency } = processOptions();
const pool = new Pool({ connectionString: storeUrl, max: concurrency + 2 });
pool.on('error', (error) => console.error(error));
pool.on('connect', (client) => client.on('error', (error) => console.error(error)));
await pool.query(`
  create table if not exists results (
    key text primary key, text text not null, ended_at timestamptz not null default now());
  create index if not exists results_ended_at on results (ended_at);
`);
const runner = await run({
  pgPool: pool,
  concurrency,
  noHandleSignals: true,
  logger: new Logger(() => () => {}),
  preset: {
    worker: {
      concurrentJobs: concurrency,
      localQueue: { size: concurrency + 1 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
    },
  },
  taskList: {
    reply: async (payload, { withPgClient }) => {
      noteRun();
      const { key, bytes, channel } = payload as { key: string; bytes: number; channel: string };
      await withPgClient((client) =>
        client.query({
          name: 'reply',
          text: `with kept as (insert into results (key, text) values ($1, $2) on conflict do nothing) select pg_notify($3, $1)`,
          values: [key, replyText(bytes), channel],
        }),
      );
    },
  },
});
const sweep = setInterval(() => {
  pool
    .query(`delete from results where ended_at < now() - interval '${KEPT_SECONDS} seconds'`)
    .catch((error) => console.error(error));
}, SWEEP_MS);
serve(async () => {
  clearInterval(sweep);
  await runner.stop();
  await pool.end();
}, {});
