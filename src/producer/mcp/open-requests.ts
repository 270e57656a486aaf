/**
 * The requests of a session of 2025-11-25 that have no answer yet. The SDK finds the stream of an answer by the request's ID alone: a
 * second request with that ID, such as that of another client in the same session, would get the answer of the first.
 */
import type { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import { isObject } from '../../shared/util/json/json-types.ts';
import { type RequestId, requestIdOf } from './client-message.ts';

export class OpenRequests {
  readonly #transport: WebStandardStreamableHTTPServerTransport;
  /** The open requests that are answered on one stream, by the ID of each: those of one message or batch. */
  readonly #streams = new Map<RequestId, Set<RequestId>>();

  constructor(transport: WebStandardStreamableHTTPServerTransport) {
    this.#transport = transport;
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      if ('method' in message) return send(message, options);
      const endStream = this.#remove(message.id as RequestId);
      return send(message, options).finally(endStream);
    };
  }

  /** The first ID of a message or a batch that an open request has; undefined when there is none. */
  findOpen(body: unknown): RequestId | undefined {
    return idsIn(body).find((id) => this.#streams.has(id));
  }

  /** Handles a message or a batch. Its requests stay open until they are answered or cancelled. */
  async handle(body: unknown, handle: () => Promise<Response>): Promise<Response> {
    const ids = idsIn(body);
    const stream = new Set(ids);
    for (const id of ids) this.#streams.set(id, stream);
    let isTaken = false;
    try {
      const response = await handle();
      isTaken = response.ok;
      return response;
    } finally {
      if (isTaken) for (const message of [body].flat()) this.#endCancelled(message);
      else for (const id of ids) this.#streams.delete(id);
    }
  }

  /** A cancelled request gets no answer. */
  #endCancelled(message: unknown): void {
    const { method, params } = isObject(message) ? message : {};
    if (method === 'notifications/cancelled' && isObject(params)) this.#remove(params['requestId'] as RequestId)();
  }

  /**
   * The returned function ends the stream if it was the request's last one. The SDK ends a stream only when all of its requests are
   * answered: one of a cancelled request would stay open, and count as a request of its token, for as long as the client keeps it.
   */
  #remove(id: RequestId): () => void {
    const stream = this.#streams.get(id);
    this.#streams.delete(id);
    stream?.delete(id);
    return () => stream?.size === 0 && this.#transport.closeSSEStream(id);
  }
}

function idsIn(body: unknown): readonly RequestId[] {
  return [body].flat().flatMap((message) => requestIdOf(message) ?? []);
}
