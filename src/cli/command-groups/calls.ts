/** The commands `call` and `calls`. Each loads the module of its work when it runs. */
import { type Command, Option } from 'commander';
import { SEARCHABLE_STATES } from '../../shared/calls/call-state.ts';
import {
  type Action,
  command,
  commandGroup,
  jsonOption,
  limitOption,
  positiveInteger,
  timeSpan,
} from '../command-options.ts';
import { exitCodeLines } from '../exit-codes.ts';
import { filterOptions } from './dead-letters.ts';

const callModule = () => import('../commands/call.ts');
const callsModule = () => import('../commands/calls.ts');
const watchCallsModule = () => import('../commands/watch-calls.ts');

export function callCommands(program: Command, runs: Action): void {
  callCommand(program, runs);
  const calls = commandGroup(program, 'calls', 'list, follow, cancel and resolve calls', [
    'pawl calls',
    'pawl calls watch',
  ]);
  readingCommands(calls, runs);
  endingCommands(calls, runs);
}

function callCommand(program: Command, runs: Action): void {
  const call = command(program, 'call', 'call a tool and wait for its result', [
    `pawl call shell --params '{"command":["ls","-l"]}' --timeout 5000`,
    'pawl call write --params @note.json --key note-1',
    'pawl call report --after 10m',
  ])
    .argument('<tool>', 'name of the tool')
    .option('--params <json>', 'parameters: JSON, @FILE, or - for standard input', '{}')
    .option('--session <key>', 'session to call from, opened where there is none (default: one for this folder)')
    .option('--key <key>', 'idempotency key: the same key gives the same call')
    .option('--timeout <ms>', 'for the whole call, waiting included', positiveInteger)
    .option('--after <time>', 'start later, and do not wait: 90s, 10m, 2h, 3d, or milliseconds', timeSpan)
    .option('--at <iso>', 'start at this time, and do not wait: 2027-01-31T08:00:00Z')
    .option('--callback <url>', 'post the end of the call there, signed: see pawl callbacks')
    .option('--namespace <name>', 'namespace of the tool (default: tools)')
    .option('--turn <id>', 'the model’s turn that makes the call, for budgets per turn')
    .option('--tag <tag...>', 'what the call says of itself: importance:background, taint:mail')
    .addOption(
      new Option('--dedupe <mode>', 'how a repeated call is deduplicated').choices([
        'enforced',
        'bestEffort',
        'disabled',
      ]),
    );
  jsonOption(call, 'print the result envelope')
    .addHelpText('after', `\nExit codes:\n${exitCodeLines()}`)
    .action(runs(callModule, 'runCall'));
}

function readingCommands(calls: Command, runs: Action): void {
  const ls = command(calls, 'ls', 'list the newest calls', [
    'pawl calls ls --session trip --limit 20',
    'pawl calls ls --state unresolved',
  ])
    .option('--session <key>', 'only calls of one session')
    .option('--tool <name>', 'only calls of tools whose name contains this')
    .addOption(
      new Option('--state <state>', 'only calls in this state; unresolved: calls in doubt').choices(SEARCHABLE_STATES),
    );
  jsonOption(limitOption(ls)).action(runs(callsModule, 'listCalls'));
  const show = command(calls, 'show', 'show the history of a call', ['pawl calls show r0.…']).argument('<id>');
  jsonOption(show).action(runs(callsModule, 'showCall'));
  const watch = command(calls, 'watch', 'follow new and changing calls until Ctrl-C', ['pawl calls watch --json']);
  jsonOption(
    limitOption(watch).option('--session <key>', 'only calls of one session'),
    'one line of JSON for each change',
  ).action(runs(watchCallsModule, 'watchCalls'));
}

function endingCommands(calls: Command, runs: Action): void {
  const cancel = command(calls, 'cancel', 'cancel a call, waiting or running', ['pawl calls cancel r0.…']);
  jsonOption(cancel.argument('<id>')).action(runs(callsModule, 'runCancel'));
  const resolve = filterOptions(
    command(calls, 'resolve', 'settle a call that is in doubt, or all of them with --all', [
      `pawl calls resolve w0.… --as succeeded --output '{"sent":true}'`,
      'pawl calls resolve w0.… --as retry',
      'pawl calls resolve --all --tool pay --as failed --reason "the bank has none of them"',
    ]).argument('[id]'),
  )
    .option('--all', 'all calls in doubt that match the filter; needs a --reason')
    .option('--dry-run', 'with --all: list the calls, and change nothing')
    .option('--reason <text>', 'recorded in the audit trail')
    .addOption(
      new Option('--as <what>', 'the outcome of the call')
        .choices(['succeeded', 'failed', 'retry'])
        .makeOptionMandatory(),
    )
    .option('--output <json>', 'the output, with --as succeeded');
  jsonOption(resolve).action(runs(callsModule, 'resolveCall'));
}
