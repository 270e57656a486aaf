/** The tools that every worker has. */
import type { AnyTool } from '../../shared/tools/tool.ts';
import { closeAgent, resumeAgent, sendInput, spawnAgent, wait } from './agents.ts';
import { applyPatch } from './apply-patch.ts';
import { edit } from './edit.ts';
import { execCommand } from './exec-command.ts';
import { glob } from './glob.ts';
import { grepFiles } from './grep-files.ts';
import { listDir } from './list-dir.ts';
import { getMemory, memoryForget, memorySearch, memoryStore } from './memory.ts';
import { message } from './message.ts';
import { read } from './read.ts';
import { requestUserInput } from './request-user-input.ts';
import { shell } from './shell.ts';
import { shellCommand } from './shell-command.ts';
import { updatePlan } from './update-plan.ts';
import { viewImage } from './view-image.ts';
import { webFetch } from './web-fetch.ts';
import { webSearch } from './web-search.ts';
import { write } from './write.ts';
import { writeStdin } from './write-stdin.ts';

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
  shellCommand,
  execCommand,
  writeStdin,
  message,
  requestUserInput,
  memorySearch,
  memoryStore,
  getMemory,
  memoryForget,
  webSearch,
  webFetch,
  updatePlan,
  spawnAgent,
  sendInput,
  resumeAgent,
  wait,
  closeAgent,
];
