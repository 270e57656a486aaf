/**
 * Large texts, stored in parts outside the records that refer to them, each part compressed if that saves space. The parts are written
 * before their record, and expire by themselves if the record is never written. The reference holds the digest of every stored part, and is
 * signed with its record. So a forged part is refused before it is decompressed, and decompression stops at the size in the reference.
 */
import { promisify } from 'node:util';
// A named import would fail on a Node that lacks one of the functions, before the required version can be printed.
import zlib from 'node:zlib';
import { PawlError } from '../../../errors/failure.ts';
import { digest } from '../../../schema/canonical-json.ts';
import { type ByteRange, type LargeText, PART_BYTES } from '../../../util/json/large-json.ts';
import type { BlobStore } from '../../blobs/blob-store.ts';
import type { BlobStores } from '../../blobs/blob-stores.ts';

export interface TextReference {
  /** Before it was compressed. */
  readonly bytes: number;
  /** `encoding:digest` of every part as it is stored. */
  readonly parts: readonly string[];
  /** The kind of the store that has the parts. Absent: Redis. */
  readonly in?: string;
  readonly content?: ByteRange;
}

/** A part is stored compressed if it shrinks to this share or less. */
const MAX_COMPRESSED_RATIO = 0.8;
/** Parts that are written or read at the same time. */
const MAX_CONCURRENT_PARTS = 4;

const compress = promisify(zlib.zstdCompress);
const decompress = promisify(zlib.zstdDecompress);
const FASTEST = { [zlib.constants.ZSTD_c_compressionLevel]: 1 };
/** With a buffer smaller than the result, each part would go through the thread pool several times. zlib needs at least 64 bytes. */
const chunkSizeFor = (bytes: number) => bytes + 64;

export class LargeTexts {
  readonly #blobs: BlobStores;

  constructor(blobs: BlobStores) {
    this.#blobs = blobs;
  }

  remove(key: string): Promise<void> {
    return this.#blobs.remove(key);
  }

  /** Writes the parts. They expire soon, unless a record that refers to them extends their life. */
  async write(key: string, text: LargeText): Promise<TextReference> {
    const { written, kind } = this.#blobs;
    const parts: string[] = [];
    const inProgress = new Set<Promise<unknown>>();
    for (const [number, part] of text.parts.entries()) {
      const compressed = await compress(part, { params: FASTEST, chunkSize: chunkSizeFor(part.length) });
      const isSmaller = compressed.length <= part.length * MAX_COMPRESSED_RATIO;
      const stored = isSmaller ? compressed : part;
      parts.push(`${isSmaller ? 'zstd' : 'plain'}:${digest(stored)}`);
      const write = written.put(key, number, stored);
      inProgress.add(write);
      write.then(
        () => inProgress.delete(write),
        () => {},
      );
      if (inProgress.size >= MAX_CONCURRENT_PARTS) await Promise.race(inProgress);
    }
    await Promise.all(inProgress);
    // The mark is written last: a text with a mark is complete.
    await this.#blobs.mark(key);
    const store = kind === undefined ? {} : { in: kind };
    return { bytes: text.bytes, parts, ...store, ...(text.content !== undefined && { content: text.content }) };
  }

  /**
   * The bytes of a text, or of a range of them, part by part. Throws `UNKNOWN_CALL` for a part that has expired, and
   * `SIGNATURE_INVALID` for one that is not what was written.
   */
  async *read(
    key: string,
    { bytes, parts, in: kind }: TextReference,
    [from, to]: ByteRange = [0, bytes],
  ): AsyncGenerator<Buffer, void, undefined> {
    const store = this.#blobs.of(kind);
    const lastNumber = Math.ceil(to / PART_BYTES) - 1;
    let number = Math.floor(from / PART_BYTES);
    let nextFetch = number;
    const inProgress: Promise<Buffer | null>[] = [];
    for (; number <= lastNumber; number += 1) {
      // The next parts are fetched while this one is processed.
      for (; nextFetch <= lastNumber && inProgress.length < MAX_CONCURRENT_PARTS; nextFetch += 1)
        inProgress.push(fetchPart(store, key, nextFetch));
      const stored = (await inProgress.shift()) ?? null;
      const start = number * PART_BYTES;
      const plain = await plainPart(stored, parts[number] ?? '', Math.min(PART_BYTES, bytes - start));
      yield plain.subarray(Math.max(0, from - start), to - start);
    }
  }
}

function fetchPart(store: BlobStore, key: string, number: number): Promise<Buffer | null> {
  const fetched = store.get(key, number);
  // A reader that stops early does not need the error.
  fetched.catch(() => {});
  return fetched;
}

async function plainPart(stored: Buffer | null, name: string, bytes: number): Promise<Buffer> {
  if (stored === null) throw new PawlError('UNKNOWN_CALL', 'A part of what the record refers to has expired.');
  const [encoding, expected] = name.split(':');
  if (digest(stored) !== expected) throw changedPart();
  if (encoding === 'plain') return stored;
  const options = { maxOutputLength: bytes, chunkSize: chunkSizeFor(bytes) };
  const plain = await decompress(stored, options).catch(() => undefined);
  if (plain?.length !== bytes) throw changedPart();
  return plain;
}

function changedPart(): PawlError {
  return new PawlError('SIGNATURE_INVALID', 'A part of what the record refers to is not what was written.');
}
