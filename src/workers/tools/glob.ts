import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { folder, limitParameter } from './lib/parameters.ts';
import { readsFiles } from './lib/tool-presets.ts';

/** The files are found in order of name and then sorted by time of change, so the search collects far more of them than a call asks for. */
const MAX_COLLECTED = 100_000;

export const glob = defineBaseTool({
  name: 'glob',
  version: '1.0.0',
  description: [
    'Finds files of the workspace by name, the ones changed last first.',
    'A pattern such as "src/**/*.ts" is taken from path; one without a slash, such as "*.md", fits at any depth. {a,b} and [a-z] work.',
    'Hidden files are found by a name with a dot at its beginning (.github/**/*.yml), and not by wildcards; what .gitignore leaves out is not found unless asked for.',
  ].join(' '),
  ...readsFiles,
  input: z.object({
    pattern: z.string().min(1).max(1_000).describe('The glob, for example "**/*.test.ts" or "*.{json,yaml}".'),
    path: folder('Folder to look in'),
    include_ignored: z
      .boolean()
      .default(false)
      .describe('Find hidden files too, and those that .gitignore leaves out.'),
    limit: limitParameter('files', 200, 5_000),
  }),
  output: z.object({
    files: z.array(z.string()).describe('Paths relative to the workspace root.'),
    truncated: z.boolean(),
  }),
  async run({ pattern, path, include_ignored: includeIgnored, limit }, ctx) {
    const matches = await ctx.workspace.search({ path, glob: pattern, includeIgnored, limit: MAX_COLLECTED });
    const sorted = [...matches.files].sort((a, b) => b.modifiedAtMs - a.modifiedAtMs || (a.path < b.path ? -1 : 1));
    const files = sorted.slice(0, limit).map((file) => file.path);
    const truncated = matches.truncated || sorted.length > limit;
    return {
      output: { files, truncated },
      display: `Found ${plural(files.length, 'file')} for ${pattern}${truncated ? ', and more' : ''}`,
    };
  },
});
