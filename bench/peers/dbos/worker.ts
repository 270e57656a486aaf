/** A worker of DBOS: a workflow on a queue, which it polls. */
import { DBOS } from '@dbos-inc/dbos-sdk';
import { processOptions, serve } from '../../child.ts';
import { replyText } from '../../reply-text.ts';
import { noteRun } from '../../runs.ts';

/** The default is a second, which is what a call then waits for. */
const POLL_MS = 10;

const { storeUrl, concurrency } = processOptions();
DBOS.setConfig({ name: 'bench', systemDatabaseUrl: storeUrl, systemDatabasePoolSize: 20, logLevel: 'error' });
DBOS.registerWorkflow(
  async (bytes: number) => {
    noteRun();
    return replyText(bytes);
  },
  { name: 'reply' },
);
await DBOS.launch();
await DBOS.registerQueue('calls', { workerConcurrency: concurrency, minPollingIntervalMs: POLL_MS });
serve(() => DBOS.shutdown(), {});
