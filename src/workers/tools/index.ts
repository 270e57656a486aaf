/** The tools that every worker has (A16). */
import type { AnyTool } from '../../shared/tool.ts';
import { edit } from './edit.ts';
import { read } from './read.ts';
import { shell } from './shell.ts';
import { write } from './write.ts';

export { edit } from './edit.ts';
export { read } from './read.ts';
export { shell } from './shell.ts';
export { write } from './write.ts';

export const baseTools: readonly AnyTool[] = [read, write, edit, shell];
