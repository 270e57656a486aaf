/**
 * The requests of a session of 2025-11-25 that have no answer yet. The SDK finds the stream of an answer by the request's ID alone: a
 * second request with that ID, such as that of another client in the same session, would get the answer of the first.
 */
import type { WebStandardStreamableHTTPServerTransport } from '@modelcontextprotocol/server';
import { isObject } from '../../shared/util/json/json-types.ts';
import { type RequestId, requestIdOf } from './client-message.ts';

export class OpenRequests {
  readonly #ids = new Set<RequestId>();

  constructor(transport: WebStandardStreamableHTTPServerTransport) {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => {
      if (!('method' in message)) this.#ids.delete(message.id as RequestId);
      return send(message, options);
    };
  }

  /** The first ID of a message or a batch that an open request has; undefined when there is none. */
  findOpen(body: unknown): RequestId | undefined {
    return idsIn(body).find((id) => this.#ids.has(id));
  }

  /** Handles a message or a batch. Its requests stay open until they are answered or cancelled. */
  async handle(body: unknown, handle: () => Promise<Response>): Promise<Response> {
    const ids = idsIn(body);
    for (const id of ids) this.#ids.add(id);
    for (const message of [body].flat()) this.#removeCancelled(message);
    let isTaken = false;
    try {
      const response = await handle();
      isTaken = response.ok;
      return response;
    } finally {
      if (!isTaken) for (const id of ids) this.#ids.delete(id);
    }
  }

  /** A cancelled request gets no answer. */
  #removeCancelled(message: unknown): void {
    const { method, params } = isObject(message) ? message : {};
    if (method === 'notifications/cancelled' && isObject(params)) this.#ids.delete(params['requestId'] as RequestId);
  }
}

function idsIn(body: unknown): readonly RequestId[] {
  return [body].flat().flatMap((message) => requestIdOf(message) ?? []);
}
