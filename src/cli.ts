/** Composition root of the commands: runs the one that is asked for, and ends the process with its exit code. */
import './node-version.ts';
import { Command, CommanderError } from 'commander';
import { approvalCommands, policyCommands, questionCommands } from './cli/command-groups/approvals.ts';
import { callCommands } from './cli/command-groups/calls.ts';
import { deadLetterCommands } from './cli/command-groups/dead-letters.ts';
import {
  auditCommands,
  callbackCommands,
  circuitCommands,
  doctorCommand,
  reliabilityCommands,
  shardCommands,
  workerCommands,
} from './cli/command-groups/operations.ts';
import { planCommands } from './cli/command-groups/plans.ts';
import { scheduleCommands } from './cli/command-groups/schedules.ts';
import { sessionCommands } from './cli/command-groups/sessions.ts';
import { startCommands } from './cli/command-groups/start.ts';
import { toolCommands } from './cli/command-groups/tools.ts';
import { actionFactory, type OnExit } from './cli/command-options.ts';
import { type CliContext, say } from './cli/context.ts';
import { EXIT_CODES, exitCodeLines, exitCodeOfError } from './cli/exit-codes.ts';
import { endOnClosedOutput, outputFlushed, processContext } from './cli/process-context.ts';
import { PawlError, ToolError } from './shared/errors/failure.ts';
import { PAWL_VERSION } from './shared/store/redis/own-files.ts';
import { escapeInvisible } from './shared/util/text/visible-text.ts';

/** A finished command waits this long at most for timers and connections that a tools file has left open. */
const LINGER_MS = 500;

/** Runs `pawl ARGV…` and resolves with its exit code (`cli/exit-codes.ts`). */
export async function main(argv: string[]): Promise<number> {
  const context = processContext();
  endOnClosedOutput(context);
  const code = await runCommand(context, argv);
  setTimeout(async () => {
    await outputFlushed(context);
    process.exit(code);
  }, LINGER_MS).unref();
  return code;
}

/** Runs one command and resolves with its exit code. */
export async function runCommand(context: CliContext, argv: readonly string[]): Promise<number> {
  let code: number = EXIT_CODES.success.code;
  const program = createProgram(context, (result) => {
    code = result;
  });
  if (argv.length === 0) {
    program.outputHelp();
    return code;
  }
  try {
    await program.parseAsync(withDefaultCommand(program, argv), { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT_CODES.success.code : EXIT_CODES.usage.code;
    // An error that Redis answered with. The check is by name, so that commands without Redis need not load ioredis.
    if (error instanceof Error && error.name === 'ReplyError') {
      say(context, `Redis answered with something that Pawl does not know: ${error.message}. 'pawl doctor' says more.`);
      return EXIT_CODES.redisOutOfReach.code;
    }
    if (!(error instanceof PawlError || error instanceof ToolError)) throw error;
    say(context, error.message);
    if (error.code === 'UNKNOWN_SESSION')
      say(context, `'pawl sessions' lists the sessions; 'pawl sessions open --key NAME' opens one`);
    return error instanceof PawlError ? exitCodeOfError(error) : EXIT_CODES.failed.code;
  }
}

/** `pawl calls --json` means `pawl calls ls --json`. */
function withDefaultCommand(program: Command, argv: readonly string[]): string[] {
  const [group = '', next] = argv;
  const known = program.commands.find((each) => each.name() === group)?.commands ?? [];
  const lists = known.some((each) => each.name() === 'ls');
  const named = next !== undefined && (!next.startsWith('-') || next === '--help' || next === '-h');
  return lists && !named ? [group, 'ls', ...argv.slice(1)] : [...argv];
}

/** All commands. The one that runs calls `end` with its exit code. */
export function createProgram(context: CliContext, end: OnExit): Command {
  const program = new Command('pawl')
    .description("Runs an AI agent's tool calls on a fleet of workers, each call once.")
    .version(PAWL_VERSION, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'print this')
    .showSuggestionAfterError(true)
    .showHelpAfterError("'pawl --help' lists the commands.")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => context.out.write(text),
      writeErr: (text) => context.err.write(escapeInvisible(text)),
      // Line breaks of an argument are escaped, so that none begins a line like this one.
      outputError: (text, write) =>
        write(text.replace(/^error: /, 'pawl: ').replaceAll(/\n(?!\(Did you mean |$)/g, '\\u{A}')),
    })
    .addHelpText('after', `\nExit codes:\n${exitCodeLines()}\n\nExample:\n  pawl up\n  pawl call list_dir`);

  const runs = actionFactory(context, end);
  startCommands(program, runs);
  callCommands(program, runs);
  deadLetterCommands(program, runs);
  toolCommands(program, runs);
  sessionCommands(program, runs);
  planCommands(program, runs);
  scheduleCommands(program, runs);
  workerCommands(program, runs);
  circuitCommands(program, runs);
  shardCommands(program, runs);
  callbackCommands(program, runs);
  approvalCommands(program, runs);
  questionCommands(program, runs);
  policyCommands(program, runs);
  reliabilityCommands(program, runs);
  auditCommands(program, runs);
  doctorCommand(program, runs);
  return program;
}
