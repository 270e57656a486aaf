/** An HTTP server that receives callbacks. */
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Received {
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: string;
}

export interface Receiver {
  readonly url: string;
  readonly received: readonly Received[];
  close(): void;
}

/** `answer` gets the number of the request, from 1. Default: each one is taken. */
export async function openReceiver(
  answer: (response: ServerResponse, number: number, path: string) => void = (response) => void response.end(),
  port = 0,
): Promise<Receiver> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part;
    });
    request.on('end', () => {
      received.push({ headers: request.headers as Received['headers'], body });
      answer(response, received.length, request.url ?? '');
    });
  });
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  onTestFinished(close);
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/told`, received, close };
}
