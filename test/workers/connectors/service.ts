/** A service on loopback that connectors call. */
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly atMs: number;
}

export interface TestService {
  readonly host: string;
  readonly url: string;
  readonly asked: readonly Asked[];
}

export async function startTestService(
  answer: (asked: Asked, response: ServerResponse) => void | Promise<void>,
): Promise<TestService> {
  const asked: Asked[] = [];
  const server = createServer(async (request, response) => {
    const atMs = performance.now();
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url = '', headers } = request;
    const each = { method, url, headers, body: Buffer.concat(chunks).toString(), atMs };
    asked.push(each);
    await answer(each, response);
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((closed) => server.close(closed));
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { host, url: `http://${host}`, asked };
}

export function sendJson(response: ServerResponse, value: unknown, status = 200, headers: object = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(value));
}

/** While the gate is open, requests that should not have come are seen. */
const OPEN_MS = 50;

/**
 * Releases requests when this many are waiting, or all of the remaining ones. A limit below this number would make it
 * wait forever.
 */
export function door(atATime: number, total: number) {
  const inside: (() => void)[] = [];
  let [left, most] = [total, 0];
  const open = () => {
    left -= inside.length;
    for (const go of inside.splice(0)) go();
  };
  return {
    /** The number of requests that waited together. */
    most: () => most,
    enter: () =>
      new Promise<void>((leave) => {
        most = Math.max(most, inside.push(leave));
        if (inside.length === Math.min(atATime, left)) setTimeout(open, OPEN_MS);
      }),
  };
}
