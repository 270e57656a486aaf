/**
 * What a user meets before the first call: what `npm install pawl` brings, how long commands and programs take to start, and how much
 * memory they hold. All of it is measured with the package as it is published, in a folder of its own, round by round in turn.
 */
import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';
import { lstatSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { median } from '../statistics.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';

export interface InstalledResult {
  readonly rounds: number;
  /** What `npm install pawl --omit=dev` puts on the disk. */
  readonly packages: number;
  readonly diskBytes: number;
  readonly starts: readonly StartTime[];
  /** Resident memory. */
  readonly memory: readonly ProcessMemory[];
}

export interface StartTime {
  readonly what: Started;
  readonly medianMs: number;
  readonly shortestMs: number;
}

export interface ProcessMemory {
  readonly process: 'worker' | 'producer';
  /** After the first call. */
  readonly idleBytes: number;
  /** After `LOAD_CALLS` calls, 64 at a time. */
  readonly loadedBytes: number;
}

type Started = 'node, empty' | 'pawl --help' | 'pawl call' | 'pawl worker' | 'startWorker' | 'BullMQ by hand';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const ROUNDS = 15;
const LOAD_CALLS = 20_000;
const BIN = 'node_modules/pawl/bin/pawl.mjs';

/** The programs that a user would write, each as a file of the folder. A tool answers with the time at which it ran. */
const PROGRAMS: Readonly<Record<string, string>> = {
  'empty.mjs': '',
  'tools.mjs': `import { defineTool } from 'pawl';
import { z } from 'zod';
export const clock = defineTool({ name: 'clock', version: '1.0.0', description: 'The time.', tier: 'read-only',
  input: z.object({ number: z.number() }), run: () => ({ output: { atMs: performance.timeOrigin + performance.now() } }) });`,
  'worker.mjs': `import { startWorker } from 'pawl';
import { clock } from './tools.mjs';
const worker = await startWorker({ tools: [clock] });
console.log('ready');
process.on('SIGTERM', () => worker.close().then(() => process.exit()));`,
  'producer.mjs': `import { createInterface } from 'node:readline';
import { connect } from 'pawl';
const session = await (await connect()).openSession({ actorId: 'bench' });
let number = 0;
const call = async () => (await session.call('clock', { number: (number += 1) })).output.content.atMs;
console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  if (line === '1') console.log(await call());
  else {
    let left = Number(line);
    await Promise.all(Array.from({ length: 64 }, async () => { while (left-- > 0) await call(); }));
    console.log('done');
  }
}`,
  'bullmq-worker.mjs': `import { Worker } from 'bullmq';
const connection = { path: process.env.SOCKET, port: process.env.PORT, maxRetriesPerRequest: null };
const worker = new Worker('calls', async () => performance.timeOrigin + performance.now(), { connection, concurrency: 64 });
process.on('SIGTERM', () => worker.close().then(() => process.exit()));`,
  'bullmq-producer.mjs': `import { createInterface } from 'node:readline';
import { Queue, QueueEvents } from 'bullmq';
const connection = { path: process.env.SOCKET, port: process.env.PORT, maxRetriesPerRequest: null };
const [queue, events] = [new Queue('calls', { connection }), new QueueEvents('calls', { connection })];
await events.waitUntilReady();
console.log('ready');
for await (const _ of createInterface({ input: process.stdin }))
  console.log(await (await queue.add('call', {})).waitUntilFinished(events));`,
};

export async function measureInstalled(quick: boolean, say: (line: string) => void): Promise<InstalledResult> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-installed-'));
  try {
    const installed = install(folder);
    say(`${installed.packages} packages, ${Math.round(installed.diskBytes / 1_000_000)} MB`);
    const rounds = quick ? 3 : ROUNDS;
    return await withStore(startServer(), async ({ url }) => ({
      rounds,
      ...installed,
      ...(await measureProcesses(folder, url, rounds, say)),
    }));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Packs the checkout, and installs the package as a user does. */
function install(folder: string): Pick<InstalledResult, 'packages' | 'diskBytes'> {
  const npm = (cwd: string, ...args: readonly string[]) =>
    execFileSync('npm', [...args, '--no-audit', '--no-fund', '--loglevel=error'], {
      cwd,
      stdio: ['ignore', 'pipe', 2],
    });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'package.json'), '{ "name": "program", "private": true, "type": "module" }');
  npm(ROOT, 'pack', '--pack-destination', folder);
  const [archive = ''] = readdirSync(folder).filter((name) => name.endsWith('.tgz'));
  npm(folder, 'install', '--omit=dev', '--ignore-scripts', `./${archive}`);
  for (const [name, text] of Object.entries(PROGRAMS)) writeFileSync(join(folder, name), text);
  const lock = JSON.parse(readFileSync(join(folder, 'node_modules/.package-lock.json'), 'utf8')) as {
    packages: object;
  };
  return { packages: Object.keys(lock.packages).length, diskBytes: diskBytesOf(join(folder, 'node_modules')) };
}

/** The blocks of all files and folders, as `du` counts them. */
function diskBytesOf(path: string): number {
  const entry = lstatSync(path);
  const inside = entry.isDirectory() ? readdirSync(path).map((name) => diskBytesOf(join(path, name))) : [];
  return inside.reduce((sum, bytes) => sum + bytes, entry.blocks * 512);
}

async function measureProcesses(
  folder: string,
  redisUrl: string,
  rounds: number,
  say: (line: string) => void,
): Promise<Pick<InstalledResult, 'starts' | 'memory'>> {
  const place = new Place(folder, redisUrl);
  const producer = await place.producer('producer.mjs');
  const byHand = await place.producer('bullmq-producer.mjs');
  const measures: Readonly<Record<Started, () => Promise<number>>> = {
    'node, empty': () => place.untilEnd('empty.mjs'),
    'pawl --help': () => place.untilEnd(BIN, '--help'),
    'pawl worker': () => place.untilCall(producer, BIN, 'worker', '--tiers', 'read-only', '--tools', 'tools.mjs'),
    startWorker: () => place.untilCall(producer, 'worker.mjs'),
    'BullMQ by hand': () => place.untilCall(byHand, 'bullmq-worker.mjs'),
    'pawl call': () =>
      place.beside('worker.mjs', () => place.untilEnd(BIN, 'call', 'clock', '--params', '{"number":0}')),
  };
  const found = new Map<Started, number[]>();
  try {
    // Makes the tool known, and fills the compile caches: the first round is not counted.
    await place.beside('worker.mjs', () => producer.ask('1'));
    for (let round = 0; round <= rounds; round += 1)
      for (const [what, measure] of Object.entries(measures) as [Started, () => Promise<number>][]) {
        const ms = await measure();
        if (round > 0) found.set(what, [...(found.get(what) ?? []), ms]);
      }
    const starts = [...found].map(([what, all]) => ({ what, medianMs: median(all), shortestMs: Math.min(...all) }));
    for (const { what, medianMs } of starts) say(`${what}: ${Math.round(medianMs)} ms`);
    return { starts, memory: await place.beside('worker.mjs', (worker) => memoryOf(producer, worker)) };
  } finally {
    producer.child.kill();
    byHand.child.kill();
  }
}

async function memoryOf(producer: Producer, worker: ChildProcess): Promise<readonly ProcessMemory[]> {
  await producer.ask('1');
  const idle = [residentBytes(worker), residentBytes(producer.child)] as const;
  await producer.ask(String(LOAD_CALLS));
  return [
    { process: 'worker', idleBytes: idle[0], loadedBytes: residentBytes(worker) },
    { process: 'producer', idleBytes: idle[1], loadedBytes: residentBytes(producer.child) },
  ];
}

function residentBytes({ pid }: ChildProcess): number {
  const [, kibibytes] = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return 1_024 * Number(kibibytes);
}

interface Producer {
  readonly child: ChildProcess;
  /** Resolves with the line that it answers. */
  ask(line: string): Promise<string>;
}

/** The folder with the installed package, and the processes that are started in it. */
class Place {
  readonly #folder: string;
  readonly #environment: NodeJS.ProcessEnv;

  constructor(folder: string, redisUrl: string) {
    const { hostname, port, pathname, protocol } = new URL(redisUrl);
    this.#folder = folder;
    this.#environment = {
      ...process.env,
      REDIS_URL: redisUrl,
      LOG_LEVEL: 'error',
      NODE_COMPILE_CACHE: join(folder, '.compiled'),
      ...(protocol === 'unix:' ? { SOCKET: pathname } : { HOST: hostname, PORT: port }),
    };
  }

  #start(args: readonly string[], stdio: SpawnOptions['stdio'] = ['ignore', 'ignore', 'inherit']): ChildProcess {
    return spawn(process.execPath, args, { cwd: this.#folder, env: this.#environment, stdio });
  }

  async producer(program: string): Promise<Producer> {
    const child = this.#start([program], ['pipe', 'pipe', 'inherit']);
    const { stdin, stdout } = child;
    if (stdin === null || stdout === null) throw new Error(`${program} has no streams`);
    const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
    const next = async () => {
      const { value, done } = await lines.next();
      if (done === true) throw new Error(`${program} ended`);
      return value;
    };
    await next();
    return {
      child,
      ask: async (line) => {
        stdin.write(`${line}\n`);
        return next();
      },
    };
  }

  /** Milliseconds until the process has ended. */
  async untilEnd(...args: readonly string[]): Promise<number> {
    const startedMs = performance.now();
    const [code] = await once(this.#start(args), 'exit');
    if (code !== 0) throw new Error(`${args.join(' ')} ended with code ${code}`);
    return performance.now() - startedMs;
  }

  /** Milliseconds from a worker's start until a call that waits for it runs. */
  async untilCall(producer: Producer, ...args: readonly string[]): Promise<number> {
    const asked = producer.ask('1');
    const startedMs = performance.timeOrigin + performance.now();
    const worker = this.#start(args);
    try {
      return Number(await Promise.race([asked, endedEarly(worker, args)])) - startedMs;
    } finally {
      await stop(worker);
    }
  }

  /** Does something while a worker runs. */
  async beside<Value>(program: string, task: (worker: ChildProcess) => Promise<Value>): Promise<Value> {
    const worker = this.#start([program], ['ignore', 'pipe', 'inherit']);
    try {
      if (worker.stdout !== null) await once(worker.stdout, 'data');
      return await task(worker);
    } finally {
      await stop(worker);
    }
  }
}

async function endedEarly(child: ChildProcess, args: readonly string[]): Promise<never> {
  const [code] = await once(child, 'exit');
  throw new Error(`${args.join(' ')} ended with code ${code}`);
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  child.kill('SIGTERM');
  await once(child, 'exit');
}
