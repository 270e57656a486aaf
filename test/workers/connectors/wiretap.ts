/** A wire to an MCP server over HTTP, on which a test listens and which it cuts. */
import { createServer, type IncomingHttpHeaders, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';
import { onTestFinished } from 'vitest';

interface Wiretap {
  readonly url: string;
  /** `host:port`. */
  readonly host: string;
  /** The requests, in order. */
  readonly seen: readonly IncomingHttpHeaders[];
  /** Breaks all connections, and answers no further request. */
  cut(): void;
  mend(): void;
}

/** A proxy that records the requests. */
export async function tap(target: string): Promise<Wiretap> {
  const seen: IncomingHttpHeaders[] = [];
  let isCut = false;
  const proxy = createServer((asked, response) => {
    seen.push(asked.headers);
    const options = { method: asked.method ?? 'GET', headers: asked.headers, agent: false } as const;
    const onward = request(`${target}${asked.url}`, options, (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      // A server that dies loses its answer.
      pipeline(answer, response, () => response.destroy());
    });
    onward.on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    asked.pipe(onward);
  });
  proxy.on('connection', (socket) => isCut && socket.destroy());
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const end = () => proxy.closeAllConnections();
  onTestFinished(() => {
    proxy.close();
    end();
  });
  const host = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  const cut = () => {
    isCut = true;
    end();
  };
  return { url: `http://${host}/mcp`, host, seen, cut, mend: () => (isCut = false) };
}

export const connectionTo = (url: string, headers = {}) => ({ transport: 'http' as const, url, headers });
