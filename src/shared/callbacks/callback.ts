/** Callbacks: a caller names a URL, and the end of its call is posted there in the form of Standard Webhooks. */
import { createHmac } from 'node:crypto';
import { z } from 'zod';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../calls/envelope.ts';
import { DEFAULT_NAMESPACE } from '../tools/tool.ts';
import { defined } from '../util/json/omit-undefined.ts';

const MAX_URL_LENGTH = 2_048;
/** A larger result is replaced by the path under which it can be read. */
const MAX_RESULT_BYTES = 64 * 1_024;

/** The fault of a callback's URL, as the end of a sentence; undefined for a usable one. */
function urlFault(url: string): string | undefined {
  if (url.length > MAX_URL_LENGTH) return `has ${url.length} characters; at most ${MAX_URL_LENGTH} are allowed`;
  if (!URL.canParse(url)) return 'must be a URL';
  const { protocol, username, password, hash } = new URL(url);
  if (protocol !== 'https:' && protocol !== 'http:') return `must be an http or https URL; got ${protocol}`;
  if (username !== '' || password !== '') return 'must hold no user and no password: they would be stored and shown';
  return hash === '' ? undefined : 'must hold no fragment';
}

/** The URL to which the end of a call is posted: http or https, without credentials and fragment, up to 2,048 characters. */
export const callbackUrlSchema = z.string({ error: 'must be a URL' }).superRefine((url, context) => {
  const message = urlFault(url);
  if (message !== undefined) context.addIssue({ code: 'custom', message });
});

/** The receiver of a call's end, and what is posted about the call. Signed with the call's request. */
export interface CallbackAddress {
  readonly url: string;
  /** With the port, where it is not the scheme's own. */
  readonly host: string;
  readonly requestId: string;
  /** As the short form of a call names it. */
  readonly tool: string;
  readonly session: string;
  readonly tenantId?: string;
  readonly toolCallId?: string;
}

export interface CallbackTarget extends CallbackAddress {
  /** The pub/sub channel that notifies the senders. */
  readonly news: string;
}

export function callbackAddress(
  url: string,
  { requestId, toolNamespace, toolName, toolCallId, target }: ToolCallEnvelope,
): CallbackAddress {
  const { sessionKey, tenantId } = target;
  return {
    url,
    host: new URL(url).host,
    requestId,
    tool: toolNamespace === DEFAULT_NAMESPACE ? toolName : `${toolNamespace}.${toolName}`,
    session: sessionKey,
    ...defined({ tenantId, toolCallId }),
  };
}

/** The body of a callback. A result above 64 KiB is left out: `resultPath` is where it can be read. */
export function callbackBody(
  { tool, session, tenantId, toolCallId }: CallbackTarget,
  call: {
    readonly callId: string;
    readonly settledAtMs: number;
    readonly result: ToolResultEnvelope | undefined;
    readonly status: string;
  },
): string {
  const { callId, settledAtMs, result, status } = call;
  const resultPath = `/v1/calls/${encodeURIComponent(callId)}`;
  const isSmall = result !== undefined && Buffer.byteLength(JSON.stringify(result)) <= MAX_RESULT_BYTES;
  return JSON.stringify({
    type: 'call.settled',
    timestamp: new Date(settledAtMs).toISOString(),
    data: {
      callId,
      tool,
      session,
      ...defined({ tenantId, toolCallId }),
      status,
      ...(isSmall ? { result } : { resultPath }),
    },
  });
}

const SECRET_PREFIX = 'whsec_';

const MIN_SECRET_LENGTH = 16;
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$/;

/** A secret of the settings: a text, or `whsec_` and base64. Node would take a text that is no base64 for a short key, or for none. */
export const callbackSecretSchema = z
  .string()
  .min(MIN_SECRET_LENGTH)
  .refine(
    (secret) =>
      !secret.startsWith(SECRET_PREFIX) ||
      (BASE64.test(secret.slice(SECRET_PREFIX.length)) && secretKey(secret).length >= MIN_SECRET_LENGTH),
    `must be ${SECRET_PREFIX} and the base64 of at least ${MIN_SECRET_LENGTH} bytes, or another text`,
  );

/**
 * The secret of one tenant's callbacks, in the form that the libraries of Standard Webhooks take. Tenants do not know each other's.
 */
export function callbackSecret(secret: string, tenantId: string | undefined): string {
  const key = secretKey(secret);
  const own = tenantId === undefined ? key : createHmac('sha256', key).update(`tenant:${tenantId}`).digest();
  return `${SECRET_PREFIX}${own.toString('base64')}`;
}

/** The headers of Standard Webhooks. During a rotation, each secret makes a signature. */
export function signedHeaders(
  secrets: readonly string[],
  { id, atMs, body }: { readonly id: string; readonly atMs: number; readonly body: string },
): Record<string, string> {
  const timestamp = String(Math.floor(atMs / 1_000));
  const signatures = secrets.map(
    (secret) => `v1,${createHmac('sha256', secretKey(secret)).update(`${id}.${timestamp}.${body}`).digest('base64')}`,
  );
  return {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
  };
}

/** `whsec_` is followed by the key in base64; another text is the key itself. */
function secretKey(secret: string): Buffer {
  return secret.startsWith(SECRET_PREFIX)
    ? Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64')
    : Buffer.from(secret);
}

/** A secret made from a key: `whsec_` and base64. */
export function secretFrom(key: string): string {
  return `${SECRET_PREFIX}${createHmac('sha256', key).update('callbacks').digest('base64')}`;
}

const FIRST_DELAY_MS = 2_000;
const MAX_DELAY_MS = 3_600_000;
/** A callback is sent again for a day after the call's end, or after its replay. */
const RETRY_WINDOW_MS = 24 * 3_600_000;

/**
 * The delay before the next attempt, by the number of attempts so far; undefined when the retry window is over. A receiver that asks for
 * a longer delay than the window has left gets the last attempt at its end.
 */
export function retryDelayMs(
  { attempts, sinceMs, nowMs }: { readonly attempts: number; readonly sinceMs: number; readonly nowMs: number },
  random: () => number,
  retryAfterMs = 0,
): number | undefined {
  const backoffMs = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** Math.min(attempts - 1, 20));
  const delayMs = Math.round(backoffMs * (0.5 + random() / 2));
  const leftMs = sinceMs + RETRY_WINDOW_MS - nowMs;
  return delayMs > leftMs ? undefined : Math.max(delayMs, Math.min(retryAfterMs, leftMs));
}
