/** The commands that start processes: `up`, `demo`, `worker`, `mcp` and `serve`. Each loads the module of its work when it runs. */
import type { Command } from 'commander';
import { MAX_CONCURRENCY } from '../../shared/tools/tool.ts';
import { type Action, command, countBetween, jsonOption, MAX_WORKERS, portOption } from '../command-options.ts';

const mcpModule = () => import('../commands/mcp.ts');
const runDemoModule = () => import('../processes/run-demo.ts');
const runWorkerModule = () => import('../processes/run-worker.ts');
const serveModule = () => import('../commands/serve.ts');
const upModule = () => import('../commands/up.ts');

export function startCommands(program: Command, runs: Action): void {
  upCommand(program, runs);
  demoCommand(program, runs);
  workerCommand(program, runs);
  mcpCommand(program, runs);
  serveCommand(program, runs);
}

function upCommand(program: Command, runs: Action): void {
  const up = command(
    program,
    'up',
    'start workers for every tier and the HTTP API, with the operator’s page, MCP at /mcp and Bull Board',
    ['pawl up', 'pawl up --port 8080 --workers 4 --tools ./weather.ts --watch'],
  )
    .addOption(portOption())
    .option('--workers <n>', 'worker processes, each of which serves every tier', countBetween(1, MAX_WORKERS), 2)
    .option('--tools <file...>', 'files of tools (.ts or .js) that the workers offer beside the built-in ones')
    .option('--watch', 'for development: start the workers again when a tools file, or what it imports, is edited');
  jsonOption(up).action(runs(upModule, 'runUp'));
}

function demoCommand(program: Command, runs: Action): void {
  const demo = command(program, 'demo', 'run the demo, with everything embedded', ['pawl demo']);
  jsonOption(demo).action(runs(runDemoModule, 'runDemo'));
}

function workerCommand(program: Command, runs: Action): void {
  const worker = command(program, 'worker', 'start one worker process; SIGTERM drains it', [
    'pawl worker --tiers read-only,workspace --concurrency 16 --tools ./weather.ts',
  ])
    .option('--tiers <list>', 'comma separated: read-only, workspace, system, elevated (default: all)')
    .option('--concurrency <n>', 'attempts at a time, for each tier (default: 32)', countBetween(1, MAX_CONCURRENCY))
    .option('--tools <file...>', 'files of tools (.ts or .js) to offer beside the built-in ones');
  jsonOption(worker, 'print the ready line as JSON').action(runs(runWorkerModule, 'runWorker'));
}

function mcpCommand(program: Command, runs: Action): void {
  command(program, 'mcp', 'start an MCP server on standard input and output', [
    'pawl mcp --workers 1 --tools ./weather.ts',
    `{ "mcpServers": { "pawl": { "command": "npx", "args": ["pawl", "mcp"] } } }`,
  ])
    .option('--session <key>', 'session that the client’s calls belong to (default: one for this process)')
    .option('--workers <n>', 'worker processes to start, in addition to running ones', countBetween(0, MAX_WORKERS), 0)
    .option('--tools <file...>', 'files of tools for these workers')
    .action(runs(mcpModule, 'runMcp'));
}

function serveCommand(program: Command, runs: Action): void {
  const serve = command(
    program,
    'serve',
    'start the HTTP API with the operator’s page, MCP at /mcp and Bull Board, without workers',
    ['pawl serve --port 8080'],
  )
    .addOption(portOption())
    .option('--host <address>', 'address to listen on (default: PAWL_HTTP_HOST, or 127.0.0.1)')
    .option('--tools <file...>', 'files whose hooks run around calls, and whose toolsets limit what sessions see');
  jsonOption(serve).action(runs(serveModule, 'runServe'));
}
