/**
 * The commands that look after a fleet: `workers`, `circuits`, `shards`, `reliability`, `audit` and `doctor`. Each loads the module of
 * its work when it runs.
 */
import { type Command, Option } from 'commander';
import { AUDIT_TYPES } from '../../shared/audit/audit-event.ts';
import { CALLBACK_STATES } from '../../shared/callbacks/callback-state.ts';
import { type Action, command, commandGroup, jsonOption, limitOption, positiveInteger } from '../command-options.ts';

const auditModule = () => import('../commands/audit.ts');
const callbacksModule = () => import('../commands/callbacks/callbacks.ts');
const circuitsModule = () => import('../commands/circuits.ts');
const doctorModule = () => import('../doctor/doctor.ts');
const reliabilityModule = () => import('../commands/reliability.ts');
const shardsModule = () => import('../commands/shards.ts');
const workersModule = () => import('../commands/workers.ts');

export function workerCommands(program: Command, runs: Action): void {
  const workers = commandGroup(program, 'workers', 'list the running workers, and drain them', [
    'pawl workers',
    'pawl workers drain box:4711:0f3a9c',
  ]);
  jsonOption(command(workers, 'ls', 'list the running workers', ['pawl workers ls --json'])).action(
    runs(workersModule, 'listWorkers'),
  );
  const drain = command(workers, 'drain', 'ask a worker to accept no further calls, finish its running ones, and end', [
    'pawl workers drain box:4711:0f3a9c',
  ]);
  jsonOption(drain.argument('<id>', 'ID of the worker')).action(runs(workersModule, 'drainWorker'));
}

export function circuitCommands(program: Command, runs: Action): void {
  const circuits = commandGroup(program, 'circuits', 'list, open and reset circuits', ['pawl circuits']);
  jsonOption(command(circuits, 'ls', 'list the circuits that ever opened', ['pawl circuits ls'])).action(
    runs(circuitsModule, 'listCircuits'),
  );
  const forceOpen = command(circuits, 'force-open', 'refuse all calls of a tool until it is reset', [
    'pawl circuits force-open shell --reason "maintenance"',
  ])
    .argument('<key>', 'a circuit, or the name of a tool')
    .option('--reason <text>', 'shown to callers that are refused');
  jsonOption(forceOpen).action(runs(circuitsModule, 'setCircuit', 'force_open'));
  const reset = command(circuits, 'reset', 'close a circuit at once', ['pawl circuits reset tool:tools.shell']);
  jsonOption(reset.argument('<key>', 'a circuit, or the name of a tool')).action(
    runs(circuitsModule, 'setCircuit', 'reset'),
  );
}

export function callbackCommands(program: Command, runs: Action): void {
  const callbacks = commandGroup(program, 'callbacks', 'list callbacks, and send one again', [
    'pawl callbacks --state failing',
    'pawl callbacks replay msg_w0_…',
  ]);
  const ls = command(callbacks, 'ls', 'list callbacks, the newest first', ['pawl callbacks ls --state failing']);
  jsonOption(
    limitOption(ls).addOption(new Option('--state <state>', 'only callbacks in this state').choices(CALLBACK_STATES)),
  ).action(runs(callbacksModule, 'listCallbacks'));
  const replay = command(callbacks, 'replay', 'send a callback again, under the same ID', [
    'pawl callbacks replay msg_w0_…',
  ]);
  jsonOption(replay.argument('<id>', 'ID of the callback')).action(runs(callbacksModule, 'replayCallback'));
  const secret = command(callbacks, 'secret', 'print the secret with which a receiver verifies callbacks', [
    'pawl callbacks secret --tenant acme',
  ]).option('--tenant <id>', 'tenant of the callbacks (default: none)');
  jsonOption(secret).action(runs(callbacksModule, 'showCallbackSecret'));
}

export function shardCommands(program: Command, runs: Action): void {
  const shards = commandGroup(program, 'shards', 'show and change the number of shards of a tier', [
    'pawl shards',
    'pawl shards set read-only 4',
  ]);
  jsonOption(command(shards, 'ls', 'show each shard and its state', ['pawl shards ls --json'])).action(
    runs(shardsModule, 'listShards'),
  );
  const set = command(shards, 'set', 'set the number of shards for sessions that are opened from now on', [
    'pawl shards set read-only 4',
  ]);
  jsonOption(set.argument('<tier>').argument('<number>', '1 to 64')).action(runs(shardsModule, 'setShards'));
}

export function reliabilityCommands(program: Command, runs: Action): void {
  const reliability = commandGroup(program, 'reliability', 'show and switch deduplication, retries and circuits', [
    'pawl reliability',
    'pawl reliability disable --reason "wrong replays since 14:00"',
  ]);
  const ls = command(reliability, 'ls', 'show the modes of each tool', ['pawl reliability ls --json']);
  jsonOption(ls).action(runs(reliabilityModule, 'listReliability'));
  for (const [name, description] of [
    ['disable', 'run every call directly: no deduplication, one attempt, no circuit'],
    ['enable', 'revert a disable, or override a configuration that is off, without a restart'],
  ] as const) {
    const change = command(reliability, name, description, [
      `pawl reliability ${name}`,
      `pawl reliability ${name} --tool shell`,
    ])
      .option('--tool <name>', 'only for this tool (default: for all)')
      .option('--reason <text>', 'shown with the switch');
    jsonOption(change).action(runs(reliabilityModule, 'setReliability', name === 'enable'));
  }
  const flush = command(reliability, 'flush', 'forget calls that have ended: asked for again, they run again', [
    'pawl reliability flush --session trip',
    'pawl reliability flush --all',
  ])
    .option('--call <id>', 'one call, although it was cancelled while it ran')
    .option('--session <key>', 'those of one session')
    .option('--tool <name>', 'those of one tool')
    .option('--all', 'every one');
  jsonOption(flush).action(runs(reliabilityModule, 'flushCalls'));
}

export function auditCommands(program: Command, runs: Action): void {
  const audit = commandGroup(program, 'audit', 'list the audit trail, and check that it is unchanged', [
    'pawl audit --tool shell',
    'pawl audit verify',
  ]);
  const ls = command(audit, 'ls', 'list the newest records, the newest last', [
    'pawl audit ls --session trip --since 2026-11-22T10:00:00Z',
    'pawl audit ls --type override --json',
  ])
    .option('--session <key>', 'those of one session')
    .option('--tool <name>', 'those of one tool')
    .option('--call <id>', 'those of one call')
    .addOption(new Option('--type <type>', 'those of one kind').choices(AUDIT_TYPES))
    .option('--since <moment>', 'not older than this');
  jsonOption(limitOption(ls)).action(runs(auditModule, 'listAudit'));
  const verify = command(audit, 'verify', 'find records that were changed, removed, moved or cut off', [
    'pawl audit verify',
    'pawl audit verify --folder /archive/pawl --from 120001',
  ])
    .option('--folder <folder>', 'of the files (default: audit.folder)')
    .option('--from <number>', 'the first record that must be there; earlier ones were put away', positiveInteger);
  jsonOption(verify).action(runs(auditModule, 'verifyAudit'));
}

export function doctorCommand(program: Command, runs: Action): void {
  const doctor = command(program, 'doctor', 'check Node, Redis, sandbox, ports and configuration', ['pawl doctor']);
  jsonOption(doctor).action(runs(doctorModule, 'runDoctor'));
}
