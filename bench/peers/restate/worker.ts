/** A worker of Restate: an HTTP/2 endpoint with a service, made known to the server. */
import { createServer } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { createEndpointHandler } from '@restatedev/restate-sdk';
import { processOptions, serve } from '../../child.ts';
import type { RestateUrls } from '../../stores/restate.ts';
import { calls } from './service.ts';

const { admin } = JSON.parse(processOptions().storeUrl) as RestateUrls;
const server = createServer(createEndpointHandler({ services: [calls] }));
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
const { port } = server.address() as AddressInfo;
const response = await fetch(`${admin}/deployments`, {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: JSON.stringify({ uri: `http://127.0.0.1:${port}` }),
});
if (!response.ok) throw new Error(`Restate did not take the service: ${await response.text()}`);
serve(async () => {
  server.close();
}, {});
