import { z } from 'zod';
import { defineTool } from '../../shared/tool.ts';

const DEFAULT_LIMIT = 200;

/** Tool `glob`. */
export const glob = defineTool({
  name: 'glob',
  version: '1.0.0',
  description: [
    'Finds files of the workspace by name, the ones changed last first.',
    'A pattern such as "src/**/*.ts" is taken from path; one without a slash, such as "*.md", fits at any depth. {a,b} and [a-z] work.',
    'Hidden files and what .gitignore leaves out are not found unless asked for.',
  ].join(' '),
  tier: 'read-only',
  effects: 'none',
  annotations: { readOnlyHint: true, idempotentHint: true, openWorldHint: false },
  needs: ['workspace:read'],
  input: z.object({
    pattern: z.string().min(1).max(1_000).describe('The glob, for example "**/*.test.ts" or "*.{json,yaml}".'),
    path: z
      .string()
      .min(1)
      .default('.')
      .describe('Folder to look in, relative to the workspace root. Default: the root.'),
    include_ignored: z
      .boolean()
      .default(false)
      .describe('Find hidden files too, and those that .gitignore leaves out.'),
    limit: z
      .int()
      .min(1)
      .max(5_000)
      .default(DEFAULT_LIMIT)
      .describe(`At most this many files. Default ${DEFAULT_LIMIT}.`),
  }),
  output: z.object({
    files: z.array(z.string()).describe('Paths relative to the workspace root.'),
    truncated: z.boolean(),
  }),
  async run({ pattern, path, include_ignored: includeIgnored, limit }, ctx) {
    const { files, truncated } = await ctx.workspace.search({ path, glob: pattern, includeIgnored, limit });
    const sorted = [...files].sort((a, b) => b.modifiedAtMs - a.modifiedAtMs || (a.path < b.path ? -1 : 1));
    return {
      output: { files: sorted.map((file) => file.path), truncated },
      display: `Found ${files.length} ${files.length === 1 ? 'file' : 'files'} for ${pattern}${truncated ? ', and more' : ''}`,
    };
  },
});
