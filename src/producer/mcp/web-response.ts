/** Converts Express' requests and responses to those of the web platform, which the MCP SDK uses. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream } from 'node:stream/web';
import type { Request as HttpRequest, Response as HttpResponse } from 'express';

/** A comment is sent after this much silence: a proxy would close a silent connection, and that would cancel the call. */
const KEEP_ALIVE_MS = 15_000;

export function webRequest(request: HttpRequest, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers))
    if (value !== undefined && !name.startsWith(':'))
      headers.set(name, Array.isArray(value) ? value.join(', ') : value);
  // A proxy may send an absolute address. The host of a relative one is a placeholder: the Host header is not trusted.
  return new Request(new URL(request.originalUrl, 'http://localhost'), {
    method: request.method,
    headers,
    signal,
  });
}

/** Sends a response once it is there. A late one is sent as an event stream, whose comments fill the silence until then. */
export async function sendWhenReady(
  response: HttpResponse,
  pending: Promise<Response>,
  keepAliveMs = KEEP_ALIVE_MS,
): Promise<void> {
  const sendKeepAlive = () => {
    if (response.closed) return;
    if (!response.headersSent)
      response.set({ 'Content-Type': 'text/event-stream; charset=utf-8', 'X-Accel-Buffering': 'no' });
    response.write(': still here\n\n');
  };
  const keepAlive = setInterval(sendKeepAlive, keepAliveMs);
  const web = await pending.finally(() => clearInterval(keepAlive));
  if (!response.headersSent || response.closed) return send(response, web);
  if (web.headers.get('content-type')?.startsWith('text/event-stream') === true) return sendBody(response, web);
  response.end(`event: message\ndata: ${JSON.stringify(await web.json())}\n\n`);
}

export async function send(response: HttpResponse, web: Response): Promise<void> {
  if (response.closed) {
    await web.body?.cancel();
    return;
  }
  response.status(web.status);
  for (const [name, value] of web.headers) response.set(name, value);
  if (web.body !== null) response.flushHeaders();
  await sendBody(response, web);
}

async function sendBody(response: HttpResponse, web: Response): Promise<void> {
  if (web.body === null) {
    response.end();
    return;
  }
  await pipeline(Readable.fromWeb(web.body as ReadableStream), response).catch(() => {});
}

/** An error of JSON-RPC. `id` is absent when the request's ID is not known. */
export interface RpcRefusal {
  readonly status: number;
  readonly code: number;
  readonly message: string;
  readonly id?: string | number | null;
}

export function sendRpcError(response: HttpResponse, { status, code, message, id = null }: RpcRefusal): void {
  response.status(status).json({ jsonrpc: '2.0', id, error: { code, message } });
}
