/**
 * Reads the messages of MCP servers leniently. An invalid entry hides none of the others, omitted entries are named,
 * and null means absent. The SDK would reject the whole message, even the result of a tool that has run.
 */
import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  type JSONRPCMessage,
  type RequestId,
} from '@modelcontextprotocol/client';
import { PawlError } from '../../../shared/errors/failure.ts';
import { LONG_NUMBER, parseWithLongNumbersAsText } from '../../../shared/util/json/exact-json.ts';
import { isObject } from '../../../shared/util/json/json-types.ts';
import { omitNulls } from '../../../shared/util/json/omit-nulls.ts';
import { asText } from '../../../shared/util/text/quote-value.ts';
import { startOf } from '../../../shared/util/text/text-cut.ts';
import { readableBlock, readableContents } from './results.ts';

type Json = Readonly<Record<string, unknown>>;

/** JSON-RPC's "internal error", for an error without a code. */
const NO_CODE = -32_603;
/** Results may be nested so deep, and a deeper value would overflow the stack of those who read it. */
const MAX_NESTING = 900;
const TOO_DEEP = `[left out: what is nested more than ${MAX_NESTING} levels deep]`;

export interface Parsed {
  readonly value: unknown;
  /** The value is all that the text says. */
  readonly isVerbatim: boolean;
}

/**
 * Parses one message. Numbers of results that a number cannot hold become texts. Definitions of tools keep theirs: there they are bounds
 * of schemas. Throws `SyntaxError`.
 */
export function parseMessage(text: string): Parsed {
  const parsed = parseWithLongNumbersAsText(text);
  const value: unknown = isListOfTools(parsed) ? JSON.parse(text) : parsed;
  const isCut = text.length > 2 * MAX_NESTING && cutNesting(value);
  return { value, isVerbatim: !isCut && !LONG_NUMBER.test(text) };
}

/** Replaces what is nested too deep, in place. */
function cutNesting(value: unknown, depth = 0): boolean {
  if (typeof value !== 'object' || value === null) return false;
  let isCut = false;
  for (const [name, member] of Object.entries(value)) {
    if (typeof member !== 'object' || member === null) continue;
    if (depth < MAX_NESTING) isCut = cutNesting(member, depth + 1) || isCut;
    else {
      Object.assign(value, { [name]: TOO_DEEP });
      isCut = true;
    }
  }
  return isCut;
}

function isListOfTools(value: unknown): boolean {
  const result = isObject(value) ? value['result'] : undefined;
  return isObject(result) && Array.isArray(result['tools']) && !('content' in result);
}

export interface ParsedMessages {
  readonly messages: readonly JSONRPCMessage[];
  /** Values that are no messages, even when read leniently. */
  readonly invalid: readonly unknown[];
}

/** Returns the messages that a value holds: a batch holds several, or none, or further batches. */
export function messagesIn(value: unknown): ParsedMessages {
  if (isMessage(value) && !hasEmptyError(value)) return { messages: [value], invalid: [] };
  if (Array.isArray(value)) {
    const parsed = value.map(messagesIn);
    return { messages: parsed.flatMap(({ messages }) => messages), invalid: parsed.flatMap(({ invalid }) => invalid) };
  }
  const repaired = repairMessage(value);
  return isMessage(repaired) ? { messages: [repaired], invalid: [] } : { messages: [], invalid: [value] };
}

/** Whether an invalid message was meant as an answer. Its request would otherwise wait forever. */
export function isBrokenAnswer(invalid: unknown): boolean {
  return isObject(invalid) && 'jsonrpc' in invalid && ('result' in invalid || 'error' in invalid);
}

/** Whether an answer names no request. Servers answer notifications so, which need no answer. */
export function isUnaddressed(answer: unknown): boolean {
  return isObject(answer) && (answer['id'] === undefined || answer['id'] === null);
}

export function notMessage(server: string, invalid: unknown): PawlError {
  const quoted = startOf(JSON.stringify(invalid) ?? '', 200);
  return new PawlError(
    'MCP_PROTOCOL',
    `The MCP server ${server} sent something that is not a JSON-RPC message: ${quoted}`,
  );
}

function isMessage(value: unknown): value is JSONRPCMessage {
  return isJSONRPCResponse(value) || isJSONRPCRequest(value) || isJSONRPCNotification(value);
}

function repairMessage(value: unknown): unknown {
  if (!isObject(value) || !('jsonrpc' in value || isUnmarkedAnswer(value))) return value;
  const { id, method, params, result, error } = value;
  const header = { jsonrpc: '2.0', ...(id === null || id === undefined ? {} : { id }) };
  if (typeof method === 'string')
    return { ...header, method, ...(isObject(params) ? { params: omitNulls(params) } : {}) };
  if (error !== null && error !== undefined && !hasEmptyError(value)) return { ...header, error: repairError(error) };
  if (!('result' in value)) return value;
  if (result === null) return { ...header, result: {} };
  // A value that is no object fails only its own request, as a result without content.
  if (!isObject(result)) return { ...header, result: { content: result } };
  const { _meta: _, ...rest } = result;
  return { ...header, result: rest };
}

/** Whether an answer has a result, and an error that says nothing, as some servers write all members of their answers. */
function hasEmptyError(value: unknown): boolean {
  if (!isObject(value) || !isObject(value['result']) || value['error'] === undefined) return false;
  const { error } = value;
  return !isObject(error) ? !error : !error['code'] && !error['message'];
}

/** Whether only the `jsonrpc` member is missing. A log line may have an `error`, too, but hardly one with a message. */
function isUnmarkedAnswer({ id, result, error }: Json): boolean {
  return typeof id === 'number' && (isObject(result) || (isObject(error) && typeof error['message'] === 'string'));
}

function repairError(error: unknown): Json {
  const { code, message, data } = isObject(error) ? error : { message: error };
  return {
    code: Number.isSafeInteger(code) ? code : NO_CODE,
    message: typeof message === 'string' ? message : (JSON.stringify(error) ?? ''),
    ...(data === null || data === undefined ? {} : { data }),
  };
}

/**
 * Lists bypass the SDK, which would reject a whole list for one invalid entry. The values are the members that the
 * newest era requires of a list.
 */
const LISTS: ReadonlyMap<string | undefined, string> = new Map([
  ['tools/list', 'tools'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
]);
const COMPLETE = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' };

/** Rewrites answers, by the request that they belong to, into the form that the SDK accepts. */
export class AnswerReader {
  readonly #requests = new Map<RequestId, string>();
  /** The SDK counts its IDs up, except for the probe of a server's era, which has a name. */
  #lastNumber = -1;
  readonly #names = new Set<RequestId>();

  /** Records a request, so that its answer is read accordingly. */
  recordRequest(message: JSONRPCMessage): void {
    if (isJSONRPCRequest(message)) {
      this.#requests.set(message.id, message.method);
      if (Number.isNaN(Number(message.id))) this.#names.add(message.id);
      else this.#lastNumber = Math.max(this.#lastNumber, Number(message.id));
    } else if (isJSONRPCNotification(message) && message.method === 'notifications/cancelled')
      this.#requests.delete(message.params?.['requestId'] as RequestId);
  }

  /** Whether a request with this ID was ever sent. */
  wasSent(id: RequestId): boolean {
    return this.#names.has(id) || (Number(id) >= 0 && Number(id) <= this.#lastNumber);
  }

  /** Modifies the message in place, because the SDK already holds it. */
  read(message: JSONRPCMessage): void {
    if ('method' in message) {
      if (message.params !== undefined) Object.assign(message, { params: omitNulls(message.params) });
      return;
    }
    if (message.id === undefined) return;
    // Some servers answer a number with its text.
    const isSent = this.#requests.has(message.id);
    if (!isSent && this.#requests.has(Number(message.id))) Object.assign(message, { id: Number(message.id) });
    const method = this.#requests.get(message.id);
    this.#requests.delete(message.id);
    if ('result' in message) Object.assign(message, { result: readableResult(method, message.result) });
  }
}

function readableResult(method: string | undefined, result: Json): unknown {
  const { resultType } = result;
  if (typeof resultType === 'string' && resultType !== 'complete') return result;
  const list = LISTS.get(method);
  if (list !== undefined) return { ...COMPLETE, [list]: [], entries: result[list], cursor: result['nextCursor'] };
  const { content, contents, structuredContent, isError, _meta, resultType: _resultType, ...others } = result;
  switch (method) {
    case 'tools/call':
      return {
        resultType: 'complete',
        content: blocksOf(content),
        // The older era accepts only objects as `structuredContent`, and loses their member `__proto__`.
        structure: structuredContent,
        ...(isAbsent(isError) ? {} : { isError: /^(?:true|1)$/i.test(asText(isError)) }),
        // A failed tool may give the reason in members of its own.
        ...(Object.keys(others).length === 0 ? {} : { others }),
        ...(isAbsent(_meta) ? {} : { meta: _meta }),
      };
    case 'initialize':
      return readableGreeting(omitNulls(result) as Json);
    case 'resources/read':
      return { ...COMPLETE, contents: contentsIn(contents ?? content, others).map(readableContents) };
    default:
      return omitNulls(result);
  }
}

/** The version of servers that name none. */
const UNNAMED_VERSION = '2025-03-26';

/** FastMCP reports changes that it has declared not to report, and the SDK listens to declared ones alone. */
const HEARD: Readonly<Record<string, Json>> = { tools: { listChanged: true } };

/** A server's answer to the greeting. What it says of itself is only shown, and a capability may be written in any form. */
function readableGreeting({ protocolVersion, capabilities, serverInfo, instructions, ...others }: Json): Json {
  const { name, version, ...info } = isObject(serverInfo) ? serverInfo : {};
  const stated = isObject(capabilities) ? Object.entries(capabilities) : [['tools', {}] as const];
  return {
    ...others,
    protocolVersion: protocolVersion ?? UNNAMED_VERSION,
    capabilities: Object.fromEntries(
      stated
        .filter(([, capability]) => capability !== false)
        .map(([key, capability]) => [key, { ...(isObject(capability) ? capability : {}), ...HEARD[key] }]),
    ),
    serverInfo: { ...info, name: asText(name ?? 'unnamed'), version: asText(version ?? '0') },
    ...(typeof instructions === 'string' ? { instructions } : {}),
  };
}

/** One content may stand alone, or be a text, or its members may be those of the result. */
function contentsIn(contents: unknown, others: Json): readonly unknown[] {
  if (!isAbsent(contents)) return [contents].flat();
  return 'text' in others || 'blob' in others ? [others] : [];
}

/** One block may stand alone, or be a text. */
function blocksOf(content: unknown): readonly unknown[] {
  if (isAbsent(content)) return [];
  return (Array.isArray(content) ? content : [content]).map(readableBlock);
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null;
}
