/** The commands `dead-letters`. Each loads the module of its work when it runs. */
import type { Command } from 'commander';
import { type Action, command, commandGroup, jsonOption, limitOption, positiveInteger } from '../command-options.ts';

const load = () => import('../commands/dead-letters.ts');

export function deadLetterCommands(program: Command, runs: Action): void {
  const group = commandGroup(program, 'dead-letters', 'list, redrive and discard calls that failed for good', [
    'pawl dead-letters',
    'pawl dead-letters redrive --tool pay --since 2h --dry-run',
  ]);
  const ls = filterOptions(
    command(group, 'ls', 'list the newest failures of tools that change something', [
      'pawl dead-letters ls --tool pay --code HTTP_503',
      'pawl dead-letters ls --since 2026-11-26T10:00:00Z --until 2026-11-26T11:00:00Z',
    ]),
  ).option('--next <text>', 'the next page, as named by the page before it');
  jsonOption(limitOption(ls)).action(runs(load, 'listDeadLetters'));

  const redrive = changeOptions(
    command(group, 'redrive', 'run failed calls again, each under its own ID and key', [
      'pawl dead-letters redrive w0.…',
      'pawl dead-letters redrive --circuit tool:tools.pay --since 2h --per-second 100 --reason "the bank is back"',
    ]),
  ).option('--per-second <n>', 'calls started per second (default: 50)', positiveInteger);
  jsonOption(redrive).action(runs(load, 'redrive'));
  const discard = changeOptions(
    command(group, 'discard', 'remove failed calls from the list; their records stay', [
      'pawl dead-letters discard w0.… --reason "refunded by hand"',
      'pawl dead-letters discard --tool pay --code HTTP_400',
    ]),
  );
  jsonOption(discard).action(runs(load, 'discard'));
  const redrives = command(group, 'redrives', 'list the redrives of the last week', ['pawl dead-letters redrives']);
  jsonOption(limitOption(redrives)).action(runs(load, 'listRedrives'));
  const stop = command(group, 'stop', 'stop a redrive: calls that it has not reached stay dead letters', [
    'pawl dead-letters stop 019ac0de-…',
  ]).argument('<redrive>');
  jsonOption(stop).action(runs(load, 'stopRedrive'));
}

export function filterOptions(target: Command): Command {
  return target
    .option('--tool <name>', 'only calls of this tool')
    .option('--code <code>', 'only calls that failed with this code')
    .option('--session <key>', 'only calls of one session')
    .option('--circuit <key>', 'only calls of this circuit')
    .option('--since <time>', 'only calls that failed since: 2026-11-26T10:00:00Z, or an age such as 90m')
    .option('--until <time>', 'only calls that failed until then');
}

function changeOptions(target: Command): Command {
  return filterOptions(target.argument('[ids...]', 'IDs of calls'))
    .option('--all', 'all dead letters')
    .option('--dry-run', 'print the result, and change nothing')
    .option('--reason <text>', 'recorded in the audit trail');
}
