/**
 * The transport to an MCP server over streamable HTTP. It uses the guarded network: private addresses only where
 * policy allows the host.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout } from 'node:timers/promises';
import {
  isJSONRPCNotification,
  isJSONRPCRequest,
  isJSONRPCResponse,
  type RequestId,
  StreamableHTTPClientTransport,
  type Transport,
} from '@modelcontextprotocol/client';
import type { Environment } from '../../../shared/config/variables.ts';
import type { McpConnectionOptions } from '../../../shared/connectors/mcp-routing.ts';
import { PawlError } from '../../../shared/errors/failure.ts';
import { openNetwork } from '../../context/network.ts';
import { readableResponse } from './http-response.ts';
import type { AnswerReader } from './incoming.ts';
import { MAX_MESSAGE_BYTES } from './stdio.ts';
import { resolveValues } from './values.ts';

/** The reconnection schedule for a broken stream that can be resumed (era 2025-11-25). */
const RECONNECT = {
  maxRetries: 2,
  initialReconnectionDelay: 1_000,
  maxReconnectionDelay: 5_000,
  reconnectionDelayGrowFactor: 1.5,
};

/** A code that no server uses: it marks an answer that will not come. */
const LOST = -32_099;

/** A stream that was open for so long did not end at once. */
const LONG_STREAM_MS = 30_000;

interface ResumedStream {
  lastEvent?: string;
  /** The last event at the last resume. */
  resumedEvent?: string | undefined;
  resumedAtMs: number;
  emptyResumes: number;
}

/** One request on its way through the SDK, which does not report why an answer broke off. */
interface SentRequest extends ResumedStream {
  readonly id: RequestId;
  broken?: Error;
  /** The server has only acknowledged the request, as it may a notification, and has no stream on which an answer could come. */
  isUnanswered?: boolean;
}
const newStream = (): ResumedStream => ({ resumedAtMs: Number.NEGATIVE_INFINITY, emptyResumes: 0 });
const sentRequest = new AsyncLocalStorage<SentRequest>();

interface HttpTransportOptions {
  readonly server: string;
  readonly connection: Extract<McpConnectionOptions, { transport: 'http' }>;
  readonly allowedHosts: readonly string[];
  readonly environment: Environment;
  readonly answers: AnswerReader;
  /** Creates the error for a call whose answer will not come. Other calls of the connection are not affected. */
  lost(broken: Error | undefined): Error;
}

export function openHttpTransport(options: HttpTransportOptions): Transport {
  const { server, allowedHosts, environment } = options;
  const { url, headers } = options.connection;
  const closed = new AbortController();
  // A server may be silent for as long as its tool works, because calls have their own limits.
  const limits = { signal: closed.signal, allowedHosts, idleTimeoutMs: 0, maxResponseBytes: MAX_MESSAGE_BYTES };
  /** The stream of the server's own messages. */
  const listening = newStream();
  let isListening = false;
  const transport = new StreamableHTTPClientTransport(new URL(url), {
    fetch: async (input, init) => {
      const request = sentRequest.getStore();
      const onBroken = (error: Error) => {
        if (request !== undefined) request.broken = error;
      };
      const sent = init?.method === 'GET' ? await resume(request ?? listening, init) : init;
      const response = await openNetwork({ ...limits, onBroken })(input, sent);
      if (init?.method === 'GET') isListening ||= response.ok;
      else if (request !== undefined && response.status === 202 && !isListening) {
        request.isUnanswered = true;
        onBroken(
          new PawlError('MCP_PROTOCOL', `The MCP server ${server} answered a request with HTTP 202 and no result.`),
        );
      }
      return readableResponse(response, { server, request: request?.id, onBroken });
    },
    requestInit: { headers: resolveValues(headers, environment) },
    reconnectionOptions: RECONNECT,
  });
  reportLostAnswers(transport, options);
  const close = transport.close.bind(transport);
  transport.close = async () => {
    // This tells servers that keep sessions to end this one. A failure does not matter.
    await Promise.race([
      transport.terminateSession().catch(() => undefined),
      setTimeout(1_000, undefined, { ref: false }),
    ]);
    await close();
    closed.abort();
  };
  return transport as Transport;
}

/**
 * Resumes a stream from its last event. The SDK forgets the event when a resumed stream ends without a new one, and then asks again as
 * often as the server wishes: here it asks less and less often.
 */
async function resume(stream: ResumedStream, init: RequestInit = {}): Promise<RequestInit> {
  const { initialReconnectionDelay, maxReconnectionDelay, reconnectionDelayGrowFactor } = RECONNECT;
  const delayMs = initialReconnectionDelay * reconnectionDelayGrowFactor ** stream.emptyResumes;
  const isFresh = stream.resumedEvent !== stream.lastEvent || performance.now() - stream.resumedAtMs > LONG_STREAM_MS;
  stream.emptyResumes = isFresh ? 0 : stream.emptyResumes + 1;
  if (!isFresh)
    await setTimeout(Math.min(maxReconnectionDelay, delayMs), undefined, {
      ref: false,
      ...(init.signal && { signal: init.signal }),
    });
  stream.resumedEvent = stream.lastEvent;
  stream.resumedAtMs = performance.now();
  const headers = new Headers(init.headers);
  if (stream.lastEvent !== undefined) headers.set('last-event-id', stream.lastEvent);
  return { ...init, headers };
}

/**
 * Answers a request with an error when its stream has ended without an answer. The SDK reports the end to the transport
 * alone, and not whether the answer came before.
 */
function reportLostAnswers(
  transport: StreamableHTTPClientTransport,
  { answers, lost }: Pick<HttpTransportOptions, 'answers' | 'lost'>,
): void {
  const unanswered = new Set<RequestId>();
  // The client calls this handler before its own.
  transport.onmessage = (message) => {
    answers.read(message);
    if (isJSONRPCResponse(message) && message.id !== undefined) unanswered.delete(message.id);
  };
  const send = transport.send.bind(transport);
  transport.send = (message, options) => {
    if (Array.isArray(message)) return send(message, options);
    answers.recordRequest(message);
    if (options?.onRequestStreamEnd !== undefined) return send(message, options);
    if (isJSONRPCNotification(message) && message.method === 'notifications/cancelled')
      unanswered.delete(message.params?.['requestId'] as RequestId);
    if (!isJSONRPCRequest(message)) return send(message, options);
    const { id } = message;
    const request: SentRequest = { ...newStream(), id };
    unanswered.add(id);
    options?.requestSignal?.addEventListener('abort', () => unanswered.delete(id), { once: true });
    const onRequestStreamEnd = () => {
      if (!unanswered.delete(id)) return;
      const data = lost(request.broken);
      transport.onmessage?.({ jsonrpc: '2.0', id, error: { code: LOST, message: data.message, data } });
    };
    const onresumptiontoken = (event: string) => {
      request.lastEvent = event;
    };
    return sentRequest.run(request, async () => {
      await send(message, { ...options, onRequestStreamEnd, onresumptiontoken });
      if (request.isUnanswered === true) onRequestStreamEnd();
    });
  };
}
