/** `pawl up`: the whole stack on this machine. Redis unless `REDIS_URL` names one, worker processes, the HTTP API and Bull Board. */
import { relative, resolve } from 'node:path';
import { loadSettings } from '../../main.ts';
import { TIERS } from '../../shared/tools/tool.ts';
import { type CliContext, print, say } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { jsonLine, plural } from '../print.ts';
import { type ApiProcess, openApiProcess } from '../processes/api-process.ts';
import { loadToolFiles, toolsetsOf } from '../processes/tool-files.ts';
import { FileWatcher } from '../processes/watch-files.ts';
import { WorkerProcesses } from '../processes/worker-processes.ts';

export interface UpOptions {
  readonly port?: number;
  readonly workers: number;
  readonly tools?: readonly string[];
  /** Start the workers again whenever a tools file is edited. */
  readonly watch?: boolean;
  readonly json?: boolean;
}

export async function runUp(context: CliContext, options: UpOptions): Promise<number> {
  const settings = await loadSettings(options.port === undefined ? {} : { httpPort: options.port });
  const workers = new WorkerProcesses(context, {
    count: options.workers,
    args: options.tools === undefined ? [] : ['--tools', ...options.tools],
    drainMs: settings.drainMs,
    leaseMs: settings.lockDurationMs,
    metricsPort:
      settings.metricsPort === undefined || settings.metricsPort === 0
        ? settings.metricsPort
        : settings.metricsPort + 1,
  });
  const asked = Promise.withResolvers<'asked'>();
  const hear = (times: number) => {
    if (times === 1) {
      asked.resolve('asked');
      return;
    }
    if (times > 2) workers.kill();
    if (times > 2) context.endNow(EXIT_CODES.failed.code);
    say(context, 'ending now; once more kills');
    void workers.hurry().finally(() => context.endNow(EXIT_CODES.failed.code));
  };
  const ignore = context.onInterrupt(hear, { hangUp: true });
  try {
    // Ready means that calls are accepted: not before the workers have published their tools.
    let starting = true;
    const files = await loadToolFiles(options.tools ?? [], context.cwd);
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
      const first = await Promise.race([started, asked.promise]);
      // What still starts ends with the workers.
      if (first === 'asked') started.catch(() => {});
      else {
        tellAddresses(context, options, workers, api);
        const watcher = options.watch === true ? watchTools(context, options.tools ?? [], workers) : undefined;
        await asked.promise.finally(() => watcher?.close());
      }
      say(context, `draining: ${plural(workers.ready.length, 'worker')}; once more ends at once`);
      api.drain();
    } finally {
      // Workers first: until they have ended, the server tells what becomes of their calls.
      await workers.drain();
      await api.close();
    }
    return EXIT_CODES.success.code;
  } finally {
    ignore();
  }
}

/** Follows the tools files and all that they import, as the workers last loaded it. */
function watchTools(context: CliContext, files: readonly string[], workers: WorkerProcesses): FileWatcher {
  const watcher = new FileWatcher((path) => {
    say(context, `${relative(context.cwd, path)} was edited: workers start again with it`);
    workers.reload();
  });
  const follow = () => {
    for (const path of files) watcher.add(resolve(context.cwd, path));
    for (const { sources } of workers.ready) for (const path of sources) watcher.add(path);
  };
  workers.onReady = follow;
  follow();
  return watcher;
}

function tellAddresses(context: CliContext, options: UpOptions, workers: WorkerProcesses, api: ApiProcess): void {
  const { ready } = workers;
  if (options.json === true) {
    print(context, jsonLine({ event: 'ready', pid: process.pid, ...api.addresses, workers: ready }));
    return;
  }
  const pids = ready.map(({ pid }) => pid).join(', ');
  const tools = new Set(ready.flatMap((worker) => worker.tools));
  print(context, api.describe());
  print(context, `  workers  ${plural(ready.length, 'process', 'processes')} (pid ${pids}) for ${TIERS.join(', ')}`);
  print(context, `  tools    ${[...tools].join(', ')}`);
  print(context, `Ctrl-C drains and ends. In another terminal: pawl call read --params '{"path":"README.md"}'`);
}
