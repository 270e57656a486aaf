/** Reads a patch line by line, for both formats. */
import { PawlError } from '../errors/failure.ts';
import { startOf } from '../util/text/text-cut.ts';
import type { HunkLine } from './file-patch.ts';

export class LineReader {
  readonly lines: readonly string[];
  at: number;
  /** The run of empty lines that was found last. */
  #blanks = { from: 0, to: 0 };

  constructor(lines: readonly string[], index = 0) {
    this.lines = lines;
    this.at = index;
  }

  get line(): string | undefined {
    return this.lines[this.at];
  }

  /** The index after the empty lines from here on. It is cached, because a patch may have a million of them. */
  afterBlanks(): number {
    if (this.at >= this.#blanks.from && this.at < this.#blanks.to) return this.#blanks.to;
    let to = this.at;
    while (this.lines[to] === '') to += 1;
    this.#blanks = { from: this.at, to };
    return to;
  }

  wrong(expected: string): PawlError {
    const actual = this.line === undefined ? 'the end of the patch' : JSON.stringify(startOf(this.line, 120));
    return new PawlError(
      'INVALID_PARAMS',
      `Line ${this.at + 1} of the patch: expected ${expected}; got ${actual}. Nothing was changed.`,
      { issues: [{ path: 'patch', message: `line ${this.at + 1}: expected ${expected}` }] },
    );
  }
}

/** Whether the two lines that name a file's old and new version begin here. */
export function isHeadOfUnified(lines: readonly string[], index: number): boolean {
  return lines[index]?.startsWith('--- ') === true && lines[index + 1]?.startsWith('+++ ') === true;
}

export const NO_LINE_END = '\\ No newline at end of file';

export function hunkLine(line: string): HunkLine | undefined {
  // Models omit the space of an empty kept line.
  if (line === '') return { kind: 'keep', text: '' };
  const kind = ({ ' ': 'keep', '-': 'remove', '+': 'add' } as const)[line[0] as ' ' | '-' | '+'];
  return kind === undefined ? undefined : { kind, text: line.slice(1) };
}
