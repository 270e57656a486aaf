/** The commands below `sessions`. Each loads the module of its work when it runs. */
import { type Command, Option } from 'commander';
import { PRIORITIES } from '../../shared/queues/priority-names.ts';
import { CHANNEL_KINDS, REMOTE_CHANNELS, SESSION_KINDS } from '../../shared/sessions/session-kinds.ts';
import { command, commandGroup, jsonOption, jsonValue, limitOption, type Runs } from '../command-options.ts';

const captureModule = () => import('../commands/capture.ts');
const sessionsModule = () => import('../commands/sessions.ts');

export function sessionCommands(program: Command, runs: Runs): void {
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
  const state = command(sessions, 'state', 'say what a session and those below it are doing', [
    'pawl sessions state trip planning',
  ]);
  jsonOption(state.argument('<key>').argument('<state>')).action(runs(sessionsModule, 'setSessionState'));
  const capture = command(sessions, 'capture', 'write a skill and a plan of what a session did, for you to review', [
    'pawl sessions capture trip --name book-a-trip --out ./skills',
  ])
    .argument('<key>')
    .option('--name <name>', 'of the skill (default: made of the key)')
    .option('--out <folder>', 'where the skill’s folder is made (default: this folder)');
  jsonOption(limitOption(capture)).action(runs(captureModule, 'captureSession'));
  const close = command(sessions, 'close', 'close a session and those below it, and cancel their calls', [
    'pawl sessions close trip',
  ]);
  jsonOption(close.argument('<key>')).action(runs(sessionsModule, 'closeSession'));
}

function openCommand(sessions: Command, runs: Runs): void {
  const open = command(sessions, 'open', 'open a session and print its key', [
    'pawl sessions open --actor ada --workspace ./work',
    'pawl sessions open --kind worker --parent trip',
    `pawl sessions open --skill research --budget '{"calls":50}'`,
  ])
    .addOption(new Option('--kind <kind>', 'what it may do').choices([...SESSION_KINDS]).default('main'))
    .option('--key <key>', 'its key (default: a new one)')
    .option('--parent <key>', 'the session above it')
    .option('--state <name>', 'what it is doing (default: as the session above it, or open)')
    .option('--actor <id>', 'for whom it acts')
    .option('--agent <id>', 'which agent acts')
    .option('--agent-name <name>', 'the agent’s name, for people and tools')
    .option('--model <name>', 'the model of the agent')
    .option('--tenant <id>', 'the tenant that it belongs to (default: that of the session above it, if any)')
    .addOption(new Option('--importance <class>', 'of its calls').choices([...PRIORITIES]))
    .option('--workspace <folder>', 'root of the files that its tools may touch (default: this folder)')
    .addOption(new Option('--channel <kind>', 'where it reaches people').choices([...CHANNEL_KINDS]));
  for (const [kind, { field }] of Object.entries(REMOTE_CHANNELS))
    open.option(`--${kind} <${field}>`, `of a ${kind} channel`);
  open
    .option('--skill <name...>', 'skills that it works with, and that restrict its tools')
    .option('--budget <json>', 'what it and the sessions below it may spend: {"calls":50,"costUnits":10}', jsonValue);
  jsonOption(open).action(runs(sessionsModule, 'openSession'));
}
