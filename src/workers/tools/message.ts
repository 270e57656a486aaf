import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';

const MAX_LENGTH = 16_000;

/** Tool `message`. A message cannot be unsent, so its effects are `once`. */
export const message = defineBaseTool({
  name: 'message',
  version: '1.0.0',
  description: [
    'Sends a message to the people at the session’s channel, for example to report progress or a result that they wait for.',
    'It returns when the channel has taken the message; no answer is needed. To ask something use request_user_input.',
  ].join(' '),
  tier: 'system',
  effects: 'once',
  annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true },
  needs: ['channel'],
  input: z.object({
    text: z.string().min(1).max(MAX_LENGTH).describe(`What to say, at most ${MAX_LENGTH} characters.`),
    format: z
      .enum(['text', 'markdown'])
      .default('text')
      .describe('How the channel shall show the text. Default: as it stands.'),
  }),
  output: z.object({
    sent: z.literal(true),
    channel: z.string().describe('The kind of channel that took the message.'),
  }),
  async run({ text, format }, ctx) {
    await ctx.channel.send({ text, format });
    return {
      output: { sent: true, channel: ctx.channel.kind },
      display: `Sent to the ${ctx.channel.kind} channel: ${firstLine(text)}`,
    };
  },
  preview: ({ text }) => ({ summary: `Send: ${firstLine(text)}`, details: text }),
});

function firstLine(text: string): string {
  const [line = ''] = text.trim().split('\n');
  return line.length <= 80 && line === text.trim() ? line : `${startOf(line, 80)}…`;
}
