/** Unified diffs, as `diff` and `git diff` write them. */
import type { FilePatch, Hunk, HunkLine } from './file-patch.ts';
import { hunkLine, isUnifiedHead, LineReader } from './line-reader.ts';

const HUNK_HEAD = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;

export class UnifiedReader extends LineReader {
  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    let head: GitHead = {};
    const flush = () => {
      patches.push(...headerOnlyPatch(head));
      head = {};
    };
    for (; this.line !== undefined; ) {
      const { line } = this;
      if (line.startsWith('diff --git ')) {
        flush();
        head = { path: headerPath(line) };
      }
      if (line.startsWith('new file mode ')) head.kind = 'add';
      const [, mode] = /^new (?:file )?mode (\d+)$/.exec(line) ?? [];
      if (mode !== undefined) head.isExecutable = this.#isExecutable(mode);
      if (line.startsWith('deleted file mode ')) head.kind = 'delete';
      const [, end, name] = /^rename (from|to) (.+)$/.exec(line) ?? [];
      if (name !== undefined) head[end === 'to' ? 'to' : 'from'] = unquote(name);
      if (/^(GIT binary patch|Binary files .* differ)$/.test(line))
        throw this.unexpected('a text patch; binary patches cannot be applied');
      if (/^copy from /.test(line)) throw this.unexpected('no copy; add the new file with all its lines');
      if (HUNK_HEAD.test(line)) throw this.unexpected('"--- PATH" and "+++ PATH" above the hunk');
      if (isUnifiedHead(this.lines, this.position)) {
        patches.push({ ...this.#file(head), ...modeOf(head) });
        head = {};
      } else this.position += 1;
    }
    flush();
    return patches;
  }

  #isExecutable(mode: string): boolean {
    if (!mode.startsWith('100'))
      throw this.unexpected('the mode of a file (100644, 100755); links and submodules cannot be made');
    return mode.endsWith('755');
  }

  #file(head: GitHead): FilePatch {
    const [from, to] = filePaths(this.line ?? '', this.lines[this.position + 1] ?? '', head);
    this.position += 2;
    const hunks: Hunk[] = [];
    for (let index = this.position; this.lines[index]?.startsWith('@@ '); index = this.afterBlanks()) {
      this.position = index;
      hunks.push(this.#hunk());
    }
    if (hunks.length === 0) throw this.unexpected('"@@ -LINE,COUNT +LINE,COUNT @@"');
    if (from === undefined && to === undefined) throw this.unexpected('a file name');
    if (to === undefined) return { kind: 'delete', path: from ?? '' };
    if (from === undefined) {
      const lines = hunks.flatMap((hunk) => hunk.lines.filter((line) => line.kind === 'add').map((line) => line.text));
      return { kind: 'add', path: to, content: lines.join('\n') + (hunks.at(-1)?.noLineEnd ? '' : '\n') };
    }
    return { kind: 'update', path: from, hunks, ...(from === to ? {} : { moveTo: to }) };
  }

  #hunk(): Hunk {
    const head = HUNK_HEAD.exec(this.line ?? '');
    if (head === null) throw this.unexpected('"@@ -LINE,COUNT +LINE,COUNT @@"');
    this.position += 1;
    let [oldLines, newLines] = [Number(head[2] ?? 1), Number(head[4] ?? 1)];
    const lines: HunkLine[] = [];
    let noLineEnd = false;
    while ((oldLines > 0 || newLines > 0 || this.#continues()) && !this.#endsEarly()) {
      const parsedLine = hunkLine(this.line ?? '');
      if (parsedLine === undefined && !this.line?.startsWith('\\'))
        throw this.unexpected('a line that begins with a space, "+" or "-"');
      if (parsedLine !== undefined) {
        lines.push(parsedLine);
        if (parsedLine.kind !== 'add') oldLines -= 1;
        if (parsedLine.kind !== 'remove') newLines -= 1;
      }
      this.position += 1;
      if (this.line?.startsWith('\\')) {
        if (parsedLine?.kind !== 'remove') noLineEnd = true;
        this.position += 1;
      }
    }
    return { headings: [], lines, atEnd: noLineEnd, noLineEnd, nearLine: Number(head[1]) };
  }

  /** Models miscount lines, so a hunk continues as long as its lines look like hunk lines, up to the next file or a mail's signature. */
  #continues(): boolean {
    // Models also omit the space of an empty context line. Without this look-ahead, the lines behind it would be lost silently.
    const index = this.afterBlanks();
    const line = this.lines[index] ?? '';
    if (line.trimEnd() === '--' || isUnifiedHead(this.lines, index)) return false;
    return /^[ +-]/.test(line);
  }

  /** A hunk also ends where the next one begins. */
  #endsEarly(): boolean {
    const { line } = this;
    if (line === undefined || (line === '' && this.position === this.lines.length - 1)) return true;
    return line.startsWith('@@ ') || line.startsWith('diff --git ');
  }
}

/** The header that git writes before a file's lines, or instead of them. */
interface GitHead {
  path?: string | undefined;
  kind?: 'add' | 'delete';
  from?: string;
  to?: string;
  isExecutable?: boolean;
}

/** The patch of a header without lines: a renamed file, an empty one, or one whose mode alone changes. */
function headerOnlyPatch(head: GitHead): FilePatch[] {
  const { path, kind, from, to } = head;
  const mode = modeOf(head);
  if (from !== undefined && to !== undefined) return [{ kind: 'update', path: from, moveTo: to, hunks: [], ...mode }];
  if (path === undefined) return [];
  if (kind === 'add') return [{ kind, path, content: '', ...mode }];
  if (kind === 'delete') return [{ kind, path }];
  return head.isExecutable === undefined ? [] : [{ kind: 'update', path, hunks: [], ...mode }];
}

/** The mode that a header sets. New files are not executable by default. */
function modeOf({ kind, isExecutable }: GitHead): { readonly isExecutable?: boolean } {
  return isExecutable === undefined || (kind === 'add' && !isExecutable) ? {} : { isExecutable };
}

/** The path of a `diff --git` line; undefined for a renamed file, whose names differ by more than their prefixes. */
function headerPath(line: string): string | undefined {
  const names = line.slice('diff --git '.length);
  const middle = (names.length - 1) / 2;
  return names[middle] === ' '
    ? samePath(unquote(names.slice(0, middle)), unquote(names.slice(middle + 1)))
    : undefined;
}

/** The old and the new path of a file. The header tells whether a folder "a" or "b" is a prefix or a part of the path. */
function filePaths(oldLine: string, newLine: string, head: GitHead): readonly (string | undefined)[] {
  const [from, to] = [fileName(oldLine), fileName(newLine)];
  const common = from !== undefined && to !== undefined ? samePath(from, to) : undefined;
  return [filePath(from, 'a/', [head.from, head.path], common), filePath(to, 'b/', [head.to, head.path], common)];
}

/** A file's path: what the header says, else what both names have in common, else the name without its prefix. */
function filePath(
  name: string | undefined,
  prefix: string,
  headerPaths: readonly (string | undefined)[],
  common: string | undefined,
): string | undefined {
  if (!name) return undefined;
  const said = headerPaths.find((path) => path !== undefined && name.endsWith(path)) ?? common?.trim();
  return said ?? (name.startsWith(prefix) ? name.slice(prefix.length) : name.trim());
}

/** The common path of two names with different prefixes of a letter, as Git writes them, or without any. */
function samePath(from: string, to: string): string | undefined {
  const [, prefix, path] = /^([abciow12])\/(.+)$/s.exec(from) ?? [];
  const [, otherPrefix, otherPath] = /^([abciow12])\/(.+)$/s.exec(to) ?? [];
  if (from === to) return from;
  return prefix !== otherPrefix && path === otherPath ? path : undefined;
}

/** The name of a `---` or `+++` line, without the time stamp; undefined for /dev/null. */
function fileName(line: string): string | undefined {
  const name = unquote(line.slice(4).split('\t')[0] ?? '');
  return name.trim() === '/dev/null' ? undefined : name;
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

/** Git quotes paths with special characters as C does, with their bytes in octal. */
function unquote(name: string): string {
  const [, inner] = /^"(.*)"$/.exec(name.trim()) ?? [];
  if (inner === undefined) return name;
  const bytes = Buffer.from(inner)
    .toString('latin1')
    .replace(/\\(?:([0-7]{3})|(.))/g, (_, octal: string | undefined, letter: string) =>
      octal === undefined ? (ESCAPED[letter] ?? letter) : String.fromCharCode(Number.parseInt(octal, 8)),
    );
  return Buffer.from(bytes, 'latin1').toString();
}
