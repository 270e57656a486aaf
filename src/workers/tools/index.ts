/** The tools that every worker has (A16, C16 to C19). */
import type { AnyTool } from '../../shared/tool.ts';
import { applyPatch } from './apply-patch.ts';
import { edit } from './edit.ts';
import { glob } from './glob.ts';
import { grepFiles } from './grep-files.ts';
import { listDir } from './list-dir.ts';
import { read } from './read.ts';
import { shell } from './shell.ts';
import { viewImage } from './view-image.ts';
import { write } from './write.ts';

export { applyPatch } from './apply-patch.ts';
export { edit } from './edit.ts';
export { glob } from './glob.ts';
export { grepFiles } from './grep-files.ts';
export { listDir } from './list-dir.ts';
export { read } from './read.ts';
export { shell } from './shell.ts';
export { viewImage } from './view-image.ts';
export { write } from './write.ts';

export const baseTools: readonly AnyTool[] = [
  read,
  write,
  edit,
  applyPatch,
  listDir,
  grepFiles,
  glob,
  viewImage,
  shell,
];
