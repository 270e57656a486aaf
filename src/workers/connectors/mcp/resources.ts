/** Resources of MCP servers as tools (C20): listed and read by name of the server. */
import { ProtocolError, ProtocolErrorCode, type ResourceTemplateType } from '@modelcontextprotocol/client';
import { PawlError } from '../../../shared/failure.ts';
import type { McpResourceRouting } from '../../../shared/mcp.ts';
import type { ToolResult } from '../../../shared/tool.ts';
import type { McpConnection } from './connection.ts';
import { resourceBlock } from './results.ts';

interface Reach {
  readonly servers: readonly string[];
  readonly signal: AbortSignal;
  connectionTo(server: string): McpConnection;
}

export async function resourceTool(
  kind: McpResourceRouting['resources'],
  params: Readonly<Record<string, unknown>>,
  reach: Reach,
): Promise<ToolResult<unknown>> {
  const server = text(params['server']);
  const cursor = text(params['cursor']);
  if (kind === 'read') return read(server ?? '', text(params['uri']) ?? '', reach);
  if (server === undefined && cursor !== undefined)
    throw new PawlError('INVALID_PARAMS', '`cursor` needs the `server` that gave it.');
  const servers = server === undefined ? reach.servers : [server];
  const asked = await Promise.allSettled(servers.map((each) => list(kind, each, cursor, reach)));
  reach.signal.throwIfAborted();
  const pages = asked.flatMap((page) => (page.status === 'fulfilled' ? [page.value] : []));
  // One server that cannot answer hides nothing of the others.
  const failed = asked.flatMap((page, index) =>
    page.status === 'rejected' ? [{ server: servers[index] ?? '', reason: page.reason as unknown }] : [],
  );
  const [first] = failed;
  if (first !== undefined && pages.length === 0) throw first.reason;
  const nextCursor = server === undefined ? undefined : pages[0]?.nextCursor;
  return {
    output: {
      [kind === 'list' ? 'resources' : 'resourceTemplates']: pages.flatMap(({ entries }) => entries),
      ...(nextCursor === undefined ? {} : { nextCursor }),
      ...(failed.length === 0 ? {} : { failed: failed.map(({ server, reason }) => ({ server, error: said(reason) })) }),
    },
  };
}

function said(reason: unknown): string {
  return reason instanceof Error ? reason.message : String(reason);
}

interface Page {
  readonly entries: readonly object[];
  readonly nextCursor: string | undefined;
}

function list(kind: 'list' | 'templates', server: string, cursor: string | undefined, reach: Reach): Promise<Page> {
  const params = cursor === undefined ? undefined : { cursor };
  return reach.connectionTo(server).request(reach.signal, async (client, options): Promise<Page> => {
    if (kind === 'list') {
      const { resources, nextCursor } = await client.listResources(params, options);
      const entries = resources.map((resource) => ({ server, ...shown(resource), uri: resource.uri }));
      return { entries, nextCursor: nextCursor || undefined };
    }
    const { resourceTemplates, nextCursor } = await client.listResourceTemplates(params, options).catch(noTemplates);
    const entries = resourceTemplates.map((template: ResourceTemplateType) => ({
      server,
      ...shown(template),
      uriTemplate: template.uriTemplate,
    }));
    return { entries, nextCursor: nextCursor || undefined };
  });
}

/** Many servers that have resources do not know templates. */
function noTemplates(error: unknown): { readonly resourceTemplates: []; readonly nextCursor: undefined } {
  if (!ProtocolError.isInstance(error) || error.code !== ProtocolErrorCode.MethodNotFound) throw error;
  return { resourceTemplates: [], nextCursor: undefined };
}

function shown(entry: {
  readonly name: string;
  readonly title?: string | undefined;
  readonly description?: string | undefined;
  readonly mimeType?: string | undefined;
}) {
  const { name, title, description, mimeType } = entry;
  return {
    name,
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(mimeType === undefined ? {} : { mimeType }),
  };
}

async function read(server: string, uri: string, reach: Reach): Promise<ToolResult<unknown>> {
  const { contents } = await reach
    .connectionTo(server)
    .request(reach.signal, (client, options) => client.readResource({ uri }, options));
  const blocks = contents.map(resourceBlock);
  const written = blocks.flatMap((block) => block.text ?? []).join('\n');
  return {
    // What is not text is for models that can look at it, and stands beside the output alone.
    output: { server, uri, contents: blocks.map(({ type: _, blob: __, ...told }) => told) },
    ...(written === '' ? {} : { display: written }),
    ...(blocks.some(({ blob }) => blob !== undefined) ? { content: blocks } : {}),
  };
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
