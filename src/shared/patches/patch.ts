/**
 * Patches of several files, as models write them: the `*** Begin Patch` format with add, update, move and delete, and unified diffs.
 * `patch-apply.ts` applies their hunks to texts; the tool `apply_patch` reads and writes the files.
 */
import { PawlError } from '../errors/failure.ts';
import { BEGIN, END, PatchReader } from './begin-patch.ts';
import type { FilePatch } from './file-patch.ts';
import { isUnifiedHead } from './line-reader.ts';
import { UnifiedReader } from './unified-diff.ts';

/** The largest number of files of one patch, because their folders are all open during the change. */
const MAX_FILES = 1_000;

/** Reads either format. Throws `INVALID_PARAMS` with the number of the line that cannot be read, and what was expected there. */
export function parsePatch(text: string): readonly FilePatch[] {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  const begin = findBegin(lines);
  const patches =
    begin === -1 ? new UnifiedReader(lines).read() : new PatchReader(withoutMargin(lines, begin), begin + 1).read();
  if (patches.length === 0) {
    throw new PawlError(
      'INVALID_PARAMS',
      'The patch holds no change. It begins with "*** Begin Patch", then for each file "*** Add File: PATH", "*** Update File: PATH" or "*** Delete File: PATH", and ends with "*** End Patch".',
    );
  }
  if (patches.length > MAX_FILES)
    throw new PawlError(
      'INVALID_PARAMS',
      `The patch changes ${patches.length} files; at most ${MAX_FILES} can be changed in one step. Nothing was changed.`,
    );
  return patches;
}

/** The line of the first "*** Begin Patch"; -1 for a unified diff, which may hold that line with a space before it. */
function findBegin(lines: readonly string[]): number {
  const begin = lines.findIndex((line) => line.trim() === BEGIN);
  const head = lines.findIndex((_line, index) => isUnifiedHead(lines, index));
  if (begin === -1 || head === -1 || head > begin) return begin;
  if (lines[begin]?.startsWith(' ')) return -1;
  throw new PawlError(
    'INVALID_PARAMS',
    `Line ${begin + 1} of the patch: a unified diff stands above "${BEGIN}". Nothing was changed; write the whole patch in one format.`,
  );
}

/** Removes a common indentation: models indent a whole patch, as in a list, or all between its first and its last line. */
function withoutMargin(lines: readonly string[], begin: number): readonly string[] {
  const end = lines.findLastIndex((line) => line.trim() === END);
  const isInside = (line: string, index: number) => index > begin && index < end && ![BEGIN, END].includes(line.trim());
  const inside = lines.filter(isInside).filter((line) => line.trim() !== '');
  const [margin = ''] = /^\s*/.exec(inside[0] ?? '') ?? [];
  if (margin === '' || !inside.every((line) => line.startsWith(margin))) return lines;
  return lines.map((line, index) => (isInside(line, index) ? line.slice(margin.length) : line));
}
