/** `pawl mcp`: an MCP server on standard input and output, for clients that start their servers themselves. */
import { randomUUID } from 'node:crypto';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { connect, createLogger, loadSettings } from '../../main.ts';
import { createMcpServer } from '../../producer/mcp/server.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { type CliContext, listenForStop, say, usageError, withRedisHint } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { StdioConnection } from '../processes/stdio-connection.ts';
import { loadToolFiles, toolsetsOf } from '../processes/tool-files.ts';
import { watchServer } from '../processes/watchdog.ts';
import { markStopped, WorkerProcesses } from '../processes/worker-processes.ts';

interface McpOptions {
  readonly session?: string;
  readonly workers: number;
  readonly tools?: readonly string[];
}

/** The program that starts this process has the permissions of its user, so it counts as an admin. */
const CALLER = { id: 'stdio', role: 'admin' } as const;

export async function runMcp(context: CliContext, options: McpOptions): Promise<number> {
  const settings = await loadSettings();
  const log = createLogger(settings);
  const { tools = [] } = options;
  if (tools.length > 0 && options.workers === 0)
    throw usageError(
      '--tools needs --workers: without workers of its own, `pawl mcp` offers the tools of those that run.',
    );
  const files = await loadToolFiles(tools, context.cwd);
  watchServer(settings, files);
  const { hooks } = files;
  const toolsets = await toolsetsOf(files);
  const pawl = await connect({ log, hooks, ...defined({ toolsets }) }).catch((error: unknown) => {
    throw withRedisHint(error, settings);
  });
  const workers = new WorkerProcesses(context, {
    count: options.workers,
    args: tools.length === 0 ? [] : ['--tools', ...tools],
    drainMs: settings.drainMs,
    leaseMs: settings.lockDurationMs,
    // A client may start several of these processes, which do not know each other, so each takes any free port.
    metricsPort: settings.metricsPort === undefined ? undefined : 0,
  });
  workers.onStopping = (workerIds) => markStopped(pawl.backend, workerIds);
  const stop = listenForStop(context);
  try {
    if (options.workers > 0) await workers.start();
    const sessionKey = options.session ?? `mcp-stdio-${randomUUID()}`;
    const server = serveStdio(() => createMcpServer({ pawl }, CALLER, sessionKey), {
      transport: new StdioConnection({
        input: context.input,
        output: context.out,
        answerLimitMs: settings.drainMs,
        onEnd: stop.resolve,
      }),
      onerror: (error) => log.debug({ event: 'mcp', error: error.message }, 'an MCP request failed'),
    });
    await stop.promise;
    await server.close();
    return EXIT_CODES.success.code;
  } finally {
    stop.stopListening();
    if (options.workers > 0) {
      say(context, 'draining the workers');
      await workers.drain();
    }
    await pawl.close();
  }
}
