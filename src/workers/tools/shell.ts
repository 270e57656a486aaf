import { z } from 'zod';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { escalation, escalationSuffix } from './lib/escalation.ts';
import { MAX_OUTPUT_BYTES, startFolder, TIME_LIMIT_OF_CALL_MS, timeLimit } from './lib/parameters.ts';
import { clipped, describeExit, markTruncated } from './lib/phrases.ts';
import { runsPrograms } from './lib/tool-presets.ts';

/** Tool `shell`. No probe can find out what a program did, so its effects are `once`. */
export const shell = defineBaseTool({
  name: 'shell',
  version: '1.0.0',
  description: [
    'Runs a program in the workspace and returns its exit code and outputs.',
    'command is the program and its arguments as separate elements, for example ["git", "status", "--short"]; no shell interprets them. For pipes, globs or several steps run a shell yourself: ["sh", "-c", "grep -rn TODO src | head"].',
    'A non-zero exit code is a result, not an error: look at exitCode and stderr.',
    `Of each output the first ${MAX_OUTPUT_BYTES / 1024} KiB are returned and a cut is marked; filter long outputs with head, tail or grep.`,
    'Everything that the program started, background processes included, is ended when the program ends or the time limit is reached. Programs get no terminal: use flags such as --yes, and never start something that waits for input. Only what is written below the workspace lasts, and there may be no network.',
    'To read or change files prefer read, write and edit.',
  ].join(' '),
  // Models with a built-in local shell send a program and its arguments.
  variant: { type: 'local-shell' },
  ...runsPrograms,
  timeoutMs: TIME_LIMIT_OF_CALL_MS,
  input: z.object({
    command: z.array(z.string()).min(1).describe('The program, then each of its arguments: ["ls", "-la", "src"].'),
    workdir: startFolder,
    cwd: startFolder.describe('Another name of workdir.'),
    timeout_ms: timeLimit,
    stdin: z.string().optional().describe('Text for the standard input of the program. Default: no input.'),
    ...escalation,
  }),
  output: z.object({
    exitCode: z
      .int()
      .nullable()
      .describe('0 means success; 128 + N means ended by signal N; null when it was killed at its time limit.'),
    signal: z.string().nullable(),
    stdout: z.string(),
    stderr: z.string(),
    timedOut: z.boolean(),
    durationMs: z.int(),
    truncated: z
      .object({ stdoutBytes: z.int(), stderrBytes: z.int() })
      .describe('How many bytes are missing at the end of each output.'),
  }),
  async run({ command, cwd: folder, workdir = folder, timeout_ms: timeoutMs, stdin }, ctx) {
    const [program = '', ...programArguments] = command;
    const { stdout, stderr, truncated, ...result } = await ctx.processes.run({
      argv: [program, ...programArguments],
      timeoutMs,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      ...defined({ cwd: workdir, stdin }),
    });
    return {
      output: {
        ...result,
        stdout: markTruncated(stdout, truncated.stdoutBytes),
        stderr: markTruncated(stderr, truncated.stderrBytes),
        truncated,
      },
      display: `Ran ${formatCommand(command)}: ${describeExit(result, timeoutMs)}, ${result.durationMs} ms`,
    };
  },
  preview: ({ command, cwd: folder, workdir = folder, stdin, ...escalationParams }) => ({
    summary: `Run ${formatCommand(command)}${escalationSuffix(escalationParams)}${workdir === undefined ? '' : ` in ${workdir}`}`,
    details: JSON.stringify({ command, workdir, stdin }, undefined, 2),
  }),
});

/** Formats the command for people: ambiguous words are quoted, control characters escaped. */
function formatCommand(command: readonly string[]): string {
  return clipped(command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(' '));
}
