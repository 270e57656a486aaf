/**
 * The trail in files: one line of JSON for each chained record, and one series of files for each trail, `audit-TRAIL-NUMBER.jsonl` with the
 * number of the file's first record. Files are only appended to. A folder is a whole copy: a writer continues behind the last record of the
 * folder.
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
    const files = byTrail.get(trail) ?? [];
    files.push(join(folder, name));
    byTrail.set(trail, files);
  }
  const dated = await Promise.all(
    [...byTrail].map(async ([trail, files]) => ({ trail, files, atMs: (await stat(files.at(-1) ?? '')).mtimeMs })),
  );
  return dated.sort((a, b) => a.atMs - b.atMs).map(({ trail, files }) => ({ trail, files }));
}

/**
 * The lines of files, in order. A partial line at the very end is left out: it is being written, or a crash left it, and the next writer
 * truncates it (`wholeLines`).
 */
export async function* linesOf(files: readonly string[]): AsyncGenerator<string> {
  for (const file of files) {
    // Not `readline`: to it, U+2028 and U+2029 end a line, and JSON has them as they are.
    let begun = '';
    for await (const chunk of createReadStream(file, 'utf8')) {
      const lines = `${begun}${chunk}`.split('\n');
      begun = lines.pop() ?? '';
      for (const line of lines) if (line !== '') yield line;
    }
    if (begun !== '' && file !== files.at(-1)) yield begun;
  }
}

/** Names a folder of a machine among the sinks. */
export function sinkName(folder: string): string {
  const path = createHash('sha256').update(resolve(folder)).digest('base64url').slice(0, 12);
  return `${hostname()}:${path}`;
}

export interface AuditFilesDeps {
  readonly trail: AuditTrail;
  readonly folder: string;
  readonly maxFileBytes: number;
  readonly onGap: (gap: { readonly from: number; readonly to: number }) => void;
  /** Called once when the files cannot be written, and again after they could be in between. */
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

/** Writes the trail to a folder, while no other process does. */
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
    const found = file.seq > head.seq ? [] : await this.#sealedFrom(file, head);
    const isOther = found[0]?.seq === file.seq && file.seal !== undefined && found[0].seal !== file.seal;
    if (file.seq > head.seq || isOther) {
      // Redis came back with less than it had: its next records get numbers that stand here already.
      await trail.beginAnew(head, await this.#notWritten(head.trail));
      return 'more';
    }
    const records = found.filter(({ seq }) => seq > file.seq);
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

  /** The last record of a file as Redis has it, as far as it does, and some that follow. */
  async #sealedFrom({ seq, seal }: OpenFile, head: TrailHead): Promise<readonly ChainedRecord[]> {
    const isKnown = seq === head.seq && (seal === undefined || seal === head.seal);
    return isKnown ? [] : await this.#deps.trail.sealed(head.trail, seq);
  }

  /** The records of a trail that Redis has chained since its files begin, and that no file holds. */
  async #notWritten(trail: string): Promise<readonly string[]> {
    const files = (await trailFiles(this.#deps.folder)).find((each) => each.trail === trail)?.files ?? [];
    const texts = new Map<string, string>();
    for (let from = firstOf(files[0] ?? ''); ; ) {
      const records = await this.#deps.trail.sealed(trail, from);
      for (const { seal, text } of records) texts.set(seal, text);
      const last = records.at(-1);
      if (last === undefined) break;
      from = last.seq + 1;
    }
    for await (const line of linesOf(files)) texts.delete(parseChainedRecord(line)?.seal ?? '');
    return [...texts.values()];
  }

  /** The file to append to. Another process may have written meanwhile, if this one stood still for long. */
  async #current(head: TrailHead): Promise<OpenFile> {
    const known = this.#file;
    if (known !== undefined) {
      const bytes = await stat(known.path).then(
        ({ size }) => size,
        () => -1,
      );
      if (known.trail === head.trail && bytes === known.bytes) return known;
      await this.#close();
    }
    const opened = await this.#open(head.trail);
    this.#file = opened;
    return opened;
  }

  async #open(trail: string): Promise<OpenFile> {
    const { folder, maxFileBytes } = this.#deps;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const present = (await trailFiles(folder)).find((each) => each.trail === trail)?.files.at(-1);
    let seq = 0;
    if (present !== undefined) {
      const handle = await open(present, 'a+', 0o600);
      const { last, bytes } = await wholeLines(handle);
      // The last line has been edited: the position that Redis stores counts.
      const told = (await this.#deps.trail.positions()).get(this.#name);
      seq = last ?? (told?.trail === trail ? told.seq : firstOf(present) - 1);
      if (bytes < maxFileBytes) return { trail, path: present, handle, seq, seal: undefined, bytes };
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

  async leave(): Promise<void> {
    await this.#close();
    await this.#deps.trail.leaveSink(this.#name, this.#holder);
  }
}

/** The number of a file's first record. */
function firstOf(path: string): number {
  return Number(FILE.exec(basename(path))?.[2] ?? 1);
}

/** The number of the last whole line; a half one, which a crash left, is cut off: its record is still in Redis. */
async function wholeLines(handle: FileHandle): Promise<{ readonly last: number | undefined; readonly bytes: number }> {
  const { size } = await handle.stat();
  const length = Math.min(size, LAST_LINE_BYTES);
  const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length);
  const end = buffer.lastIndexOf(0x0a);
  const bytes = size - length + end + 1;
  if (bytes < size) await handle.truncate(bytes);
  const line = buffer.subarray(0, Math.max(0, end)).toString('utf8').split('\n').at(-1) ?? '';
  return { last: parseChainedRecord(line)?.seq, bytes };
}
