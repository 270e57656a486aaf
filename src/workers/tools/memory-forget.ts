import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';

export const memoryForget = defineBaseTool({
  name: 'memory_forget',
  version: '1.0.0',
  description: [
    'Takes one entry out of long-term memory for good, by the ID that memory_search and memory_store return.',
    'Forget what is wrong or no longer true; to correct an entry, forget it and store the right one.',
  ].join(' '),
  tier: 'workspace',
  effects: 'idempotent',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  needs: ['memory:store'],
  input: z.object({ id: z.string().min(1).max(512).describe('The ID of the entry.') }),
  output: z.object({ forgotten: z.boolean().describe('Whether there was such an entry.') }),
  async run({ id }, ctx) {
    const forgotten = await ctx.memory.forget(id);
    return { output: { forgotten }, display: forgotten ? `Forgot the memory ${id}` : `There was no memory ${id}` };
  },
  preview: ({ id }) => ({ summary: `Forget the memory ${id}` }),
});
