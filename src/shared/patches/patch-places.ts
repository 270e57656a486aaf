/** Finds the positions of a patch's hunks in a file. An ambiguous hunk is refused, because the first match need not be the intended one. */
import { PawlError } from '../errors/failure.ts';
import { matcher } from '../util/text/text-search.ts';
import type { Hunk } from './file-patch.ts';

/** The rule for a hunk that matches in several places. */
export type AmbiguityPolicy = 'refuse' | 'take-first';

/** The largest number of compared lines for all hunks of a file. Hunks at their stated lines compare each line twice. */
const MAX_COMPARED_LINES = 20_000_000;
const MAX_NAMED_LINES = 10;

/** The ways to compare lines: exactly, then without white space at the end, then at both ends, then with plain quotes, dashes and spaces. */
const COMPARISONS: readonly ((line: string) => string)[] = [
  (line) => line,
  (line) => line.trimEnd(),
  (line) => line.trim(),
  (line) =>
    line
      .trim()
      .replaceAll(/[\u2010-\u2015\u2212]/g, '-')
      .replaceAll(/[\u2018-\u201b]/g, "'")
      .replaceAll(/[\u201c-\u201f]/g, '"')
      .replaceAll(/[\u00a0\u2002-\u200a\u202f\u205f\u3000]/g, ' '),
];

/** The lines at which a place may begin, counted from 0; `to` is excluded. */
interface Range {
  readonly from: number;
  readonly to: number;
}

interface HunkMatch {
  readonly expected: readonly string[];
  readonly level: number;
  readonly scope: readonly Range[];
  /** The line where the wanted lines begin. */
  readonly start: number;
  /** The number of lines below `at` where the change begins. */
  readonly changeOffset: number;
  /** The patch names this place, so that other fits do not matter. */
  readonly isPinned: boolean;
}

/**
 * The line at which each hunk begins, counted from 0. The hunks are in the order of the file, so that later ones may leave an earlier
 * one a single place. Throws `PRECONDITION_FAILED` for a hunk that fits nowhere or in several places, and `INVALID_PARAMS` for so many
 * hunks far from their stated places that the search would block the worker.
 */
export function hunkPositions(
  path: string,
  lines: readonly string[],
  hunks: readonly Hunk[],
  onAmbiguous: AmbiguityPolicy,
): readonly number[] {
  const search = new HunkSearch(path, lines);
  const refusal = (index: number, reason: string, hint: string): PawlError =>
    new PawlError(
      'PRECONDITION_FAILED',
      `${hunks.length === 1 ? 'The hunk' : `Hunk ${index + 1} of ${hunks.length}`} for ${JSON.stringify(path)} ${reason}. Nothing was changed; ${hint}.`,
    );
  const starts: number[] = [0];
  const hunkMatches = hunks.map((hunk, index) => {
    const match = search.findMatch(hunk, starts[index] ?? 0);
    if (typeof match === 'string')
      throw refusal(index, `does not fit: ${match}`, 'read the file again and write the patch on what it holds');
    starts.push(match.start + (match.changeOffset === 0 ? match.expected.length : match.changeOffset));
    return match;
  });
  let end = lines.length;
  for (const [index, match] of [...hunkMatches.entries()].reverse()) {
    if (onAmbiguous === 'take-first' || match.isPinned || search.lastPosition(match, end) === match.start) {
      end = match.start + match.changeOffset;
      continue;
    }
    const positions = search.findPositions(match, starts[index] ?? 0, end);
    const lineNumbers = positions.slice(0, MAX_NAMED_LINES).map((index) => index + 1);
    const [count, suffix] = positions.length > MAX_NAMED_LINES ? ['many', ' and more'] : [positions.length, ''];
    const note = match.level === 0 ? '' : ', none of them exactly';
    const reason = `fits ${count} places, at lines ${lineNumbers.join(', ')}${suffix}${note}`;
    throw refusal(
      index,
      reason,
      'give more of the lines around the change, or "@@" and a line above it that names the place',
    );
  }
  return hunkMatches.map(({ start: index, changeOffset }) => index + changeOffset);
}

class HunkSearch {
  readonly #path: string;
  readonly #lines: readonly string[];
  readonly #normalized: (readonly string[])[] = [];
  readonly #index: Map<string, number[]>[] = [];
  readonly #blockEnds = new Map<number, number>();
  #comparedLines = 0;

  constructor(path: string, lines: readonly string[]) {
    this.#path = path;
    this.#lines = lines;
  }

  /** The first place at or below a line, or why there is none. */
  findMatch(hunk: Hunk, start: number): HunkMatch | string {
    const { length } = this.#lines;
    const oldLines = hunk.lines.filter((line) => line.kind !== 'add').map((line) => line.text);
    const pinnedMatch = (index: number): HunkMatch => ({
      expected: [],
      level: 0,
      scope: [],
      start: index,
      changeOffset: 0,
      isPinned: true,
    });
    // A hunk of added lines alone belongs right below its heading.
    if (oldLines.length === 0 && hunk.atEnd) return pinnedMatch(length);
    if (oldLines.length === 0 && hunk.headings.length === 0) {
      const { nearLine } = hunk;
      return pinnedMatch(nearLine === undefined || nearLine > length ? length : Math.max(start, nearLine));
    }
    const scopes = this.#scopes(oldLines.length === 0 ? hunk.headings.slice(0, -1) : hunk.headings);
    if (typeof scopes === 'string') return scopes;
    if (oldLines.length === 0) {
      const expected = hunk.headings.slice(-1);
      const match = this.#first(expected, scopes, start);
      return match === undefined ? noHeading(expected[0], start) : { ...match, changeOffset: 1 };
    }
    // A copied byte order mark means the first line. `lines` are without the mark.
    const withoutMark = oldLines[0]?.startsWith('\ufeff') ? [oldLines[0].slice(1), ...oldLines.slice(1)] : undefined;
    const top = withoutMark && this.#first(withoutMark, [[{ from: 0, to: 1 }]], start);
    if (top !== undefined) return top;
    // Files begin at line 1. Models write 0 where they do not know the line.
    const nearLine = hunk.nearLine === 0 ? undefined : hunk.nearLine;
    const match =
      nearLine === undefined || hunk.atEnd
        ? this.#first(oldLines, hunk.atEnd ? [[{ from: length - oldLines.length, to: length }]] : scopes, start)
        : this.#nearest(oldLines, nearLine - 1, start);
    return match ?? this.#beforeLastLineEnd(hunk, oldLines, start) ?? explain(this.#lines, oldLines, start);
  }

  /** The last place, by the same comparison, that ends before a line. */
  lastPosition(
    { expected, level, scope, start: firstStart, changeOffset }: HunkMatch,
    end: number,
  ): number | undefined {
    for (const { from, to } of scope.toReversed()) {
      const limit = Math.min(to, end - (changeOffset === 0 ? expected.length : changeOffset) + 1);
      for (const position of this.#descending(expected, level, { from: Math.max(from, firstStart), to: limit }))
        return position;
    }
    return undefined;
  }

  /** The places between two lines, at most one more than an error names. */
  findPositions({ expected, level, scope, changeOffset }: HunkMatch, start: number, end: number): readonly number[] {
    const positions: number[] = [];
    for (const { from, to } of scope) {
      const limit = Math.min(to, end - (changeOffset === 0 ? expected.length : changeOffset) + 1);
      for (const position of this.#ascending(expected, level, { from: Math.max(from, start), to: limit })) {
        positions.push(position);
        if (positions.length > MAX_NAMED_LINES) return positions;
      }
    }
    return positions;
  }

  #first(expected: readonly string[], scopes: readonly (readonly Range[])[], start: number): HunkMatch | undefined {
    for (const scope of scopes)
      for (const level of COMPARISONS.keys())
        for (const { from, to } of scope)
          for (const index of this.#ascending(expected, level, { from: Math.max(from, start), to }))
            return { expected, level, scope, start: index, changeOffset: 0, isPinned: false };
    return undefined;
  }

  /** Models take what follows the last line end of a file for an empty line. */
  #beforeLastLineEnd({ lines }: Hunk, oldLines: readonly string[], start: number): HunkMatch | undefined {
    const last = lines.findLast((line) => line.kind !== 'add');
    const isLast = last === lines.at(-1) || (last?.kind === 'remove' && lines.at(-1)?.text !== '');
    if (last?.text !== '' || !isLast || oldLines.length === 1) return undefined;
    const { length } = this.#lines;
    return this.#first(oldLines.slice(0, -1), [[{ from: length - oldLines.length + 1, to: length }]], start);
  }

  /** A line number decides between places that fit exactly. Places that fit loosely must be at that very line. */
  #nearest(expected: readonly string[], near: number, start: number): HunkMatch | undefined {
    const scope = [{ from: 0, to: this.#lines.length }];
    for (const level of COMPARISONS.keys()) {
      let best: number | undefined;
      let isPinned = false;
      for (const index of this.#ascending(expected, level, { from: start, to: this.#lines.length })) {
        const isNearer = best === undefined || Math.abs(index - near) < Math.abs(best - near);
        if (index === near || (level === 0 && isNearer)) [best, isPinned] = [index, true];
        // The two places are equally far, one above and one below.
        else if (level === 0 && index + (best ?? 0) === 2 * near) isPinned = false;
        best ??= index;
        // The places that follow are farther still.
        if (index >= near && index > best) break;
      }
      if (best !== undefined) return { expected, level, scope, start: best, changeOffset: 0, isPinned };
    }
    return undefined;
  }

  /** The ranges to search below the headings: first the blocks that they open, then all that follows. A text names a missing heading. */
  #scopes(headings: readonly string[]): readonly (readonly Range[])[] | string {
    let scopes: readonly (readonly Range[])[] = [[{ from: 0, to: this.#lines.length }]];
    for (const heading of headings) {
      const occurrences = this.#occurrences(heading, scopes);
      if (occurrences === undefined) return noHeading(heading, scopes.at(-1)?.[0]?.from ?? 0);
      const blocks: Range[] = [];
      for (const index of occurrences) {
        const block = { from: index + 1, to: this.#blockEnd(index) };
        // A block within the previous one is already searched.
        if (block.from >= (blocks.at(-1)?.to ?? 0)) blocks.push(block);
      }
      scopes = [blocks, [{ from: (occurrences[0] ?? 0) + 1, to: this.#lines.length }]];
    }
    return scopes;
  }

  #occurrences(line: string, scopes: readonly (readonly Range[])[]): readonly number[] | undefined {
    for (const scope of scopes)
      for (const [level, normalize] of COMPARISONS.entries()) {
        let range = 0;
        const occurrences = (this.#indexOf(level).get(normalize(line)) ?? []).filter((index) => {
          this.#countLine();
          while (index >= (scope[range]?.to ?? Number.POSITIVE_INFINITY)) range += 1;
          return index >= (scope[range]?.from ?? Number.POSITIVE_INFINITY);
        });
        if (occurrences.length > 0) return occurrences;
      }
    return undefined;
  }

  /** A block holds the lines that are indented deeper than its head, and brackets that end the head or begin the block. */
  #blockEnd(head: number): number {
    const cachedEnd = this.#blockEnds.get(head);
    if (cachedEnd !== undefined) return cachedEnd;
    const depth = this.#lines[head]?.search(/\S/) ?? 0;
    let end = head + 1;
    for (; end < this.#lines.length; end += 1) {
      this.#countLine();
      const indentation = this.#lines[end]?.search(/\S/) ?? -1;
      const isPart = indentation === -1 || indentation > depth || /^\s*[)\]{]/.test(this.#lines[end] ?? '');
      if (!isPart) break;
    }
    this.#blockEnds.set(head, end);
    return end;
  }

  #normalizedLines(level: number): readonly string[] {
    this.#normalized[level] ??= this.#lines.map(COMPARISONS[level] ?? String);
    return this.#normalized[level];
  }

  #indexOf(level: number): Map<string, number[]> {
    this.#index[level] ??= Map.groupBy(this.#lines.keys(), (index) => this.#normalizedLines(level)[index] ?? '');
    return this.#index[level];
  }

  /** The places that begin from `from` to before `to`, in linear time, because files and hunks can have many equal lines. */
  *#ascending(expected: readonly string[], level: number, { from, to }: Range): Generator<number, void, undefined> {
    const lines = this.#normalizedLines(level);
    const endsMatch = matcher(expected.map(COMPARISONS[level] ?? String));
    const end = Math.min(lines.length, to + expected.length - 1);
    for (let index = Math.max(0, from); index < end; index += 1) {
      this.#countLine();
      if (endsMatch(lines[index])) yield index + 1 - expected.length;
    }
  }

  *#descending(expected: readonly string[], level: number, { from, to }: Range): Generator<number, void, undefined> {
    const lines = this.#normalizedLines(level);
    const beginsMatch = matcher(expected.map(COMPARISONS[level] ?? String).reverse());
    for (let index = Math.min(lines.length, to + expected.length - 1) - 1; index >= from; index -= 1) {
      this.#countLine();
      if (beginsMatch(lines[index])) yield index;
    }
  }

  #countLine(): void {
    this.#comparedLines += 1;
    if (this.#comparedLines > MAX_COMPARED_LINES)
      throw new PawlError(
        'INVALID_PARAMS',
        `The hunks for ${JSON.stringify(this.#path)} are too many to be searched for in all of its ${this.#lines.length} lines. Nothing was changed; give them in the order of the file, each with the lines as they stand there, or write the whole file.`,
      );
  }
}

function noHeading(heading: string | undefined, from: number): string {
  return `there is no line ${JSON.stringify(heading)}${from === 0 ? '' : ` below line ${from}`}`;
}

function explain(lines: readonly string[], expected: readonly string[], from: number): string {
  const first = expected.find((text) => text.trim() !== '') ?? '';
  const matchLine = lines.findIndex((line, index) => index >= from && line.trim() === first.trim());
  if (matchLine === -1) {
    const earlierLine = lines.findIndex((line) => line.trim() === first.trim());
    const location =
      earlierLine === -1 ? 'does not stand in the file' : `stands at line ${earlierLine + 1}, above the hunk before it`;
    return `its line ${JSON.stringify(first)} ${location}`;
  }
  const offset = expected.indexOf(first);
  const mismatch = expected.findIndex(
    (text, index) => (lines[matchLine + index - offset] ?? '').trim() !== text.trim(),
  );
  if (mismatch === -1)
    return `its lines stand at line ${matchLine - offset + 1}, above the hunk before it or not at the end of the file`;
  return `line ${matchLine + mismatch - offset + 1} is ${JSON.stringify(lines[matchLine + mismatch - offset] ?? 'past the end')}, where the patch has ${JSON.stringify(expected[mismatch])}`;
}
