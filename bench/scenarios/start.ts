/**
 * How long it takes from a worker's start, as a process, until a call that waits for it runs: what a fleet that grows with its
 * load, or begins at nothing, lets its callers wait.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { BenchProcess } from '../processes.ts';
import type { ProcessOptions } from '../protocol.ts';
import { median } from '../statistics.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT } from '../workloads.ts';

export interface StartResult {
  readonly rounds: number;
  readonly programs: readonly StartFigures[];
}

export interface StartFigures {
  readonly program: 'pawl worker' | 'startWorker' | 'BullMQ by hand';
  readonly medianMs: number;
  readonly longestMs: number;
  /** Of the process, until then. */
  readonly cpuMs: number;
}

interface Start {
  readonly ms: number;
  readonly cpuMs: number;
}

const ROUNDS = 9;
const PAWL = fileURLToPath(new URL('../../bin/pawl.mjs', import.meta.url));
const TOOLS = fileURLToPath(new URL('../tools.ts', import.meta.url));

export async function measureStart(quick: boolean, say: (line: string) => void): Promise<StartResult> {
  const rounds = quick ? 3 : ROUNDS;
  const found = new Map<StartFigures['program'], Start[]>();
  const note = (program: StartFigures['program'], start: Start) =>
    found.set(program, [...(found.get(program) ?? []), start]);
  const cache = await mkdtemp(join(tmpdir(), 'pawl-bench-cache-'));
  await withStore(startServer(), async (server) => {
    for (const side of ['pawl', 'bullmq'] as const) {
      const options: ProcessOptions = {
        storeUrl: server.url,
        prefix: `bench-${side}`,
        ttlMs: 5_000,
        concurrency: IN_FLIGHT,
        kept: 1_000,
      };
      // Makes the tools known to the producer.
      await (await BenchProcess.start(side, 'worker', options)).stop();
      const producer = await BenchProcess.start(side, 'producer', options);
      for (let number = 0; number < rounds; number += 1) {
        if (side === 'pawl') note('pawl worker', await command(producer, options));
        note(side === 'pawl' ? 'startWorker' : 'BullMQ by hand', await program(side, producer, options, cache));
      }
      await producer.stop();
    }
  });
  await rm(cache, { recursive: true, force: true });
  const programs = [...found].map(([program, starts]) => ({
    program,
    medianMs: median(starts.map(({ ms }) => ms)),
    longestMs: Math.max(...starts.map(({ ms }) => ms)),
    cpuMs: median(starts.map(({ cpuMs }) => cpuMs)),
  }));
  for (const { program, medianMs, cpuMs } of programs)
    say(`${program}: ${Math.round(medianMs)} ms, ${Math.round(cpuMs)} ms of CPU time`);
  return { rounds, programs };
}

/** `pawl worker`, which keeps compiled code by itself, as a container starts it. */
async function command(producer: BenchProcess, options: ProcessOptions): Promise<Start> {
  const turns = producer.ask('turns', { calls: 1 });
  const startedMs = wallClockMs();
  const child = spawn(process.execPath, [PAWL, 'worker', '--tiers', 'read-only', '--tools', TOOLS], {
    env: { ...process.env, REDIS_URL: options.storeUrl, PAWL_PREFIX: options.prefix, LOG_LEVEL: 'silent' },
    stdio: 'ignore',
  });
  try {
    const [first] = await Promise.race([turns, endedEarly(child)]);
    return { ms: (first?.startedAtMs ?? Number.NaN) - startedMs, cpuMs: first?.cpuMs ?? Number.NaN };
  } finally {
    if (child.exitCode === null) {
      child.kill('SIGTERM');
      await once(child, 'exit');
    }
  }
}

async function endedEarly(child: ChildProcess): Promise<never> {
  const [code] = (await once(child, 'exit')) as [number | null];
  throw new Error(`pawl worker ended with code ${code}`);
}

/** A program of one's own that starts a worker, with Node's compile cache on. */
async function program(
  side: 'pawl' | 'bullmq',
  producer: BenchProcess,
  options: ProcessOptions,
  cache: string,
): Promise<Start> {
  const load = producer.ask('load', {
    pace: { inFlight: 1, until: { calls: 1 } },
    resultBytes: 200,
    keys: 'fresh',
    sharedKey: '',
    startAtMs: 0,
  });
  const startedMs = wallClockMs();
  const worker = await BenchProcess.start(side, 'worker', options, [], { NODE_COMPILE_CACHE: cache });
  try {
    await load;
    const [firstMs] = await worker.ask('run-times', { numbers: [1] });
    const { cpuMs } = await worker.ask('usage', { collect: false });
    return { ms: (firstMs ?? Number.NaN) - startedMs, cpuMs };
  } finally {
    await worker.stop();
  }
}

function wallClockMs(): number {
  return performance.timeOrigin + performance.now();
}
