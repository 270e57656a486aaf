/** The commands below `schedules`. Each loads the module of its work when it runs. */
import { type Command, Option } from 'commander';
import { MISSED_RULES, OVERLAPS } from '../../shared/schedules/schedule-rules.ts';
import { command, commandGroup, jsonOption, positiveInteger, type Runs } from '../command-options.ts';

const schedulesModule = () => import('../commands/schedules.ts');

export function scheduleCommands(program: Command, runs: Runs): void {
  const schedules = commandGroup(program, 'schedules', 'make calls again and again', [
    'pawl schedules',
    'pawl schedules put nightly --tool report --session ops --cron "0 2 * * *" --timezone Europe/Berlin',
  ]);
  const load = () => import('../commands/schedules.ts');
  jsonOption(command(schedules, 'ls', 'list schedules', ['pawl schedules ls --json'])).action(
    runs(load, 'listSchedules'),
  );
  const show = command(schedules, 'show', 'show a schedule, its next five times and its last ones', [
    'pawl schedules show nightly',
  ]);
  jsonOption(show.argument('<id>')).action(runs(load, 'showSchedule'));
  putCommand(schedules, runs);
  for (const [action, description] of [
    ['pause', 'let no occurrence start'],
    ['resume', 'let a paused schedule go on'],
    ['run', 'make the call now, beside the times of the schedule'],
  ] as const) {
    const change = command(schedules, action, description, [`pawl schedules ${action} nightly`]).argument('<id>');
    if (action === 'pause') change.option('--reason <text>', 'shown with the schedule');
    jsonOption(change).action(runs(load, 'changeSchedule', action));
  }
  const rm = command(schedules, 'rm', 'remove a schedule; calls that it made go on', ['pawl schedules rm nightly']);
  jsonOption(rm.argument('<id>')).action(runs(load, 'removeSchedule'));
}

function putCommand(schedules: Command, runs: Runs): void {
  const put = command(schedules, 'put', 'write a schedule, or replace it', [
    'pawl schedules put often --tool read --params \'{"path":"README.md"}\' --session ops --every 5m',
    'pawl schedules put nightly --tool report --session ops --cron "0 2 * * *" --timezone Europe/Berlin',
  ])
    .argument('<id>', 'letters, digits, ".", "_" and "-"')
    .requiredOption('--tool <name>', 'of the call')
    .requiredOption('--session <key>', 'an open session that makes the call')
    .option('--params <json>', 'JSON, @FILE, or - for standard input', '{}')
    .option('--every <interval>', 'such as 30s, 5m, 1h30m or 1d, or milliseconds')
    .option('--cron <expression>', 'minute hour day month weekday, or six fields with seconds first')
    .option('--timezone <zone>', 'of --cron (default: UTC)')
    .option('--from <moment>', 'no occurrence before')
    .option('--until <moment>', 'no occurrence after')
    .option('--limit <n>', 'so many calls at most', positiveInteger)
    .addOption(new Option('--overlap <rule>', 'while the last call is in flight (default: skip)').choices(OVERLAPS))
    .addOption(new Option('--missed <rule>', 'for those that were missed (default: run-latest)').choices(MISSED_RULES));
  jsonOption(put).action(runs(schedulesModule, 'putSchedule'));
}
