/**
 * Patches of several files, as models write them (C17): the `*** Begin Patch` format with add, update, move and delete, and
 * unified diffs. Parsing and applying are pure; `apply_patch` reads and writes the files.
 */
import { PawlError } from './failure.ts';

export type FilePatch =
  | { readonly kind: 'add'; readonly path: string; readonly content: string }
  | { readonly kind: 'delete'; readonly path: string }
  | { readonly kind: 'update'; readonly path: string; readonly moveTo?: string; readonly hunks: readonly Hunk[] };

export interface Hunk {
  /** A line, such as a function's head, below which the hunk is looked for. */
  readonly heading?: string;
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
hunk: HEAD LINE+ END_OF_FILE?

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
  return patches;
}

class LineReader {
  readonly lines: readonly string[];
  at: number;

  constructor(lines: readonly string[], at = 0) {
    this.lines = lines;
    this.at = at;
  }

  get line(): string | undefined {
    return this.lines[this.at];
  }

  wrong(expected: string): PawlError {
    const came = this.line === undefined ? 'the end of the patch' : JSON.stringify(this.line.slice(0, 120));
    return new PawlError(
      'INVALID_PARAMS',
      `Line ${this.at + 1} of the patch: expected ${expected}; got ${came}. Nothing was changed.`,
      { issues: [{ path: 'patch', message: `line ${this.at + 1}: expected ${expected}` }] },
    );
  }
}

/** `*** Begin Patch`. */
class PatchReader extends LineReader {
  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    for (;;) {
      const line = this.line?.trimEnd();
      if (line === '*** End Patch') return patches;
      if (line === '') this.at += 1;
      else patches.push(this.#file(line));
    }
  }

  #file(line: string | undefined): FilePatch {
    const [, verb, path = ''] = /^\*\*\* (Add|Delete|Update) File: (.+)$/.exec(line ?? '') ?? [];
    if (verb === undefined)
      throw this.wrong('"*** Add File: PATH", "*** Update File: PATH", "*** Delete File: PATH" or "*** End Patch"');
    this.at += 1;
    if (verb === 'Delete') return { kind: 'delete', path };
    if (verb === 'Add') return { kind: 'add', path, content: this.#added() };
    const [, moveTo] = /^\*\*\* Move to: (.+)$/.exec(this.line?.trimEnd() ?? '') ?? [];
    if (moveTo !== undefined) this.at += 1;
    const hunks: Hunk[] = [];
    while (this.line !== undefined && !this.#isNextFile()) {
      if (this.line.trim() === '' && this.#isNextFile(this.at + 1)) this.at += 1;
      else hunks.push(this.#hunk(hunks.length === 0));
    }
    if (hunks.length === 0 && moveTo === undefined) throw this.wrong('"@@" and the lines of a hunk');
    return { kind: 'update', path, hunks, ...(moveTo === undefined ? {} : { moveTo }) };
  }

  #isNextFile(at = this.at): boolean {
    return /^\*\*\* (Add File: |Delete File: |Update File: |End Patch)/.test(this.lines[at] ?? '');
  }

  #added(): string {
    const added: string[] = [];
    for (; this.line?.startsWith('+'); this.at += 1) added.push(this.line.slice(1));
    if (this.line !== undefined && this.line.trim() !== '' && !this.#isNextFile())
      throw this.wrong('a line of the new file, which begins with "+"');
    return added.map((line) => `${line}\n`).join('');
  }

  #hunk(isFirst: boolean): Hunk {
    let heading: string | undefined;
    const head = /^@@(?: (.*))?$/.exec(this.line ?? '');
    if (head !== null) {
      heading = head[1]?.replace(/^-\d+(,\d+)? \+\d+(,\d+)? @@ ?/, '').replace(/ @@$/, '') || undefined;
      this.at += 1;
    } else if (!isFirst) throw this.wrong('"@@", which begins a hunk');
    const lines: HunkLine[] = [];
    let atEnd = false;
    for (; this.line !== undefined; this.at += 1) {
      const { line } = this;
      if (line.trimEnd() === '*** End of File') {
        atEnd = true;
        this.at += 1;
        break;
      }
      if (line.startsWith('@@') || this.#isNextFile()) break;
      // An empty line where the next file begins belongs to nobody.
      if (line === '' && this.#isNextFile(this.at + 1)) break;
      const read = hunkLine(line);
      if (read === undefined) throw this.wrong('a line that begins with a space, "+" or "-", or "*** End of File"');
      lines.push(read);
    }
    if (lines.length === 0) throw this.wrong('the lines of a hunk, each beginning with a space, "+" or "-"');
    return { lines, atEnd, noLineEnd: false, ...(heading === undefined ? {} : { heading }) };
  }
}

/** `diff`, `git diff`. */
class UnifiedReader extends LineReader {
  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    let renamed: { from?: string; to?: string } = {};
    const flush = () => {
      if (renamed.from !== undefined && renamed.to !== undefined)
        patches.push({ kind: 'update', path: renamed.from, moveTo: renamed.to, hunks: [] });
      renamed = {};
    };
    for (; this.line !== undefined; ) {
      const { line } = this;
      if (line.startsWith('diff --git ')) flush();
      const [, end, name] = /^rename (from|to) (.+)$/.exec(line) ?? [];
      if (name !== undefined) renamed = { ...renamed, [end ?? '']: name };
      if (line.startsWith('GIT binary patch')) throw this.wrong('a text patch; binary patches cannot be applied');
      if (line.startsWith('--- ') && this.lines[this.at + 1]?.startsWith('+++ ')) {
        renamed = {};
        patches.push(this.#file());
      } else this.at += 1;
    }
    flush();
    return patches;
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
    while ((old > 0 || fresh > 0) && !this.#endsEarly()) {
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
    return { lines, atEnd: noLineEnd, noLineEnd, nearLine: Number(head[1]) };
  }

  /** Models count wrong: a hunk ends where the next one begins, whatever its head says. */
  #endsEarly(): boolean {
    const { line } = this;
    if (line === undefined || (line === '' && this.at === this.lines.length - 1)) return true;
    return line.startsWith('@@ ') || line.startsWith('diff --git ');
  }
}

function hunkLine(line: string): HunkLine | undefined {
  // Models leave the space of an empty kept line away.
  if (line === '') return { kind: 'keep', text: '' };
  const kind = ({ ' ': 'keep', '-': 'remove', '+': 'add' } as const)[line[0] as ' ' | '-' | '+'];
  return kind === undefined ? undefined : { kind, text: line.slice(1) };
}

/** The path of a `---` or `+++` line, without the time stamp; undefined for /dev/null. */
function nameOf(line: string, prefix: string): string | undefined {
  const [name = ''] = line.slice(4).split('\t');
  if (name.trim() === '/dev/null') return undefined;
  return name.startsWith(prefix) ? name.slice(prefix.length) : name.trim();
}

/** Throws `PRECONDITION_FAILED` naming the hunk that does not fit and what stands there instead. */
export function applyHunks(path: string, content: string, hunks: readonly Hunk[]): string {
  const lineEnd = content.includes('\r\n') ? '\r\n' : '\n';
  const lines = content.split(/\r?\n/);
  let endsWithLineEnd = lines.at(-1) === '';
  if (endsWithLineEnd) lines.pop();
  const wasEmpty = content === '';
  const result: string[] = [];
  let taken = 0;
  hunks.forEach((hunk, index) => {
    let from = taken;
    if (hunk.heading !== undefined) {
      const heading = findLines(lines, [hunk.heading], from, false, undefined);
      if (heading === undefined)
        throw misfit(path, index, hunks.length, `there is no line ${JSON.stringify(hunk.heading)} below line ${from}`);
      from = heading + 1;
    }
    const old = hunk.lines.filter((line) => line.kind !== 'add').map((line) => line.text);
    const at =
      old.length === 0
        ? hunk.heading !== undefined
          ? from
          : hunk.nearLine === undefined || hunk.nearLine > lines.length
            ? lines.length
            : Math.max(from, hunk.nearLine)
        : findLines(lines, old, from, hunk.atEnd, hunk.nearLine === undefined ? undefined : hunk.nearLine - 1);
    if (at === undefined) throw misfit(path, index, hunks.length, explain(lines, old, from));
    result.push(...lines.slice(taken, at));
    taken = at;
    for (const line of hunk.lines) {
      if (line.kind === 'add') result.push(line.text);
      else {
        // Kept lines stay as the file has them, also where white space at their end differs.
        if (line.kind === 'keep') result.push(lines[taken] ?? line.text);
        taken += 1;
      }
    }
    if (hunk.noLineEnd) endsWithLineEnd = false;
    else if (taken >= lines.length && hunk.lines.at(-1)?.kind === 'add') endsWithLineEnd = true;
  });
  result.push(...lines.slice(taken));
  if (result.length === 0) return '';
  return result.join(lineEnd) + (endsWithLineEnd || wasEmpty ? lineEnd : '');
}

/** How exactly lines are compared: first to the letter, then without white space at the end, then at both ends. */
const LIKENESS: readonly ((line: string) => string)[] = [
  (line) => line,
  (line) => line.trimEnd(),
  (line) => line.trim(),
  (line) =>
    line
      .trim()
      .replaceAll(/[\u2010-\u2015\u2212]/g, '-')
      .replaceAll(/[\u2018\u2019]/g, "'")
      .replaceAll(/[\u201c\u201d]/g, '"')
      .replaceAll('\u00a0', ' '),
];

function findLines(
  lines: readonly string[],
  wanted: readonly string[],
  from: number,
  atEnd: boolean,
  near: number | undefined,
): number | undefined {
  for (const like of LIKENESS) {
    const want = wanted.map(like);
    const have = lines.map(like);
    const fits = (at: number) => want.every((text, index) => have[at + index] === text);
    const last = lines.length - wanted.length;
    if (atEnd && last >= from && fits(last)) return last;
    let best: number | undefined;
    for (let at = from; at <= last; at += 1) {
      if (!fits(at)) continue;
      if (near === undefined) return at;
      if (best === undefined || Math.abs(at - near) < Math.abs(best - near)) best = at;
    }
    if (best !== undefined) return best;
  }
  return undefined;
}

function misfit(path: string, index: number, count: number, why: string): PawlError {
  const which = count === 1 ? 'The hunk' : `Hunk ${index + 1} of ${count}`;
  return new PawlError(
    'PRECONDITION_FAILED',
    `${which} for ${JSON.stringify(path)} does not fit: ${why}. Nothing was changed; read the file again and write the patch on what it holds.`,
  );
}

function explain(lines: readonly string[], wanted: readonly string[], from: number): string {
  const first = wanted.find((text) => text.trim() !== '') ?? '';
  const at = lines.findIndex((line, index) => index >= from && line.trim() === first.trim());
  if (at === -1) {
    const above = lines.findIndex((line) => line.trim() === first.trim());
    const where = above === -1 ? 'does not stand in the file' : `stands at line ${above + 1}, above the hunk before it`;
    return `its line ${JSON.stringify(first)} ${where}`;
  }
  const offset = wanted.indexOf(first);
  const bad = wanted.findIndex((text, index) => (lines[at + index - offset] ?? '').trim() !== text.trim());
  return `line ${at + bad - offset + 1} is ${JSON.stringify(lines[at + bad - offset] ?? 'past the end')}, where the patch has ${JSON.stringify(wanted[bad])}`;
}
