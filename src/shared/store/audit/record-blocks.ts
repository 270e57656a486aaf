/** The stored format of chained audit records: blocks of them, compressed, byte for byte. */
// A named import would fail on a Node that lacks one of the functions, before the required version can be printed.
import zlib from 'node:zlib';
import type { ChainedRecord } from '../../audit/audit-chain.ts';
import { orUndefined } from '../../util/or-undefined.ts';

/** As small as with the default level, 3, in two thirds of the time. */
const LEVEL = 2;
/** A block is stored compressed if it shrinks to this share or less. */
const MAX_COMPRESSED_SHARE = 0.8;
/** Many times the size of a real block: limits the memory for a forged one. */
const MAX_BLOCK_BYTES = 64 * 1_048_576;

/**
 * The fields of a block of chained records: each line is a signature and a record. A block is so short that another thread would take
 * longer to get and to return it than to compress it.
 */
export function blockFields(records: readonly ChainedRecord[]): readonly [string, string | Buffer] {
  const lines = records.map(({ seal, text }) => `${seal} ${text}`).join('\n');
  const compressed = zlib.zstdCompressSync(lines, { params: { [zlib.constants.ZSTD_c_compressionLevel]: LEVEL } });
  return compressed.length <= lines.length * MAX_COMPRESSED_SHARE ? ['zstd', compressed] : ['records', lines];
}

/** A block as it is read: its ID, and its fields: the number of the first record, the kind of encoding, the records. */
type StoredBlock = readonly [id: Buffer, fields: readonly Buffer[]];

/** The records of a block. Anyone who can write to Redis can add a block: an unreadable one yields one record without a signature. */
export function recordsOfBlock([, [, first, kind, stored = Buffer.alloc(0)]]: StoredBlock): ChainedRecord[] {
  return decompressLines(String(kind), stored)
    .split('\n')
    .map((line, index) => {
      const end = line.indexOf(' ');
      return { seq: Number(String(first)) + index, text: line.slice(end + 1), seal: line.slice(0, Math.max(0, end)) };
    });
}

function decompressLines(kind: string, stored: Buffer): string {
  if (kind !== 'zstd') return stored.toString();
  const lines = orUndefined(() => zlib.zstdDecompressSync(stored, { maxOutputLength: MAX_BLOCK_BYTES }));
  return (lines ?? stored).toString();
}
