/** One output of a program. The first `maxBytes` are kept; the rest is read and dropped, so that the program never blocks. */
import type { Readable } from 'node:stream';

interface CollectedOutput {
  /** Decoded as UTF-8, without a character that the cap cut in two. */
  readonly text: string;
  readonly droppedBytes: number;
}

export function collectOutput(stream: Readable, maxBytes: number): () => CollectedOutput {
  const chunks: Buffer[] = [];
  let keptBytes = 0;
  let droppedBytes = 0;
  stream.on('data', (chunk: Buffer) => {
    const retained = chunk.subarray(0, maxBytes - keptBytes);
    if (retained.length > 0) chunks.push(retained);
    keptBytes += retained.length;
    droppedBytes += chunk.length - retained.length;
  });
  // The stream is destroyed when a process outlives its program. The output until then still counts.
  stream.on('error', () => undefined);
  return () => ({
    text: new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(chunks), { stream: droppedBytes > 0 }),
    droppedBytes,
  });
}
