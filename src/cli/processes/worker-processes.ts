/**
 * The workers of `pawl up`, each a process of its own that starts again when it dies.
 *
 * Each child has its own process group, so that Ctrl-C in a terminal reaches `pawl up` alone, which then decides. Each child also has
 * a channel to this process. When `pawl up` ends for any reason, the channel closes, and the child drains.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Pawl } from '../../producer/client.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { TIERS } from '../../shared/tools/tool.ts';
import { withinMs } from '../../shared/util/wait.ts';
import { type CliContext, type SupervisorOrder, say } from '../context.ts';
import { EXIT_CODES } from '../exit-codes.ts';
import { duration } from '../print.ts';
import type { WorkerReady } from './run-worker.ts';
import { silenceLimits } from './watchdog.ts';

const INITIAL_DELAY_MS = 250;
const MAX_DELAY_MS = 10_000;
/** A worker that lived for this long died of a new cause, so it restarts without a delay. */
const HEALTHY_AFTER_MS = 30_000;
/** A worker itself ends earlier, with a reason, when a tools file is not loaded. */
const LOAD_LIMIT_MS = 600_000;
/** The time beyond the workers' own grace period. */
const DRAIN_MARGIN_MS = 8_000;
/** An interrupted worker needs this long to end its running calls. */
const INTERRUPT_LIMIT_MS = 4_000;

interface WorkerProcessesOptions {
  readonly count: number;
  /** The arguments after `pawl worker`. */
  readonly args: readonly string[];
  /** A draining worker waits this long for its running calls. */
  readonly drainMs: number;
  /** The lease of the workers' attempts. A worker that is silent for some leases is killed and replaced. */
  readonly leaseMs: number;
  /** A worker that has not loaded its tools within this time is killed and replaced. Default: 10 minutes. */
  readonly loadLimitMs?: number;
  /** The port of the first worker's `/metrics`; the others follow. 0: any free port for each. Undefined: as the environment says. */
  readonly metricsPort: number | undefined;
}

interface ManagedWorker {
  readonly number: number;
  readonly child: ChildProcess;
  readonly startedAtMs: number;
  ready: WorkerReady | undefined;
  /** The first message says that it has loaded its tools and begins to take calls. */
  hasLoaded: boolean;
  /** The time since its start or its last message. */
  silentMs: number;
}

type OnEnded = (worker: ManagedWorker, code: number | null, signal: NodeJS.Signals | null) => void;

export class WorkerProcesses {
  readonly #context: CliContext;
  readonly #options: WorkerProcessesOptions;
  readonly #workers = new Set<ManagedWorker>();
  readonly #restarts = new Map<NodeJS.Timeout, () => void>();
  /** Workers that were asked to end because their tools changed. */
  readonly #outdated = new Set<ManagedWorker>();
  /** Called whenever a worker has loaded its tools. */
  onReady: () => void = () => {};
  /** Called with the IDs of the workers that are about to be stopped. A worker that does not drain is killed in the end. */
  onStopping: (workerIds: readonly string[]) => void = () => {};
  readonly #watch: NodeJS.Timeout;
  #failures = 0;
  #ending = false;

  constructor(context: CliContext, options: WorkerProcessesOptions) {
    this.#context = context;
    this.#options = options;
    const { limitMs, beatMs } = silenceLimits(options.leaseMs);
    this.#watch = setInterval(() => this.#killSilent(limitMs, beatMs), beatMs).unref();
  }

  /** Silence is counted in checks, so that a pause of this process itself does not count as a worker's silence. */
  #killSilent(limitMs: number, beatMs: number): void {
    for (const worker of this.#workers) {
      worker.silentMs += beatMs;
      const { loadLimitMs = LOAD_LIMIT_MS } = this.#options;
      if (worker.silentMs < (worker.hasLoaded ? limitMs : loadLimitMs) || this.#ending) continue;
      say(this.#context, `worker ${worker.child.pid} has been silent for ${duration(worker.silentMs)}: it is killed`);
      worker.child.kill('SIGKILL');
    }
  }

  /**
   * Resolves when all are ready. The first one starts alone, so that an unusable tools file or configuration is reported once. Throws
   * `CONFIGURATION` or `BACKEND_UNAVAILABLE` then.
   */
  async start(): Promise<void> {
    await this.#startFirst();
    const further = Array.from({ length: this.#options.count - 1 }, () => this.#startFirst());
    await Promise.all(further);
  }

  get ready(): readonly WorkerReady[] {
    return [...this.#workers].flatMap(({ ready }) => (ready === undefined ? [] : [ready]));
  }

  /**
   * Starts a worker, which must become ready. It is replaced when a call ends it before: a call that waited since the last start may hold
   * up or kill each worker that runs it.
   */
  #startFirst(): Promise<void> {
    return new Promise((resolve, reject) => {
      const launch = () => {
        if (this.#ending) return resolve();
        this.#spawn(resolve, (worker, code, signal) => {
          if (this.#ending) resolve();
          else if (worker.hasLoaded && signal !== null) this.#replace(worker, code, signal, launch);
          else reject(startError(code, signal));
        });
      };
      launch();
    });
  }

  #spawn(onReady: () => void, onFailedStart: OnEnded): void {
    const { launcher, environment, cwd } = this.#context;
    const number = this.#freeNumber();
    const child = spawn(process.execPath, [...process.execArgv, launcher, 'worker', ...this.#options.args], {
      cwd,
      env: { ...environment, ...this.#metricsOf(number) },
      detached: process.platform !== 'win32',
      windowsHide: true,
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    const worker: ManagedWorker = {
      number,
      child,
      startedAtMs: performance.now(),
      ready: undefined,
      hasLoaded: false,
      silentMs: 0,
    };
    this.#workers.add(worker);
    child.on('message', (message) => {
      worker.hasLoaded = true;
      worker.silentMs = 0;
      if (!isReady(message) || worker.ready !== undefined) return;
      worker.ready = message;
      onReady();
      this.onReady();
    });
    const ended = (code: number | null, signal: NodeJS.Signals | null) => {
      if (!this.#workers.delete(worker)) return;
      if (worker.ready === undefined) onFailedStart(worker, code, signal);
      else this.#replace(worker, code, signal);
    };
    child.on('error', () => ended(null, null));
    child.on('exit', ended);
  }

  /** The lowest free number, so that a replacement has the port of the worker that it replaces. */
  #freeNumber(): number {
    const usedNumbers = new Set([...this.#workers].map(({ number }) => number));
    let number = 0;
    while (usedNumbers.has(number)) number += 1;
    return number;
  }

  /** The port of a worker's metrics: each has its own, because two processes cannot share one. 0 lets the system choose. */
  #metricsOf(number: number): { readonly PAWL_METRICS_PORT?: string } {
    const { metricsPort } = this.#options;
    if (metricsPort === undefined) return {};
    return { PAWL_METRICS_PORT: String(metricsPort === 0 ? 0 : metricsPort + number) };
  }

  /** Drains each worker and starts another one in its place, which loads the tools again. */
  reload(): void {
    this.#failures = 0;
    for (const worker of this.#workers) this.#outdated.add(worker);
    this.#send('drain');
    // Workers whose restart was delayed, because the file was broken before, restart now.
    this.#restartNow();
  }

  #restartNow(): void {
    const restarts = [...this.#restarts];
    this.#restarts.clear();
    for (const [timer, launch] of restarts) {
      clearTimeout(timer);
      launch();
    }
  }

  #restart(): void {
    if (this.#ending) return;
    this.#spawn(
      () => this.#reportComplete(),
      (worker, code, signal) => this.#replace(worker, code, signal),
    );
  }

  #replace(
    worker: ManagedWorker,
    code: number | null,
    signal: NodeJS.Signals | null,
    launch = () => this.#restart(),
  ): void {
    if (this.#ending) return;
    if (this.#outdated.delete(worker)) {
      launch();
      return;
    }
    if (performance.now() - worker.startedAtMs > HEALTHY_AFTER_MS) this.#failures = 0;
    const delayMs = Math.min(INITIAL_DELAY_MS * 2 ** this.#failures, MAX_DELAY_MS);
    this.#failures += 1;
    const ending = signal === null ? `with code ${code}` : `by ${signal}`;
    say(this.#context, `worker ${worker.child.pid} ended ${ending}; another one starts in ${duration(delayMs)}`);
    const timer = setTimeout(() => {
      this.#restarts.delete(timer);
      launch();
    }, delayMs);
    this.#restarts.set(timer, launch);
  }

  #reportComplete(): void {
    const pids = this.ready.map(({ pid }) => pid).join(', ');
    say(this.#context, `workers are complete again: pids ${pids}`);
  }

  async drain(): Promise<void> {
    this.#ending = true;
    clearInterval(this.#watch);
    this.#restartNow();
    this.onStopping(this.ready.map(({ worker }) => worker));
    this.#send('drain');
    if (!(await this.#allExited(this.#options.drainMs + DRAIN_MARGIN_MS))) this.kill();
  }

  /** Interrupts the running calls, and kills the workers that do not end then. */
  async hurry(): Promise<void> {
    this.#send('hurry');
    if (!(await this.#allExited(INTERRUPT_LIMIT_MS))) this.kill();
  }

  kill(): void {
    this.#ending = true;
    clearInterval(this.#watch);
    for (const { child } of this.#workers) child.kill('SIGKILL');
  }

  /**
   * Sends over the channel, not by a signal: two quick signals may arrive as one. A worker that loads its tools runs no call and may read
   * no order, so a signal ends it.
   */
  #send(order: Exclude<SupervisorOrder, 'gone'>): void {
    for (const { child, hasLoaded } of this.#workers) {
      if (child.connected) child.send(order, () => {});
      if (!hasLoaded && order === 'drain') child.kill('SIGTERM');
    }
  }

  async #allExited(limitMs: number): Promise<boolean> {
    const exits = Promise.all([...this.#workers].map(({ child }) => waitForExit(child)));
    return (await withinMs(exits, limitMs)) !== undefined;
  }
}

/** Marks workers as stopped on purpose. A Redis that is out of reach keeps no process from ending. */
export function markStopped({ ledger, shards }: Pawl['backend'], workerIds: readonly string[]): void {
  const partitions = shards.partitions(TIERS);
  for (const id of workerIds) ledger.markStopped(partitions, id).catch(() => {});
}

function waitForExit(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve();
    else child.once('exit', () => resolve());
  });
}

function isReady(message: unknown): message is WorkerReady {
  return typeof message === 'object' && message !== null && 'event' in message && message.event === 'ready';
}

/** The error of a worker that did not start; it has written the cause to standard error. */
function startError(code: number | null, signal: NodeJS.Signals | null): PawlError {
  if (code === EXIT_CODES.redisOutOfReach.code)
    return new PawlError('BACKEND_UNAVAILABLE', 'The workers cannot reach Redis; nothing was started.');
  const ending = signal === null ? `code ${code}` : signal;
  return new PawlError('CONFIGURATION', `The workers cannot be started (${ending}): see above. Nothing was started.`);
}
