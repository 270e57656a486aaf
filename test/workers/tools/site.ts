import { createServer, type IncomingMessage, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { webFetch } from '../../../src/workers/tools/web-fetch.ts';
import { testContext } from '../../helpers/context.ts';

/** A server on loopback, and a context whose policy allows it. `asked` are the requests that it received. */
export async function site(listener: RequestListener) {
  const asked: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    asked.push(request);
    listener(request, response);
  }).listen(0, '127.0.0.1');
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, port, host: `127.0.0.1:${port}`, asked };
}

/** Fetches a page of a site that answers as `listener` does. */
export const fetched = async (
  path: string,
  listener: RequestListener,
  more: Partial<Parameters<typeof webFetch.parse>[0] & object> = {},
) => {
  const { url, host, asked } = await site(listener);
  const result = webFetch.run(
    webFetch.parse({ url: url + path, ...more }),
    testContext({ allowedHosts: [host], tier: 'read-only', needs: ['network'] }),
  );
  return { result: Promise.resolve(result), url, asked };
};
