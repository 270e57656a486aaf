/** Explains why a text is not found in a file, in words that help the next attempt. */
import { withEllipsis } from '../../../shared/util/text/text-cut.ts';
import { findAll } from '../../../shared/util/text/text-search.ts';
import { escapeJson } from '../../../shared/util/text/visible-text.ts';

const MAX_SHOWN_LENGTH = 160;
/** The most candidate places, and the most lines of each that are compared to find the likeliest. */
const MAX_CANDIDATES = 100;
const MAX_COMPARED_LINES = 500;
/** A line number as `read` and other tools put it before a line. */
const LINE_NUMBER = /^ *\d+(?:\t|→|: |\| ?)/;

const ENTITIES: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", '#39': "'" };
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r' };

/** The ways in which models write a text that they have read in another form. */
const MISWRITTEN: readonly { readonly change: (text: string) => string; readonly hint: string }[] = [
  {
    change: (text) => text.replaceAll(/&(amp|lt|gt|quot|apos|#39);/g, (_entity, name: string) => ENTITIES[name] ?? ''),
    hint: 'It stands there with the characters themselves, where old_string has HTML entities such as &lt; for <: write <, >, & and quotes plainly, in new_string as well.',
  },
  {
    change: (text) => text.replaceAll(/\\(.)/g, (_escape, letter: string) => ESCAPES[letter] ?? letter),
    hint: 'It stands there when the backslashes of old_string are read as escapes (\\n as a line end, \\" as a quote): write the characters themselves, in new_string as well.',
  },
];

/** Explains in a sentence or two why `content` does not hold `text`. */
export function explainNoMatch(content: string, text: string): string {
  const lineEnds = mixedLineEnds(content, text);
  if (lineEnds !== undefined) return lineEnds;
  const expected = text.split('\n');
  if (expected.every((line) => line === '' || LINE_NUMBER.test(line))) {
    const plain = expected.map((line) => line.replace(LINE_NUMBER, '')).join('\n');
    if (plain !== '' && findAll(content, plain, 1).length > 0)
      return 'It stands there without the numbers at the beginning of its lines, which are no part of the file: leave them out.';
  }
  for (const { change, hint } of MISWRITTEN) {
    const meant = change(text);
    if (meant !== text && meant !== '' && findAll(content, meant, 1).length > 0) return hint;
  }
  if (straightQuotes(content).includes(straightQuotes(text)))
    return 'It stands there with other quotes: typographic ones (“ ” ‘ ’) where old_string has straight ones, or the other way round.';
  if (content.normalize().includes(text.normalize()))
    return 'It stands there with letters that are composed of other characters (a letter and its accent, or both in one): take text without them into old_string.';
  const lines = content.split('\n');
  const bareLines = lines.map(withoutSpace);
  const bareExpected = expected.map(withoutSpace);
  const start = bareExpected.findIndex((line) => line !== '');
  const first = bareExpected[start];
  if (first === undefined) return 'It is nothing but white space: take text around it into old_string.';
  const matchLine = likeliestLine(bareLines, bareExpected.slice(start, start + MAX_COMPARED_LINES));
  return matchLine === undefined
    ? nearestLine(lines, bareLines, first)
    : firstDifference({ lines, bareLines, expected, bareExpected, start, firstLine: matchLine });
}

/** The reason where only line ends differ, of which a place of the file has both kinds. A text has one kind, or is compared as it is. */
function mixedLineEnds(content: string, text: string): string | undefined {
  const [plainContent, plainText] = [content, text].map((each) => each.replaceAll('\r\n', '\n')) as [string, string];
  const index = plainContent.indexOf(plainText);
  if (index === -1) return undefined;
  const firstLine = plainContent.slice(0, index).split('\n').length;
  const lines = content.split('\n').slice(firstLine - 1, firstLine - 2 + text.split('\n').length);
  const isCrLf = endsInReturn(lines[0] ?? '');
  const differs = lines.findIndex((line) => endsInReturn(line) !== isCrLf);
  if (differs === -1) return undefined;
  const [above, there] = isCrLf ? ['CR LF', 'LF'] : ['LF', 'CR LF'];
  return `It stands at line ${firstLine}, but with both kinds of line ends: line ${firstLine + differs} ends in ${there}, the lines above it in ${above}. Edit those above line ${firstLine + differs} apart from the others.`;
}

function straightQuotes(text: string): string {
  return text.replaceAll(/[\u2018\u2019]/g, "'").replaceAll(/[\u201c\u201d]/g, '"');
}

function withoutSpace(line: string): string {
  return line.replaceAll(/\s+/g, '');
}

/**
 * Returns the likeliest place: among the lines that equal the first wanted one, ignoring white space, the one that
 * most of the other wanted lines follow.
 */
function likeliestLine(bareLines: readonly string[], expected: readonly string[]): number | undefined {
  const first = expected[0] ?? '';
  let likeliest: { line: number; commonLines: number } | undefined;
  let candidate = bareLines.indexOf(first);
  for (let compared = 0; candidate !== -1 && compared < MAX_CANDIDATES; compared += 1) {
    const commonLines = commonPrefixLength(bareLines.slice(candidate, candidate + expected.length), expected);
    if (likeliest === undefined || commonLines > likeliest.commonLines) likeliest = { line: candidate, commonLines };
    candidate = bareLines.indexOf(first, candidate + 1);
  }
  return likeliest?.line;
}

function commonPrefixLength(lines: readonly string[], expected: readonly string[]): number {
  const differs = expected.findIndex((line, index) => line !== lines[index]);
  return differs === -1 ? expected.length : differs;
}

interface Comparison {
  readonly lines: readonly string[];
  readonly bareLines: readonly string[];
  readonly expected: readonly string[];
  readonly bareExpected: readonly string[];
  /** The first wanted line that is not empty, and the line of the file that resembles it. */
  readonly start: number;
  readonly firstLine: number;
}

function firstDifference({ lines, bareLines, expected, bareExpected, start, firstLine }: Comparison): string {
  const commonLines = start + commonPrefixLength(bareLines.slice(firstLine), bareExpected.slice(start));
  const fileIndex = (index: number) => firstLine + index - start;
  if (commonLines < expected.length) {
    const index = fileIndex(commonLines);
    const actual = index < lines.length ? `line ${index + 1} is ${quoteLine(lines[index])}` : 'the file ends there';
    return `It begins as line ${firstLine + 1} does, but ${actual}, where old_string has ${quoteLine(expected[commonLines])}. Read the file again and copy the text exactly.`;
  }
  const head = `It stands at line ${firstLine + 1} when white space is left aside`;
  const differs = expected.findIndex((line, index) => index >= start && line !== lines[fileIndex(index)]);
  if (differs === -1) return `${head}, but not the empty lines at its beginning. Copy the text exactly from the file.`;
  const [line = '', expectedLine = ''] = [lines[fileIndex(differs)], expected[differs]];
  const lineNumber = fileIndex(differs) + 1;
  const difference = `line ${lineNumber} is ${quoted(line)}, where old_string has ${quoted(expectedLine)}`;
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
  return `The nearest line is line ${line + 1}: ${quoteLine(lines[line])}. Read the file again and copy the text exactly.`;
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

function quoteLine(line: string | undefined): string {
  return quoted((line ?? '').replace(/\r$/, ''));
}

/** Spaces that look like others, and characters that do not show, are written as escapes. */
function quoted(line: string): string {
  return escapeJson(JSON.stringify(withEllipsis(line, MAX_SHOWN_LENGTH))).replaceAll(
    /(?! )\p{Zs}/gu,
    (space) => `\\u${space.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

function endsInReturn(line: string): boolean {
  return line.endsWith('\r');
}
