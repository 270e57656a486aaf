/** The commands below `sessions`. Each loads the module of its work when it runs. */
import { type Command, Option } from 'commander';
import { PRIORITIES } from '../../shared/queues/priority-names.ts';
import { CHANNEL_KINDS, REMOTE_CHANNELS, SESSION_KINDS } from '../../shared/sessions/channel-kinds.ts';
import { type Action, command, commandGroup, jsonOption, jsonValue, limitOption } from '../command-options.ts';

const captureModule = () => import('../commands/capture.ts');
const sessionsModule = () => import('../commands/sessions.ts');

export function sessionCommands(program: Command, runs: Action): void {
  const sessions = commandGroup(program, 'sessions', 'open, list and close sessions', [
    'pawl sessions',
    'pawl sessions open',
  ]);
  openCommand(sessions, runs);
  jsonOption(limitOption(command(sessions, 'ls', 'list the newest sessions', ['pawl sessions ls --json']))).action(
    runs(sessionsModule, 'listSessions'),
  );
  const show = command(sessions, 'show', 'describe a session and its newest calls', ['pawl sessions show trip']);
  jsonOption(show.argument('<key>')).action(runs(sessionsModule, 'showSession'));
  const state = command(sessions, 'state', 'set the state of a session and its descendants', [
    'pawl sessions state trip planning',
  ]);
  jsonOption(state.argument('<key>').argument('<state>')).action(runs(sessionsModule, 'setSessionState'));
  const capture = command(
    sessions,
    'capture',
    'write the calls of a session as a skill and a plan, for you to review',
    ['pawl sessions capture trip --name book-a-trip --out ./skills'],
  )
    .argument('<key>')
    .option('--name <name>', 'name of the skill (default: derived from the key)')
    .option('--out <folder>', 'parent of the skill’s folder (default: this folder)');
  // A plan has at most so many nodes.
  jsonOption(limitOption(capture, 1_000)).action(runs(captureModule, 'captureSession'));
  const close = command(sessions, 'close', 'close a session and its descendants, and cancel their calls', [
    'pawl sessions close trip',
  ]);
  jsonOption(close.argument('<key>')).action(runs(sessionsModule, 'closeSession'));
}

function openCommand(sessions: Command, runs: Action): void {
  const open = command(sessions, 'open', 'open a session and print its key', [
    'pawl sessions open --actor ada --workspace ./work',
    'pawl sessions open --kind worker --parent trip',
    `pawl sessions open --skill research --budget '{"calls":50}'`,
  ])
    .addOption(
      new Option('--kind <kind>', 'its kind, which limits its tools').choices([...SESSION_KINDS]).default('main'),
    )
    .option('--key <key>', 'its key (default: a new one)')
    .option('--parent <key>', 'its parent session')
    .option('--state <name>', 'its state (default: that of its parent, or open)')
    .option('--actor <id>', 'the actor that it acts for')
    .option('--agent <id>', 'the agent that acts')
    .option('--agent-name <name>', 'the agent’s name, for people and tools')
    .option('--model <name>', 'the model of the agent')
    .option('--tenant <id>', 'its tenant (default: that of its parent, if any)')
    .addOption(new Option('--importance <class>', 'priority of its calls').choices([...PRIORITIES]))
    .option('--workspace <folder>', 'root of the files that its tools may touch (default: this folder)')
    .addOption(new Option('--channel <kind>', 'its channel to people').choices([...CHANNEL_KINDS]));
  for (const [kind, { field }] of Object.entries(REMOTE_CHANNELS))
    open.option(`--${kind} <${field}>`, `of a ${kind} channel`);
  open
    .option('--skill <name...>', 'skills that it works with, and that restrict its tools')
    .option('--budget <json>', 'the budget of it and its descendants: {"calls":50,"costUnits":10}', jsonValue);
  jsonOption(open).action(runs(sessionsModule, 'openSession'));
}
