/** A server that answers with what a test writes, over standard output or HTTP. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';
import { type McpFleet, startMcpFleet } from './mcp-rig.ts';

export type Call = (result: unknown) => ReturnType<McpFleet['session']['call']>;

export const said = { type: 'text', text: 'said' };

/** An answer with that text. A server puts the request's ID in the place of `"ID"`. */
export const answer = '{"jsonrpc":"2.0","id":"ID","result":{"content":[{"type":"text","text":"said"}]}}';

/** The tool `echo` of a server that is read-only here, so that any retriable failure would run it again. */
export async function overStdio() {
  const fleet = await startMcpFleet();
  await fleet.bring('odd', fleet.odd(), { readOnly: ['says', 'writes', 'echo'] });
  const call = (name: string, params: object) => fleet.session.call(name, { ...params }, { namespace: 'mcp.odd' });
  return {
    says: (result: unknown) => call('says', { result }),
    writes: (lines: readonly string[]) => call('writes', { lines }),
  };
}

/** The same over HTTP: each body is the present content of `body`, with `"ID"` replaced by the request's id. */
export async function overHttp(type: string | undefined, status = 200, readOnly = ['says']) {
  let calls = 0;
  let lines: readonly string[] = [];
  let whole: string | undefined;
  const server = createServer(async (asked, response) => {
    if (asked.method !== 'POST') return response.writeHead(405).end();
    const { id, method } = (await json(asked)) as { id?: number; method: string };
    const reply = (result: object) =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ jsonrpc: '2.0', id, result }));
    if (id === undefined) return response.writeHead(202).end();
    if (method === 'initialize')
      return reply({
        protocolVersion: '2025-11-25',
        capabilities: { tools: {} },
        serverInfo: { name: 'odd', version: '1' },
      });
    if (method === 'tools/list') return reply({ tools: [null, { name: 'says', inputSchema: { type: 'object' } }] });
    if (method !== 'tools/call') return response.writeHead(400).end();
    calls += 1;
    const sent = lines.map((line) => line.replaceAll('"ID"', String(id)));
    response.writeHead(status, type === undefined ? {} : { 'content-type': type });
    if (whole !== undefined) return response.end(whole.replaceAll('"ID"', String(id)));
    return response.end(
      type === 'application/json'
        ? sent.length === 1
          ? sent[0]
          : `[${sent.join(',')}]`
        : sent.map((line, index) => `event: message\r\nid: ${index}\r\ndata: ${line}\r\n\r\n`).join(''),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  const fleet = await startMcpFleet({ settings: { allowedHosts: [host] } });
  await fleet.bring('odd', { transport: 'http', url: `http://${host}/mcp`, headers: {} }, { readOnly });
  const writes = (given: readonly string[]) => {
    lines = given;
    calls = 0;
    return fleet.session.call('says', { nonce: Math.random() }, { namespace: 'mcp.odd' });
  };
  const responds = (body: string) => {
    whole = body;
    return writes([]);
  };
  const says: Call = (result) => writes([`{"jsonrpc":"2.0","id":"ID","result":${JSON.stringify(result)}}`]);
  return { says, writes, responds, calls: () => calls };
}
