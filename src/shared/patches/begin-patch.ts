/** The `*** Begin Patch` format. */
import type { FilePatch, Hunk, HunkLine } from './file-patch.ts';
import { hunkLine, isHeadOfUnified, LineReader, NO_LINE_END } from './line-reader.ts';

/** The grammar of the format in Lark's notation, for models that can be bound to it. The reader accepts all that it generates. */
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

/** The head of a file's part, before which models may put white space. */
const HEAD_OF_FILE = /^(\s*)\*\*\* (End Patch|(?:Add|Delete|Update)(?= File: ))/;

export class PatchReader extends LineReader {
  /** The white space before the newest head of a file. */
  #padding = '';
  /** The last line that can be the closing mark. */
  readonly #lastEnd: number;

  constructor(lines: readonly string[], at: number) {
    super(lines, at);
    this.#lastEnd = lines.findLastIndex((line) => line.trim() === '*** End Patch');
  }

  read(): FilePatch[] {
    const patches: FilePatch[] = [];
    for (;;) {
      const line = this.line?.trim();
      if (line === '*** End Patch' && !this.#goesOn()) return patches;
      if (line === '' || line === '*** End Patch') this.at += 1;
      else patches.push(this.#file(line));
    }
  }

  /** Whether another patch follows the closing mark. Its changes must not be lost. */
  #goesOn(): boolean {
    const end = this.at;
    for (let at = end + 1; at < this.lines.length; at += 1) {
      this.at = at;
      if (this.line?.trim() === BEGIN) return true;
      if (isHeadOfUnified(this.lines, at)) throw this.wrong('no unified diff below "*** End Patch"');
    }
    this.at = end;
    return false;
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

  /** A mark behind white space may also be a kept line of a hunk. The lines around it decide. */
  #isNextFile(at = this.at): boolean {
    const line = this.lines[at] ?? '';
    const [, padding, mark] = HEAD_OF_FILE.exec(line) ?? [];
    if (mark === undefined || padding === '') return mark !== undefined;
    if (mark === 'End Patch') return at === this.#lastEnd;
    return padding === this.#padding || (mark === 'Update' && /^(@@|\*\*\* Move to: )/.test(this.lines[at + 1] ?? ''));
  }

  /** Whether the empty lines here only separate the next hunk, or the next file. */
  #endsInBlanks(): boolean {
    if (this.line !== '') return false;
    const next = this.afterBlanks();
    return this.#isNextFile(next) || this.lines[next]?.startsWith('@@') === true;
  }

  #added(): string {
    const added: string[] = [];
    // Models omit the "+" of an empty line.
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
