/** The `*** Begin Patch` format. */
import type { FilePatch, Hunk, HunkLine } from './file-patch.ts';
import { hunkLine, isBlank, isUnifiedHead, LineReader, NO_LINE_END } from './line-reader.ts';

/** The grammar of the format in Lark's notation, for models whose output can be constrained to it. The reader accepts everything in it. */
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

export const BEGIN = '*** Begin Patch';
export const END = '*** End Patch';

/** The heading of a file's changes, before which models may put white space. */
const FILE_HEAD = /^(\s*)\*\*\* (End Patch|(?:Add|Delete|Update)(?= File: ))/;

export class PatchReader extends LineReader {
  /** The white space before the newest head of a file. */
  #padding = '';
  /** The last line that can be the closing mark. */
  readonly #lastEnd: number;

  constructor(lines: readonly string[], index: number) {
    super(lines, index);
    this.#lastEnd = lines.findLastIndex((line) => line.trim() === END);
  }

  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    for (;;) {
      const line = this.line?.trim();
      if (line === END && !this.#hasFurtherPatch()) return patches;
      if (line === '' || line === END) this.position += 1;
      else patches.push(this.#file(line));
    }
  }

  /** Whether another patch follows the closing mark. Its changes must not be lost. */
  #hasFurtherPatch(): boolean {
    const end = this.position;
    for (let index = end + 1; index < this.lines.length; index += 1) {
      this.position = index;
      if (this.line?.trim() === BEGIN) return true;
      if (isUnifiedHead(this.lines, index)) throw this.unexpected('no unified diff below "*** End Patch"');
    }
    this.position = end;
    return false;
  }

  #file(line: string | undefined): FilePatch {
    const [, verb, path = ''] = /^\*\*\* (Add|Delete|Update) File: (.+)$/.exec(line ?? '') ?? [];
    if (verb === undefined)
      throw this.unexpected(
        '"*** Add File: PATH", "*** Update File: PATH", "*** Delete File: PATH" or "*** End Patch"',
      );
    [this.#padding = ''] = /^\s*/.exec(this.line ?? '') ?? [];
    this.position += 1;
    if (verb === 'Delete') return { kind: 'delete', path };
    if (verb === 'Add') return { kind: 'add', path, content: this.#addedContent() };
    const [, moveTo] = /^\*\*\* Move to: (.+)$/.exec(this.line?.trim() ?? '') ?? [];
    if (moveTo !== undefined) this.position += 1;
    const hunks: Hunk[] = [];
    const isNext = () => this.#isNextFile() || (hunks.length > 0 && FILE_HEAD.test(this.line ?? ''));
    while (this.line !== undefined && !isNext()) {
      if (this.#endsBeforeHead() || (this.line.trim() === '' && this.#isHead(this.position + 1))) this.position += 1;
      else hunks.push(this.#hunk(hunks.length === 0));
    }
    if (hunks.length === 0 && moveTo === undefined) throw this.unexpected('"@@" and the lines of a hunk');
    return { kind: 'update', path, hunks, ...(moveTo !== undefined && { moveTo }) };
  }

  /** A heading with white space before it may also be a context line of a hunk. The lines around it decide. */
  #isNextFile(index = this.position): boolean {
    const line = this.lines[index] ?? '';
    const [, padding, mark] = FILE_HEAD.exec(line) ?? [];
    if (mark === undefined || padding === '') return mark !== undefined;
    if (mark === 'End Patch') return index === this.#lastEnd;
    return (
      padding === this.#padding || (mark === 'Update' && /^(@@|\*\*\* Move to: )/.test(this.lines[index + 1] ?? ''))
    );
  }

  /** Whether the blank lines here only separate the next hunk, or the next file. */
  #endsBeforeHead(): boolean {
    if (!isBlank(this.line)) return false;
    return this.#isHead(this.afterBlanks());
  }

  #isHead(index: number): boolean {
    return this.#isNextFile(index) || this.lines[index]?.startsWith('@@') === true;
  }

  #addedContent(): string {
    const added: string[] = [];
    // Models omit the "+" of an empty line.
    const isAddedLine = () =>
      this.line?.startsWith('+') || (this.line === '' && this.lines[this.afterBlanks()]?.startsWith('+'));
    for (; isAddedLine(); this.position += 1) added.push(`${this.line?.slice(1)}\n`);
    const hasNoLineEnd = this.line?.trimEnd() === NO_LINE_END;
    if (hasNoLineEnd) this.position += 1;
    if (this.line !== undefined && this.line.trim() !== '' && !FILE_HEAD.test(this.line))
      throw this.unexpected('a line of the new file, which begins with "+"');
    return hasNoLineEnd ? added.join('').slice(0, -1) : added.join('');
  }

  #hunk(isFirst: boolean): Hunk {
    const headings: string[] = [];
    const start = this.position;
    for (let head = this.#head(); head !== undefined; head = this.#head()) {
      if (head !== '') headings.push(head);
      this.position += 1;
    }
    if (this.position === start && !isFirst) throw this.unexpected('"@@", which begins a hunk');
    const lines: HunkLine[] = [];
    let atEnd = false;
    let noLineEnd = false;
    for (; this.line !== undefined && !atEnd; this.position += 1) {
      const { line } = this;
      if (['*** End of File', `${this.#padding}*** End of File`].includes(line.trimEnd())) {
        atEnd = true;
        continue;
      }
      if (line.trimEnd() === NO_LINE_END) {
        if (lines.at(-1)?.kind !== 'remove') noLineEnd = true;
        continue;
      }
      if (line.startsWith('@@') || this.#isNextFile() || this.#endsBeforeHead()) break;
      const parsedLine = hunkLine(line);
      if (parsedLine === undefined)
        throw this.unexpected('a line that begins with a space, "+" or "-", or "*** End of File"');
      lines.push(parsedLine);
    }
    if (lines.length === 0) throw this.unexpected('the lines of a hunk, each beginning with a space, "+" or "-"');
    return { headings, lines, atEnd: atEnd || noLineEnd, noLineEnd };
  }

  /** The text behind "@@", without the line numbers of unified diffs; undefined for another line. */
  #head(): string | undefined {
    const [head, text = ''] = /^@@(?:[ \t](.*))?$/.exec(this.line ?? '') ?? [];
    return head === undefined
      ? undefined
      : text
          .trimEnd()
          .replace(/^-\d+(,\d+)? \+\d+(,\d+)? @@ ?/, '')
          .replace(/ @@$/, '');
  }
}
