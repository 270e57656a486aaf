/** Applies the hunks of a patch to the text of a file. */
import type { Hunk } from './file-patch.ts';
import { placesOfHunks, type SecondPlace } from './patch-places.ts';

/** Throws as `placesOfHunks` does. */
export function applyHunks(
  path: string,
  text: string,
  hunks: readonly Hunk[],
  secondPlace: SecondPlace = 'refuse',
): string {
  // The byte order mark stays, whatever becomes of the first line.
  const [byteOrderMark = ''] = /^\ufeff/.exec(text) ?? [];
  const content = text.slice(byteOrderMark.length);
  // The lines keep their ends, so that kept lines stay as they are.
  const whole = content.split(/(?<=\n)/);
  if (whole.at(-1) === '') whole.pop();
  const places = placesOfHunks(path, whole.map(withoutLineEnd), hunks, secondPlace);
  const usualEnd = usualLineEnd(content);
  const result: string[] = [];
  let taken = 0;
  const keepUpTo = (end: number) => {
    for (; taken < end; taken += 1) result.push(whole[taken] ?? '');
  };
  const add = (line: string, lineEnd: string) => {
    const above = result.pop();
    if (above !== undefined) result.push(above.endsWith('\n') ? above : above + lineEnd);
    result.push((byteOrderMark === '' ? line : line.replace(/^\ufeff/, '')) + lineEnd);
  };
  hunks.forEach((hunk, index) => {
    keepUpTo(places[index] ?? 0);
    /** A line that takes the place of another ends as that one did. */
    let ends: string[] = [];
    for (const line of hunk.lines) {
      if (line.kind === 'add') add(line.text, ends.shift() ?? usualEnd);
      // Kept lines stay as the file has them, even where white space at their end differs from the patch.
      else if (line.kind === 'keep') {
        keepUpTo(taken + 1);
        ends = [];
      } else {
        ends.push(/\r?\n$/.exec(whole[taken] ?? '')?.[0] ?? usualEnd);
        taken += 1;
      }
    }
    const last = hunk.noLineEnd ? result.pop() : undefined;
    if (last !== undefined) result.push(withoutLineEnd(last));
  });
  keepUpTo(whole.length);
  return byteOrderMark + result.join('');
}

function withoutLineEnd(line: string): string {
  return line.replace(/\r?\n$/, '');
}

/** The line end of most lines. */
function usualLineEnd(content: string): '\n' | '\r\n' {
  const lineEnds = content.match(/\r?\n/g) ?? [];
  return lineEnds.filter((end) => end === '\r\n').length * 2 > lineEnds.length ? '\r\n' : '\n';
}
