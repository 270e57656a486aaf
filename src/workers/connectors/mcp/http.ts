/** An MCP server over streamable HTTP, reached through the guarded network: private addresses only where policy allows the host. */
import { StreamableHTTPClientTransport, type Transport } from '@modelcontextprotocol/client';
import type { McpConnectionOptions } from '../../../shared/mcp.ts';
import { openNetwork } from '../../network.ts';
import { type Environment, resolveValues } from './values.ts';

export function openHttpTransport(
  { url, headers }: Extract<McpConnectionOptions, { transport: 'http' }>,
  allowedHosts: readonly string[],
  environment: Environment,
): Transport {
  const closed = new AbortController();
  const network = openNetwork({ signal: closed.signal, allowedHosts });
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    fetch: (input, init) => network(input, init),
    requestInit: { headers: resolveValues(headers, environment) },
  });
  const close = transport.close.bind(transport);
  transport.close = async () => {
    // A courtesy to servers that keep sessions; whether it is heard does not matter.
    await Promise.race([
      transport.terminateSession().catch(() => undefined),
      new Promise((resolve) => setTimeout(resolve, 1_000).unref()),
    ]);
    await close();
    closed.abort();
  };
  return transport as Transport;
}
