/**
 * What each command is called and takes. A command lives in a file of its own and is loaded when it is asked for.
 */
import { type Command, Option } from 'commander';
import { APPROVAL_STATES } from '../shared/approvals/approval.ts';
import { AUDIT_TYPES } from '../shared/audit/audit-event.ts';
import { SOUGHT_STATES } from '../shared/calls/call-state.ts';
import { PRIORITIES } from '../shared/queues/priority.ts';
import { CHANNEL_KINDS, SESSION_KINDS } from '../shared/sessions/session.ts';
import { command, group, json, jsonValue, limit, portOption, positiveInteger, wholeNumber } from './command-options.ts';
import type { CliContext } from './context.ts';
import { EXIT_CODES, exitCodeLines } from './exit-codes.ts';

export type End = (code: number) => void;

export function fleetCommands(program: Command, context: CliContext, end: End): void {
  const up = command(
    program,
    'up',
    'start workers for every tier and the HTTP API, with the operator’s page, MCP at /mcp and Bull Board',
    ['pawl up', 'pawl up --port 8080 --workers 4 --tools ./weather.ts --watch'],
  )
    .addOption(portOption())
    .option('--workers <n>', 'worker processes, each of which serves every tier', positiveInteger, 2)
    .option('--tools <file...>', 'files of tools (.ts or .js) that the workers offer beside the built-in ones')
    .option('--watch', 'for development: start the workers again when a tools file, or what it imports, is edited');
  json(up).action(async (options) => end(await (await import('./commands/up.ts')).runUp(context, options)));

  const demo = command(program, 'demo', 'show the main job on real input, everything embedded', ['pawl demo']);
  json(demo).action(async (options: { json?: boolean }) => {
    const stop = new AbortController();
    const ignore = context.onInterrupt((times) =>
      times === 1 ? stop.abort() : context.endNow(EXIT_CODES.failed.code),
    );
    const { runDemo } = await import('./demo/demo.ts');
    const { out, environment } = context;
    end(await runDemo({ json: options.json ?? false, out, environment, signal: stop.signal }).finally(ignore));
  });

  const worker = command(program, 'worker', 'start one worker process; SIGTERM drains it', [
    'pawl worker --tiers read-only,workspace --concurrency 16 --tools ./weather.ts',
  ])
    .option('--tiers <list>', 'comma separated: read-only, workspace, system, elevated (default: all)')
    .option('--concurrency <n>', 'attempts at a time, for each tier (default: 32)', positiveInteger)
    .option('--tools <file...>', 'files of tools (.ts or .js) to offer beside the built-in ones');
  json(worker, 'print the ready line as JSON').action(async (options) =>
    end(await (await import('./processes/run-worker.ts')).runWorker(context, options)),
  );

  command(program, 'mcp', 'start an MCP server on standard input and output', [
    'pawl mcp --workers 1 --tools ./weather.ts',
    `{ "mcpServers": { "pawl": { "command": "npx", "args": ["pawl", "mcp"] } } }`,
  ])
    .option('--session <key>', 'session that the client’s calls belong to (default: one for this process)')
    .option('--workers <n>', 'worker processes to start beside it, and beside those that run already', wholeNumber, 0)
    .option('--tools <file...>', 'files of tools for these workers')
    .action(async (options) => end(await (await import('./commands/mcp.ts')).runMcp(context, options)));

  const serve = command(
    program,
    'serve',
    'start the HTTP API with the operator’s page, MCP at /mcp and Bull Board, without workers',
    ['pawl serve --port 8080'],
  )
    .addOption(portOption())
    .option('--host <address>', 'address to listen on (default: PAWL_HTTP_HOST, or 127.0.0.1)')
    .option('--tools <file...>', 'files whose hooks run around calls, and whose toolsets say what sessions see');
  json(serve).action(async (options) => end(await (await import('./commands/serve.ts')).runServe(context, options)));
}

export function callCommands(program: Command, context: CliContext, end: End): void {
  const call = command(program, 'call', 'call a tool and wait for its result', [
    `pawl call shell --params '{"command":["ls","-l"]}' --timeout 5000`,
    'pawl call write --params @note.json --key note-1',
  ])
    .argument('<tool>', 'name of the tool')
    .option('--params <json>', 'parameters: JSON, @FILE, or - for standard input', '{}')
    .option('--session <key>', 'session to call from, opened where there is none (default: one for this folder)')
    .option('--key <key>', 'idempotency key: the same key gives the same call')
    .option('--timeout <ms>', 'for the whole call, waiting included', positiveInteger)
    .option('--namespace <name>', 'namespace of the tool (default: tools)')
    .option('--turn <id>', 'the model’s turn that makes the call, for budgets per turn')
    .option('--tag <tag...>', 'what the call says of itself: importance:background, taint:mail')
    .addOption(
      new Option('--dedupe <mode>', 'what happens to a call that is known already').choices([
        'enforced',
        'bestEffort',
        'disabled',
      ]),
    );
  json(call, 'print the result envelope')
    .addHelpText('after', `\nExit codes:\n${exitCodeLines()}`)
    .action(async (tool: string, options) =>
      end(await (await import('./commands/call.ts')).runCall(context, tool, options)),
    );

  const calls = group(program, 'calls', 'list, follow, cancel and resolve calls', ['pawl calls', 'pawl calls watch']);
  const ls = command(calls, 'ls', 'list the newest calls', [
    'pawl calls ls --session trip --limit 20',
    'pawl calls ls --state unresolved',
  ])
    .option('--session <key>', 'only those of one session')
    .option('--tool <name>', 'only those of tools with this in their name')
    .addOption(new Option('--state <state>', 'only those in it; unresolved: those in doubt').choices(SOUGHT_STATES));
  json(limit(ls)).action(async (options) =>
    end(await (await import('./commands/calls.ts')).listCalls(context, options)),
  );
  const show = command(calls, 'show', 'tell a call’s whole story', ['pawl calls show r0.…']).argument('<id>');
  json(show).action(async (id: string, options) =>
    end(await (await import('./commands/calls.ts')).showCall(context, id, options)),
  );
  const watch = command(calls, 'watch', 'follow new and changing calls until Ctrl-C', ['pawl calls watch --json']);
  json(limit(watch).option('--session <key>', 'only those of one session'), 'one line of JSON for each change').action(
    async (options) => end(await (await import('./commands/watch-calls.ts')).watchCalls(context, options)),
  );
  const cancel = command(calls, 'cancel', 'cancel a call, waiting or running', ['pawl calls cancel r0.…']);
  json(cancel.argument('<id>')).action(async (id: string, options) =>
    end(await (await import('./commands/calls.ts')).cancelCall(context, id, options)),
  );
  const resolve = command(calls, 'resolve', 'settle a call that is in doubt', [
    `pawl calls resolve w0.… --as succeeded --output '{"sent":true}'`,
    'pawl calls resolve w0.… --as retry',
  ])
    .argument('<id>')
    .addOption(
      new Option('--as <what>', 'what became of it').choices(['succeeded', 'failed', 'retry']).makeOptionMandatory(),
    )
    .option('--output <json>', 'the output, with --as succeeded');
  json(resolve).action(async (id: string, options) =>
    end(await (await import('./commands/calls.ts')).resolveCall(context, id, options)),
  );
}

export function catalogueCommands(program: Command, context: CliContext, end: End): void {
  const tools = group(program, 'tools', 'list and describe the fleet’s tools', ['pawl tools', 'pawl tools show shell']);
  const ls = command(tools, 'ls', 'list the tools that workers offer', ['pawl tools ls --json']);
  json(ls.option('--session <key>', 'only those that a session may call')).action(async (options) =>
    end(await (await import('./commands/tools.ts')).listTools(context, options)),
  );
  const show = command(tools, 'show', 'describe a tool and its parameters', ['pawl tools show shell']);
  json(show.argument('<name>')).action(async (name: string, options) =>
    end(await (await import('./commands/tools.ts')).showTool(context, name, options)),
  );
  const importMcp = command(tools, 'import-mcp', 'declare the tools of an MCP server', [
    'pawl tools import-mcp files --folder /data -- npx -y @modelcontextprotocol/server-filesystem /data',
    'pawl tools import-mcp tracker --url https://mcp.example.com/mcp --header "Authorization: env:TRACKER_TOKEN"',
    'pawl tools import-mcp files --accept',
  ])
    .argument('<name>', 'what the server is called here: its tools are mcp.NAME.…')
    .argument('[command...]', 'the program and its arguments, after --')
    .option('--url <url>', 'a server over streamable HTTP, in place of a command')
    .option('--header <header...>', 'sent with each request: "Name: value", or "Name: env:VARIABLE" of the worker')
    .option('--env <variable...>', 'for the program: NAME=VALUE, or NAME for the worker’s own variable')
    .option('--folder <folder>', 'the one folder that the program may write to (default: one of its own)')
    .option('--network', 'let the program use the network')
    .option('--tier <tier>', 'of its tools (default: system)')
    .option('--read-only <tool...>', 'tools, as the server calls them, that only read')
    .option('--only <tool...>', 'import these alone')
    .option('--trust-annotations', 'believe what it says of tools that only read or may be repeated')
    .option('--accept', 'accept what has changed since it was imported');
  json(importMcp).action(async (name: string, words: string[], options) =>
    end(await (await import('./commands/import-mcp.ts')).importMcp(context, name, words, options)),
  );
  registryCommands(tools, context, end);
}

/** Those that change what all may call. */
function registryCommands(tools: Command, context: CliContext, end: End): void {
  const add = command(tools, 'add', 'declare tools, or replace their declarations', ['pawl tools add weather.json'])
    .argument('<file>', 'JSON or YAML: one declaration, or a list of them')
    .option('--name <name>', 'of the tool, where the file holds none');
  json(add).action(async (file: string, options) =>
    end(await (await import('./commands/registry.ts')).addTools(context, file, options)),
  );
  json(command(tools, 'rm', 'remove a declared tool', ['pawl tools rm weather']).argument('<name>')).action(
    async (name: string, options) =>
      end(await (await import('./commands/registry.ts')).removeTool(context, name, options)),
  );
  for (const enabled of [true, false]) {
    const [word, description] = enabled
      ? ['enable', 'let a disabled tool be called again']
      : ['disable', 'refuse all calls of a tool, those that are queued included'];
    json(command(tools, word, description, [`pawl tools ${word} weather`]).argument('<name>')).action(
      async (name: string, options) =>
        end(await (await import('./commands/registry.ts')).switchTool(context, name, enabled, options)),
    );
  }
  const openApi = command(tools, 'import-openapi', 'declare a connector for each operation of an OpenAPI document', [
    'pawl tools import-openapi github.yaml --tag issues --read-only',
    'pawl tools import-openapi shop.json --secret apiKey=env:PAWL_SECRET_SHOP --per-second 20',
  ])
    .argument('<file>', 'JSON or YAML, OpenAPI 3.0 to 3.2')
    .option('--namespace <name>', 'of the tools (default: from the title)')
    .option('--server <url>', 'base of all addresses (default: the first server of the document)')
    .option('--tag <tag...>', 'only operations with one of these tags')
    .option('--operation <id...>', 'only these: an operationId, or "GET /path"')
    .option('--read-only', 'only GET and HEAD')
    .option('--secret <scheme=source...>', 'of a security scheme: SCHEME=env:NAME, =file:/path or =exec:/program')
    .option('--concurrency <n>', 'requests at a time, over the whole fleet', positiveInteger)
    .option('--per-second <n>', 'requests in a second, over the whole fleet', positiveInteger)
    .option('--dry-run', 'print what would be declared');
  json(openApi).action(async (file: string, options) =>
    end(await (await import('./commands/registry.ts')).importOpenApiFile(context, file, options)),
  );
}

export function sessionCommands(program: Command, context: CliContext, end: End): void {
  const sessions = group(program, 'sessions', 'open, list and close sessions', ['pawl sessions', 'pawl sessions open']);
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
    .option('--tenant <id>', 'whose it is (default: of the session above it, or nobody’s)')
    .addOption(new Option('--importance <class>', 'of its calls').choices([...PRIORITIES]))
    .option('--workspace <folder>', 'root of the files that its tools may touch (default: this folder)')
    .addOption(new Option('--channel <kind>', 'where it reaches people').choices([...CHANNEL_KINDS]))
    .option('--webhook <url>', 'of a webhook channel')
    .option('--skill <name...>', 'skills that it works with, and that restrict its tools')
    .option('--budget <json>', 'what it and the sessions below it may spend: {"calls":50,"costUnits":10}', jsonValue);
  json(open).action(async (options) =>
    end(await (await import('./commands/sessions.ts')).openSession(context, options)),
  );
  json(limit(command(sessions, 'ls', 'list the newest sessions', ['pawl sessions ls --json']))).action(
    async (options) => end(await (await import('./commands/sessions.ts')).listSessions(context, options)),
  );
  const show = command(sessions, 'show', 'describe a session and its newest calls', ['pawl sessions show trip']);
  json(show.argument('<key>')).action(async (key: string, options) =>
    end(await (await import('./commands/sessions.ts')).showSession(context, key, options)),
  );
  const state = command(sessions, 'state', 'say what a session and those below it are doing', [
    'pawl sessions state trip planning',
  ]);
  json(state.argument('<key>').argument('<state>')).action(async (key: string, name: string, options) =>
    end(await (await import('./commands/sessions.ts')).setSessionState(context, key, name, options)),
  );
  const capture = command(sessions, 'capture', 'write a skill and a plan of what a session did, for you to review', [
    'pawl sessions capture trip --name book-a-trip --out ./skills',
  ])
    .argument('<key>')
    .option('--name <name>', 'of the skill (default: made of the key)')
    .option('--out <folder>', 'where the skill’s folder is made (default: this folder)');
  json(limit(capture)).action(async (key: string, options) =>
    end(await (await import('./commands/capture.ts')).captureSession(context, key, options)),
  );
  const close = command(sessions, 'close', 'close a session and those below it, and cancel their calls', [
    'pawl sessions close trip',
  ]);
  json(close.argument('<key>')).action(async (key: string, options) =>
    end(await (await import('./commands/sessions.ts')).closeSession(context, key, options)),
  );
}

export function approvalCommands(program: Command, context: CliContext, end: End): void {
  const approvals = group(program, 'approvals', 'list calls that wait for a person, and decide on them', [
    'pawl approvals',
    'pawl approvals approve e0.…',
  ]);
  const ls = command(approvals, 'ls', 'list approvals that are pending', ['pawl approvals ls --state all']);
  json(
    limit(ls).addOption(
      new Option('--state <state>', 'which ones').choices([...APPROVAL_STATES, 'all']).default('pending'),
    ),
  ).action(async (options) => end(await (await import('./commands/approvals.ts')).listApprovals(context, options)));
  const show = command(approvals, 'show', 'tell all about one', ['pawl approvals show e0.…']);
  json(show.argument('<id>', 'of the approval, or of its call')).action(async (id: string, options) =>
    end(await (await import('./commands/approvals.ts')).showApproval(context, id, options)),
  );
  const deciding = (name: 'approve' | 'deny', description: string, examples: readonly string[]) =>
    json(
      command(approvals, name, description, examples)
        .argument('<id>', 'of the approval, or of its call')
        .option('--digest <digest>', 'decide only if it is still what was shown (default: what it is now)')
        .option('--reason <text>', 'told to whoever asked'),
    ).action(async (id: string, options) =>
      end(await (await import('./commands/approvals.ts')).decideApproval(context, name, id, options)),
    );
  deciding('approve', 'let a call run, once', ['pawl approvals approve e0.… --remember'])
    .option('--params <json>', 'run with these parameters instead: JSON, @FILE, or - for standard input')
    .option('--remember', 'let later calls of the session that are like it run, too');
  deciding('deny', 'end a call before it runs', ['pawl approvals deny e0.… --reason "not on a Friday"']);
  const remembered = command(approvals, 'remembered', 'list what was allowed for the rest of a session', [
    'pawl approvals remembered trip',
  ]);
  json(remembered.argument('<session>')).action(async (session: string, options) =>
    end(await (await import('./commands/approvals.ts')).listStandingApprovals(context, session, options)),
  );
  const forget = command(approvals, 'forget', 'take back what was allowed for the rest of a session', [
    'pawl approvals forget trip e0.…',
  ]);
  json(forget.argument('<session>').argument('<id>', 'of the approval with which it was remembered')).action(
    async (session: string, id: string, options) =>
      end(await (await import('./commands/approvals.ts')).revokeStandingApproval(context, session, id, options)),
  );
}

export function questionCommands(program: Command, context: CliContext, end: End): void {
  const questions = group(program, 'questions', 'list what tools ask people, and answer', [
    'pawl questions',
    'pawl questions answer e0.… yes',
  ]);
  const ls = command(questions, 'ls', 'list questions that wait for an answer', ['pawl questions ls']);
  json(limit(ls)).action(async (options) =>
    end(await (await import('./commands/questions.ts')).listQuestions(context, options)),
  );
  json(
    command(questions, 'answer', 'give the answer, once', ['pawl questions answer e0.… yes'])
      .argument('<id>', 'of the question')
      .argument('<answer>', 'value of an option or, where that is allowed, any text'),
  ).action(async (id: string, answer: string, options) =>
    end(await (await import('./commands/questions.ts')).replyToQuestion(context, id, { answer }, options)),
  );
  json(
    command(questions, 'dismiss', 'tell the tool that nobody will answer', ['pawl questions dismiss e0.…']).argument(
      '<id>',
      'of the question',
    ),
  ).action(async (id: string, options) =>
    end(await (await import('./commands/questions.ts')).replyToQuestion(context, id, { dismiss: true }, options)),
  );
}

export function policyCommands(program: Command, context: CliContext, end: End): void {
  const policy = command(program, 'policy', 'say what the policy allows', ['pawl policy explain shell']).usage(
    '[explain]',
  );
  const explain = command(policy, 'explain', 'which rule decides on a tool’s calls', [
    'pawl policy explain shell --session trip',
    `pawl policy explain shell --params '{"command":["git","push"]}'`,
  ])
    .argument('<tool>', 'name of the tool')
    .option('--session <key>', 'whose calls (default: a main session without a channel)')
    .option('--params <json>', 'of the call: JSON, @FILE, or - for standard input')
    .option('--namespace <name>', 'namespace of the tool (default: tools)')
    .option('--taint <source...>', 'where the parameters may come from');
  json(explain).action(async (tool: string, options) =>
    end(await (await import('./commands/policy.ts')).explainPolicy(context, tool, options)),
  );
}

export function workerCommands(program: Command, context: CliContext, end: End): void {
  const workers = group(program, 'workers', 'list the workers that run, and drain them', [
    'pawl workers',
    'pawl workers drain box:4711:0f3a9c',
  ]);
  json(command(workers, 'ls', 'list the workers that run', ['pawl workers ls --json'])).action(async (options) =>
    end(await (await import('./commands/workers.ts')).listWorkers(context, options)),
  );
  const drain = command(workers, 'drain', 'ask a worker to take no further calls, finish those that it runs, and end', [
    'pawl workers drain box:4711:0f3a9c',
  ]);
  json(drain.argument('<id>', 'of the worker')).action(async (id: string, options) =>
    end(await (await import('./commands/workers.ts')).drainWorker(context, id, options)),
  );
}

export function circuitCommands(program: Command, context: CliContext, end: End): void {
  const circuits = group(program, 'circuits', 'list, open and reset circuits', ['pawl circuits']);
  json(command(circuits, 'ls', 'list the circuits that ever opened', ['pawl circuits ls'])).action(async (options) =>
    end(await (await import('./commands/circuits.ts')).listCircuits(context, options)),
  );
  const forceOpen = command(circuits, 'force-open', 'refuse all calls of a tool until it is reset', [
    'pawl circuits force-open shell --reason "maintenance"',
  ])
    .argument('<key>', 'a circuit, or the name of a tool')
    .option('--reason <text>', 'shown to whoever is refused');
  json(forceOpen).action(async (key: string, options) =>
    end(await (await import('./commands/circuits.ts')).setCircuit(context, 'force_open', key, options)),
  );
  const reset = command(circuits, 'reset', 'close a circuit at once', ['pawl circuits reset tool:tools.shell']);
  json(reset.argument('<key>', 'a circuit, or the name of a tool')).action(async (key: string, options) =>
    end(await (await import('./commands/circuits.ts')).setCircuit(context, 'reset', key, options)),
  );
}

export function shardCommands(program: Command, context: CliContext, end: End): void {
  const shards = group(program, 'shards', 'show and change among how many shards the calls of a tier are spread', [
    'pawl shards',
    'pawl shards set read-only 4',
  ]);
  json(command(shards, 'ls', 'show the layout: each shard, and how it stands', ['pawl shards ls --json'])).action(
    async (options) => end(await (await import('./commands/shards.ts')).listShards(context, options)),
  );
  const set = command(shards, 'set', 'spread the sessions that are opened from now on among so many shards', [
    'pawl shards set read-only 4',
  ]);
  json(set.argument('<tier>').argument('<number>', '1 to 64')).action(async (tier: string, number: string, options) =>
    end(await (await import('./commands/shards.ts')).setShards(context, tier, number, options)),
  );
}

export function reliabilityCommands(program: Command, context: CliContext, end: End): void {
  const reliability = group(program, 'reliability', 'show and switch deduplication, retries and circuits', [
    'pawl reliability',
    'pawl reliability disable --reason "wrong replays since 14:00"',
  ]);
  const ls = command(reliability, 'ls', 'show what of the layer works for each tool', ['pawl reliability ls --json']);
  json(ls).action(async (options) =>
    end(await (await import('./commands/reliability.ts')).listReliability(context, options)),
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
      .option('--reason <text>', 'shown to whoever looks');
    json(change).action(async (options) =>
      end(await (await import('./commands/reliability.ts')).setReliability(context, name === 'enable', options)),
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
  json(flush).action(async (options) =>
    end(await (await import('./commands/reliability.ts')).flushCalls(context, options)),
  );
}

export function auditCommands(program: Command, context: CliContext, end: End): void {
  const audit = group(program, 'audit', 'list the audit trail, and check that nobody changed it', [
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
  json(limit(ls)).action(async (options) =>
    end(await (await import('./commands/audit.ts')).listAudit(context, options)),
  );
  const verify = command(audit, 'verify', 'find records that were changed, removed, moved or cut off', [
    'pawl audit verify',
    'pawl audit verify --folder /archive/pawl --from 120001',
  ])
    .option('--folder <folder>', 'of the files (default: audit.folder)')
    .option('--from <number>', 'the first record that must be there; earlier ones were put away', positiveInteger);
  json(verify).action(async (options) =>
    end(await (await import('./commands/audit.ts')).verifyAudit(context, options)),
  );
}

export function doctorCommand(program: Command, context: CliContext, end: End): void {
  const doctor = command(program, 'doctor', 'check Node, Redis, sandbox, ports and configuration', ['pawl doctor']);
  json(doctor).action(async (options) => end(await (await import('./doctor/doctor.ts')).runDoctor(context, options)));
}
