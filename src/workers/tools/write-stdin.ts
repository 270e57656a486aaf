import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { MAX_YIELD_MS, terminalOutput, terminalResult } from './exec-command.ts';
import { oneLine } from './lib/phrases.ts';
import { runsPrograms } from './lib/tool-presets.ts';

const DEFAULT_WAIT_MS = 1_000;

/** Tool `write_stdin`. No probe can find out whether something was typed, so its effects are `once`. */
export const writeStdin = defineBaseTool({
  name: 'write_stdin',
  version: '1.0.0',
  description: [
    'Types into a command that exec_command started, and returns what it wrote since the last look.',
    'End a line with "\\n". Control characters work: "\\u0003" is Ctrl-C, "\\u0004" is Ctrl-D, the end of input. To a command without a terminal give "\\u0003" alone, which kills it, and "\\u0004" as the last character. Empty chars only look.',
    'It returns when the command ends, or after yield_time_ms: to wait for something, look seldom and long.',
  ].join(' '),
  ...runsPrograms,
  timeoutMs: MAX_YIELD_MS + 15_000,
  input: z.object({
    session_id: z.string().min(1).max(64).describe('What exec_command returned as session_id.'),
    chars: z
      .string()
      .max(65_536)
      .default('')
      .describe(
        'The characters to type. Default: none, only look. A terminal cuts a line after 4,095 bytes, unless the program reads keys one by one.',
      ),
    yield_time_ms: z
      .int()
      .min(0)
      .max(MAX_YIELD_MS)
      .default(DEFAULT_WAIT_MS)
      .describe(`How long to wait before returning what it wrote. Default ${DEFAULT_WAIT_MS}.`),
  }),
  output: terminalOutput,
  async run({ session_id: id, chars, yield_time_ms: waitMs }, ctx) {
    const report = await ctx.terminals.write(id, chars, waitMs);
    return terminalResult(chars === '' ? `Looked at ${id}` : `Typed ${oneLine(chars)} into ${id}`, report);
  },
  isMutating: ({ chars }) => chars !== '',
  preview: ({ session_id: id, chars }) => ({ summary: `Type ${oneLine(chars)} into ${id}`, details: chars }),
});
