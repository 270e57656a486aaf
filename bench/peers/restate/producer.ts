/** A producer of Restate: calls over HTTP, each with its idempotency key, which wait for the result. */
import { connect, rpc } from '@restatedev/restate-sdk-clients';
import { processOptions, serve } from '../../child.ts';
import { runLoad } from '../../load.ts';
import type { RestateUrls } from '../../stores/restate.ts';
import type { Calls } from './service.ts';

const { ingress } = JSON.parse(processOptions().storeUrl) as RestateUrls;
const client = connect({ url: ingress }).serviceClient<Calls>({ name: 'calls' });

async function call(key: string, resultBytes: number): Promise<string> {
  const { text } = await client.reply({ bytes: resultBytes }, rpc.opts({ idempotencyKey: key }));
  return text;
}

serve(async () => {}, { load: (load) => runLoad(call, load) });
