/** `pawl worker`: one worker process. The first signal drains it, the second one or the grace period ends it. */
import { createLogger, loadSettings, type StartWorkerOptions, startWorker } from '../../main.ts';
import type { Settings } from '../../shared/config/config.ts';
import { parseTiers } from '../../shared/config/variables.ts';
import { type Logger, REDIS_PROMISE } from '../../shared/telemetry/log.ts';
import { workerLine, writeLogLine } from '../../shared/telemetry/log-events.ts';
import { type AnyTool, qualifiedName, TIERS, type Tier } from '../../shared/tools/tool.ts';
import { plural } from '../../shared/util/text/plural.ts';
import { protectOwnCode } from '../../trust-boundary.ts';
import { baseTools } from '../../workers/tools/index.ts';
import type { ToolWorker } from '../../workers/worker.ts';
import { type CliContext, print, say, usageError, withRedisHint } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { jsonLine } from '../print.ts';
import { openProcessEndpoint, type ProcessEndpoint } from './health-endpoint.ts';
import { protectToolCode } from './protect-tool-code.ts';
import { forbidUnknownCode, loadToolFiles, type ToolFiles, toolsOf } from './tool-files.ts';
import { silenceLimits, startWatchdog } from './watchdog.ts';

interface WorkerCommandOptions {
  readonly tiers?: string;
  readonly concurrency?: number;
  readonly tools?: readonly string[];
}

/** The message of a worker that takes calls: on standard output with `--json`, and to `pawl up` if that started it. */
export interface WorkerReady {
  readonly event: 'ready';
  readonly worker: string;
  readonly pid: number;
  readonly tiers: readonly Tier[];
  /** `namespace.name@version`. */
  readonly tools: readonly string[];
  /** The tools files and all files that they import. */
  readonly sources: readonly string[];
  /** The port on which this process serves `/metrics`, `/healthz` and `/readyz`. */
  readonly metricsPort?: number;
}

/** An interrupted tool has 2 s to clean up, and its outcome must still be written. */
const INTERRUPT_LIMIT_MS = 3_000;

export async function runWorker(context: CliContext, options: WorkerCommandOptions): Promise<number> {
  const settings = await loadSettings();
  const tiers = options.tiers === undefined ? TIERS : parseTiers(options.tiers);
  if (tiers.length === 0) throw usageError(`--tiers needs at least one of ${TIERS.join(', ')}.`);
  const log = context.supervisor === undefined ? createLogger(settings) : withoutRedisPromises(createLogger(settings));
  const { beatMs } = silenceLimits(settings.lockDurationMs);
  // A thread takes time to start, so without an endpoint the watchdog starts while the worker connects.
  let watchdog = settings.metricsPort === undefined ? undefined : startWatchdog(settings.lockDurationMs);
  // A signal ends the process until the files are loaded, whose code may block the event loop. Orders of the supervisor wait.
  const { files, tools } = await loadTools(context, options, settings, tiers);
  const end = watchForEnd(context, log, settings.drainMs);
  let beat: NodeJS.Timeout | undefined;
  let endpoint: ProcessEndpoint | undefined;
  let stopOutliving: (() => void) | undefined;
  try {
    endpoint = await openProcessEndpoint(settings, watchdog);
    // The first call may block the process before it is ready.
    watchdog ??= startWatchdog(settings.lockDurationMs);
    watchdog.begin();
    context.supervisor?.send({ event: 'beat' });
    beat = setInterval(() => context.supervisor?.send({ event: 'beat' }), beatMs / 2);
    const worker = await start(settings, {
      tools,
      tiers,
      log,
      hooks: files.hooks,
      ...(options.concurrency !== undefined && { concurrency: options.concurrency }),
      onEvent: (event) => writeLogLine(log, workerLine(event)),
      onDrainAsked: () => end.drain('an operator asked'),
    });
    // Tools may fail outside of a call. The worker logs such errors, and its calls go on.
    stopOutliving = context.outliveErrors();
    end.started(worker);
    endpoint?.watch({
      redis: worker.redis,
      prefix: settings.prefix,
      isDraining: () => worker.draining,
      isStarting: () => false,
      metrics: async () => worker.metrics(),
    });
    const ready = readyMessage(worker, tiers, files.sources, endpoint);
    context.supervisor?.send(ready);
    print(context, context.json ? jsonLine(ready) : readyLine(ready));
    return await end.code;
  } finally {
    stopOutliving?.();
    end.stop();
    clearInterval(beat);
    await endpoint?.close();
    await watchdog?.stop();
  }
}

/** The process that started this one logs what its Redis promises, once for all of its workers. */
function withoutRedisPromises(log: Logger): Logger {
  const unlessPromise =
    (level: 'info' | 'warn'): Logger['info'] =>
    (fields, message) => {
      if (!('event' in fields) || fields.event !== REDIS_PROMISE) log[level](fields, message);
    };
  return {
    debug: (fields, message) => log.debug(fields, message),
    info: unlessPromise('info'),
    warn: unlessPromise('warn'),
    error: (fields, message) => log.error(fields, message),
  };
}

/** The base tools and those of the tools files. */
async function loadTools(
  context: CliContext,
  { tools: paths }: WorkerCommandOptions,
  settings: Settings,
  tiers: readonly Tier[],
): Promise<{ readonly files: ToolFiles; readonly tools: readonly AnyTool[] }> {
  const files = await loadToolFiles(paths ?? [], context.cwd);
  const fileTools = await toolsOf(files);
  protectToolCode(paths ?? [], [...files.sources, ...(files.inexactImports ?? [])], settings, context.cwd);
  // In a checkout, Pawl itself lies in the workspace.
  protectOwnCode(context.cwd, process.env);
  if (paths !== undefined) forbidUnknownCode(settings.workspaceRoot ?? context.cwd);
  reportSkippedTools(context, fileTools, tiers);
  return { files, tools: [...baseTools, ...fileTools] };
}

function readyMessage(
  worker: ToolWorker,
  tiers: readonly Tier[],
  sources: readonly string[],
  endpoint: ProcessEndpoint | undefined,
): WorkerReady {
  return {
    event: 'ready',
    worker: worker.id,
    pid: process.pid,
    tiers,
    tools: worker.tools,
    sources,
    ...(endpoint !== undefined && { metricsPort: endpoint.port }),
  };
}

async function start(settings: Settings, options: StartWorkerOptions): Promise<ToolWorker> {
  try {
    return await startWorker(options);
  } catch (error) {
    throw withRedisHint(error, settings);
  }
}

function reportSkippedTools(context: CliContext, tools: readonly AnyTool[], tiers: readonly Tier[]): void {
  for (const tool of tools) {
    if (tiers.includes(tool.tier)) continue;
    say(
      context,
      `${qualifiedName(tool)} is of the tier ${tool.tier} and not offered: this worker serves ${tiers.join(', ')}`,
    );
  }
}

function readyLine({ pid, tiers, tools }: WorkerReady): string {
  return `ready: pid ${pid}, tiers ${tiers.join(', ')}, ${plural(tools.length, 'tool')}: ${tools.join(', ')}`;
}

/** Ends the worker on a signal, or when `pawl up` ends. Either may come before the worker has started; it then ends right after. */
function watchForEnd(context: CliContext, log: Logger, drainMs: number) {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  let worker: ToolWorker | undefined;
  let drainReason: string | undefined;
  let graceTimer: NodeJS.Timeout | undefined;
  let interrupted = false;

  const drain = (reason: string) => {
    if (drainReason !== undefined) return;
    drainReason = reason;
    if (worker !== undefined) startDrain(worker, reason);
  };
  const startDrain = (started: ToolWorker, reason: string) => {
    log.info({ event: 'worker_draining', running: started.running }, `draining: ${reason}`);
    graceTimer = setTimeout(() => {
      interrupted = true;
      log.warn({ event: 'worker_interrupts', running: started.running }, 'the grace period is over');
    }, drainMs);
    started.close(drainMs).then(() => resolve(interrupted ? EXIT_CODES.failed.code : EXIT_CODES.success.code), reject);
  };
  const interruptCalls = (started: ToolWorker) => {
    interrupted = true;
    log.warn(
      { event: 'worker_interrupts', running: started.running },
      'second request to end: interrupting the running calls',
    );
    started.interrupt();
    clearTimeout(graceTimer);
    graceTimer = setTimeout(() => context.endNow(EXIT_CODES.failed.code), INTERRUPT_LIMIT_MS);
  };
  const interruptOrExit = () => {
    if (worker !== undefined && drainReason !== undefined && !interrupted) interruptCalls(worker);
    else context.endNow(EXIT_CODES.failed.code);
  };
  const stopListening = context.onInterrupt((times, signal) => (times === 1 ? drain(signal) : interruptOrExit()), {
    hangUp: true,
  });
  context.supervisor?.onOrder((order) => {
    if (order === 'hurry') interruptOrExit();
    else drain(order === 'gone' ? 'the process that started this worker is gone' : 'its supervisor ends');
  });
  return {
    code: promise,
    drain,
    started(startedWorker: ToolWorker) {
      worker = startedWorker;
      if (drainReason !== undefined) startDrain(startedWorker, drainReason);
    },
    stop() {
      clearTimeout(graceTimer);
      stopListening();
    },
  };
}
