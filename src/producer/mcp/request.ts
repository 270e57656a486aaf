/** The client of one MCP request: its caller, session, idempotency key and capabilities. */
import {
  CLIENT_CAPABILITIES_META_KEY,
  type ClientCapabilities,
  MissingRequiredClientCapabilityError,
  type ServerContext,
} from '@modelcontextprotocol/server';
import { callbackUrlSchema } from '../../shared/callbacks/callback.ts';
import { CLIENT_REQUEST_KINDS } from '../../shared/calls/elicitation.ts';
import { MAX_TURN_ID, parseKeyHeader, validTraceparent } from '../../shared/calls/envelope.ts';
import { type StartOptions, startTimeOf } from '../../shared/calls/start-time.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import type { Pawl } from '../client.ts';
import type { Caller } from '../http/core/access.ts';
import { findOrOpenSession } from '../http/routes/sessions.ts';
import type { Session } from '../sessions/session.ts';
import { invalidParams } from './errors.ts';
import type { McpTool } from './tools.ts';

export const TASKS_EXTENSION = 'io.modelcontextprotocol/tasks';
/** The idempotency key comes in `_meta`, in the header `Idempotency-Key`, or as an argument of the tool. */
const KEY_META = 'pawl/idempotencyKey';
const KEY_ARGUMENT = 'idempotency_key';
const SESSION_META = 'pawl/session';
/** The client's trace context, under the protocol's name. */
const TRACE_META = 'traceparent';
/** The model's turn that makes the call. */
const TURN_META = 'pawl/turn';
const START_AFTER_META = 'pawl/startAfterMs';
const START_AT_META = 'pawl/startAt';
/** The end of the call is posted there. */
const CALLBACK_META = 'pawl/callbackUrl';

export interface McpClient {
  readonly caller: Caller;
  readonly capabilities: ClientCapabilities;
  readonly sessionKey: string;
  /** The client's own key, if it sent one. */
  readonly idempotencyKey: string | undefined;
  readonly turnId: string | undefined;
  readonly traceparent: string | undefined;
  readonly start: StartOptions;
  readonly callbackUrl: string | undefined;
  readonly canAsk: readonly (typeof CLIENT_REQUEST_KINDS)[number][];
  /** The client is on this machine, and the server runs without tokens. */
  readonly isLocal: boolean;
  /** The client accepts a task in place of a result. */
  readonly supportsTasks: boolean;
}

export function clientOf(
  ctx: ServerContext,
  caller: Caller,
  defaultSession: string,
  handshakeCapabilities: ClientCapabilities | undefined,
): McpClient {
  const envelope = ctx.mcpReq.envelope as Readonly<Record<string, unknown>> | undefined;
  const declared = envelope?.[CLIENT_CAPABILITIES_META_KEY] as ClientCapabilities | undefined;
  const capabilities = declared ?? handshakeCapabilities ?? {};
  const meta: Readonly<Record<string, unknown>> = ctx.mcpReq._meta ?? {};
  // Another session or turn than the one that was meant would have other permissions and budgets. A trace is ignored instead.
  const readText = (name: string, header: string) => {
    const value = meta[name] ?? ctx.http?.req?.headers.get(header) ?? undefined;
    if (value !== undefined && typeof value !== 'string' && name !== TRACE_META)
      throw invalidParams(`_meta["${name}"] must be a text; got ${quoteValue(value)}.`);
    return typeof value === 'string' && value !== '' ? value : undefined;
  };
  return {
    caller,
    capabilities,
    sessionKey: readText(SESSION_META, 'pawl-session') ?? defaultSession,
    idempotencyKey: readKey(meta[KEY_META], ctx.http?.req?.headers.get('idempotency-key') ?? undefined),
    turnId: checkTurn(readText(TURN_META, 'pawl-turn')),
    traceparent: validTraceparent(readText(TRACE_META, 'traceparent')),
    start: readStart(meta),
    callbackUrl: readCallback(meta),
    canAsk: CLIENT_REQUEST_KINDS.filter((kind) => capabilities[kind] !== undefined),
    isLocal: caller.id === 'local' || caller.id === 'stdio',
    supportsTasks: envelope !== undefined && capabilities.extensions?.[TASKS_EXTENSION] !== undefined,
  };
}

/** Throws -32602 for a turn that is too long for a tag. */
function checkTurn(turnId: string | undefined): string | undefined {
  if ((turnId ?? '').length > MAX_TURN_ID)
    throw invalidParams(`_meta["${TURN_META}"] must have at most ${MAX_TURN_ID} characters.`);
  return turnId;
}

/** Throws -32602 for a start that is none. */
function readStart(meta: Readonly<Record<string, unknown>>): StartOptions {
  const { [START_AFTER_META]: startAfterMs, [START_AT_META]: startAt } = meta;
  const start = defined({ startAfterMs, startAt }) as StartOptions;
  try {
    startTimeOf(start, Date.now());
    return start;
  } catch (error) {
    if (!(error instanceof PawlError)) throw error;
    const issues = error.issues?.map(({ path, message }) => ({ path: `_meta["pawl/${path}"]`, message })) ?? [];
    const listed = issues.map(({ path, message }) => `${path} ${message}`).join('; ');
    throw invalidParams(`${listed}.`, { issues });
  }
}

/** Throws -32602 for a URL that no callback can have. */
function readCallback({ [CALLBACK_META]: url }: Readonly<Record<string, unknown>>): string | undefined {
  const { data, error } = callbackUrlSchema.optional().safeParse(url);
  if (error === undefined) return data;
  const message = error.issues[0]?.message ?? 'must be a URL';
  const issues = [{ path: `_meta["${CALLBACK_META}"]`, message }];
  throw invalidParams(`${issues[0]?.path} ${message}.`, { issues });
}

/** Throws -32602 for a key that is not a text. */
function readKey(argument: unknown, header: string | undefined): string | undefined {
  if (argument !== undefined && typeof argument !== 'string')
    throw invalidParams(`_meta["${KEY_META}"] must be a text.`);
  const key = argument ?? (header === undefined ? undefined : parseKeyHeader(header));
  return key === '' ? undefined : key;
}

/**
 * Takes the idempotency key out of the arguments, for clients that can set neither `_meta` nor a header. A tool that has a parameter of
 * that name keeps it. Throws -32602 for two different keys, and for a key that is not a text.
 */
export function extractKeyArgument(
  { idempotencyKey }: Pick<McpClient, 'idempotencyKey'>,
  { inputSchema }: Pick<McpTool, 'inputSchema'>,
  { [KEY_ARGUMENT]: argument, ...rest }: Readonly<Record<string, unknown>>,
): { readonly args: Readonly<Record<string, unknown>>; readonly idempotencyKey: string | undefined } {
  const properties = inputSchema['properties'] as Readonly<Record<string, unknown>> | undefined;
  if (argument === undefined) return { args: rest, idempotencyKey };
  if (properties !== undefined && Object.hasOwn(properties, KEY_ARGUMENT))
    return { args: { ...rest, [KEY_ARGUMENT]: argument }, idempotencyKey };
  if (typeof argument !== 'string' || argument === '' || (idempotencyKey ?? argument) !== argument)
    throw invalidParams(
      `The argument ${KEY_ARGUMENT} must be a text, and the same as the key in _meta or the header, where there is one.`,
    );
  return { args: rest, idempotencyKey: argument };
}

/** The session of a client's calls. Its channel to people is the operator's page. */
export function clientSession(
  pawl: Pawl,
  { caller, sessionKey }: Pick<McpClient, 'caller' | 'sessionKey'>,
): Promise<Session> {
  return findOrOpenSession(pawl, caller, { sessionKey, channel: { kind: 'operator' } });
}

/** The error for a client that would need to support tasks. */
export function tasksUnsupported(): MissingRequiredClientCapabilityError {
  return new MissingRequiredClientCapabilityError({ requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } });
}
