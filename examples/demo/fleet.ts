/** The demo's worker processes: real ones, that can be killed and replaced. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { getCompileCacheDir } from 'node:module';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Mismatch } from './assertions.ts';
import type { Shop } from './tools.ts';
import { within } from './wait.ts';

/** The sources run as they are; the published package holds JavaScript. */
const WORKER = fileURLToPath(
  new URL(import.meta.url.endsWith('.ts') ? './worker-main.ts' : './worker-main.js', import.meta.url),
);
const READY_MS = 60_000;
const END_MS = 10_000;

export interface FleetOptions {
  /** The workers' current folder, where their log is written too. */
  readonly folder: string;
  readonly shop: Shop;
  /** The whole environment of the workers. */
  readonly environment: Readonly<Record<string, string>>;
}

export interface WorkerProcess {
  /** 1 for the first; a replacement gets the next number. */
  readonly number: number;
  readonly pid: number;
}

interface Running extends WorkerProcess {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
}

export class Fleet {
  readonly #options: FleetOptions;
  readonly #logFile: string;
  readonly #numbers = new Map<number, number>();
  readonly #running = new Map<number, Running>();
  #isClosed = false;

  constructor(options: FleetOptions) {
    this.#options = options;
    this.#logFile = join(options.folder, 'workers.log');
  }

  /** Starts one more worker and waits until it takes calls. */
  async start(): Promise<WorkerProcess> {
    if (this.#isClosed) throw new Error('The demo is over.');
    const { folder, shop, environment } = this.#options;
    const log = openSync(this.#logFile, 'a');
    const number = this.#numbers.size + 1;
    const child = spawn(process.execPath, [WORKER, JSON.stringify(shop), String(number)], {
      cwd: folder,
      env: { ...environment, ...compileCache() },
      stdio: ['pipe', 'pipe', log],
    });
    closeSync(log);
    const ended = new Promise<void>((resolve) => {
      child.once('exit', () => resolve());
      child.once('error', () => resolve());
    });
    const { pid, stdin, stdout } = child;
    if (pid === undefined || stdin === null || stdout === null) throw new Mismatch('a worker process', 'none started');
    stdin.on('error', () => {});
    this.#numbers.set(pid, number);
    this.#running.set(pid, { number, pid, child, ended });
    const ready = once(createInterface({ input: stdout }), 'line').then(() => true);
    const isReady = await within('a worker that is ready', Promise.race([ready, ended.then(() => false)]), READY_MS);
    if (!isReady) throw new Mismatch('a worker that is ready', `one that ended at once.\n${this.log()}`);
    return { number, pid };
  }

  /** kill -9, and waits for the end. */
  async kill(pid: number): Promise<WorkerProcess> {
    const worker = this.#running.get(pid);
    if (worker === undefined) throw new Mismatch('the process to be one of the workers', `process ${pid}`);
    worker.child.kill('SIGKILL');
    await within('a killed worker to end', worker.ended);
    this.#running.delete(pid);
    return { number: worker.number, pid };
  }

  /** The number of a worker by its process or by its ID (`host:pid:…`). */
  numberOf(worker: number | string): number | undefined {
    return this.#numbers.get(typeof worker === 'number' ? worker : Number(worker.split(':').at(-2)));
  }

  /** The last lines that workers wrote about errors. */
  log(): string {
    try {
      return readFileSync(this.#logFile, 'utf8').trimEnd().split('\n').slice(-10).join('\n');
    } catch {
      return '';
    }
  }

  /** Ends all workers, and kills those that do not end by themselves. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const all = [...this.#running.values()];
    this.#running.clear();
    await Promise.all(
      all.map(async ({ child, ended }) => {
        child.stdin?.end();
        const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
        await ended;
        clearTimeout(timer);
      }),
    );
  }
}

/** Workers find compiled code where this process has its own, which halves their start; Node adds its version's folder by itself. */
function compileCache(): Readonly<Record<string, string>> {
  const folder = getCompileCacheDir();
  return folder === undefined ? {} : { NODE_COMPILE_CACHE: dirname(folder) };
}
