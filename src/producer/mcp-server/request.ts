/** What one MCP request says beside its parameters: who asks, in which session, under which key, and what the client can do. */
import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { ASKABLE } from '../../shared/asking.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/access.ts';
import { sessionOrNew } from '../http/sessions.ts';
import type { Session } from '../session.ts';

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';
/** Either in `_meta` or as a header of the same name in its usual spelling. */
const KEY_META = 'pawl/idempotencyKey';
const SESSION_META = 'pawl/session';

export interface McpClient {
  readonly caller: Caller;
  readonly capabilities: ClientCapabilities;
  readonly sessionKey: string;
  /** Of the client's own, or undefined. */
  readonly idempotencyKey: string | undefined;
  readonly canAsk: readonly (typeof ASKABLE)[number][];
  /** On this machine, where nobody has a token. */
  readonly isLocal: boolean;
  /** It takes a task in place of a result. */
  readonly takesTasks: boolean;
}

export function clientOf(
  ctx: ServerContext,
  caller: Caller,
  defaultSession: string,
  initialized: ClientCapabilities | undefined,
): McpClient {
  const envelope = ctx.mcpReq.envelope as Readonly<Record<string, unknown>> | undefined;
  const declared = envelope?.[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined;
  const capabilities = declared ?? initialized ?? {};
  const meta: Readonly<Record<string, unknown>> = ctx.mcpReq._meta ?? {};
  const text = (name: string, header: string) => {
    const value = meta[name] ?? ctx.http?.req?.headers.get(header) ?? undefined;
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  return {
    caller,
    capabilities,
    sessionKey: text(SESSION_META, 'pawl-session') ?? defaultSession,
    idempotencyKey: text(KEY_META, 'idempotency-key')?.replace(/^"(.*)"$/, '$1'),
    canAsk: ASKABLE.filter((kind) => capabilities[kind] !== undefined),
    isLocal: caller.id === 'local' || caller.id === 'stdio',
    takesTasks: envelope !== undefined && capabilities.extensions?.[TASKS_EXTENSION] !== undefined,
  };
}

/** The session of a client's calls. People are reached on the operator's page. */
export function sessionFor(
  pawl: Pawl,
  { caller, sessionKey }: Pick<McpClient, 'caller' | 'sessionKey'>,
): Promise<Session> {
  return sessionOrNew(pawl, caller, { sessionKey, channel: { kind: 'operator' } });
}
