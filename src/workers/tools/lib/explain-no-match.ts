/** Explains why a text is not found in a file, in words that help the next attempt. */
import { startOf } from '../../../shared/util/text/text-cut.ts';
import { placesOf } from '../../../shared/util/text/text-search.ts';

const MAX_SHOWN_LENGTH = 160;
/** The most candidate places, and the most lines of each that are compared to find the likeliest. */
const MAX_PLACES = 100;
const MAX_COMPARED_LINES = 500;
/** A line number as `read` and other tools put it before a line. */
const LINE_NUMBER = /^ *\d+(?:\t|→|: |\| ?)/;

/** Explains in a sentence or two why `content` does not hold `text`. */
export function explainNoMatch(content: string, text: string): string {
  const expected = text.split('\n');
  if (expected.every((line) => line === '' || LINE_NUMBER.test(line))) {
    const plain = expected.map((line) => line.replace(LINE_NUMBER, '')).join('\n');
    if (plain !== '' && placesOf(content, plain, 1).length > 0)
      return 'It stands there without the numbers at the beginning of its lines, which are no part of the file: leave them out.';
  }
  const lines = content.split('\n');
  const bareLines = lines.map(bare);
  const bareExpected = expected.map(bare);
  const start = bareExpected.findIndex((line) => line !== '');
  const first = bareExpected[start];
  if (first === undefined) return 'It is nothing but white space: take text around it into old_string.';
  const matchLine = likeliestLine(bareLines, bareExpected.slice(start, start + MAX_COMPARED_LINES));
  return matchLine === undefined
    ? nearestLine(lines, bareLines, first)
    : firstDifference({ lines, bareLines, wanted: expected, bareWanted: bareExpected, start, place: matchLine });
}

function bare(line: string): string {
  return line.replaceAll(/\s+/g, '');
}

/**
 * Returns the likeliest place: among the lines that equal the first wanted one, ignoring white space, the one that
 * most of the other wanted lines follow.
 */
function likeliestLine(bareLines: readonly string[], expected: readonly string[]): number | undefined {
  const first = expected[0] ?? '';
  let likeliest: { place: number; alike: number } | undefined;
  let place = bareLines.indexOf(first);
  for (let looked = 0; place !== -1 && looked < MAX_PLACES; looked += 1) {
    const alike = alikeAtStart(bareLines.slice(place, place + expected.length), expected);
    if (likeliest === undefined || alike > likeliest.alike) likeliest = { place, alike };
    place = bareLines.indexOf(first, place + 1);
  }
  return likeliest?.place;
}

function alikeAtStart(lines: readonly string[], expected: readonly string[]): number {
  const differs = expected.findIndex((line, index) => line !== lines[index]);
  return differs === -1 ? expected.length : differs;
}

interface Comparison {
  readonly lines: readonly string[];
  readonly bareLines: readonly string[];
  readonly wanted: readonly string[];
  readonly bareWanted: readonly string[];
  /** The first wanted line that is not empty, and the line of the file that resembles it. */
  readonly start: number;
  readonly place: number;
}

function firstDifference({ lines, bareLines, wanted, bareWanted, start, place }: Comparison): string {
  const alike = start + alikeAtStart(bareLines.slice(place), bareWanted.slice(start));
  const there = (index: number) => place + index - start;
  if (alike < wanted.length) {
    const at = there(alike);
    const actual = at < lines.length ? `line ${at + 1} is ${shown(lines[at])}` : 'the file ends there';
    return `It begins as line ${place + 1} does, but ${actual}, where old_string has ${shown(wanted[alike])}. Read the file again and copy the text exactly.`;
  }
  const head = `It stands at line ${place + 1} when white space is left aside`;
  const differs = wanted.findIndex((line, index) => index >= start && line !== lines[there(index)]);
  if (differs === -1) return `${head}, but not the empty lines at its beginning. Copy the text exactly from the file.`;
  const [line = '', other = ''] = [lines[there(differs)], wanted[differs]];
  const at = there(differs) + 1;
  if (differs > start && withoutReturn(line) === withoutReturn(other))
    return `${head}: some lines there end in CR LF and some in LF. Edit those above line ${at} apart from the others.`;
  const difference = `line ${at} is ${JSON.stringify(clipped(line))}, where old_string has ${JSON.stringify(clipped(other))}`;
  return `${head}: ${difference}. Copy the text exactly from the file.`;
}

function nearestLine(lines: readonly string[], bareLines: readonly string[], first: string): string {
  const pairs = pairsOf(first);
  const { line, score } = bareLines.reduce<{ line: number; score: number }>(
    (best, candidate, index) => {
      const likeness = similarity(pairs, first.length, candidate);
      return likeness > best.score ? { line: index, score: likeness } : best;
    },
    { line: -1, score: 0 },
  );
  if (score < 0.5) return 'No line resembles it: read the file again.';
  return `The nearest line is line ${line + 1}: ${shown(lines[line])}. Read the file again and copy the text exactly.`;
}

/** Counts each pair of adjacent letters. */
function pairsOf(text: string): ReadonlyMap<string, number> {
  const pairs = new Map<string, number>();
  for (let index = 0; index < text.length - 1; index += 1) {
    const pair = text.slice(index, index + 2);
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  return pairs;
}

/** Returns 0 to 1: the share of letter pairs that a line has in common with a text of these pairs and this length. */
function similarity(pairs: ReadonlyMap<string, number>, length: number, line: string): number {
  if (length < 2 || line.length < 2) return 0;
  let common = 0;
  for (const [pair, count] of pairsOf(line)) common += Math.min(count, pairs.get(pair) ?? 0);
  return (2 * common) / (length + line.length - 2);
}

function shown(line: string | undefined): string {
  return JSON.stringify(clipped(withoutReturn(line ?? '')));
}

function withoutReturn(line: string): string {
  return line.replace(/\r$/, '');
}

function clipped(line: string): string {
  return line.length <= MAX_SHOWN_LENGTH ? line : `${startOf(line, MAX_SHOWN_LENGTH)}…`;
}
