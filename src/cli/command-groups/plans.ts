/** The commands below `plans`. Each loads the module of its work when it runs. */
import type { Command } from 'commander';
import { type Action, command, commandGroup, jsonOption, limitOption } from '../command-options.ts';

export function planCommands(program: Command, runs: Action): void {
  const plans = commandGroup(program, 'plans', 'run graphs of calls that need each other’s results', [
    'pawl plans',
    'pawl plans run journey.json --session trip --dry-run',
  ]);
  const load = () => import('../commands/plans.ts');
  jsonOption(limitOption(command(plans, 'ls', 'list the newest plans', ['pawl plans ls --json']))).action(
    runs(load, 'listPlans'),
  );
  const show = command(plans, 'show', 'show a plan and its nodes', ['pawl plans show ID']);
  jsonOption(show.argument('<id>')).action(runs(load, 'showPlan'));
  const run = command(plans, 'run', 'check a plan, run it and wait for its end', [
    'pawl plans run journey.json --session trip',
    'pawl plans run journey.json --session trip --dry-run',
  ])
    .argument('<file>', 'JSON: { "nodes": { … } }, or - for standard input')
    .requiredOption('--session <key>', 'session of the calls')
    .option('--key <key>', 'idempotency key: the same key in the session gives the same plan')
    .option('--dry-run', 'only check the plan, and print the order of its nodes');
  jsonOption(run).action(runs(load, 'planCommand'));
  const cancel = command(
    plans,
    'cancel',
    'start no further call, and cancel running ones; finished calls are not undone',
    ['pawl plans cancel ID'],
  );
  jsonOption(cancel.argument('<id>')).action(runs(load, 'cancelPlan'));
}
