/** In the place of a model's API, for the examples: answers with the next line of a script. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export async function scriptedApi(script: readonly object[]) {
  const answers = [...script];
  const server = createServer((request, response) => {
    request.resume().once('end', () => {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(answers.shift() ?? { error: { message: 'The script is over.' } }));
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  const close = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${port}`, close };
}
