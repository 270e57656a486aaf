/** A tool that does what a test says. */
import { z } from 'zod';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { ToolContext } from '../../../src/shared/tools/tool-context.ts';

export const OTHER = {
  version: '1.0.0',
  description: 'Does what a test says.',
  tier: 'workspace',
  effects: 'idempotent',
  input: z.object({}),
} as const;

export function scripted(script: (params: { text: string }, ctx: ToolContext, run: number) => unknown) {
  let runs = 0;
  return defineTool({
    name: 'note',
    version: '1.0.0',
    description: 'Does what a test says.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ text: z.string() }),
    run: async (params, ctx) => {
      runs += 1;
      return { output: await script(params, ctx, runs) };
    },
  });
}
