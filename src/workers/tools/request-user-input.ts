import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import type { ToolResult } from '../../shared/tools/tool-result.ts';
import { withEllipsis } from '../../shared/util/text/text-cut.ts';

const DEFAULT_TIMEOUT_MS = 300_000;
const MAX_TIMEOUT_MS = 3_600_000;

const outputSchema = z.object({
  state: z.enum(['answered', 'expired', 'dismissed']),
  answer: z.string().optional().describe('The value of the chosen option, or the text that was written.'),
  by: z.string().optional(),
});

/** Tool `request_user_input`. Asking again does no harm, so its effects are `idempotent`. */
export const requestUserInput = defineBaseTool({
  name: 'request_user_input',
  version: '1.0.0',
  description: [
    'Asks the people at the session’s channel a question and waits for the answer.',
    'Give options when the answer is a choice, the recommended one first; without options the answer is free text.',
    'Ask only what you cannot find out or decide yourself. Without an answer in time, state is "expired": go on without the answer.',
  ].join(' '),
  tier: 'system',
  effects: 'idempotent',
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: true },
  needs: ['channel'],
  timeoutMs: MAX_TIMEOUT_MS + 15_000,
  input: z.object({
    question: z
      .string()
      .min(1)
      .max(4_000)
      .describe('The question, complete in itself: who reads it may not know what you are doing.'),
    options: z
      .array(
        z.object({
          label: z.string().min(1).max(200).describe('What the person sees.'),
          value: z.string().min(1).max(200).optional().describe('What you get as the answer. Default: the label.'),
          description: z.string().max(1_000).optional().describe('What choosing this means.'),
        }),
      )
      .min(2)
      .max(20)
      .optional()
      .describe('The choices. Leave it out for a free answer.'),
    free_text: z
      .boolean()
      .optional()
      .describe('Whether something else than an option may be answered. Default: only without options.'),
    timeout_ms: z
      .int()
      .min(1_000)
      .max(MAX_TIMEOUT_MS)
      .default(DEFAULT_TIMEOUT_MS)
      .describe(`How long to wait for an answer, in milliseconds. Default ${DEFAULT_TIMEOUT_MS}.`),
  }),
  output: outputSchema,
  async run(
    { question, options, free_text: freeText, timeout_ms: timeoutMs },
    ctx,
  ): Promise<ToolResult<z.output<typeof outputSchema>>> {
    const { ask } = ctx.channel;
    const answer = await ask?.({
      text: question,
      timeoutMs,
      ...(options !== undefined && {
        options: options.map(({ label, value, description }) => ({
          label,
          value: value ?? label,
          ...(description !== undefined && { description }),
        })),
      }),
      ...(freeText !== undefined && { freeText }),
    });
    if (answer === undefined || answer.state === 'expired')
      return { output: { state: 'expired' }, display: `No answer in time: ${question}`, success: false };
    const by = answer.by === undefined ? {} : { by: answer.by };
    if (answer.state === 'dismissed')
      return {
        output: { state: 'dismissed', ...by },
        display: `The question was dismissed: ${question}`,
        success: false,
      };
    return {
      output: { state: 'answered', answer: answer.value, ...by },
      display: `${question} ${answer.value}`,
      tainted: false,
    };
  },
  preview: ({ question, options }) => ({
    summary: `Ask: ${withEllipsis(question, 80)}`,
    details: [
      question,
      ...(options ?? []).map(
        ({ label, description }) => `- ${label}${description === undefined ? '' : `: ${description}`}`,
      ),
    ].join('\n'),
  }),
});
