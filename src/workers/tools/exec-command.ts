import { z } from 'zod';
import type { TerminalReport } from '../../shared/tools/capabilities.ts';
import { defineBaseTool } from '../../shared/tools/define-tool.ts';
import type { ToolResult } from '../../shared/tools/tool-result.ts';
import { escalation, escalationSuffix } from './lib/escalation.ts';
import { startFolder } from './lib/parameters.ts';
import { oneLine } from './lib/phrases.ts';
import { runsPrograms } from './lib/tool-presets.ts';

const DEFAULT_TIMEOUT_MS = 30 * 60_000;
const MAX_TIMEOUT_MS = 6 * 3_600_000;
const DEFAULT_WAIT_MS = 10_000;
export const MAX_YIELD_MS = 60_000;

export const terminalOutput = z.object({
  session_id: z.string().nullable().describe('For write_stdin, while the program runs; null when it has ended.'),
  exit_code: z
    .int()
    .nullable()
    .describe('0 means success; null while it runs, or when it was killed, as at its time limit.'),
  output: z.string().describe('What it wrote since the last report, standard output and standard error in order.'),
  timed_out: z.boolean(),
  truncated_bytes: z.int().describe('How many bytes are missing in the middle of the output.'),
});

export const execCommand = defineBaseTool({
  name: 'exec_command',
  version: '1.0.0',
  description: [
    'Runs a command in a terminal of its own, for programs that go on or want input: servers, watchers, REPLs, questions on a prompt.',
    'It returns when the command ends or after yield_time_ms, with the output so far. If the command still runs, session_id is for write_stdin, which types and reads on.',
    'For a command that ends by itself prefer shell or shell_command.',
    'A running command is ended at its time limit, when no call asked for it for 15 minutes, when the session is closed, or when its worker stops. End what you no longer need: type "\\u0003" (Ctrl-C).',
    'Only what is written below the workspace lasts, and there may be no network.',
  ].join(' '),
  ...runsPrograms,
  timeoutMs: MAX_YIELD_MS + 15_000,
  input: z.object({
    cmd: z.string().min(1).describe('The command line, for example "npm run dev" or "python3 -i".'),
    workdir: startFolder,
    shell: z.string().min(1).default('sh').describe('The shell that runs the command line. Default: sh.'),
    timeout: z
      .int()
      .min(1)
      .max(MAX_TIMEOUT_MS)
      .default(DEFAULT_TIMEOUT_MS)
      .describe(`Time limit of the command in milliseconds. Default ${DEFAULT_TIMEOUT_MS}, half an hour.`),
    tty: z.boolean().default(true).describe('Whether it gets a terminal. Without one it sees pipes. Default: true.'),
    yield_time_ms: z
      .int()
      .min(0)
      .max(MAX_YIELD_MS)
      .default(DEFAULT_WAIT_MS)
      .describe(`How long to wait for its end before returning what it wrote. Default ${DEFAULT_WAIT_MS}.`),
    ...escalation,
  }),
  output: terminalOutput,
  async run({ cmd, workdir, shell, timeout, tty, yield_time_ms: waitMs }, ctx) {
    const report = await ctx.terminals.start({
      argv: [shell, '-c', cmd],
      timeoutMs: timeout,
      waitMs,
      tty,
      ...(workdir !== undefined && { cwd: workdir }),
    });
    return terminalResult(oneLine(cmd), report);
  },
  preview: ({ cmd, workdir, shell, ...escalationParams }) => ({
    summary: `Run ${oneLine(cmd)} in a terminal${escalationSuffix(escalationParams)}${workdir === undefined ? '' : ` in ${workdir}`}`,
    details: `${shell}: ${cmd}`,
  }),
});

export function terminalResult(
  label: string,
  { output, droppedBytes, state }: TerminalReport,
): ToolResult<z.output<typeof terminalOutput>> {
  const running = state.kind === 'running';
  const ending = running
    ? `still runs as ${state.terminalId}`
    : state.timedOut
      ? 'killed at its time limit'
      : state.exitCode === null
        ? `ended by ${state.signal}`
        : `exit code ${state.exitCode}`;
  return {
    output: {
      session_id: running ? state.terminalId : null,
      exit_code: running ? null : state.exitCode,
      output,
      timed_out: !running && state.timedOut,
      truncated_bytes: droppedBytes,
    },
    display: `${label}: ${ending}`,
    success: running || state.exitCode === 0,
  };
}
