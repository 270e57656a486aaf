/** Applies the hunks of a patch to the text of a file. */
import type { Hunk } from './file-patch.ts';
import { type AmbiguityPolicy, hunkPositions } from './patch-places.ts';

/** Throws as `placesOfHunks` does. */
export function applyHunks(
  path: string,
  text: string,
  hunks: readonly Hunk[],
  onAmbiguous: AmbiguityPolicy = 'refuse',
): string {
  // The byte order mark stays, even if the first line changes.
  const [byteOrderMark = ''] = /^\ufeff/.exec(text) ?? [];
  const content = text.slice(byteOrderMark.length);
  // The lines include their line ends, so that unchanged lines stay as they are.
  const sourceLines = content.split(/(?<=\n)/);
  if (sourceLines.at(-1) === '') sourceLines.pop();
  const positions = hunkPositions(path, sourceLines.map(withoutLineEnd), hunks, onAmbiguous);
  const usualEnd = usualLineEnd(content);
  const result: string[] = [];
  let nextLine = 0;
  const copyUpTo = (end: number) => {
    for (; nextLine < end; nextLine += 1) result.push(sourceLines[nextLine] ?? '');
  };
  const add = (line: string, lineEnd: string) => {
    const previous = result.pop();
    if (previous !== undefined) result.push(previous.endsWith('\n') ? previous : previous + lineEnd);
    result.push((byteOrderMark === '' ? line : line.replace(/^\ufeff/, '')) + lineEnd);
  };
  hunks.forEach((hunk, index) => {
    copyUpTo(positions[index] ?? 0);
    /** A line that replaces another gets its line end. */
    let lineEnds: string[] = [];
    for (const line of hunk.lines) {
      // An empty line that a hunk has behind the last line end of the file.
      if (line.kind !== 'add' && nextLine >= sourceLines.length) continue;
      if (line.kind === 'add') add(line.text, lineEnds.shift() ?? lineEndAround(sourceLines, nextLine) ?? usualEnd);
      // Kept lines stay as the file has them, even where white space at their end differs from the patch.
      else if (line.kind === 'keep') {
        copyUpTo(nextLine + 1);
        lineEnds = [];
      } else {
        lineEnds.push(lineEndOf(sourceLines[nextLine]) ?? usualEnd);
        nextLine += 1;
      }
    }
    const lastLine = hunk.noLineEnd ? result.pop() : undefined;
    if (lastLine !== undefined) result.push(withoutLineEnd(lastLine));
  });
  copyUpTo(sourceLines.length);
  return byteOrderMark + result.join('');
}

function lineEndOf(line = ''): string | undefined {
  return /\r?\n$/.exec(line)?.[0];
}

/** The line end of the lines above and below; undefined if they differ. */
function lineEndAround(lines: readonly string[], index: number): string | undefined {
  const [above, below] = [lineEndOf(lines[index - 1]), lineEndOf(lines[index])];
  return above === undefined || below === undefined || above === below ? (above ?? below) : undefined;
}

function withoutLineEnd(line: string): string {
  return line.replace(/\r?\n$/, '');
}

/** The line end of most lines. */
function usualLineEnd(content: string): '\n' | '\r\n' {
  const lineEnds = content.match(/\r?\n/g) ?? [];
  return lineEnds.filter((end) => end === '\r\n').length * 2 > lineEnds.length ? '\r\n' : '\n';
}
