/** Responses that are streamed in parts: as fast as the client reads, with a yield to the event loop between the parts. */
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Response } from 'express';
import { jsonPieces } from '../../../shared/util/json/json-stream.ts';
import { yieldToEventLoop } from '../../../shared/util/time.ts';

/** Writes the parts and ends the response. After an error of the parts, the connection is closed: a cut response must not look complete. */
export function sendPieces(response: Response, pieces: Iterable<string> | AsyncIterable<string | Buffer>): void {
  if (response.req.method === 'HEAD') response.end();
  else pipeline(Readable.from(pieces, { objectMode: false }), response).catch(() => {});
}

/** The JSON of a long value (`isLong`). */
export async function* longJsonPieces(value: object): AsyncGenerator<string, void, undefined> {
  for (const piece of jsonPieces(value)) {
    yield piece;
    await yieldToEventLoop();
  }
}

/** Wraps JSON text in `{"content":…}`. */
export async function* wrapAsContent(json: AsyncIterable<Buffer>): AsyncGenerator<string | Buffer, void, undefined> {
  yield '{"content":';
  yield* json;
  yield '}';
}

/** The open event streams. A closing server ends them; a client that reconnects continues at its last event. */
export class OpenStreams {
  readonly #endStreams = new Set<() => void>();
  #closed = false;

  add(end: () => void): () => void {
    if (this.#closed) end();
    else this.#endStreams.add(end);
    return () => void this.#endStreams.delete(end);
  }

  close(): void {
    this.#closed = true;
    for (const end of [...this.#endStreams]) end();
  }
}
