/** Responses that are written in parts: as fast as the client reads, and with a turn of the event loop between the parts. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Response } from 'express';
import { jsonPieces } from '../../../shared/util/json/json-stream.ts';
import { yieldToEventLoop } from '../../../shared/util/time.ts';

/** Writes the parts and ends the response. If the parts fail, the connection is broken: a cut response must not look whole. */
export function sendParts(response: Response, parts: Iterable<string> | AsyncIterable<string | Buffer>): void {
  if (response.req.method === 'HEAD') response.end();
  else pipeline(Readable.from(parts, { objectMode: false }), response).catch(() => {});
}

/** The JSON of a long value (`isLong`). */
export async function* longJson(value: object): AsyncGenerator<string, void, undefined> {
  for (const piece of jsonPieces(value)) {
    yield piece;
    await yieldToEventLoop();
  }
}

/** `{"content":…}` around a text that is JSON. */
export async function* contentAround(json: AsyncIterable<Buffer>): AsyncGenerator<string | Buffer, void, undefined> {
  yield '{"content":';
  yield* json;
  yield '}';
}

/** The open event streams. A closing server ends them; a client that reconnects continues where its stream ended. */
export class OpenStreams {
  readonly #ends = new Set<() => void>();
  #closed = false;

  add(end: () => void): () => void {
    if (this.#closed) end();
    else this.#ends.add(end);
    return () => void this.#ends.delete(end);
  }

  close(): void {
    this.#closed = true;
    for (const end of [...this.#ends]) end();
  }
}
