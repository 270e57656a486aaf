/**
 * The commands that look after a fleet: `workers`, `circuits`, `shards`, `reliability`, `audit` and `doctor`. Each loads the module of
 * its work when it runs.
 */
import { type Command, Option } from 'commander';
import { AUDIT_TYPES } from '../../shared/audit/audit-event.ts';
import { CALLBACK_STATES } from '../../shared/callbacks/callback-state.ts';
import { command, commandGroup, type End, jsonOption, limitOption, positiveInteger } from '../command-options.ts';
import type { CliContext } from '../context.ts';

export function workerCommands(program: Command, context: CliContext, end: End): void {
  const workers = commandGroup(program, 'workers', 'list the workers that run, and drain them', [
    'pawl workers',
    'pawl workers drain box:4711:0f3a9c',
  ]);
  jsonOption(command(workers, 'ls', 'list the workers that run', ['pawl workers ls --json'])).action(async (options) =>
    end(await (await import('../commands/workers.ts')).listWorkers(context, options)),
  );
  const drain = command(workers, 'drain', 'ask a worker to take no further calls, finish those that it runs, and end', [
    'pawl workers drain box:4711:0f3a9c',
  ]);
  jsonOption(drain.argument('<id>', 'of the worker')).action(async (id: string, options) =>
    end(await (await import('../commands/workers.ts')).drainWorker(context, id, options)),
  );
}

export function circuitCommands(program: Command, context: CliContext, end: End): void {
  const circuits = commandGroup(program, 'circuits', 'list, open and reset circuits', ['pawl circuits']);
  jsonOption(command(circuits, 'ls', 'list the circuits that ever opened', ['pawl circuits ls'])).action(
    async (options) => end(await (await import('../commands/circuits.ts')).listCircuits(context, options)),
  );
  const forceOpen = command(circuits, 'force-open', 'refuse all calls of a tool until it is reset', [
    'pawl circuits force-open shell --reason "maintenance"',
  ])
    .argument('<key>', 'a circuit, or the name of a tool')
    .option('--reason <text>', 'shown to callers that are refused');
  jsonOption(forceOpen).action(async (key: string, options) =>
    end(await (await import('../commands/circuits.ts')).setCircuit(context, 'force_open', key, options)),
  );
  const reset = command(circuits, 'reset', 'close a circuit at once', ['pawl circuits reset tool:tools.shell']);
  jsonOption(reset.argument('<key>', 'a circuit, or the name of a tool')).action(async (key: string, options) =>
    end(await (await import('../commands/circuits.ts')).setCircuit(context, 'reset', key, options)),
  );
}

export function callbackCommands(program: Command, context: CliContext, end: End): void {
  const callbacks = commandGroup(program, 'callbacks', 'list the ends of calls that are posted, and send one again', [
    'pawl callbacks --state failing',
    'pawl callbacks replay msg_w0_…',
  ]);
  const ls = command(callbacks, 'ls', 'list callbacks, the newest first', ['pawl callbacks ls --state failing']);
  jsonOption(limitOption(ls).addOption(new Option('--state <state>', 'those alone').choices(CALLBACK_STATES))).action(
    async (options) => end(await (await import('../commands/callbacks/callbacks.ts')).listCallbacks(context, options)),
  );
  const replay = command(callbacks, 'replay', 'send a callback again, under the same ID', [
    'pawl callbacks replay msg_w0_…',
  ]);
  jsonOption(replay.argument('<id>', 'of the callback')).action(async (id: string, options) =>
    end(await (await import('../commands/callbacks/callbacks.ts')).replayCallback(context, id, options)),
  );
  const secret = command(callbacks, 'secret', 'print the secret with which a receiver verifies callbacks', [
    'pawl callbacks secret --tenant acme',
  ]).option('--tenant <id>', 'whose callbacks (default: those of calls without a tenant)');
  jsonOption(secret).action(async (options) =>
    end(await (await import('../commands/callbacks/callbacks.ts')).showCallbackSecret(context, options)),
  );
}

export function shardCommands(program: Command, context: CliContext, end: End): void {
  const shards = commandGroup(
    program,
    'shards',
    'show and change among how many shards the calls of a tier are spread',
    ['pawl shards', 'pawl shards set read-only 4'],
  );
  jsonOption(command(shards, 'ls', 'show the layout: each shard, and how it stands', ['pawl shards ls --json'])).action(
    async (options) => end(await (await import('../commands/shards.ts')).listShards(context, options)),
  );
  const set = command(shards, 'set', 'spread the sessions that are opened from now on among so many shards', [
    'pawl shards set read-only 4',
  ]);
  jsonOption(set.argument('<tier>').argument('<number>', '1 to 64')).action(
    async (tier: string, number: string, options) =>
      end(await (await import('../commands/shards.ts')).setShards(context, tier, number, options)),
  );
}

export function reliabilityCommands(program: Command, context: CliContext, end: End): void {
  const reliability = commandGroup(program, 'reliability', 'show and switch deduplication, retries and circuits', [
    'pawl reliability',
    'pawl reliability disable --reason "wrong replays since 14:00"',
  ]);
  const ls = command(reliability, 'ls', 'show what of the layer works for each tool', ['pawl reliability ls --json']);
  jsonOption(ls).action(async (options) =>
    end(await (await import('../commands/reliability.ts')).listReliability(context, options)),
  );
  for (const [name, description] of [
    ['disable', 'make every call a direct one: no deduplication, one attempt, no circuit'],
    ['enable', 'take a disable back, or override a configuration that says off, without a restart'],
  ] as const) {
    const change = command(reliability, name, description, [
      `pawl reliability ${name}`,
      `pawl reliability ${name} --tool shell`,
    ])
      .option('--tool <name>', 'only for this tool (default: for all)')
      .option('--reason <text>', 'shown with the switch');
    jsonOption(change).action(async (options) =>
      end(await (await import('../commands/reliability.ts')).setReliability(context, name === 'enable', options)),
    );
  }
  const flush = command(reliability, 'flush', 'forget calls that have ended: asked for again, they run again', [
    'pawl reliability flush --session trip',
    'pawl reliability flush --all',
  ])
    .option('--call <id>', 'one call, although it was cancelled while it ran')
    .option('--session <key>', 'those of one session')
    .option('--tool <name>', 'those of one tool')
    .option('--all', 'every one');
  jsonOption(flush).action(async (options) =>
    end(await (await import('../commands/reliability.ts')).flushCalls(context, options)),
  );
}

export function auditCommands(program: Command, context: CliContext, end: End): void {
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
  jsonOption(limitOption(ls)).action(async (options) =>
    end(await (await import('../commands/audit.ts')).listAudit(context, options)),
  );
  const verify = command(audit, 'verify', 'find records that were changed, removed, moved or cut off', [
    'pawl audit verify',
    'pawl audit verify --folder /archive/pawl --from 120001',
  ])
    .option('--folder <folder>', 'of the files (default: audit.folder)')
    .option('--from <number>', 'the first record that must be there; earlier ones were put away', positiveInteger);
  jsonOption(verify).action(async (options) =>
    end(await (await import('../commands/audit.ts')).verifyAudit(context, options)),
  );
}

export function doctorCommand(program: Command, context: CliContext, end: End): void {
  const doctor = command(program, 'doctor', 'check Node, Redis, sandbox, ports and configuration', ['pawl doctor']);
  jsonOption(doctor).action(async (options) =>
    end(await (await import('../doctor/doctor.ts')).runDoctor(context, options)),
  );
}
