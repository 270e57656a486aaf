/**
 * Patches of several files, as models write them: the `*** Begin Patch` format with add, update, move and delete, and unified diffs.
 * `patch-apply.ts` applies their hunks to texts; the tool `apply_patch` reads and writes the files.
 */
import { PawlError } from '../errors/failure.ts';
import { PatchReader } from './begin-patch.ts';
import type { FilePatch } from './file-patch.ts';
import { UnifiedReader } from './unified-diff.ts';

/** The most files of one patch, because their folders are all open during the change. */
const MAX_FILES = 1_000;

/** Reads either format. Throws `INVALID_PARAMS` with the number of the line that cannot be read, and what was expected there. */
export function parsePatch(text: string): readonly FilePatch[] {
  const lines = text.replaceAll('\r\n', '\n').split('\n');
  const begin = lines.findIndex((line) => line.trim() === '*** Begin Patch');
  const patches = begin === -1 ? new UnifiedReader(lines).read() : new PatchReader(lines, begin + 1).read();
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
