import { z } from 'zod';
import type { WorkspaceEntry } from '../../shared/tools/capabilities.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import type { ToolContext } from '../../shared/tools/tool-context.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { folder, limitParameter } from './lib/parameters.ts';
import { readsFiles } from './lib/tool-presets.ts';

const MAX_DEPTH = 10;

export const listDir = defineBaseTool({
  name: 'list_dir',
  version: '1.0.0',
  description: [
    'Lists what is in a folder of the workspace: files with their sizes, folders, and other things such as symbolic links.',
    'depth goes into the folders below; hidden names are listed, symbolic links are not followed.',
    'To find files by name use glob, by content use grep_files.',
  ].join(' '),
  ...readsFiles,
  input: z.object({
    path: folder('Folder'),
    depth: z
      .int()
      .min(1)
      .max(MAX_DEPTH)
      .default(1)
      .describe(`How many levels to list, 1 to ${MAX_DEPTH}. Default 1: the folder itself.`),
    offset: z.int().min(0).default(0).describe('How many entries to leave out, to go on after a cut list.'),
    limit: limitParameter('entries', 200, 2_000),
  }),
  output: z.object({
    path: z.string(),
    entries: z.array(
      z.object({
        path: z.string().describe('Relative to the workspace root.'),
        kind: z
          .enum(['file', 'directory', 'other'])
          .describe('"other" is a symbolic link, a socket, a FIFO, a device, or a name that is not UTF-8.'),
        bytes: z.int(),
      }),
    ),
    truncated: z.boolean().describe('Whether there are more: go on with offset.'),
  }),
  async run({ path, depth, offset, limit }, ctx) {
    const endOffset = offset + limit;
    const collected: WorkspaceEntry[] = [];
    // One entry more than requested shows whether there are more.
    await collect(ctx, { path, depth, maxEntries: endOffset + 1, collected });
    const entries = collected.slice(offset, endOffset);
    return {
      output: { path, entries, truncated: collected.length > endOffset },
      display: `Listed ${plural(entries.length, 'entry', 'entries')} of ${path}`,
    };
  },
});

interface Collection {
  readonly path: string;
  readonly depth: number;
  readonly maxEntries: number;
  readonly collected: WorkspaceEntry[];
}

async function collect(ctx: ToolContext, { path, depth, maxEntries, collected }: Collection): Promise<void> {
  for (const each of await ctx.workspace.list(path)) {
    if (collected.length >= maxEntries) return;
    collected.push(each);
    // A folder can disappear, or become a link out of the workspace, while it is being listed.
    if (each.kind === 'directory' && depth > 1)
      await collect(ctx, { path: each.path, depth: depth - 1, maxEntries, collected }).catch(() => undefined);
  }
}
