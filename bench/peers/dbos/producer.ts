/** A producer of DBOS. The key is the workflow's ID; the result is polled for, as `getResult` does. */
import { DBOSClient } from '@dbos-inc/dbos-sdk';
import { processOptions, serve } from '../../child.ts';
import { runLoad } from '../../load.ts';

/**
 * The default is a second, which is what a call then takes. Measured: short intervals are best for a call that comes alone, and
 * their queries get in the way of the calls themselves where there are many.
 */
const ALONE_POLL_MS = 5;
const BUSY_POLL_MS = 25;
let pollingIntervalMs = BUSY_POLL_MS;

const client = await DBOSClient.create({ systemDatabaseUrl: processOptions().storeUrl });

async function call(key: string, resultBytes: number): Promise<string> {
  const handle = await client.enqueue<(bytes: number) => Promise<string>>(
    { queueName: 'calls', workflowName: 'reply', workflowID: key },
    resultBytes,
  );
  return handle.getResult({ pollingIntervalMs });
}

serve(() => client.destroy(), {
  load: (load) => {
    pollingIntervalMs = 'inFlight' in load.pace && load.pace.inFlight === 1 ? ALONE_POLL_MS : BUSY_POLL_MS;
    return runLoad(call, load);
  },
});
