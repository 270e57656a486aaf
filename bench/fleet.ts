/**
 * The processes of one comparison: for each side its workers and producers, on a store that it has to itself or shares with
 * another side. Sides take turns; those that wait are connected and idle.
 */
import { randomUUID } from 'node:crypto';
import { cpus } from 'node:os';
import { BenchProcess } from './processes.ts';
import type { Load, LoadReport } from './protocol.ts';
import { median, sum } from './statistics.ts';
import type { Store } from './stores/store.ts';
import { IN_FLIGHT, type Peer } from './workloads.ts';

/** Pawl, hand-written BullMQ, and the other systems. */
export type Side = 'pawl' | 'bullmq' | 'list' | Peer;

/** A finished call's record lives so long: short, so that every round also pays for forgetting. */
export const TTL_MS = 5_000;
/** More than the keys that are called repeatedly, and than the jobs that end before a busy producer looks at one of its own. */
const KEPT_JOBS = 10_000;
/** From the order to start until the start: time for it to reach every producer. */
const HEAD_START_MS = 50;

/** CPU milliseconds per 1,000 calls. */
export interface CpuCost {
  readonly worker: number;
  readonly callers: number;
  readonly store: number;
}

/** One round of one side. */
export interface Measured {
  readonly callsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpu: CpuCost;
  /** What a call adds to the store's log. */
  readonly fileBytesPerCall: number;
  /** How often the tool ran. */
  readonly runs: number;
  /** Share of the machine's CPU time, 0 to 1, that went to programs which are not being measured. */
  readonly othersShare: number;
}

interface Crew {
  readonly store: Store;
  readonly workers: readonly BenchProcess[];
  readonly producers: readonly BenchProcess[];
}

export interface FleetOptions {
  readonly sides: ReadonlyMap<Side, Store>;
  /** Of each side. */
  readonly producers: number;
  /** Of each side. Default 1. */
  readonly workers?: number;
  readonly ttlMs?: number;
  readonly kept?: number;
  readonly nodeOptions?: readonly string[];
}

export class Fleet {
  readonly #crews: ReadonlyMap<Side, Crew>;

  private constructor(crews: ReadonlyMap<Side, Crew>) {
    this.#crews = crews;
  }

  /** Starts a fleet, and stops it when its use is over, however that ends. */
  static async with<T>(options: FleetOptions, use: (fleet: Fleet) => Promise<T>): Promise<T> {
    const crews = new Map<Side, Crew>();
    const fleet = new Fleet(crews);
    try {
      for (const [side, store] of options.sides) crews.set(side, await startCrew(side, store, options));
      return await use(fleet);
    } finally {
      await fleet.#stop();
    }
  }

  worker(side: Side): BenchProcess {
    return first(this.#crew(side).workers);
  }

  producer(side: Side): BenchProcess {
    return first(this.#crew(side).producers);
  }

  #crew(side: Side): Crew {
    const crew = this.#crews.get(side);
    if (crew === undefined) throw new Error(`the side ${side} is not part of this fleet`);
    return crew;
  }

  /** Runs a load, shared by the first `producerCount` producers of a side. */
  async run(
    side: Side,
    producerCount: number,
    load: Pick<Load, 'pace' | 'resultBytes' | 'keys' | 'toolMs' | 'together' | 'alike'>,
  ): Promise<Measured> {
    const { store, workers, producers } = this.#crew(side);
    await store.tidy();
    const machineBefore = machineCpuMs();
    const fileBefore = await store.fileBytes();
    const workersBefore = await usageOf(workers);
    const storeBeforeMs = await store.cpuMs();
    const shared = { ...load, sharedKey: randomUUID() };
    const startAtMs = Date.now() + HEAD_START_MS;
    const reports = await Promise.all(
      producers
        .slice(0, producerCount)
        .map((producer, index) => producer.ask('load', shareOf({ ...shared, startAtMs }, producerCount, index))),
    );
    const storeCpuMs = (await store.cpuMs()) - storeBeforeMs;
    const workersAfter = await usageOf(workers);
    const fileBytes = (await store.fileBytes()) - fileBefore;
    const machine = machineCpuMs();
    return measured(
      reports,
      {
        workerCpuMs: workersAfter.cpuMs - workersBefore.cpuMs,
        runs: workersAfter.runs - workersBefore.runs,
        storeCpuMs,
        fileBytes,
      },
      machine.busy - machineBefore.busy,
      machine.all - machineBefore.all,
    );
  }

  async #stop(): Promise<void> {
    const crews = [...this.#crews.values()];
    await Promise.all(crews.flatMap(({ producers }) => producers).map((producer) => producer.stop()));
    await Promise.all(crews.flatMap(({ workers }) => workers).map((worker) => worker.stop()));
  }
}

/** Workers first: what prepares the store, and makes the tool known, is theirs. */
async function startCrew(side: Side, store: Store, options: FleetOptions): Promise<Crew> {
  const start = (role: 'worker' | 'producer') =>
    BenchProcess.start(
      side,
      role,
      {
        storeUrl: store.url,
        prefix: `bench-${side}`,
        ttlMs: options.ttlMs ?? TTL_MS,
        concurrency: IN_FLIGHT,
        kept: options.kept ?? KEPT_JOBS,
      },
      options.nodeOptions ?? [],
    );
  const workers = [await start('worker')];
  while (workers.length < (options.workers ?? 1)) workers.push(await start('worker'));
  const producers = await Promise.all(Array.from({ length: options.producers }, () => start('producer')));
  return { store, workers, producers };
}

function first(processes: readonly BenchProcess[]): BenchProcess {
  const [one] = processes;
  if (one === undefined) throw new Error('the side has no such process');
  return one;
}

/** One producer's part of a load. */
function shareOf(load: Load, producerCount: number, index: number): Load {
  const { pace, startAtMs } = load;
  if ('perSecond' in pace)
    return {
      ...load,
      pace: { ...pace, perSecond: pace.perSecond / producerCount },
      // The producers' calls alternate, so that together they have the rate.
      startAtMs: startAtMs + (index * 1_000) / pace.perSecond,
    };
  const { inFlight, until } = pace;
  return {
    ...load,
    pace: {
      inFlight: inFlight / producerCount,
      until: 'calls' in until ? { calls: until.calls / producerCount } : until,
    },
  };
}

async function usageOf(workers: readonly BenchProcess[]): Promise<{ readonly cpuMs: number; readonly runs: number }> {
  const usages = await Promise.all(workers.map((worker) => worker.ask('usage', { collect: false })));
  return { cpuMs: sum(usages.map((usage) => usage.cpuMs)), runs: sum(usages.map((usage) => usage.runs)) };
}

/** What all cores did since the machine started. */
function machineCpuMs(): { readonly busy: number; readonly all: number } {
  const times = cpus().map((core) => core.times);
  const all = sum(times.flatMap(({ user, nice, sys, idle, irq }) => [user, nice, sys, idle, irq]));
  return { busy: all - sum(times.map(({ idle }) => idle)), all };
}

function measured(
  reports: readonly LoadReport[],
  cost: {
    readonly workerCpuMs: number;
    readonly storeCpuMs: number;
    readonly fileBytes: number;
    readonly runs: number;
  },
  machineBusyMs: number,
  machineMs: number,
): Measured {
  const calls = sum(reports.map((report) => report.calls));
  const elapsedMs = Math.max(...reports.map((report) => report.elapsedMs));
  const callersMs = sum(reports.map((report) => report.cpuMs));
  const perThousand = (ms: number) => (1_000 * ms) / calls;
  return {
    callsPerSecond: (1_000 * calls) / elapsedMs,
    p50Ms: median(reports.map((report) => report.p50Ms)),
    p99Ms: Math.max(...reports.map((report) => report.p99Ms)),
    cpu: {
      worker: perThousand(cost.workerCpuMs),
      callers: perThousand(callersMs),
      store: perThousand(cost.storeCpuMs),
    },
    fileBytesPerCall: cost.fileBytes / calls,
    runs: cost.runs,
    othersShare: Math.max(0, (machineBusyMs - cost.workerCpuMs - cost.storeCpuMs - callersMs) / machineMs),
  };
}
