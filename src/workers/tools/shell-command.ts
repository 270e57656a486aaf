import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { escalation, escalationSuffix } from './lib/escalation.ts';
import { MAX_OUTPUT_BYTES, startFolder, TIME_LIMIT_OF_CALL_MS, timeLimit } from './lib/parameters.ts';
import { describeExit, markTruncated, oneLine } from './lib/phrases.ts';
import { runsPrograms } from './lib/tool-presets.ts';

/** Tool `shell_command`. No probe can find out what a script did, so its effects are `once`. */
export const shellCommand = defineBaseTool({
  name: 'shell_command',
  version: '1.0.0',
  description: [
    'Runs a line or a script in the shell (sh) in the workspace, with pipes, globs, variables and redirections, and returns its exit code and output.',
    'Use shell instead for one program whose arguments are not yours to quote, such as text from elsewhere.',
    'A non-zero exit code is a result, not an error. Standard output and standard error come as one text, as on a terminal; where the end of a long one is missing, it says so.',
    'Everything that the script started is ended when it ends or the time limit is reached. There is no terminal and no input.',
  ].join(' '),
  ...runsPrograms,
  timeoutMs: TIME_LIMIT_OF_CALL_MS,
  input: z.object({
    command: z.string().min(1).describe('The script, for example "grep -rn TODO src | sort | head -20".'),
    workdir: startFolder,
    timeout_ms: timeLimit,
    ...escalation,
  }),
  output: z.object({
    exitCode: z.int().nullable().describe('0 means success; null when it was killed at its time limit.'),
    output: z.string().describe('What it wrote to standard output and standard error, in order.'),
    timedOut: z.boolean(),
    durationMs: z.int(),
    truncatedBytes: z.int().describe('How many bytes are missing at the end of the output.'),
  }),
  async run({ command, workdir, timeout_ms: timeoutMs }, ctx) {
    // The script is an argument and no part of this line, so that it cannot end the redirection.
    const { exitCode, stdout, truncated, timedOut, durationMs } = await ctx.processes.run({
      argv: ['sh', '-c', 'exec 2>&1; eval "$1"', 'sh', command],
      timeoutMs,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      ...(workdir !== undefined && { cwd: workdir }),
    });
    const ending = describeExit({ timedOut, signal: null, exitCode }, timeoutMs);
    return {
      output: {
        exitCode,
        output: markTruncated(stdout, truncated.stdoutBytes),
        timedOut,
        durationMs,
        truncatedBytes: truncated.stdoutBytes,
      },
      display: `Ran ${oneLine(command)}: ${ending}, ${durationMs} ms`,
      success: exitCode === 0,
    };
  },
  preview: ({ command, workdir, ...escalationParams }) => ({
    summary: `Run ${oneLine(command)}${escalationSuffix(escalationParams)}${workdir === undefined ? '' : ` in ${workdir}`}`,
    details: command,
  }),
});
