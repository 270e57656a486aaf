/** `pawl up`: the whole stack on this machine: worker processes, the HTTP API, Bull Board, and Redis unless `REDIS_URL` names one. */
import { relative, resolve } from 'node:path';
import { loadSettings } from '../../main.ts';
import type { Settings } from '../../shared/config/config.ts';
import { shortName, TIERS } from '../../shared/tools/tool.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { type CliContext, print, say } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { jsonLine } from '../print.ts';
import { type ApiProcess, openApiProcess } from '../processes/api-process.ts';
import { loadToolFiles, toolsetsOf } from '../processes/tool-files.ts';
import { FileWatcher } from '../processes/watch-files.ts';
import { watchServer } from '../processes/watchdog.ts';
import { WorkerProcesses } from '../processes/worker-processes.ts';

interface UpOptions {
  readonly port?: number;
  readonly workers: number;
  readonly tools?: readonly string[];
  /** Restarts the workers whenever a tools file is edited. */
  readonly watch?: boolean;
}

export async function runUp(context: CliContext, options: UpOptions): Promise<number> {
  const settings = await loadSettings(options.port === undefined ? {} : { httpPort: options.port });
  // A signal ends the process until the files are loaded, whose code may block the event loop.
  const files = await loadToolFiles(options.tools ?? [], context.cwd);
  watchServer(settings, files);
  const workers = workerProcesses(context, options, settings);
  const stopRequested = Promise.withResolvers<'asked'>();
  const onInterrupt = (times: number) =>
    times === 1 ? stopRequested.resolve('asked') : endEarly(context, workers, times);
  const stopListening = context.onInterrupt(onInterrupt, { hangUp: true });
  try {
    // The process is ready when calls are accepted, which is after the workers have published their tools.
    let starting = true;
    const api = await openApiProcess(settings, {
      isStarting: () => starting,
      isDefaultChannel: true,
      hooks: files.hooks,
      toolsets: await toolsetsOf(files),
    });
    workers.onStopping = api.stopping;
    try {
      const started = workers.start().then(() => {
        starting = false;
        return api.ready();
      });
      const first = await Promise.race([started, stopRequested.promise]);
      // A start that is still in progress fails when the workers end.
      if (first === 'asked') started.catch(() => {});
      else {
        // A program that reads the addresses may edit a file at once.
        const watcher = options.watch === true ? watchTools(context, options.tools ?? [], workers) : undefined;
        printAddresses(context, workers, api);
        await stopRequested.promise.finally(() => watcher?.close());
      }
      say(context, `draining: ${plural(workers.ready.length, 'worker')}; once more ends at once`);
      api.drain();
    } finally {
      // The workers end first, so that the server can answer requests for their calls until then.
      await workers.drain();
      await api.close();
    }
    return EXIT_CODES.success.code;
  } finally {
    stopListening();
  }
}

function workerProcesses(
  context: CliContext,
  { workers, tools }: UpOptions,
  { drainMs, lockDurationMs, metricsPort }: Settings,
): WorkerProcesses {
  return new WorkerProcesses(context, {
    count: workers,
    args: tools === undefined ? [] : ['--tools', ...tools],
    drainMs,
    leaseMs: lockDurationMs,
    metricsPort: metricsPort === undefined || metricsPort === 0 ? metricsPort : metricsPort + 1,
  });
}

/** The second interrupt interrupts the running calls, the third one kills the workers. */
function endEarly(context: CliContext, workers: WorkerProcesses, times: number): void {
  if (times > 2) {
    workers.kill();
    context.endNow(EXIT_CODES.failed.code);
  }
  say(context, 'ending now; once more kills');
  void workers.hurry().finally(() => context.endNow(EXIT_CODES.failed.code));
}

/** Watches the tools files and all that they import, as the workers last loaded them. */
function watchTools(context: CliContext, files: readonly string[], workers: WorkerProcesses): FileWatcher {
  const watcher = new FileWatcher((path) => {
    say(context, `${relative(context.cwd, path)} was edited: workers start again with it`);
    workers.reload();
  });
  const watchAll = () => {
    for (const path of files) watcher.add(resolve(context.cwd, path));
    for (const { sources } of workers.ready) for (const path of sources) watcher.add(path);
  };
  workers.onReady = watchAll;
  watchAll();
  return watcher;
}

function printAddresses(context: CliContext, workers: WorkerProcesses, api: ApiProcess): void {
  const { ready } = workers;
  if (context.json) {
    print(context, jsonLine({ event: 'ready', pid: process.pid, ...api.addresses, workers: ready }));
    return;
  }
  const pids = ready.map(({ pid }) => pid).join(', ');
  const tools = new Set(ready.flatMap((worker) => worker.tools.map(callableName)));
  print(context, api.describe());
  print(context, `  workers  ${plural(ready.length, 'process', 'processes')} (pid ${pids}) for ${TIERS.join(', ')}`);
  print(context, `  tools    ${[...tools].join(', ')}`);
  print(context, 'Ctrl-C drains and ends. In another terminal: pawl call list_dir');
}

/** The name that `pawl call` takes, of a tool such as `tools.read@1.1.0`. */
function callableName(tool: string): string {
  const name = tool.slice(0, tool.lastIndexOf('@'));
  const dot = name.lastIndexOf('.');
  return shortName({ namespace: name.slice(0, dot), name: name.slice(dot + 1) });
}
