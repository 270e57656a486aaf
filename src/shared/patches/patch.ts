/**
 * Patches of several files, as models write them (C17): the `*** Begin Patch` format with add, update, move and delete, and
 * unified diffs. `patch-apply.ts` puts their hunks into texts; `apply_patch` reads and writes the files.
 */
import { PawlError } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';

export type FilePatch =
  | { readonly kind: 'add'; readonly path: string; readonly content: string; readonly isExecutable?: boolean }
  | { readonly kind: 'delete'; readonly path: string }
  | {
      readonly kind: 'update';
      readonly path: string;
      readonly moveTo?: string;
      readonly hunks: readonly Hunk[];
      /** Absent: as it was. */
      readonly isExecutable?: boolean;
    };

export interface Hunk {
  /** Lines, such as a class's and its function's head, the outer one first: the hunk is looked for below the last. */
  readonly headings: readonly string[];
  /** Where a unified diff says that it begins, counted from 1: the nearest match wins. */
  readonly nearLine?: number;
  readonly lines: readonly HunkLine[];
  /** The hunk ends where the file ends. */
  readonly atEnd: boolean;
  /** The last new line has no line end. */
  readonly noLineEnd: boolean;
}

export interface HunkLine {
  readonly kind: 'keep' | 'remove' | 'add';
  readonly text: string;
}

/** The `*** Begin Patch` format in Lark's notation, for models that can be bound to it: all that it makes is read. */
export const PATCH_GRAMMAR = String.raw`start: BEGIN file+ END
file: ADD ADDED+ | DELETE | UPDATE (MOVE hunk* | hunk+)
hunk: HEAD+ LINE+ END_OF_FILE?

BEGIN: "*** Begin Patch\n"
END: /\*\*\* End Patch\n?/
ADD: /\*\*\* Add File: \S[^\n]*\n/
DELETE: /\*\*\* Delete File: \S[^\n]*\n/
UPDATE: /\*\*\* Update File: \S[^\n]*\n/
MOVE: /\*\*\* Move to: \S[^\n]*\n/
HEAD: /@@( [^\n]+)?\n/
ADDED: /\+[^\n]*\n/
LINE: /[ +-][^\n]*\n/
END_OF_FILE: "*** End of File\n"
`;

/** Of one patch: the folders of all of them are open while they are changed. */
const MAX_FILES = 1_000;

/** Throws `INVALID_PARAMS` with the number of the line that cannot be read, and what was expected there. */
export function parsePatch(text: string): readonly FilePatch[] {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  const begin = lines.findIndex((line) => line.trim() === '*** Begin Patch');
  const patches = begin === -1 ? new UnifiedReader(lines).read() : new PatchReader(lines, begin + 1).read();
  if (patches.length === 0) {
    throw new PawlError(
      'INVALID_PARAMS',
      'The patch holds no change. It begins with "*** Begin Patch", then for each file "*** Add File: PATH", "*** Update File: PATH" or "*** Delete File: PATH", and ends with "*** End Patch".',
    );
  }
  if (patches.length > MAX_FILES)
    throw new PawlError(
      'INVALID_PARAMS',
      `The patch changes ${patches.length} files; at most ${MAX_FILES} can be changed in one step. Nothing was changed.`,
    );
  return patches;
}

class LineReader {
  readonly lines: readonly string[];
  at: number;
  /** The empty lines that were looked at last. */
  #blanks = { from: 0, to: 0 };

  constructor(lines: readonly string[], at = 0) {
    this.lines = lines;
    this.at = at;
  }

  get line(): string | undefined {
    return this.lines[this.at];
  }

  /** Where the empty lines from here end. A patch may have a million of them. */
  afterBlanks(): number {
    if (this.at >= this.#blanks.from && this.at < this.#blanks.to) return this.#blanks.to;
    let to = this.at;
    while (this.lines[to] === '') to += 1;
    this.#blanks = { from: this.at, to };
    return to;
  }

  wrong(expected: string): PawlError {
    const came = this.line === undefined ? 'the end of the patch' : JSON.stringify(startOf(this.line, 120));
    return new PawlError(
      'INVALID_PARAMS',
      `Line ${this.at + 1} of the patch: expected ${expected}; got ${came}. Nothing was changed.`,
      { issues: [{ path: 'patch', message: `line ${this.at + 1}: expected ${expected}` }] },
    );
  }
}

/** Models put white space before it. */
const HEAD_OF_FILE = /^(\s*)\*\*\* (End Patch|(?:Add|Delete|Update)(?= File: ))/;

const NO_LINE_END = '\\ No newline at end of file';

/** `*** Begin Patch`. */
class PatchReader extends LineReader {
  /** The white space that a model has put before the last head of a file, and the last line that can be the closing mark. */
  #padding = '';
  readonly #lastEnd: number;

  constructor(lines: readonly string[], at: number) {
    super(lines, at);
    this.#lastEnd = lines.findLastIndex((line) => line.trim() === '*** End Patch');
  }

  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    for (;;) {
      const line = this.line?.trim();
      if (line === '*** End Patch') return patches;
      if (line === '') this.at += 1;
      else patches.push(this.#file(line));
    }
  }

  #file(line: string | undefined): FilePatch {
    const [, verb, path = ''] = /^\*\*\* (Add|Delete|Update) File: (.+)$/.exec(line ?? '') ?? [];
    if (verb === undefined)
      throw this.wrong('"*** Add File: PATH", "*** Update File: PATH", "*** Delete File: PATH" or "*** End Patch"');
    [this.#padding = ''] = /^\s*/.exec(this.line ?? '') ?? [];
    this.at += 1;
    if (verb === 'Delete') return { kind: 'delete', path };
    if (verb === 'Add') return { kind: 'add', path, content: this.#added() };
    const [, moveTo] = /^\*\*\* Move to: (.+)$/.exec(this.line?.trim() ?? '') ?? [];
    if (moveTo !== undefined) this.at += 1;
    const hunks: Hunk[] = [];
    const isNext = () => this.#isNextFile() || (hunks.length > 0 && HEAD_OF_FILE.test(this.line ?? ''));
    while (this.line !== undefined && !isNext()) {
      if (this.#endsInBlanks() || (this.line.trim() === '' && this.#isNextFile(this.at + 1))) this.at += 1;
      else hunks.push(this.#hunk(hunks.length === 0));
    }
    if (hunks.length === 0 && moveTo === undefined) throw this.wrong('"@@" and the lines of a hunk');
    return { kind: 'update', path, hunks, ...(moveTo === undefined ? {} : { moveTo }) };
  }

  /** A line of a hunk with white space before a mark may be one that is kept: the other lines tell which it is. */
  #isNextFile(at = this.at): boolean {
    const line = this.lines[at] ?? '';
    const [, padding, mark] = HEAD_OF_FILE.exec(line) ?? [];
    if (mark === undefined || padding === '') return mark !== undefined;
    if (mark === 'End Patch') return at === this.#lastEnd;
    return padding === this.#padding || (mark === 'Update' && /^(@@|\*\*\* Move to: )/.test(this.lines[at + 1] ?? ''));
  }

  /** Empty lines that only set apart what follows: the next hunk, or the next file. */
  #endsInBlanks(): boolean {
    if (this.line !== '') return false;
    const next = this.afterBlanks();
    return this.#isNextFile(next) || this.lines[next]?.startsWith('@@') === true;
  }

  #added(): string {
    const added: string[] = [];
    // Models leave the "+" of an empty line away.
    const goesOn = () =>
      this.line?.startsWith('+') || (this.line === '' && this.lines[this.afterBlanks()]?.startsWith('+'));
    for (; goesOn(); this.at += 1) added.push(`${this.line?.slice(1)}\n`);
    const hasNoLineEnd = this.line?.trimEnd() === NO_LINE_END;
    if (hasNoLineEnd) this.at += 1;
    if (this.line !== undefined && this.line.trim() !== '' && !this.#isNextFile())
      throw this.wrong('a line of the new file, which begins with "+"');
    return hasNoLineEnd ? added.join('').slice(0, -1) : added.join('');
  }

  #hunk(isFirst: boolean): Hunk {
    const headings: string[] = [];
    const start = this.at;
    for (let head = this.#head(); head !== undefined; head = this.#head()) {
      if (head !== '') headings.push(head);
      this.at += 1;
    }
    if (this.at === start && !isFirst) throw this.wrong('"@@", which begins a hunk');
    const lines: HunkLine[] = [];
    let atEnd = false;
    let noLineEnd = false;
    for (; this.line !== undefined && !atEnd; this.at += 1) {
      const { line } = this;
      if (line.trimEnd() === '*** End of File') {
        atEnd = true;
        continue;
      }
      if (line.trimEnd() === NO_LINE_END) {
        if (lines.at(-1)?.kind !== 'remove') noLineEnd = true;
        continue;
      }
      if (line.startsWith('@@') || this.#isNextFile() || this.#endsInBlanks()) break;
      const read = hunkLine(line);
      if (read === undefined) throw this.wrong('a line that begins with a space, "+" or "-", or "*** End of File"');
      lines.push(read);
    }
    if (lines.length === 0) throw this.wrong('the lines of a hunk, each beginning with a space, "+" or "-"');
    return { headings, lines, atEnd: atEnd || noLineEnd, noLineEnd };
  }

  /** What stands behind "@@", without line numbers as unified diffs have them; undefined for another line. */
  #head(): string | undefined {
    const [head, text = ''] = /^@@(?: (.*))?$/.exec(this.line ?? '') ?? [];
    return head === undefined ? undefined : text.replace(/^-\d+(,\d+)? \+\d+(,\d+)? @@ ?/, '').replace(/ @@$/, '');
  }
}

/** `diff`, `git diff`. */
class UnifiedReader extends LineReader {
  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    let head: GitHead = {};
    const flush = () => {
      patches.push(...withoutLines(head));
      head = {};
    };
    for (; this.line !== undefined; ) {
      const { line } = this;
      if (line.startsWith('diff --git ')) {
        flush();
        head = { path: pathOfHead(line) };
      }
      if (line.startsWith('new file mode ')) head.kind = 'add';
      const [, mode] = /^new (?:file )?mode (\d+)$/.exec(line) ?? [];
      if (mode !== undefined) head.isExecutable = this.#isExecutable(mode);
      if (line.startsWith('deleted file mode ')) head.kind = 'delete';
      const [, end, name] = /^rename (from|to) (.+)$/.exec(line) ?? [];
      if (name !== undefined) head[end === 'to' ? 'to' : 'from'] = unquoted(name);
      if (/^(GIT binary patch|Binary files .* differ)$/.test(line))
        throw this.wrong('a text patch; binary patches cannot be applied');
      if (line.startsWith('--- ') && this.#isNameOfNew()) {
        patches.push({ ...this.#file(), ...modeOf(head) });
        head = {};
      } else this.at += 1;
    }
    flush();
    return patches;
  }

  #isExecutable(mode: string): boolean {
    if (!mode.startsWith('100'))
      throw this.wrong('the mode of a file (100644, 100755); links and submodules cannot be made');
    return mode.endsWith('755');
  }

  #isNameOfNew(at = this.at): boolean {
    return this.lines[at + 1]?.startsWith('+++ ') === true;
  }

  #file(): FilePatch {
    const from = nameOf(this.line ?? '', 'a/');
    this.at += 1;
    const to = nameOf(this.line ?? '', 'b/');
    this.at += 1;
    const hunks: Hunk[] = [];
    while (this.line?.startsWith('@@ ')) hunks.push(this.#hunk());
    if (hunks.length === 0) throw this.wrong('"@@ -LINE,COUNT +LINE,COUNT @@"');
    if (from === undefined && to === undefined) throw this.wrong('a file name');
    if (to === undefined) return { kind: 'delete', path: from ?? '' };
    if (from === undefined) {
      const lines = hunks.flatMap((hunk) => hunk.lines.filter((line) => line.kind === 'add').map((line) => line.text));
      return { kind: 'add', path: to, content: lines.join('\n') + (hunks.at(-1)?.noLineEnd ? '' : '\n') };
    }
    return { kind: 'update', path: from, hunks, ...(from === to ? {} : { moveTo: to }) };
  }

  #hunk(): Hunk {
    const head = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/.exec(this.line ?? '');
    if (head === null) throw this.wrong('"@@ -LINE,COUNT +LINE,COUNT @@"');
    this.at += 1;
    let [old, fresh] = [Number(head[2] ?? 1), Number(head[4] ?? 1)];
    const lines: HunkLine[] = [];
    let noLineEnd = false;
    while ((old > 0 || fresh > 0 || this.#goesOn()) && !this.#endsEarly()) {
      const read = hunkLine(this.line ?? '');
      if (read === undefined && !this.line?.startsWith('\\'))
        throw this.wrong('a line that begins with a space, "+" or "-"');
      if (read !== undefined) {
        lines.push(read);
        if (read.kind !== 'add') old -= 1;
        if (read.kind !== 'remove') fresh -= 1;
      }
      this.at += 1;
      if (this.line?.startsWith('\\')) {
        if (read?.kind !== 'remove') noLineEnd = true;
        this.at += 1;
      }
    }
    return { headings: [], lines, atEnd: noLineEnd, noLineEnd, nearLine: Number(head[1]) };
  }

  /** Models count wrong: a hunk goes on as long as lines of a hunk come, up to the next file and to a mail's signature. */
  #goesOn(): boolean {
    // They leave the space of an empty kept line away, too: without a look behind it, what follows would be lost without a word.
    const at = this.afterBlanks();
    const line = this.lines[at] ?? '';
    if (line.trimEnd() === '--' || (line.startsWith('--- ') && this.#isNameOfNew(at))) return false;
    return /^[ +-]/.test(line);
  }

  /** And it ends where the next one begins. */
  #endsEarly(): boolean {
    const { line } = this;
    if (line === undefined || (line === '' && this.at === this.lines.length - 1)) return true;
    return line.startsWith('@@ ') || line.startsWith('diff --git ');
  }
}

/** What git says of a file before its lines, or instead of them. */
interface GitHead {
  path?: string | undefined;
  kind?: 'add' | 'delete';
  from?: string;
  to?: string;
  isExecutable?: boolean;
}

/** What a head asks for by itself: files that are renamed as they are, empty ones, and those whose mode alone changes, have no lines. */
function withoutLines(head: GitHead): FilePatch[] {
  const { path, kind, from, to } = head;
  const mode = modeOf(head);
  if (from !== undefined && to !== undefined) return [{ kind: 'update', path: from, moveTo: to, hunks: [], ...mode }];
  if (path === undefined) return [];
  if (kind === 'add') return [{ kind, path, content: '', ...mode }];
  if (kind === 'delete') return [{ kind, path }];
  return head.isExecutable === undefined ? [] : [{ kind: 'update', path, hunks: [], ...mode }];
}

/** A new file that may not be run is as any other. */
function modeOf({ kind, isExecutable }: GitHead): { readonly isExecutable?: boolean } {
  return isExecutable === undefined || (kind === 'add' && !isExecutable) ? {} : { isExecutable };
}

/** Of `diff --git a/PATH b/PATH`; undefined where the paths differ. */
function pathOfHead(line: string): string | undefined {
  const [, quoted] = /^diff --git "a\/.+" ("b\/.+")$/.exec(line) ?? [];
  if (quoted !== undefined) return unquoted(quoted).slice('b/'.length);
  // Both paths are half of the line: nothing is tried at every " b/" of a long one.
  const path = line.slice(line.length / 2 + 'diff --git a/ b/'.length / 2);
  return path !== '' && line === `diff --git a/${path} b/${path}` ? path : undefined;
}

function hunkLine(line: string): HunkLine | undefined {
  // Models leave the space of an empty kept line away.
  if (line === '') return { kind: 'keep', text: '' };
  const kind = ({ ' ': 'keep', '-': 'remove', '+': 'add' } as const)[line[0] as ' ' | '-' | '+'];
  return kind === undefined ? undefined : { kind, text: line.slice(1) };
}

/** The path of a `---` or `+++` line, without the time stamp; undefined for /dev/null. */
function nameOf(line: string, prefix: string): string | undefined {
  const name = unquoted(line.slice(4).split('\t')[0] ?? '');
  if (name.trim() === '/dev/null') return undefined;
  return name.startsWith(prefix) ? name.slice(prefix.length) : name.trim();
}

const ESCAPED: Readonly<Record<string, string>> = {
  a: '\u0007',
  b: '\b',
  t: '\t',
  n: '\n',
  v: '\v',
  f: '\f',
  r: '\r',
};

/** Git writes paths with other than plain letters as C does: in quotes, their bytes in octal. */
function unquoted(name: string): string {
  const [, inner] = /^"(.*)"$/.exec(name.trim()) ?? [];
  if (inner === undefined) return name;
  const bytes = Buffer.from(inner)
    .toString('latin1')
    .replace(/\\(?:([0-7]{3})|(.))/g, (_, octal: string | undefined, letter: string) =>
      octal === undefined ? (ESCAPED[letter] ?? letter) : String.fromCharCode(Number.parseInt(octal, 8)),
    );
  return Buffer.from(bytes, 'latin1').toString();
}
