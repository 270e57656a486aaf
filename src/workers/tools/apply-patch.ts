import { z } from 'zod';
import { PawlError } from '../../shared/errors/failure.ts';
import { PATCH_GRAMMAR } from '../../shared/patches/begin-patch.ts';
import type { FilePatch } from '../../shared/patches/file-patch.ts';
import { parsePatch } from '../../shared/patches/patch.ts';
import { applyHunks } from '../../shared/patches/patch-apply.ts';
import type { AmbiguityPolicy } from '../../shared/patches/patch-places.ts';
import type { WorkspaceChange } from '../../shared/tools/capabilities.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import type { Artifact } from '../../shared/tools/tool-result.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { hashOf, readText } from './lib/text-file.ts';
import { editsFiles } from './lib/tool-presets.ts';

const CHANGE_KINDS = ['added', 'modified', 'deleted', 'moved'] as const;
const ARTIFACT_KINDS = {
  added: 'file-created',
  modified: 'file-modified',
  moved: 'file-modified',
  deleted: 'other',
} as const;

type Update = Extract<FilePatch, { readonly kind: 'update' }>;

const REMOVABLE_DESPITE = ['RESULT_TOO_LARGE', 'PERMISSION_DENIED', 'INVALID_PARAMS'];

/** Tool `apply_patch`. Its effects are `probe`: after a crash the files themselves show whether the patch was applied. */
export const applyPatch = defineBaseTool({
  name: 'apply_patch',
  version: '1.0.0',
  description: [
    'Changes several files of the workspace in one step: either the whole patch is applied, or nothing is changed and the error names the hunk that does not fit and what stands there instead.',
    'Format: a line "*** Begin Patch"; then for each file "*** Add File: PATH" followed by its lines, each beginning with "+"; or "*** Delete File: PATH"; or "*** Update File: PATH", optionally "*** Move to: NEW_PATH", and hunks; then a line "*** End Patch".',
    'A hunk begins with "@@", optionally followed by a line of the file that stands above the change (such as a function head), and further such lines where one does not tell the place (a class, then its function), then lines that begin with a space (kept), "-" (removed) or "+" (added); give about three kept lines around each change. A hunk that fits several places is refused. "*** End of File" after a hunk pins it to the end of the file.',
    'Unified diffs as "git diff" writes them are understood too. Paths are relative to the workspace root.',
  ].join(' '),
  variant: {
    type: 'freeform',
    parameter: 'patch',
    format: { type: 'grammar', syntax: 'lark', definition: PATCH_GRAMMAR },
  },
  ...editsFiles,
  input: z.object({
    patch: z.string().min(1).describe('The whole patch, from "*** Begin Patch" to "*** End Patch", or a unified diff.'),
  }),
  output: z.object({
    files: z.array(
      z.object({
        path: z.string(),
        change: z.enum(CHANGE_KINDS),
        movedTo: z.string().optional().describe('The new path of a moved file.'),
      }),
    ),
  }),
  async run({ patch }, ctx) {
    const patches = parsePatch(patch);
    await ctx.workspace.commit(await changesOf(patches, ctx));
    return resultOf(patches);
  },
  async probe({ patch }, ctx) {
    const patches = parsePatch(patch);
    // A patch that can be applied has not been applied: an added file would exist, a removed one be gone, a changed
    // line be different. A patch that fits several places was refused if it ran. The probe finds it applicable, and
    // its next attempt refuses it.
    const pendingChanges = await changesOf(patches, ctx, 'take-first').catch(() => undefined);
    const isDone = await looksApplied(patches, ctx);
    if (pendingChanges !== undefined && !isDone) return { state: 'not-done' };
    return pendingChanges === undefined && isDone ? { state: 'done', result: resultOf(patches) } : { state: 'unknown' };
  },
  preview: ({ patch }) => {
    const { output } = resultOf(parsePatch(patch));
    const files = output.files.map(
      ({ path, change, movedTo }) => `${change} ${path}${movedTo === undefined ? '' : ` to ${movedTo}`}`,
    );
    return { summary: `Patch: ${files.join(', ')}`, details: patch };
  },
});

/** Computes the patch's changes of the present files. Throws where it does not fit. */
async function changesOf(
  patches: readonly FilePatch[],
  ctx: ToolContext,
  secondPlace: AmbiguityPolicy = 'refuse',
): Promise<readonly WorkspaceChange[]> {
  const changes: WorkspaceChange[] = [];
  for (const patch of patches) {
    if (patch.kind === 'add') {
      changes.push({ kind: 'write', path: patch.path, content: patch.content, expected: 'absent', ...modeOf(patch) });
      continue;
    }
    if (patch.kind === 'delete') {
      changes.push({ kind: 'remove', path: patch.path, ...(await expectedOf(patch.path, ctx)) });
      continue;
    }
    const { path, moveTo } = patch;
    const { content, hash } = await updatedContent(patch, ctx, secondPlace);
    const update = { kind: 'write', content, ...modeOf(patch) } as const;
    if (moveTo === undefined) changes.push({ ...update, path, expected: hash });
    else {
      changes.push({ ...update, path: moveTo, expected: 'absent', like: path });
      changes.push({ kind: 'remove', path, expected: hash });
    }
  }
  // A patch that removes a file and adds it again, or the like, is ambiguous.
  const duplicatePath = changes.map(({ path }) => path).find((path, index, paths) => paths.indexOf(path) !== index);
  if (duplicatePath !== undefined)
    throw new PawlError(
      'INVALID_PARAMS',
      `${JSON.stringify(duplicatePath)} is changed twice; give all its hunks under one "*** Update File".`,
    );
  return changes;
}

/** Returns the updated content of a file, and the hash of the old one. Without hunks the file need not be text. */
async function updatedContent(
  { path, moveTo, hunks, isExecutable }: Update,
  ctx: ToolContext,
  secondPlace: AmbiguityPolicy,
) {
  if (hunks.length === 0) {
    const bytes = await ctx.workspace.read(path);
    return { content: bytes, hash: hashOf(bytes) };
  }
  const { text, hash } = await readText(path, ctx);
  const content = applyHunks(path, text, hunks, secondPlace);
  if (content === text && moveTo === undefined && isExecutable === undefined)
    throw new PawlError('INVALID_PARAMS', `The hunks for ${JSON.stringify(path)} change nothing.`);
  return { content, hash };
}

function modeOf({ isExecutable }: { readonly isExecutable?: boolean }): { readonly isExecutable?: boolean } {
  return isExecutable === undefined ? {} : { isExecutable };
}

/** Expects nothing of a file that cannot be read but may be removed: a very large one, or a link to a folder or out of the workspace. */
async function expectedOf(path: string, ctx: ToolContext): Promise<{ readonly expected?: string }> {
  try {
    return { expected: hashOf(await ctx.workspace.read(path)) };
  } catch (error) {
    if (error instanceof PawlError && REMOVABLE_DESPITE.includes(error.code)) return {};
    throw error;
  }
}

const REVERSED = { add: 'remove', remove: 'add', keep: 'keep' } as const;

/** Whether every file looks as if the patch had been applied: its new lines are there, and its removed lines are not. */
async function looksApplied(patches: readonly FilePatch[], ctx: ToolContext): Promise<boolean> {
  for (const patch of patches) {
    const path = patch.kind === 'update' ? (patch.moveTo ?? patch.path) : patch.path;
    const text = await readText(path, ctx).then(
      (file) => file.text,
      () => undefined,
    );
    if (patch.kind === 'delete' ? text !== undefined : text === undefined) return false;
    if (patch.kind === 'add' && text !== patch.content) return false;
    if (patch.kind !== 'update' || text === undefined) continue;
    const reversed = patch.hunks.map(({ lines, ...hunk }) => ({
      ...hunk,
      noLineEnd: false,
      lines: lines.map((line) => ({ ...line, kind: REVERSED[line.kind] })),
    }));
    try {
      applyHunks(path, text, reversed, 'take-first');
    } catch {
      return false;
    }
  }
  return true;
}

function resultOf(patches: readonly FilePatch[]) {
  const files = patches.map((patch) => {
    if (patch.kind === 'add') return { path: patch.path, change: 'added' as const };
    if (patch.kind === 'delete') return { path: patch.path, change: 'deleted' as const };
    if (patch.moveTo === undefined) return { path: patch.path, change: 'modified' as const };
    return { path: patch.path, change: 'moved' as const, movedTo: patch.moveTo };
  });
  const artifacts: Artifact[] = files.map((file) => ({
    kind: ARTIFACT_KINDS[file.change],
    reference: file.change === 'moved' ? file.movedTo : file.path,
  }));
  const summary = files.map(({ path, change }) => `${change} ${path}`).join(', ');
  return {
    output: { files },
    display: `Patched ${plural(files.length, 'file')}: ${summary}`,
    artifacts,
  };
}
