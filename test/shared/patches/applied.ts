import { parsePatch } from '../../../src/shared/patches/patch.ts';
import { applyHunks } from '../../../src/shared/patches/patch-apply.ts';

export const patch = (...lines: string[]): string => ['*** Begin Patch', ...lines, '*** End Patch'].join('\n');

/** The content after the patch's only file. */
export function applied(content: string, text: string): string {
  const [file] = parsePatch(text);
  if (file?.kind !== 'update') throw new Error('not an update');
  return applyHunks(file.path, content, file.hunks);
}
