/** The routing of an MCP server's tool in the registry: where and how to call it. */
import { z } from 'zod';
import { TOOL_FORMS } from '../tools/tool.ts';
import { headerName, variableSchema } from './connector.ts';

const serverName = z.string().regex(TOOL_FORMS.name.form, `must be ${TOOL_FORMS.name.words}`);

/** The text itself, or the worker's environment variable that holds it. */
const valueSchema = z.union([z.string().max(8_192), variableSchema]);

export type McpValue = z.output<typeof valueSchema>;

export const mcpConnectionSchema = z.discriminatedUnion('transport', [
  z.strictObject({
    transport: z.literal('stdio'),
    /** Program and arguments, exactly as they are started: no shell reads them. */
    command: z.tuple([z.string().min(1)], z.string()),
    /** Variables beside those that the worker's allow list passes on. */
    environment: z.record(z.string(), valueSchema).default({}),
    /** The one folder that the server may write to. Default: its own folder in the data folder. */
    folder: z.string().startsWith('/', 'must be an absolute path').optional(),
    /** Whether it may use the network where it is sandboxed. */
    network: z.boolean().default(false),
  }),
  z.strictObject({
    transport: z.literal('http'),
    url: z.url({ protocol: /^https?$/ }),
    headers: z.record(headerName, valueSchema).default({}),
  }),
]);

export type McpConnectionOptions = z.output<typeof mcpConnectionSchema>;

/** The `routing` of a declared tool of kind `mcp`. */
export const mcpRoutingSchema = z.union([
  z.strictObject({
    server: serverName,
    connection: mcpConnectionSchema,
    /** The name that the server uses. */
    tool: z.string().min(1).max(1_024),
    /** The digest of the accepted definition: the tool does not run under another one. */
    digest: z.string().min(1),
  }),
  z.strictObject({
    resources: z.enum(['list', 'templates', 'read']),
    servers: z.record(serverName, mcpConnectionSchema),
  }),
]);

type McpRouting = z.output<typeof mcpRoutingSchema>;

export type McpToolRouting = Extract<McpRouting, { tool: string }>;

export type McpResourceRouting = Extract<McpRouting, { resources: string }>;
