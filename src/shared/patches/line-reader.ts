/** Reads a patch line by line, for both formats. */
import { PawlError } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { HunkLine } from './file-patch.ts';

export class LineReader {
  readonly lines: readonly string[];
  position: number;
  /** The run of blank lines that was found last. */
  #blanks = { from: 0, to: 0 };

  constructor(lines: readonly string[], index = 0) {
    this.lines = lines;
    this.position = index;
  }

  get line(): string | undefined {
    return this.lines[this.position];
  }

  /** The index after the blank lines from here on. It is cached, because a patch may have a million of them. */
  afterBlanks(): number {
    if (this.position >= this.#blanks.from && this.position < this.#blanks.to) return this.#blanks.to;
    let to = this.position;
    while (isBlank(this.lines[to])) to += 1;
    this.#blanks = { from: this.position, to };
    return to;
  }

  unexpected(expected: string): PawlError {
    const actual = this.line === undefined ? 'the end of the patch' : JSON.stringify(startOf(this.line, 120));
    return new PawlError(
      'INVALID_PARAMS',
      `Line ${this.position + 1} of the patch: expected ${expected}; got ${actual}. Nothing was changed.`,
      { issues: [{ path: 'patch', message: `line ${this.position + 1}: expected ${expected}` }] },
    );
  }
}

/** Whether a line separates parts of a patch. A single space is an empty line of the file. */
export function isBlank(line: string | undefined): boolean {
  return line !== undefined && line !== ' ' && line.trim() === '';
}

/** Whether the two lines that name a file's old and new version begin here. */
export function isUnifiedHead(lines: readonly string[], index: number): boolean {
  return lines[index]?.startsWith('--- ') === true && lines[index + 1]?.startsWith('+++ ') === true;
}

export const NO_LINE_END = '\\ No newline at end of file';

export function hunkLine(line: string): HunkLine | undefined {
  // Models omit the space of an empty kept line.
  if (line === '') return { kind: 'keep', text: '' };
  const kind = ({ ' ': 'keep', '-': 'remove', '+': 'add' } as const)[line[0] as ' ' | '-' | '+'];
  return kind === undefined ? undefined : { kind, text: line.slice(1) };
}
