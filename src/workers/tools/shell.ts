import { z } from 'zod';
import { defineTool } from '../../shared/tool.ts';
import { escalation, where } from './escalation.ts';

const DEFAULT_TIMEOUT_MS = 120_000;
const MAX_TIMEOUT_MS = 600_000;
const MAX_OUTPUT_BYTES = 64 * 1024;

/** Base tool `shell` (A16). What a program did cannot be asked afterwards: effects `once`. */
export const shell = defineTool({
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
  // Models that know a local shell send a program and its arguments.
  variant: { type: 'local-shell' },
  tier: 'system',
  effects: 'once',
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true },
  needs: ['processes'],
  // Above the longest time limit that a caller can ask for: a program that runs into its own limit gives its outputs.
  timeoutMs: MAX_TIMEOUT_MS + 15_000,
  input: z.object({
    command: z.array(z.string()).min(1).describe('The program, then each of its arguments: ["ls", "-la", "src"].'),
    cwd: z
      .string()
      .min(1)
      .optional()
      .describe('Folder to start in, relative to the workspace root. Default: the root.'),
    timeout_ms: z
      .int()
      .min(1)
      .max(MAX_TIMEOUT_MS)
      .default(DEFAULT_TIMEOUT_MS)
      .describe(`Time limit in milliseconds, at most ${MAX_TIMEOUT_MS}. Default ${DEFAULT_TIMEOUT_MS}.`),
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
  async run({ command, cwd, timeout_ms: timeoutMs, stdin }, ctx) {
    const [program = '', ...programArguments] = command;
    const { stdout, stderr, truncated, ...result } = await ctx.processes.run({
      argv: [program, ...programArguments],
      timeoutMs,
      maxOutputBytes: MAX_OUTPUT_BYTES,
      ...(cwd === undefined ? {} : { cwd }),
      ...(stdin === undefined ? {} : { stdin }),
    });
    const how = result.timedOut
      ? `killed at its time limit of ${timeoutMs} ms`
      : result.signal === null
        ? `exit code ${result.exitCode}`
        : `ended by ${result.signal}`;
    return {
      output: {
        ...result,
        stdout: marked(stdout, truncated.stdoutBytes),
        stderr: marked(stderr, truncated.stderrBytes),
        truncated,
      },
      display: `Ran ${shown(command)}: ${how}, ${result.durationMs} ms`,
    };
  },
  preview: ({ command, cwd, stdin, ...asked }) => ({
    summary: `Run ${shown(command)}${cwd === undefined ? '' : ` in ${cwd}`}${where(asked)}`,
    details: JSON.stringify({ command, cwd, stdin }, undefined, 2),
  }),
});

export function marked(text: string, droppedBytes: number): string {
  return droppedBytes === 0 ? text : `${text}\n[truncated: ${droppedBytes} more bytes]\n`;
}

/** The command for people: quoted where a word could be taken for two, control characters written out. */
function shown(command: readonly string[]): string {
  const text = command.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(' ');
  return text.length <= 120 ? text : `${text.slice(0, 120)}…`;
}
