/** Finds the places of a patch's hunks in a file. A hunk that fits several places is refused: the first need not be the intended one. */
import { PawlError } from '../errors/failure.ts';
import { matcher } from '../util/text/text-search.ts';
import type { Hunk } from './file-patch.ts';

/** The answer to a hunk that fits several places. */
export type SecondPlace = 'refuse' | 'take-first';

/** The most lines that are compared for all hunks of a file. Hunks at their stated places take each line twice. */
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

interface Fit {
  readonly wanted: readonly string[];
  readonly level: number;
  readonly scope: readonly Range[];
  /** The line where the wanted lines begin. */
  readonly at: number;
  /** The number of lines below `at` where the change begins. */
  readonly below: number;
  /** The patch names this place, so that other fits do not matter. */
  readonly isPinned: boolean;
}

/**
 * The line at which each hunk begins, counted from 0. The hunks are in the order of the file, so that later ones may leave an earlier
 * one a single place. Throws `PRECONDITION_FAILED` for a hunk that fits nowhere or in several places, and `INVALID_PARAMS` for so many
 * hunks far from their stated places that the search would block the worker.
 */
export function placesOfHunks(
  path: string,
  lines: readonly string[],
  hunks: readonly Hunk[],
  secondPlace: SecondPlace,
): readonly number[] {
  const search = new PlaceSearch(path, lines);
  const refused = (index: number, why: string, hint: string): PawlError =>
    new PawlError(
      'PRECONDITION_FAILED',
      `${hunks.length === 1 ? 'The hunk' : `Hunk ${index + 1} of ${hunks.length}`} for ${JSON.stringify(path)} ${why}. Nothing was changed; ${hint}.`,
    );
  const starts: number[] = [0];
  const fits = hunks.map((hunk, index) => {
    const fit = search.fit(hunk, starts[index] ?? 0);
    if (typeof fit === 'string')
      throw refused(index, `does not fit: ${fit}`, 'read the file again and write the patch on what it holds');
    starts.push(fit.at + (fit.below === 0 ? fit.wanted.length : fit.below));
    return fit;
  });
  let end = lines.length;
  for (const [index, fit] of [...fits.entries()].reverse()) {
    if (secondPlace === 'take-first' || fit.isPinned || search.last(fit, end) === fit.at) {
      end = fit.at + fit.below;
      continue;
    }
    const places = search.places(fit, starts[index] ?? 0, end);
    const named = places.slice(0, MAX_NAMED_LINES).map((at) => at + 1);
    const [count, more] = places.length > MAX_NAMED_LINES ? ['many', ' and more'] : [places.length, ''];
    const how = fit.level === 0 ? '' : ', none of them exactly';
    const why = `fits ${count} places, at lines ${named.join(', ')}${more}${how}`;
    throw refused(
      index,
      why,
      'give more of the lines around the change, or "@@" and a line above it that names the place',
    );
  }
  return fits.map(({ at, below }) => at + below);
}

class PlaceSearch {
  readonly #path: string;
  readonly #lines: readonly string[];
  readonly #alike: (readonly string[])[] = [];
  readonly #index: Map<string, number[]>[] = [];
  readonly #blockEnds = new Map<number, number>();
  #comparedLines = 0;

  constructor(path: string, lines: readonly string[]) {
    this.#path = path;
    this.#lines = lines;
  }

  /** The first place at or below a line, or why there is none. */
  fit(hunk: Hunk, start: number): Fit | string {
    const { length } = this.#lines;
    const old = hunk.lines.filter((line) => line.kind !== 'add').map((line) => line.text);
    const pinned = (at: number): Fit => ({ wanted: [], level: 0, scope: [], at, below: 0, isPinned: true });
    // A hunk of added lines alone belongs right below its heading.
    if (old.length === 0 && hunk.atEnd) return pinned(length);
    if (old.length === 0 && hunk.headings.length === 0) {
      const { nearLine } = hunk;
      return pinned(nearLine === undefined || nearLine > length ? length : Math.max(start, nearLine));
    }
    const scopes = this.#scopes(old.length === 0 ? hunk.headings.slice(0, -1) : hunk.headings);
    if (typeof scopes === 'string') return scopes;
    if (old.length === 0) {
      const wanted = hunk.headings.slice(-1);
      const fit = this.#first(wanted, scopes, start);
      return fit === undefined ? noHeading(wanted[0], start) : { ...fit, below: 1 };
    }
    // A copied byte order mark means the first line. `lines` are without the mark.
    const marked = old[0]?.startsWith('\ufeff') ? [old[0].slice(1), ...old.slice(1)] : undefined;
    const top = marked && this.#first(marked, [[{ from: 0, to: 1 }]], start);
    if (top !== undefined) return top;
    const fit =
      hunk.nearLine === undefined || hunk.atEnd
        ? this.#first(old, hunk.atEnd ? [[{ from: length - old.length, to: length }]] : scopes, start)
        : this.#nearest(old, hunk.nearLine - 1, start);
    return fit ?? explain(this.#lines, old, start);
  }

  /** The last place, by the same comparison, that ends before a line. */
  last({ wanted, level, scope, at, below }: Fit, end: number): number | undefined {
    for (const { from, to } of scope.toReversed()) {
      const before = Math.min(to, end - (below === 0 ? wanted.length : below) + 1);
      for (const place of this.#descending(wanted, level, Math.max(from, at), before)) return place;
    }
    return undefined;
  }

  /** The places between two lines, at most one more than an error names. */
  places({ wanted, level, scope, below }: Fit, start: number, end: number): readonly number[] {
    const places: number[] = [];
    for (const { from, to } of scope) {
      const before = Math.min(to, end - (below === 0 ? wanted.length : below) + 1);
      for (const place of this.#ascending(wanted, level, Math.max(from, start), before)) {
        places.push(place);
        if (places.length > MAX_NAMED_LINES) return places;
      }
    }
    return places;
  }

  #first(wanted: readonly string[], scopes: readonly (readonly Range[])[], start: number): Fit | undefined {
    for (const scope of scopes)
      for (const level of COMPARISONS.keys())
        for (const { from, to } of scope)
          for (const at of this.#ascending(wanted, level, Math.max(from, start), to))
            return { wanted, level, scope, at, below: 0, isPinned: false };
    return undefined;
  }

  /** A line number decides between places that fit exactly. Places that fit loosely must be at that very line. */
  #nearest(wanted: readonly string[], near: number, start: number): Fit | undefined {
    const scope = [{ from: 0, to: this.#lines.length }];
    for (const level of COMPARISONS.keys()) {
      let best: number | undefined;
      let isPinned = false;
      for (const at of this.#ascending(wanted, level, start, this.#lines.length)) {
        const isNearer = best === undefined || Math.abs(at - near) < Math.abs(best - near);
        if (at === near || (level === 0 && isNearer)) [best, isPinned] = [at, true];
        // The two places are equally far, one above and one below.
        else if (level === 0 && at + (best ?? 0) === 2 * near) isPinned = false;
        best ??= at;
        // The places that follow are farther still.
        if (at >= near && at > best) break;
      }
      if (best !== undefined) return { wanted, level, scope, at: best, below: 0, isPinned };
    }
    return undefined;
  }

  /** The ranges to search below the headings: first the blocks that they open, then all that follows. A text names a missing heading. */
  #scopes(headings: readonly string[]): readonly (readonly Range[])[] | string {
    let scopes: readonly (readonly Range[])[] = [[{ from: 0, to: this.#lines.length }]];
    for (const heading of headings) {
      const found = this.#occurrences(heading, scopes);
      if (found === undefined) return noHeading(heading, scopes.at(-1)?.[0]?.from ?? 0);
      const blocks: Range[] = [];
      for (const at of found) {
        const block = { from: at + 1, to: this.#blockEnd(at) };
        // A block within the previous one is already searched.
        if (block.from >= (blocks.at(-1)?.to ?? 0)) blocks.push(block);
      }
      scopes = [blocks, [{ from: (found[0] ?? 0) + 1, to: this.#lines.length }]];
    }
    return scopes;
  }

  #occurrences(line: string, scopes: readonly (readonly Range[])[]): readonly number[] | undefined {
    for (const scope of scopes)
      for (const [level, like] of COMPARISONS.entries()) {
        let range = 0;
        const found = (this.#indexOf(level).get(like(line)) ?? []).filter((at) => {
          this.#countLine();
          while (at >= (scope[range]?.to ?? Number.POSITIVE_INFINITY)) range += 1;
          return at >= (scope[range]?.from ?? Number.POSITIVE_INFINITY);
        });
        if (found.length > 0) return found;
      }
    return undefined;
  }

  /** A block holds the lines that are indented deeper than its head, and brackets that end the head or begin the block. */
  #blockEnd(head: number): number {
    const known = this.#blockEnds.get(head);
    if (known !== undefined) return known;
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

  #alikeAt(level: number): readonly string[] {
    this.#alike[level] ??= this.#lines.map(COMPARISONS[level] ?? String);
    return this.#alike[level];
  }

  #indexOf(level: number): Map<string, number[]> {
    this.#index[level] ??= Map.groupBy(this.#lines.keys(), (at) => this.#alikeAt(level)[at] ?? '');
    return this.#index[level];
  }

  /** The places that begin from `from` to before `to`, in linear time, because files and hunks can have many equal lines. */
  *#ascending(wanted: readonly string[], level: number, from: number, to: number): Generator<number, void, undefined> {
    const have = this.#alikeAt(level);
    const ends = matcher(wanted.map(COMPARISONS[level] ?? String));
    const end = Math.min(have.length, to + wanted.length - 1);
    for (let at = Math.max(0, from); at < end; at += 1) {
      this.#countLine();
      if (ends(have[at])) yield at + 1 - wanted.length;
    }
  }

  *#descending(wanted: readonly string[], level: number, from: number, to: number): Generator<number, void, undefined> {
    const have = this.#alikeAt(level);
    const begins = matcher(wanted.map(COMPARISONS[level] ?? String).reverse());
    for (let at = Math.min(have.length, to + wanted.length - 1) - 1; at >= from; at -= 1) {
      this.#countLine();
      if (begins(have[at])) yield at;
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
  return `there is no line ${JSON.stringify(heading)} below line ${from}`;
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
  if (bad === -1)
    return `its lines stand at line ${at - offset + 1}, above the hunk before it or not at the end of the file`;
  return `line ${at + bad - offset + 1} is ${JSON.stringify(lines[at + bad - offset] ?? 'past the end')}, where the patch has ${JSON.stringify(wanted[bad])}`;
}
