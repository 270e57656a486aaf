/**
 * `npm run bench`: Pawl against hand-written BullMQ on the same Redis. The whole run takes about five minutes and writes
 * `bench/results/latest.json` and `docs/performance.md`.
 *
 *   --quick        fewer and shorter rounds, under a minute; the page is left as it is
 *   --only NAME    one workload; the page is left as it is
 *   --memory       memory over 200,000 calls instead of speed
 *   --json         the figures in JSON on standard output instead of the table
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { availableParallelism, cpus, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type Compared, compare, type Effort } from './comparison.ts';
import { Fleet, SIDES } from './fleet.ts';
import { type MemoryResult, measureMemory } from './memory.ts';
import type { RefusalReport } from './protocol.ts';
import { type BenchResult, type Machine, memoryText, reportPage, reportText } from './report.ts';
import { startServer } from './server.ts';
import { MANY_PRODUCERS, REFUSALS, WORKLOADS, type Workload } from './workloads.ts';

/** Many short rounds rather than few long ones: what disturbs a machine comes and goes within seconds. */
const FULL: Effort = { rounds: 21, roundMs: 700, warmUpMs: 3_000 };
const QUICK: Effort = { rounds: 7, roundMs: 300, warmUpMs: 700 };
const REFUSED_CALLS = 20_000;
const MEMORY_CALLS = 200_000;
const RESULTS = new URL('results/', import.meta.url);
const LATEST = new URL('latest.json', RESULTS);
const MEMORY = new URL('memory.json', RESULTS);
const PAGE = new URL('../docs/performance.md', import.meta.url);

const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    memory: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
  },
});
const names = [...WORKLOADS.map((workload) => workload.name), REFUSALS];
if (options.only !== undefined && !names.includes(options.only)) {
  console.error(`There is no workload ${JSON.stringify(options.only)}; there are: ${names.join(', ')}.`);
  process.exit(2);
}
await mkdir(RESULTS, { recursive: true });
await (options.memory ? benchMemory() : benchSpeed());

async function benchSpeed(): Promise<void> {
  const effort = options.quick ? QUICK : FULL;
  const wanted = WORKLOADS.filter((workload) => options.only === undefined || workload.name === options.only);
  const compared: Compared[] = [];
  let refusals: RefusalReport | undefined;
  let redisVersion = '';
  for (const producers of [1, MANY_PRODUCERS]) {
    const workloads = wanted.filter((workload) => workload.producers === producers);
    const refusing = producers === 1 && (options.only === undefined || options.only === REFUSALS);
    if (workloads.length === 0 && !refusing) continue;
    const server = await startServer();
    redisVersion = server.version;
    try {
      say(`starting ${SIDES.length * (1 + producers)} processes`);
      const fleet = await Fleet.start(server, { sides: SIDES, producers });
      try {
        compared.push(...(await compareAll(fleet, workloads, effort)));
        if (refusing) {
          say('refusals by an open circuit');
          refusals = await fleet.producer('pawl').ask('refusals', { calls: REFUSED_CALLS });
        }
      } finally {
        await fleet.stop();
      }
    } finally {
      await server.stop();
    }
  }
  const result: BenchResult = {
    machine: await machine(redisVersion),
    rounds: effort.rounds,
    roundMs: effort.roundMs,
    compared,
    ...(refusals === undefined ? {} : { refusals }),
  };
  await writeFile(LATEST, `${JSON.stringify(result, undefined, 2)}\n`);
  console.log(options.json ? JSON.stringify(result, undefined, 2) : `\n${reportText(result)}`);
  if (options.quick || options.only !== undefined) return;
  await writePage(result);
}

async function compareAll(fleet: Fleet, workloads: readonly Workload[], effort: Effort): Promise<Compared[]> {
  const compared: Compared[] = [];
  for (const workload of workloads) {
    say(workload.title);
    compared.push(await compare(fleet, workload, effort));
  }
  return compared;
}

async function benchMemory(): Promise<void> {
  const result = await measureMemory(options.quick ? MEMORY_CALLS / 10 : MEMORY_CALLS, say);
  await writeFile(MEMORY, `${JSON.stringify(result, undefined, 2)}\n`);
  console.log(options.json ? JSON.stringify(result, undefined, 2) : `\n${memoryText(result)}`);
  const latest = await stored<BenchResult>(LATEST);
  if (!options.quick && latest !== undefined) await writePage(latest);
}

async function writePage(result: BenchResult): Promise<void> {
  await mkdir(new URL('./', PAGE), { recursive: true });
  await writeFile(PAGE, reportPage(result, await stored<MemoryResult>(MEMORY)));
  say(`written: ${fileURLToPath(PAGE)}`);
}

async function stored<T>(file: URL): Promise<T | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as T;
  } catch {
    return undefined;
  }
}

async function machine(redis: string): Promise<Machine> {
  const require = createRequire(import.meta.url);
  const version = (name: string) => (require(name) as { readonly version: string }).version;
  return {
    date: new Date().toISOString().slice(0, 10),
    cores: availableParallelism(),
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    platform: `${process.platform} ${process.arch}`,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.versions.node,
    redis,
    pawl: version('../package.json'),
    bullmq: version('bullmq/package.json'),
    ioredis: version('ioredis/package.json'),
  };
}

/** Progress goes to standard error, so that standard output holds the result alone. */
function say(line: string): void {
  console.error(line);
}
