/** Reads the messages of MCP clients, of HTTP and of standard input alike. */
import { readExactJson } from '../../shared/util/json/exact-json.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import { omitNulls } from '../../shared/util/json/omit-nulls.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';

/** Codes of JSON-RPC. */
export const INVALID_REQUEST = -32_600;
const INVALID_PARAMS = -32_602;
const PARSE_ERROR = -32_700;

export type RequestId = string | number;

export interface RefusedMessage {
  readonly kind: 'refused';
  readonly code: number;
  readonly message: string;
  readonly id: RequestId | null;
}
type ClientMessage = { readonly kind: 'read'; readonly value: unknown } | RefusedMessage;

/**
 * One message, or a batch. Refuses what would be lost silently: digits of a long number, and a `__proto__` among arguments. Many clients
 * write all members of their messages, so null means that a member is absent.
 */
export function readClientMessage(source: Uint8Array | string): ClientMessage {
  const parsed = readExactJson(source);
  if (parsed.kind === 'problem') {
    const message = `Parse error: the body ${parsed.problem}.`;
    return { kind: 'refused', code: PARSE_ERROR, message, id: null };
  }
  const { value } = parsed;
  const ids = [value].flat().map(requestIdOf);
  const repeated = ids.find((id, index) => id !== undefined && ids.indexOf(id) < index);
  if (repeated !== undefined)
    return { kind: 'refused', code: INVALID_REQUEST, message: repeatedIdMessage(repeated), id: repeated };
  for (const message of [value].flat()) {
    const problem = argumentsProblem(message);
    if (problem !== undefined)
      return { kind: 'refused', code: INVALID_PARAMS, message: problem, id: identityOf(message).id };
  }
  return { kind: 'read', value: Array.isArray(value) ? value.map(withoutNullMembers) : withoutNullMembers(value) };
}

function withoutNullMembers(message: unknown): unknown {
  if (!isObject(message)) return message;
  const { id, ...members } = message;
  const { params, ...present } = Object.fromEntries(Object.entries(members).filter(([, member]) => member !== null));
  const { method, error } = present;
  const isNotification = typeof method === 'string' && method.startsWith('notifications/');
  const isEmptyResult = message['result'] === null && method === undefined && error === undefined;
  return {
    ...present,
    ...(isEmptyResult && { result: {} }),
    ...(params !== undefined && { params: omitNulls(params, isMeant) }),
    ...(id === undefined || (id === null && isNotification) ? {} : { id }),
  };
}

/** Whether a null is a value: those of a tool's arguments and of a person's answer are, and a key that is none is refused. */
function isMeant(name: string, member: unknown): boolean {
  return name.startsWith('pawl/') || (member !== null && (name === 'arguments' || name === 'content'));
}

/** Why the arguments of a message cannot be used. The SDK would silently drop a member `__proto__`. */
function argumentsProblem(message: unknown): string | undefined {
  const { params } = (message ?? {}) as { readonly params?: { readonly arguments?: unknown } | null };
  const callArguments = params?.arguments ?? {};
  if (!isObject(callArguments)) return `params.arguments must be an object; got ${quoteValue(callArguments)}.`;
  return Object.hasOwn(callArguments, '__proto__')
    ? 'Arguments cannot have a member that is called __proto__.'
    : undefined;
}

/** The ID of a request; undefined for every other message. */
export function requestIdOf(message: unknown): RequestId | undefined {
  const { id, method } = isObject(message) ? message : {};
  return method !== undefined && (typeof id === 'string' || typeof id === 'number') ? id : undefined;
}

/** Two requests with one ID cannot both be answered. */
export function repeatedIdMessage(id: RequestId): string {
  return `Another request with the ID ${quoteValue(id)} is not answered yet: each request of a session needs an ID of its own.`;
}

/** The ID of a message that may be none, and whether it was meant as an answer, which gets no answer. */
export function identityOf(message: unknown): { readonly id: RequestId | null; readonly isAnswer: boolean } {
  const { id, result, error } = isObject(message) ? message : {};
  const isAnswer = result !== undefined || error !== undefined;
  return { id: typeof id === 'string' || typeof id === 'number' ? id : null, isAnswer };
}
