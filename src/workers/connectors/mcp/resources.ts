/** Resources of MCP servers as tools: listed and read by the server's name. */
import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/client';
import type { McpResourceRouting } from '../../../shared/connectors/mcp-routing.ts';
import { PawlError, reasonOf } from '../../../shared/errors/failure.ts';
import type { ToolResult } from '../../../shared/tools/tool-result.ts';
import { isObject } from '../../../shared/util/json/json-types.ts';
import type { McpConnection } from './connection.ts';
import { type Listed, list } from './listing.ts';
import { resourceBlock } from './results.ts';

interface ServerAccess {
  readonly servers: readonly string[];
  readonly signal: AbortSignal;
  connectionTo(server: string): McpConnection;
}

export async function resourceTool(
  kind: McpResourceRouting['resources'],
  params: Readonly<Record<string, unknown>>,
  access: ServerAccess,
): Promise<ToolResult<unknown>> {
  const server = text(params['server']);
  const cursor = text(params['cursor']);
  if (kind === 'read') return read(server ?? '', text(params['uri']) ?? '', access);
  if (server === undefined && cursor !== undefined)
    throw new PawlError('INVALID_PARAMS', '`cursor` needs the `server` that gave it.');
  const servers = server === undefined ? access.servers : [server];
  const answers = await Promise.allSettled(servers.map((each) => listPage(kind, each, cursor, access)));
  access.signal.throwIfAborted();
  const pages = answers.flatMap((page) => (page.status === 'fulfilled' ? [page.value] : []));
  // One server's failure must not hide the resources of the others.
  const failed = answers.flatMap((page, index) =>
    page.status === 'rejected' ? [{ server: servers[index] ?? '', reason: page.reason as unknown }] : [],
  );
  const [first] = failed;
  if (first !== undefined && pages.length === 0) throw first.reason;
  const nextCursor = server === undefined ? undefined : pages[0]?.nextCursor;
  const leftOut = pages.flatMap((page) => page.leftOut);
  return {
    output: {
      [kind === 'list' ? 'resources' : 'resourceTemplates']: pages.flatMap(({ entries }) => entries),
      ...(nextCursor !== undefined && { nextCursor }),
      ...(leftOut.length === 0 ? {} : { leftOut }),
      ...(failed.length === 0
        ? {}
        : { failed: failed.map(({ server, reason }) => ({ server, error: reasonOf(reason) })) }),
    },
  };
}

interface Page {
  readonly entries: readonly object[];
  /** The positions of invalid entries. */
  readonly leftOut: readonly string[];
  readonly nextCursor: string | undefined;
}

const LISTS = {
  list: { method: 'resources/list', address: 'uri' },
  templates: { method: 'resources/templates/list', address: 'uriTemplate' },
} as const;

function listPage(
  kind: keyof typeof LISTS,
  server: string,
  cursor: string | undefined,
  access: ServerAccess,
): Promise<Page> {
  const { method, address } = LISTS[kind];
  return access.connectionTo(server).request(access.signal, async (client, options): Promise<Page> => {
    const page = list(client, method, cursor, options);
    const { entries, nextCursor } = await (kind === 'list' ? page : page.catch(noTemplates));
    const usable = entries.map((entry) => toEntry(entry, server, address));
    return {
      entries: usable.filter((entry) => entry !== undefined),
      leftOut: usable.flatMap((entry, index) =>
        entry === undefined ? [`entry ${index + 1} of ${server} has no ${address}`] : [],
      ),
      nextCursor,
    };
  });
}

/** Many servers that have resources do not know templates. */
function noTemplates(error: unknown): Listed {
  if (!ProtocolError.isInstance(error) || error.code !== ProtocolErrorCode.MethodNotFound) throw error;
  return { entries: [], nextCursor: undefined };
}

function toEntry(entry: unknown, server: string, address: 'uri' | 'uriTemplate'): object | undefined {
  if (!isObject(entry) || typeof entry[address] !== 'string') return undefined;
  const { name, title, description, mimeType } = entry;
  const details = Object.entries({ title, description, mimeType }).filter(([, value]) => typeof value === 'string');
  return {
    server,
    name: typeof name === 'string' ? name : entry[address],
    ...Object.fromEntries(details),
    [address]: entry[address],
  };
}

async function read(server: string, uri: string, access: ServerAccess): Promise<ToolResult<unknown>> {
  const { contents } = await access
    .connectionTo(server)
    .request(access.signal, (client, options) => client.readResource({ uri }, options));
  const blocks = contents.map((each) => resourceBlock({ ...each, uri: each.uri || uri }));
  const textContent = blocks.flatMap((block) => block.text ?? []).join('\n');
  return {
    // Content that is not text is for models that can see it, and stands beside the output.
    output: { server, uri, contents: blocks.map(({ type: _, blob: __, ...details }) => details) },
    ...(textContent === '' ? {} : { display: textContent }),
    ...(blocks.some(({ blob }) => blob !== undefined) ? { content: blocks } : {}),
  };
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
