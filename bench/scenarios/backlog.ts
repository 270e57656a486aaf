/**
 * A full queue against an empty one: how fast calls go in and are run while 100,000 wait, and how long a quiet session waits
 * behind a loud one's.
 */
import { randomUUID } from 'node:crypto';
import { type Ratio, ratioOf } from '../comparison.ts';
import type { Side } from '../fleet.ts';
import { BenchProcess } from '../processes.ts';
import type { ProcessOptions, Turn } from '../protocol.ts';
import { median, quantile } from '../statistics.ts';
import { type BenchServer, startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { until } from '../until.ts';
import { IN_FLIGHT } from '../workloads.ts';

export interface BacklogResult {
  readonly queued: number;
  /** Calls that are added and run in a round. */
  readonly block: number;
  readonly rounds: number;
  readonly sides: readonly BacklogFigures[];
  readonly quiet: readonly QuietFigures[];
}

export interface BacklogFigures {
  readonly side: Side;
  readonly enqueue: Rates;
  readonly run: Rates;
}

/** Calls per second. */
interface Rates {
  readonly empty: number;
  readonly full: number;
  /** Full divided by empty, within the rounds. */
  readonly ratio: Ratio;
}

/** A quiet session calls one at a time while a loud one's calls wait. */
export interface QuietFigures {
  readonly queued: number;
  /** How long the loud session's tool takes. */
  readonly toolMs: number;
  /** Calls that the worker runs at a time. */
  readonly slots: number;
  readonly calls: number;
  /** How long a call of the loud session holds its slot: slots divided by the rate at which its calls begin. */
  readonly callMs: number;
  /** From the call until its tool runs. */
  readonly waitP50Ms: number;
  readonly waitP99Ms: number;
  /** Calls of the loud session that began meanwhile. */
  readonly overtakenP50: number;
  readonly overtakenP99: number;
}

const QUEUED = 100_000;
const BLOCK = 5_000;
/** Runs of a new worker that are not timed: its code is not compiled yet. */
const WARM_UP_RUNS = 1_000;
/** Of a worker whose callers are timed, and not its rate. */
const WARM_RUNS = 200;
const ROUNDS = 15;
const TTL_MS = 5_000;
/** Over before the loud session's calls are. */
const QUIET_MS = 5_000;
/** With one slot, a call that has to wait for one other waits for a call's time; with many, for a part of it. */
const LOUD = [
  { toolMs: 20, slots: IN_FLIGHT, queued: 20_000 },
  { toolMs: 5, slots: 1, queued: 10_000 },
];
/** How much less a quick run does. */
const QUICK = 5;
const POLL_MS = 20;

export async function measureBacklog(quick: boolean, say: (line: string) => void): Promise<BacklogResult> {
  const less = quick ? QUICK : 1;
  const [queued, rounds] = [QUEUED / less, quick ? 2 : ROUNDS];
  const sides: BacklogFigures[] = [];
  const quiet: QuietFigures[] = [];
  for (const side of ['bullmq', 'pawl'] as const)
    await withStore(startServer(), (server) =>
      withQueue(side, server, async (full) => {
        say(`${side}: filling the queue with ${queued.toLocaleString('en')} calls`);
        await withQueue(side, server, async (empty) => {
          await full.loud.ask('fill', { calls: queued, toolMs: 0 });
          sides.push({ side, ...(await inTurns({ empty, full }, rounds)) });
        });
        if (side !== 'pawl') return;
        say('a quiet session behind a loud one');
        quiet.push(await behind(full, { queued, toolMs: 0, slots: IN_FLIGHT }, QUIET_MS / less));
      }),
    );
  for (const { toolMs, slots, ...loud } of LOUD)
    await withStore(startServer(), (server) =>
      withQueue('pawl', server, async (queue) => {
        const calls = loud.queued / less;
        await queue.loud.ask('fill', { calls, toolMs });
        quiet.push(await behind(queue, { queued: calls, toolMs, slots }, QUIET_MS / less));
      }),
    );
  return { queued, block: BLOCK, rounds, sides, quiet };
}

/** A queue with two producers. Workers come and go. */
interface BenchQueue {
  /** Whose calls wait. */
  readonly loud: BenchProcess;
  /** Whose calls are timed: the queue's cost, and not that of a process which waits for 100,000 answers. */
  readonly timed: BenchProcess;
  startWorker(slots?: number): Promise<BenchProcess>;
  startProducer(): Promise<BenchProcess>;
}

/** Its producers end when its use is over, however that ends. */
async function withQueue(side: Side, server: BenchServer, use: (queue: BenchQueue) => Promise<void>): Promise<void> {
  const options: ProcessOptions = {
    storeUrl: server.url,
    prefix: `bench-${randomUUID()}`,
    ttlMs: TTL_MS,
    concurrency: IN_FLIGHT,
    kept: 1_000,
  };
  // Makes the tools known to the producers.
  const worker = await BenchProcess.start(side, 'worker', options);
  await worker.stop();
  const startProducer = () => BenchProcess.start(side, 'producer', options);
  const [loud, timed] = [await startProducer(), await startProducer()];
  try {
    await use({
      loud,
      timed,
      startWorker: (slots = IN_FLIGHT) => BenchProcess.start(side, 'worker', { ...options, concurrency: slots }),
      startProducer,
    });
  } finally {
    await Promise.all([loud.stop(), timed.stop()]);
  }
}

/**
 * In each round both queues get a block of calls while no worker runs, half of it from either producer, and then a worker that
 * runs as many: it takes turns between the two, whatever waits.
 */
async function inTurns(
  queues: { readonly empty: BenchQueue; readonly full: BenchQueue },
  rounds: number,
): Promise<Pick<BacklogFigures, 'enqueue' | 'run'>> {
  const names = ['empty', 'full'] as const;
  const enqueued = { empty: [] as number[], full: [] as number[] };
  const run = { empty: [] as number[], full: [] as number[] };
  const round = async ({ loud, timed, startWorker }: BenchQueue) => {
    const { elapsedMs } = await timed.ask('fill', { calls: BLOCK / 2, toolMs: 0 });
    await loud.ask('fill', { calls: BLOCK / 2, toolMs: 0 });
    return { enqueuedPerSecond: (1_000 * (BLOCK / 2)) / elapsedMs, runPerSecond: await runBlock(startWorker) };
  };
  for (const name of names) await round(queues[name]);
  for (let number = 0; number < rounds; number += 1)
    for (const name of number % 2 === 0 ? names : names.toReversed()) {
      const { enqueuedPerSecond, runPerSecond } = await round(queues[name]);
      enqueued[name].push(enqueuedPerSecond);
      run[name].push(runPerSecond);
    }
  return { enqueue: ratesOf(enqueued), run: ratesOf(run) };
}

function ratesOf({ empty, full }: { readonly empty: readonly number[]; readonly full: readonly number[] }): Rates {
  return { empty: median(empty), full: median(full), ratio: ratioOf(full, empty, (rate) => rate) };
}

/** Calls per second of a worker that is started for as many calls as a block has. */
async function runBlock(startWorker: BenchQueue['startWorker']): Promise<number> {
  const worker = await startWorker();
  try {
    await until(async () => (await worker.ask('usage', { collect: false })).runs >= BLOCK, POLL_MS);
    const [fromMs, toMs] = await worker.ask('run-times', { numbers: [WARM_UP_RUNS, BLOCK] });
    return (1_000 * (BLOCK - WARM_UP_RUNS)) / ((toMs ?? Number.NaN) - (fromMs ?? Number.NaN));
  } finally {
    await worker.stop();
  }
}

async function behind(
  queue: BenchQueue,
  loud: Pick<QuietFigures, 'queued' | 'toolMs' | 'slots'>,
  durationMs: number,
): Promise<QuietFigures> {
  const [worker, quiet] = [await queue.startWorker(loud.slots), await queue.startProducer()];
  try {
    await until(async () => (await worker.ask('usage', { collect: false })).runs >= WARM_RUNS, POLL_MS);
    const turns: readonly Turn[] = await quiet.ask('turns', { durationMs });
    const [first, last] = [turns[0], turns.at(-1)];
    if (first === undefined || last === undefined) throw new Error('the quiet session made no call');
    const whole = { ...first, startedAtMs: last.startedAtMs };
    const [runs = 0, ...overtaken] = await worker.ask('runs-between', { spans: [whole, ...turns] });
    const waitsMs = turns.map(({ calledAtMs, startedAtMs }) => startedAtMs - calledAtMs);
    return {
      ...loud,
      calls: turns.length,
      callMs: (loud.slots * (whole.startedAtMs - whole.calledAtMs)) / runs,
      waitP50Ms: quantile(waitsMs, 0.5),
      waitP99Ms: quantile(waitsMs, 0.99),
      overtakenP50: quantile(overtaken, 0.5),
      overtakenP99: quantile(overtaken, 0.99),
    };
  } finally {
    await quiet.stop();
    await worker.stop();
  }
}
