/** The hunks of a patch, put into the text of a file. */
import { PawlError } from './failure.ts';
import type { Hunk } from './patch.ts';
import { matcher } from './text-search.ts';

/** Lines of a file that are looked at for all its hunks: those that stand where they say take each line once. */
const MAX_LOOKS = 20_000_000;

/**
 * Throws `PRECONDITION_FAILED` naming the hunk that does not fit and what stands there instead, and `INVALID_PARAMS` for so many hunks
 * far from where they say that looking for them would hold up the worker.
 */
export function applyHunks(path: string, text: string, hunks: readonly Hunk[]): string {
  // The mark of a file's encoding stays, whatever becomes of its first line.
  const [byteOrderMark = ''] = /^\ufeff/.exec(text) ?? [];
  const content = text.slice(byteOrderMark.length);
  const hasOnlyCrLf = content.includes('\r\n') && !/(?<!\r)\n/.test(content);
  const lineEnd = hasOnlyCrLf ? '\r\n' : '\n';
  // With their line ends: what is kept stays as it is.
  const whole = content.split(/(?<=\n)/);
  if (whole.at(-1) === '') whole.pop();
  const lines = whole.map(withoutLineEnd);
  const find = finderIn(path, lines);
  const result: string[] = [];
  let taken = 0;
  const keepUpTo = (end: number) => {
    for (; taken < end; taken += 1) result.push(whole[taken] ?? '');
  };
  const add = (text: string) => {
    const above = result.pop();
    if (above !== undefined) result.push(above.endsWith('\n') ? above : above + lineEnd);
    result.push((byteOrderMark === '' ? text : text.replace(/^\ufeff/, '')) + lineEnd);
  };
  hunks.forEach((hunk, index) => {
    let from = taken;
    const old = hunk.lines.filter((line) => line.kind !== 'add').map((line) => line.text);
    for (const wanted of hunk.headings) {
      const heading = find([wanted], from, false, undefined);
      // Of several hunks in one function the later ones are below its head still. Lines to add alone stand right below theirs.
      const isAbove = heading === undefined && old.length > 0 && find([wanted], 0, false, undefined) !== undefined;
      if (heading === undefined && !isAbove)
        throw misfit(path, index, hunks.length, `there is no line ${JSON.stringify(wanted)} below line ${from}`);
      if (heading !== undefined) from = heading + 1;
    }
    const at =
      old.length === 0
        ? placeOfAdditions(hunk, lines.length, from)
        : find(old, from, hunk.atEnd, hunk.nearLine === undefined ? undefined : hunk.nearLine - 1);
    if (at === undefined) throw misfit(path, index, hunks.length, explain(lines, old, from));
    keepUpTo(at);
    for (const line of hunk.lines) {
      if (line.kind === 'add') add(line.text);
      // Kept lines stay as the file has them, also where white space at their end differs.
      else if (line.kind === 'keep') keepUpTo(taken + 1);
      else taken += 1;
    }
    const last = hunk.noLineEnd ? result.pop() : undefined;
    if (last !== undefined) result.push(withoutLineEnd(last));
  });
  keepUpTo(lines.length);
  return byteOrderMark + result.join('');
}

function withoutLineEnd(line: string): string {
  return line.replace(/\r?\n$/, '');
}

function placeOfAdditions({ atEnd, headings, nearLine }: Hunk, count: number, from: number): number {
  if (atEnd) return count;
  if (headings.length > 0) return from;
  return nearLine === undefined || nearLine > count ? count : Math.max(from, nearLine);
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

type Find = (wanted: readonly string[], from: number, atEnd: boolean, near: number | undefined) => number | undefined;

function finderIn(path: string, lines: readonly string[]): Find {
  const alike: (readonly string[])[] = [];
  let looks = 0;
  const look = () => {
    looks += 1;
    if (looks > MAX_LOOKS)
      throw new PawlError(
        'INVALID_PARAMS',
        `The hunks for ${JSON.stringify(path)} are too many to be looked for in all of its ${lines.length} lines. Nothing was changed; give them in the order of the file, each with the lines as they stand there, or write the file anew.`,
      );
  };
  return (wanted, from, atEnd, near) => {
    for (const [level, like] of LIKENESS.entries()) {
      alike[level] ??= lines.map(like);
      const start = atEnd ? Math.max(from, lines.length - wanted.length) : from;
      let best: number | undefined;
      for (const at of placesOf(wanted.map(like), alike[level], start, look)) {
        if (near === undefined) return at;
        // Those that follow are farther still.
        if (best !== undefined && Math.abs(at - near) >= Math.abs(best - near)) return best;
        best = at;
      }
      if (best !== undefined) return best;
    }
    return undefined;
  };
}

/** In linear time: files and hunks can have many equal lines. Calls `look` for each line of `have`. */
function* placesOf(
  want: readonly string[],
  have: readonly string[],
  from: number,
  look: () => void,
): Generator<number, void, undefined> {
  const ends = matcher(want);
  for (let at = from; at < have.length; at += 1) {
    look();
    if (ends(have[at])) yield at + 1 - want.length;
  }
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
  if (bad === -1)
    return `its lines stand at line ${at - offset + 1}, above the hunk before it or not at the end of the file`;
  return `line ${at + bad - offset + 1} is ${JSON.stringify(lines[at + bad - offset] ?? 'past the end')}, where the patch has ${JSON.stringify(wanted[bad])}`;
}
