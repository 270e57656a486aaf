/** The body of a response as it is read: decompressed, up to a limit, and with the host's name in its errors. */
import type { IncomingMessage } from 'node:http';
import { Duplex, pipeline, Readable, Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createInflateRaw } from 'node:zlib';
import { PawlError } from '../../shared/errors/failure.ts';

/** Error codes of gzip and deflate, and of Brotli. */
const ZLIB_FAULT = /^(?:Z_|ERR__)/;
/** The code of all decompressors for data that ends too early. */
const ZLIB_CUT = 'Z_BUF_ERROR';
/** OpenSSL's words within its list of numbers and places. */
const TLS_REASON = /SSL routines:[^:]*:([^:]+)/;
const MAX_ENCODINGS = 2;

/** Node's own words for an answer that breaks off, and for one that is not HTTP, do not say whose answer it is. */
export function withHost(error: NodeJS.ErrnoException, { host }: URL, when: string): Error {
  const { code = '', message } = error;
  if (code.startsWith('HPE_'))
    return new PawlError('RESULT_INVALID', `${host} answers with something else than HTTP: ${message}.`, {
      cause: error,
    });
  if (code === 'EPROTO' || code.startsWith('ERR_SSL_'))
    return new PawlError(
      'CONNECTION_RESET',
      `The TLS connection to ${host} broke: ${TLS_REASON.exec(message)?.[1] ?? message}.`,
      { cause: error },
    );
  if (code !== 'ECONNRESET' && code !== ZLIB_CUT) return error;
  return new PawlError('CONNECTION_RESET', `${host} closed the connection ${when}.`, { cause: error });
}

/** Decompresses the body. The cap counts decompressed bytes: 500 bytes on the wire can hold 200 MB. */
export function decodeBody(incoming: IncomingMessage, url: URL, maxBytes: number): Readable {
  const encodings = (incoming.headers['content-encoding'] ?? '')
    .split(',')
    .map((each) => each.trim().toLowerCase())
    .filter((each) => each !== '' && each !== 'identity');
  const fault = (what: string) => new PawlError('RESULT_INVALID', `${url.href} answers with ${what}.`);
  const counter = byteLimit(maxBytes, url, (error) => {
    const { code = '' } = (error ?? {}) as NodeJS.ErrnoException;
    return code !== ZLIB_CUT && ZLIB_FAULT.test(code)
      ? fault(`a body that is labelled as compressed (${encodings.join(', ')}) and cannot be decompressed`)
      : error && withHost(error, url, 'before the end of its answer');
  });
  const decoders = encodings.toReversed().flatMap((encoding) => DECODERS.get(encoding) ?? []);
  const unknown = encodings.find((encoding) => !DECODERS.has(encoding));
  if (unknown !== undefined || encodings.length > MAX_ENCODINGS) {
    incoming.destroy();
    const layers = `${encodings.length} layers of compression; at most ${MAX_ENCODINGS} are undone`;
    const what = unknown === undefined ? layers : `the unknown content encoding ${JSON.stringify(unknown)}`;
    // The reader of the body meets the fault. The status counts without it.
    setImmediate(() => counter.destroy(fault(what)));
    return counter;
  }
  pipeline([incoming, ...decoders.map(lazyDecoder), counter], () => undefined); // an error reaches the reader through the last stream
  return counter;
}

const DECODERS = new Map<string, (first: Buffer) => Transform>([
  ['gzip', () => createGunzip()],
  ['x-gzip', () => createGunzip()],
  ['br', () => createBrotliDecompress()],
  // Some servers leave out the head of zlib, whose first byte names its method, 8.
  ['deflate', (first: Buffer) => (((first[0] ?? 0) & 15) === 8 ? createInflate() : createInflateRaw())],
]);

/** Opens a decompressor at the first bytes, because an empty body is not valid input of any. */
function lazyDecoder(open: (first: Buffer) => Transform): Duplex {
  return Duplex.from(async function* (source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    const chunks = source[Symbol.asyncIterator]();
    const first = await chunks.next();
    if (first.done) return;
    const all = async function* () {
      for (let next: IteratorResult<Buffer> = first; !next.done; next = await chunks.next()) yield next.value;
    };
    yield* pipeline(Readable.from(all()), open(first.value), () => undefined);
  });
}

function byteLimit(maxBytes: number, url: URL, explain: (error: Error | null) => Error | null): Transform {
  let bytes = 0;
  const message = `The answer of ${url.href} is larger than ${maxBytes} bytes when decompressed.`;
  return new Transform({
    transform(chunk: Buffer, _encoding, callback) {
      bytes += chunk.length;
      if (bytes > maxBytes) callback(new PawlError('RESULT_TOO_LARGE', message));
      else callback(null, chunk);
    },
    destroy: (error, callback) => callback(explain(error)),
  });
}
