/**
 * The trail in files: one line of JSON for each chained record, and one series of files for each trail, `audit-TRAIL-NUMBER.jsonl` with the
 * number of the file's first record. Files are only appended to. A writer continues behind the last record in the folder.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, readdir, stat } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join, resolve } from 'node:path';
import {
  type ChainedRecord,
  formatChainedRecord,
  parseChainedRecord,
  type TrailHead,
} from '../../audit/audit-chain.ts';
import type { Counter } from '../../telemetry/metric-set.ts';
import type { AuditTrail } from './audit-trail.ts';

const LAST_LINE_BYTES = 64 * 1_024;
const FILE = /^audit-([0-9a-f]{18})-(\d{16})\.jsonl$/;

/** A series of files of one trail, in order. */
export interface TrailFiles {
  readonly trail: string;
  /** Whole paths. */
  readonly files: readonly string[];
}

/** The trails of a folder; the one that was written to last comes last. */
export async function trailFiles(folder: string): Promise<readonly TrailFiles[]> {
  let names: string[];
  try {
    names = (await readdir(folder)).sort();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
  const byTrail = new Map<string, string[]>();
  for (const name of names) {
    const trail = FILE.exec(name)?.[1];
    if (trail === undefined) continue;
    const path = join(folder, name);
    // A folder of this name has no records: those that belong here are missing.
    if ((await stat(path)).isDirectory()) continue;
    const files = byTrail.get(trail) ?? [];
    files.push(path);
    byTrail.set(trail, files);
  }
  const byTime = await Promise.all(
    [...byTrail].map(async ([trail, files]) => ({ trail, files, atMs: (await stat(files.at(-1) ?? '')).mtimeMs })),
  );
  return byTime.sort((a, b) => a.atMs - b.atMs).map(({ trail, files }) => ({ trail, files }));
}

/**
 * The lines of files, in order. A partial line at the very end is left out: it is being written, or a crash left it, and the next writer
 * truncates it (`wholeLines`).
 */
export async function* readLines(files: readonly string[]): AsyncGenerator<string> {
  for (const file of files) {
    // Not `readline`: to it, U+2028 and U+2029 end a line, and JSON has them as they are.
    let partial = '';
    for await (const chunk of createReadStream(file, 'utf8')) {
      const lines = `${partial}${chunk}`.split('\n');
      partial = lines.pop() ?? '';
      for (const line of lines) if (line !== '') yield line;
    }
    if (partial !== '' && file !== files.at(-1)) yield partial;
  }
}

/** The files from the one that has the record of a number, or should have it, and the number of their first record. */
export function filesFrom(
  files: readonly string[],
  seq: number,
): { readonly files: readonly string[]; readonly first: number } {
  const start = files.findLastIndex((file) => firstNumber(file) <= seq);
  const file = files[start];
  return file === undefined ? { files, first: seq } : { files: files.slice(start), first: firstNumber(file) };
}

export function sinkName(folder: string): string {
  const path = createHash('sha256').update(resolve(folder)).digest('base64url').slice(0, 12);
  return `${hostname()}:${path}`;
}

export interface AuditFilesDeps {
  readonly trail: AuditTrail;
  readonly folder: string;
  readonly maxFileBytes: number;
  readonly onGap: (gap: { readonly from: number; readonly to: number }) => void;
  /** Called for the first failure to write, and for the first one after a success. */
  readonly onFault: (error: unknown) => void;
  /** Counts every try that failed. */
  readonly failures?: Counter | undefined;
}

interface OpenFile {
  readonly trail: string;
  readonly path: string;
  readonly handle: FileHandle;
  /** The number of its last record. */
  seq: number;
  /** The signature of that record, once this process has written it. */
  seal: string | undefined;
  bytes: number;
}

/** Writes the trail to a folder, while it holds the folder's lease. */
export class AuditFiles {
  readonly #deps: AuditFilesDeps;
  readonly #name: string;
  readonly #holder = randomBytes(9).toString('base64url');
  #file: OpenFile | undefined;
  #isFaulty = false;

  constructor(deps: AuditFilesDeps) {
    this.#deps = deps;
    this.#name = sinkName(deps.folder);
  }

  /** Copies a part of the chained records. `more`: there may be more; `idle`: there is nothing to do, or another process does it. */
  async step(): Promise<'more' | 'idle'> {
    const { trail, onFault, failures } = this.#deps;
    if (!(await trail.holdSink(this.#name, this.#holder))) {
      await this.#close();
      return 'idle';
    }
    const head = await trail.head();
    if (head === undefined) return 'idle';
    try {
      const step = await this.#copy(head);
      this.#isFaulty = false;
      return step;
    } catch (error) {
      // Redis has just answered, so the folder or its disk has failed, and no other process reports that.
      if (failures !== undefined) failures.value += 1;
      if (!this.#isFaulty) onFault(error);
      this.#isFaulty = true;
      throw error;
    }
  }

  async #copy(head: TrailHead): Promise<'more' | 'idle'> {
    const { trail, maxFileBytes, onGap } = this.#deps;
    const file = await this.#current(head);
    const storedRecords = file.seq > head.seq ? [] : await this.#storedFrom(file, head);
    const isReplaced =
      storedRecords[0]?.seq === file.seq && file.seal !== undefined && storedRecords[0].seal !== file.seal;
    if (file.seq > head.seq || isReplaced) {
      // Redis has lost records: new ones would get numbers that are already in the files.
      await trail.restart(head, await this.#unwrittenTexts(head.trail));
      return 'more';
    }
    const records = storedRecords.filter(({ seq }) => seq > file.seq);
    const first = records[0];
    if (first === undefined) return 'idle';
    if (first.seq > file.seq + 1) onGap({ from: file.seq + 1, to: first.seq - 1 });
    const text = records.map((record) => `${formatChainedRecord(record)}\n`).join('');
    await file.handle.appendFile(text);
    await file.handle.datasync();
    file.bytes += Buffer.byteLength(text);
    file.seq = records.at(-1)?.seq ?? file.seq;
    file.seal = records.at(-1)?.seal;
    await trail.setPosition(this.#name, { trail: head.trail, seq: file.seq });
    if (file.bytes >= maxFileBytes) await this.#close();
    return file.seq < head.seq ? 'more' : 'idle';
  }

  /** The last record of the file and some that follow, as Redis has them. */
  async #storedFrom({ seq, seal }: OpenFile, head: TrailHead): Promise<readonly ChainedRecord[]> {
    const isKnown = seq === head.seq && (seal === undefined || seal === head.seal);
    return isKnown ? [] : await this.#deps.trail.recordsFrom(head.trail, seq);
  }

  /** The chained records in Redis, from the first number of the files on, that are in no file. */
  async #unwrittenTexts(trail: string): Promise<readonly string[]> {
    const files = (await trailFiles(this.#deps.folder)).find((each) => each.trail === trail)?.files ?? [];
    const texts = new Map<string, string>();
    for (let from = firstNumber(files[0] ?? ''); ; ) {
      const records = await this.#deps.trail.recordsFrom(trail, from);
      for (const { seal, text } of records) texts.set(seal, text);
      const last = records.at(-1);
      if (last === undefined) break;
      from = last.seq + 1;
    }
    for await (const line of readLines(files)) texts.delete(parseChainedRecord(line)?.seal ?? '');
    return [...texts.values()];
  }

  /** The file to append to. If this process was stopped for long, another one may have written meanwhile. */
  async #current(head: TrailHead): Promise<OpenFile> {
    const currentFile = this.#file;
    if (currentFile !== undefined) {
      const bytes = await stat(currentFile.path).then(
        ({ size }) => size,
        () => -1,
      );
      if (currentFile.trail === head.trail && bytes === currentFile.bytes) return currentFile;
      await this.#close();
    }
    const opened = await this.#open(head.trail);
    this.#file = opened;
    return opened;
  }

  async #open(trail: string): Promise<OpenFile> {
    const { folder, maxFileBytes } = this.#deps;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const newestFile = (await trailFiles(folder)).find((each) => each.trail === trail)?.files.at(-1);
    let seq = 0;
    if (newestFile !== undefined) {
      const handle = await open(newestFile, 'a+', 0o600);
      const { last, bytes } = await dropPartialLine(handle);
      // If the last line was edited, the position in Redis counts.
      const position = (await this.#deps.trail.positions()).get(this.#name);
      seq = last ?? (position?.trail === trail ? position.seq : firstNumber(newestFile) - 1);
      if (bytes < maxFileBytes) return { trail, path: newestFile, handle, seq, seal: undefined, bytes };
      await handle.close();
    }
    const path = join(folder, `audit-${trail}-${String(seq + 1).padStart(16, '0')}.jsonl`);
    const handle = await open(path, 'a', 0o600);
    return { trail, path, handle, seq, seal: undefined, bytes: 0 };
  }

  async #close(): Promise<void> {
    await this.#file?.handle.close();
    this.#file = undefined;
  }

  async release(): Promise<void> {
    await this.#close();
    await this.#deps.trail.releaseSink(this.#name, this.#holder);
  }
}

function firstNumber(path: string): number {
  return Number(FILE.exec(basename(path))?.[2] ?? 1);
}

/** Cuts off a partial last line, which a crash left: its record is still in Redis. Returns the number of the last record. */
async function dropPartialLine(
  handle: FileHandle,
): Promise<{ readonly last: number | undefined; readonly bytes: number }> {
  const { size } = await handle.stat();
  const length = Math.min(size, LAST_LINE_BYTES);
  const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length);
  const end = buffer.lastIndexOf(0x0a);
  const bytes = size - length + end + 1;
  if (bytes < size) await handle.truncate(bytes);
  const line = buffer.subarray(0, Math.max(0, end)).toString('utf8').split('\n').at(-1) ?? '';
  return { last: parseChainedRecord(line)?.seq, bytes };
}
