/** The commands below `schedules`. Each loads the module of its work when it runs. */
import { type Command, Option } from 'commander';
import { MISSED_RULES, OVERLAPS } from '../../shared/schedules/schedule-rules.ts';
import { type Action, command, commandGroup, jsonOption, positiveInteger } from '../command-options.ts';

const load = () => import('../commands/schedules.ts');

export function scheduleCommands(program: Command, runs: Action): void {
  const schedules = commandGroup(program, 'schedules', 'repeat calls at an interval or at times', [
    'pawl schedules',
    'pawl schedules put nightly --tool report --session ops --cron "0 2 * * *" --timezone Europe/Berlin',
  ]);
  jsonOption(command(schedules, 'ls', 'list schedules', ['pawl schedules ls --json'])).action(
    runs(load, 'listSchedules'),
  );
  const show = command(schedules, 'show', 'show a schedule, its next five times and its latest occurrences', [
    'pawl schedules show nightly',
  ]);
  jsonOption(show.argument('<id>')).action(runs(load, 'showSchedule'));
  putCommand(schedules, runs);
  for (const [action, description] of [
    ['pause', 'start no occurrence until it is resumed'],
    ['resume', 'continue a paused schedule'],
    ['run', 'start the call now, in addition to the schedule'],
  ] as const) {
    const change = command(schedules, action, description, [`pawl schedules ${action} nightly`]).argument('<id>');
    if (action === 'pause') change.option('--reason <text>', 'shown with the schedule');
    jsonOption(change).action(runs(load, 'changeSchedule', action));
  }
  const rm = command(schedules, 'rm', 'remove a schedule; its calls continue', ['pawl schedules rm nightly']);
  jsonOption(rm.argument('<id>')).action(runs(load, 'removeSchedule'));
}

function putCommand(schedules: Command, runs: Action): void {
  const put = command(schedules, 'put', 'write a schedule, or replace it', [
    'pawl schedules put often --tool read --params \'{"path":"README.md"}\' --session ops --every 5m',
    'pawl schedules put nightly --tool report --session ops --cron "0 2 * * *" --timezone Europe/Berlin',
  ])
    .argument('<id>', 'letters, digits, ".", "_" and "-"')
    .requiredOption('--tool <name>', 'tool of the call')
    .requiredOption('--session <key>', 'an open session for the call')
    .option('--params <json>', 'JSON, @FILE, or - for standard input', '{}')
    .option('--every <interval>', 'interval, such as 30s, 5m, 1h30m or 1d, or milliseconds')
    .option('--cron <expression>', 'minute hour day month weekday, or six fields with seconds first')
    .option('--timezone <zone>', 'time zone of --cron (default: UTC)')
    .option('--from <moment>', 'no occurrence before this time')
    .option('--until <moment>', 'no occurrence after this time')
    .option('--limit <n>', 'limit of calls', positiveInteger)
    .addOption(
      new Option('--overlap <rule>', 'rule while the last call is in flight (default: skip)').choices(OVERLAPS),
    )
    .addOption(
      new Option('--missed <rule>', 'rule for missed occurrences (default: run-latest)').choices(MISSED_RULES),
    );
  jsonOption(put).action(runs(load, 'putSchedule'));
}
