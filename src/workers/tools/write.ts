import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { hashOf } from './lib/text-file.ts';
import { editsFiles } from './lib/tool-presets.ts';

/** Tool `write`. Writing the same content again leaves the same file, so its effects are `idempotent`. */
export const write = defineBaseTool({
  name: 'write',
  version: '1.1.0',
  description: [
    'Writes a text file of the workspace: creates it, with the folders that are missing, or replaces all of its content.',
    'Readers see the old content or the new one, never a part. The content is written exactly as given.',
    'To change a part of an existing file use edit; read a file first when you replace it.',
  ].join(' '),
  ...editsFiles,
  effects: 'idempotent',
  annotations: { ...editsFiles.annotations, idempotentHint: true },
  input: z.object({
    path: z.string().min(1).describe('Path of the file, relative to the workspace root, for example "docs/notes.md".'),
    content: z
      .string()
      .describe('The whole new content of the file, with a line end at its end where the file shall have one.'),
    expected_hash: z
      .string()
      .regex(/^([0-9a-f]{64}|absent)$/)
      .optional()
      .describe('The hash that read returned, or "absent": refused when the file is another one by now. Default: any.'),
  }),
  output: z.object({
    path: z.string(),
    created: z.boolean().describe('False when an existing file was replaced.'),
    bytes: z.int(),
    hash: z.string().describe('SHA-256 of what was written.'),
  }),
  async run({ path, content, expected_hash: expected }, ctx) {
    const hash = hashOf(Buffer.from(content));
    const { created, bytes } = await ctx.workspace
      .write(path, content, expected === undefined ? {} : { expected })
      .catch(async (error: unknown) => {
        // A previous attempt may have written it already; the file then has the requested content.
        const current = await ctx.workspace.read(path).catch(() => undefined);
        if (current === undefined || hashOf(current) !== hash) throw error;
        return { created: false, bytes: current.length };
      });
    return {
      output: { path, created, bytes, hash },
      display: `${created ? 'Created' : 'Replaced'} ${path} (${bytes} bytes)`,
      artifacts: [{ kind: created ? 'file-created' : 'file-modified', reference: path }],
    };
  },
  async preview({ path, content }, ctx) {
    const existing = await ctx.workspace.read(path).catch(() => undefined);
    return {
      summary: `${existing === undefined ? 'Create' : 'Replace'} ${path} (${Buffer.byteLength(content)} bytes)`,
      details: ctx.diff(path, existing, content),
    };
  },
});
