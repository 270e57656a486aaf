import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { folder, limitParameter } from './lib/parameters.ts';
import { readsFiles } from './lib/tool-presets.ts';

export const grepFiles = defineBaseTool({
  name: 'grep_files',
  version: '1.0.0',
  description: [
    'Searches the text files of the workspace for lines that match a regular expression.',
    'The pattern is in RE2 syntax, as ripgrep takes it: no look-around and no back-references; write \\\\( to find a parenthesis, or set literal.',
    'Hidden, binary and very large files and what .gitignore leaves out are not searched; include narrows by name. A name with a dot at its beginning finds what is hidden (.github/**/*.yml).',
    'output_mode "files" gives only the paths, "lines" the matching lines with their numbers.',
  ].join(' '),
  ...readsFiles,
  input: z.object({
    pattern: z
      .string()
      .min(1)
      .max(2_000)
      .describe('Regular expression that a line must match, for example "function \\\\w+\\\\(".'),
    path: folder('Folder or file to search'),
    include: z
      .string()
      .min(1)
      .max(1_000)
      .optional()
      .describe('Glob that a file must fit, for example "*.ts" or "src/**/*.{ts,tsx}".'),
    ignore_case: z.boolean().default(false).describe('Take upper and lower case as the same.'),
    literal: z.boolean().default(false).describe('Take the pattern as plain text.'),
    context: z.int().min(0).max(20).default(0).describe('How many lines around each match to give as well.'),
    output_mode: z
      .enum(['lines', 'files'])
      .default('lines')
      .describe('"files" gives only the paths of the files with a match.'),
    limit: limitParameter('matches', 100, 2_000),
  }),
  output: z.object({
    files: z.array(z.string()).describe('Files with a match, relative to the workspace root.'),
    lines: z.array(
      z.object({
        path: z.string(),
        line: z.int(),
        text: z.string(),
        isMatch: z.boolean().describe('False for a line of context.'),
      }),
    ),
    truncated: z.boolean().describe('Whether there are more matches: narrow the search.'),
  }),
  async run({ pattern, path, include, ignore_case: ignoreCase, literal, context, output_mode: mode, limit }, ctx) {
    const { files, lines, truncated } = await ctx.workspace.search({
      path,
      pattern,
      ignoreCase,
      literal,
      limit,
      contextLines: mode === 'lines' ? context : 0,
      ...(include !== undefined && { glob: include }),
    });
    const matches = lines.filter((line) => line.isMatch).length;
    return {
      output: { files: files.map((file) => file.path), lines: mode === 'lines' ? lines : [], truncated },
      display: `Found ${plural(matches, 'match', 'matches')} in ${plural(files.length, 'file')}${truncated ? ', and more' : ''}`,
    };
  },
});
