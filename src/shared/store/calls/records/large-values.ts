/**
 * Large texts, stored apart from the records that refer to them, in parts, each compressed where that saves space. The parts are written before their record is, and expire by themselves when it never is. The reference holds the digest of
 * every part as it is stored, and is signed with its record. So a forged part is refused before it is decompressed, and decompression stops
 * at the size that the reference names.
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

/** Compressing is kept when it leaves at most this much. */
const WORTHWHILE = 0.8;
/** Parts that are on their way to Redis, or from there, at a time. */
const MAX_UNDER_WAY = 4;

const compress = promisify(zlib.zstdCompress);
const decompress = promisify(zlib.zstdDecompress);
const FASTEST = { [zlib.constants.ZSTD_c_compressionLevel]: 1 };
/** Smaller buffers than the result would send each part through the thread pool several times. At least what zlib allows. */
const bufferFor = (bytes: number) => bytes + 64;

export class LargeTexts {
  readonly #blobs: BlobStores;

  constructor(blobs: BlobStores) {
    this.#blobs = blobs;
  }

  remove(key: string): Promise<void> {
    return this.#blobs.remove(key);
  }

  /** Writes the parts. They expire soon, unless something that refers to them lets them live. */
  async write(key: string, text: LargeText): Promise<TextReference> {
    const { written, kind } = this.#blobs;
    const parts: string[] = [];
    const inProgress = new Set<Promise<unknown>>();
    for (const [number, part] of text.parts.entries()) {
      const compressed = await compress(part, { params: FASTEST, chunkSize: bufferFor(part.length) });
      const pays = compressed.length <= part.length * WORTHWHILE;
      const stored = pays ? compressed : part;
      parts.push(`${pays ? 'zstd' : 'plain'}:${digest(stored)}`);
      const kept = written.put(key, number, stored);
      inProgress.add(kept);
      kept.then(
        () => inProgress.delete(kept),
        () => {},
      );
      if (inProgress.size >= MAX_UNDER_WAY) await Promise.race(inProgress);
    }
    await Promise.all(inProgress);
    // The mark is there when all parts are, so that a call whose text has a mark has its text.
    await this.#blobs.mark(key);
    const place = kind === undefined ? {} : { in: kind };
    return { bytes: text.bytes, parts, ...place, ...(text.content === undefined ? {} : { content: text.content }) };
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
    const last = Math.ceil(to / PART_BYTES) - 1;
    let number = Math.floor(from / PART_BYTES);
    let asked = number;
    const inProgress: Promise<Buffer | null>[] = [];
    for (; number <= last; number += 1) {
      // The next ones come while this one is worked on.
      for (; asked <= last && inProgress.length < MAX_UNDER_WAY; asked += 1)
        inProgress.push(fetchPart(store, key, asked));
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
  if (digest(stored) !== expected) throw forged();
  if (encoding === 'plain') return stored;
  const options = { maxOutputLength: bytes, chunkSize: bufferFor(bytes) };
  const plain = await decompress(stored, options).catch(() => undefined);
  if (plain?.length !== bytes) throw forged();
  return plain;
}

function forged(): PawlError {
  return new PawlError('SIGNATURE_INVALID', 'A part of what the record refers to is not what was written.');
}
