import { z } from 'zod';
import { PawlError } from '../../shared/errors/failure.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';

const MARKS = { pending: '[ ]', in_progress: '[~]', completed: '[x]' } as const;

/** Tool `update_plan`. It changes nothing by itself: the plan is its result, and reaches subscribers as progress. */
export const updatePlan = defineBaseTool({
  name: 'update_plan',
  version: '1.0.0',
  description: [
    'Writes down the plan of the work, for people to follow and for yourself to keep to. Give all steps each time: the last plan holds.',
    'Use it for work of several steps; keep steps short; at most one is in_progress at a time.',
  ].join(' '),
  tier: 'read-only',
  effects: 'none',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  input: z.object({
    explanation: z.string().max(2_000).optional().describe('Why the plan changes, if it does.'),
    plan: z
      .array(
        z.object({
          step: z.string().min(1).max(500).describe('What is done in this step.'),
          status: z.enum(['pending', 'in_progress', 'completed']).describe('Where the step stands.'),
        }),
      )
      .min(1)
      .max(50)
      .describe('All steps, in order.'),
  }),
  output: z.object({
    steps: z.int(),
    completed: z.int(),
    current: z.string().optional().describe('The step in progress.'),
  }),
  run({ explanation, plan }, ctx) {
    const current = plan.filter(({ status }) => status === 'in_progress');
    if (current.length > 1) {
      const message = `at most one step may be in_progress; got ${current.length}`;
      throw new PawlError('INVALID_PARAMS', `plan: ${message}.`, { issues: [{ path: 'plan', message }] });
    }
    const completed = plan.filter(({ status }) => status === 'completed').length;
    const [now] = current;
    ctx.progress({ progress: completed, total: plan.length, ...(now !== undefined && { message: now.step }) });
    const lines = plan.map(({ step, status }) => `${MARKS[status]} ${step}`);
    return {
      output: { steps: plan.length, completed, ...(now !== undefined && { current: now.step }) },
      display: [...(explanation === undefined ? [] : [explanation]), ...lines].join('\n'),
    };
  },
});
