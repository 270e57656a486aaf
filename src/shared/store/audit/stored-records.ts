/**
 * How audit records are stored. Waiting records have one character in the place of each name that most of them have; chained records are
 * compressed, a block at a time. A record that is read is byte for byte the one that was made.
 */
import { promisify } from 'node:util';
// A named import would fail on a Node that lacks one of the functions, before the required version can be printed.
import zlib from 'node:zlib';
import type { ChainedRecord } from '../../audit/audit-chain.ts';

/** In this order for good: a stored name is its place in the list. */
const NAMES = [
  ...[
    'type',
    'tool',
    'sessionKey',
    'requestId',
    'actorId',
    'toolVersion',
    'tier',
    'estimatedCostUnits',
    'paramsDigest',
  ],
  ...[
    'id',
    'atMs',
    'idempotencyKeyHash',
    'request',
    'callId',
    'answer',
    'worker',
    'attempt',
    'fence',
    'status',
    'result',
  ],
  ...['startedAtNs', 'finishedAtNs', 'latencyMs', 'tenantId', 'agentId', 'submittedBy', 'reason', 'by'],
];
/** JSON holds no control character, and the line break stands between records. */
const CODES = Array.from({ length: 31 }, (_, index) => String.fromCharCode(index + 1)).filter((code) => code !== '\n');
const CODE_OF = new Map(NAMES.map((name, index) => [`,"${name}":`, CODES[index] ?? '']));
const NAME_OF = new Map([...CODE_OF].map(([name, code]) => [code, name]));
const ALL_NAMES = new RegExp([...CODE_OF.keys()].join('|'), 'g');
const ALL_CODES = new RegExp(`[${[...NAME_OF.keys()].join('')}]`, 'g');

export function shortNames(text: string): string {
  return text.replace(ALL_NAMES, (name) => CODE_OF.get(name) ?? name);
}

export function wholeNames(text: string): string {
  return text.replace(ALL_CODES, (code) => NAME_OF.get(code) ?? code);
}

/** Compressing is kept when it leaves at most this much. */
const WORTHWHILE = 0.8;
/** Many times what a block has: a forged one takes no more memory. */
const MAX_BLOCK_BYTES = 64 * 1_048_576;

const compress = promisify(zlib.zstdCompress);

/** The fields of a block of chained records: each line is a signature and a record. */
export async function blockFields(records: readonly ChainedRecord[]): Promise<readonly [string, string | Buffer]> {
  const lines = records.map(({ seal, text }) => `${seal} ${text}`).join('\n');
  const compressed = await compress(Buffer.from(lines));
  return compressed.length <= lines.length * WORTHWHILE ? ['zstd', compressed] : ['records', lines];
}

/** A block of the trail, as it was read: its ID, and the number of its first record, the kind of its records, and these. */
export type StoredBlock = readonly [id: Buffer, fields: readonly Buffer[]];

/** The records of a block. Any writer to Redis can add a block: one that cannot be read has one record, without a signature. */
export function recordsOfBlock([, [, first, kind, stored = Buffer.alloc(0)]]: StoredBlock): ChainedRecord[] {
  return linesOf(String(kind), stored)
    .split('\n')
    .map((line, index) => {
      const end = line.indexOf(' ');
      return { seq: Number(String(first)) + index, text: line.slice(end + 1), seal: line.slice(0, Math.max(0, end)) };
    });
}

function linesOf(kind: string, stored: Buffer): string {
  if (kind !== 'zstd') return stored.toString();
  try {
    return zlib.zstdDecompressSync(stored, { maxOutputLength: MAX_BLOCK_BYTES }).toString();
  } catch {
    return stored.toString();
  }
}
