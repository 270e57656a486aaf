/**
 * The bytes of a segment: a line for each record, compressed together. A line is JSON of a call's ID, of when its record ends, and of the
 * record's fields and values in turn. A reader looks for the line that begins with the ID.
 */
import { promisify } from 'node:util';
// A named import would fail on a Node that lacks one of the functions, before the required version can be printed.
import zlib from 'node:zlib';

export interface SegmentRecord {
  readonly callId: string;
  readonly expiresAtMs: number;
  /** Names and values in turn. */
  readonly fields: readonly string[];
}

/** The mover makes none that is larger before it is compressed, apart from one record. A reader has all of it in memory. */
export const SEGMENT_BYTES = 262_144;
/** The length of the lines, in front of their compressed bytes. */
const HEAD_BYTES = 4;

const compress = promisify(zlib.zstdCompress);
const decompress = promisify(zlib.zstdDecompress);
/** A buffer as large as the result: several would send each segment through the thread pool several times. At least what zlib allows. */
const bufferFor = (bytes: number) => ({ chunkSize: bytes + 64 });

export async function segmentBytes(records: readonly SegmentRecord[]): Promise<Buffer> {
  const lines = Buffer.from(records.map((record) => `${segmentLine(record)}\n`).join(''));
  const head = Buffer.alloc(HEAD_BYTES);
  head.writeUInt32BE(lines.length);
  return Buffer.concat([head, await compress(lines, bufferFor(lines.length))]);
}

export function segmentLine({ callId, expiresAtMs, fields }: SegmentRecord): string {
  return JSON.stringify([callId, expiresAtMs, ...fields]);
}

/** The lines of a segment. Rejects for other bytes. */
export function segmentLines(bytes: Buffer): Promise<Buffer> {
  return decompress(bytes.subarray(HEAD_BYTES), bufferFor(bytes.readUInt32BE()));
}

/** The record of a call; undefined when there is none. */
export function recordIn(lines: Buffer, callId: string): SegmentRecord | undefined {
  const head = `[${JSON.stringify(callId)},`;
  for (let from = lines.indexOf(head); from >= 0; from = lines.indexOf(head, from + 1)) {
    // No line break stands within a line: JSON escapes it.
    if (from > 0 && lines[from - 1] !== LINE_BREAK) continue;
    return parsedLine(lines.toString('utf8', from, lines.indexOf(LINE_BREAK, from)));
  }
  return undefined;
}

export function callIdsIn(lines: Buffer): string[] {
  const texts = lines.toString('utf8').split('\n').slice(0, -1);
  return texts.map((line) => parsedLine(line).callId);
}

const LINE_BREAK = 0x0a;

function parsedLine(line: string): SegmentRecord {
  const [callId, expiresAtMs, ...fields] = JSON.parse(line) as [string, number, ...string[]];
  return { callId, expiresAtMs, fields };
}
