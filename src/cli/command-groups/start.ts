/** The commands that start processes: `up`, `demo`, `worker`, `mcp` and `serve`. Each loads the module of its work when it runs. */
import type { Command } from 'commander';
import { command, type End, jsonOption, portOption, positiveInteger, wholeNumber } from '../command-options.ts';
import type { CliContext } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';

export function startCommands(program: Command, context: CliContext, end: End): void {
  upCommand(program, context, end);
  demoCommand(program, context, end);
  workerCommand(program, context, end);
  mcpCommand(program, context, end);
  serveCommand(program, context, end);
}

function upCommand(program: Command, context: CliContext, end: End): void {
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
  jsonOption(up).action(async (options) => end(await (await import('../commands/up.ts')).runUp(context, options)));
}

/** The demo is an example. The package has it as JavaScript beside the built sources. */
const DEMO = new URL(
  import.meta.url.endsWith('.ts') ? '../../../examples/demo/demo.ts' : '../../demo/demo.js',
  import.meta.url,
);

interface Demo {
  runDemo(options: {
    readonly json: boolean;
    readonly out: NodeJS.WriteStream;
    readonly environment: NodeJS.ProcessEnv;
    readonly signal: AbortSignal;
  }): Promise<number>;
}

function demoCommand(program: Command, context: CliContext, end: End): void {
  const demo = command(program, 'demo', 'show the main job on real input, everything embedded', ['pawl demo']);
  jsonOption(demo).action(async (options: { json?: boolean }) => {
    const stop = new AbortController();
    const ignore = context.onInterrupt((times) =>
      times === 1 ? stop.abort() : context.endNow(EXIT_CODES.failed.code),
    );
    const { runDemo }: Demo = await import(DEMO.href);
    const { out, environment } = context;
    end(await runDemo({ json: options.json ?? false, out, environment, signal: stop.signal }).finally(ignore));
  });
}

function workerCommand(program: Command, context: CliContext, end: End): void {
  const worker = command(program, 'worker', 'start one worker process; SIGTERM drains it', [
    'pawl worker --tiers read-only,workspace --concurrency 16 --tools ./weather.ts',
  ])
    .option('--tiers <list>', 'comma separated: read-only, workspace, system, elevated (default: all)')
    .option('--concurrency <n>', 'attempts at a time, for each tier (default: 32)', positiveInteger)
    .option('--tools <file...>', 'files of tools (.ts or .js) to offer beside the built-in ones');
  jsonOption(worker, 'print the ready line as JSON').action(async (options) =>
    end(await (await import('../processes/run-worker.ts')).runWorker(context, options)),
  );
}

function mcpCommand(program: Command, context: CliContext, end: End): void {
  command(program, 'mcp', 'start an MCP server on standard input and output', [
    'pawl mcp --workers 1 --tools ./weather.ts',
    `{ "mcpServers": { "pawl": { "command": "npx", "args": ["pawl", "mcp"] } } }`,
  ])
    .option('--session <key>', 'session that the client’s calls belong to (default: one for this process)')
    .option('--workers <n>', 'worker processes to start beside it, and beside those that run already', wholeNumber, 0)
    .option('--tools <file...>', 'files of tools for these workers')
    .action(async (options) => end(await (await import('../commands/mcp.ts')).runMcp(context, options)));
}

function serveCommand(program: Command, context: CliContext, end: End): void {
  const serve = command(
    program,
    'serve',
    'start the HTTP API with the operator’s page, MCP at /mcp and Bull Board, without workers',
    ['pawl serve --port 8080'],
  )
    .addOption(portOption())
    .option('--host <address>', 'address to listen on (default: PAWL_HTTP_HOST, or 127.0.0.1)')
    .option('--tools <file...>', 'files whose hooks run around calls, and whose toolsets say what sessions see');
  jsonOption(serve).action(async (options) =>
    end(await (await import('../commands/serve.ts')).runServe(context, options)),
  );
}
