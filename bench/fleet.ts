/** The processes of one comparison: for each side a worker and its producers, on one Redis that both take turns with. */
import { cpus } from 'node:os';
import { BenchProcess } from './processes.ts';
import type { Load, LoadReport } from './protocol.ts';
import type { BenchServer } from './server.ts';
import { median, sum } from './statistics.ts';
import { IN_FLIGHT } from './workloads.ts';

export const SIDES = ['bullmq', 'pawl'] as const;
export type Side = (typeof SIDES)[number];

/** A finished call's record lives so long: short, so that every round also pays for forgetting. */
export const TTL_MS = 5_000;
/** From the order to start until the start: time for it to reach every producer. */
const HEAD_START_MS = 50;

/** CPU milliseconds per 1,000 calls. */
export interface CpuCost {
  readonly worker: number;
  readonly callers: number;
  readonly redis: number;
}

/** One round of one side. */
export interface Measured {
  readonly callsPerSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly cpu: CpuCost;
  /** What a call adds to Redis' append-only file. */
  readonly fileBytesPerCall: number;
  /** Share of the machine's CPU time, 0 to 1, that went to programs which are not being measured. */
  readonly othersShare: number;
}

interface Crew {
  readonly worker: BenchProcess;
  readonly producers: readonly BenchProcess[];
}

export class Fleet {
  readonly #server: BenchServer;
  readonly #crews: ReadonlyMap<Side, Crew>;

  private constructor(server: BenchServer, crews: ReadonlyMap<Side, Crew>) {
    this.#server = server;
    this.#crews = crews;
  }

  static async start(
    server: BenchServer,
    options: {
      readonly sides: readonly Side[];
      readonly producers: number;
      readonly ttlMs?: number;
      readonly nodeOptions?: readonly string[];
    },
  ): Promise<Fleet> {
    const start = (program: Parameters<typeof BenchProcess.start>[0]) =>
      BenchProcess.start(
        program,
        {
          redisUrl: server.url,
          prefix: `bench-${program.split('-')[1]}`,
          ttlMs: options.ttlMs ?? TTL_MS,
          concurrency: IN_FLIGHT,
        },
        options.nodeOptions ?? [],
      );
    const crews = new Map<Side, Crew>();
    for (const side of options.sides) {
      const worker = await start(`worker-${side}`);
      const producers = await Promise.all(Array.from({ length: options.producers }, () => start(`producer-${side}`)));
      crews.set(side, { worker, producers });
    }
    return new Fleet(server, crews);
  }

  worker(side: Side): BenchProcess {
    return this.#crew(side).worker;
  }

  producer(side: Side): BenchProcess {
    const [first] = this.#crew(side).producers;
    if (first === undefined) throw new Error(`the side ${side} has no producer`);
    return first;
  }

  #crew(side: Side): Crew {
    const crew = this.#crews.get(side);
    if (crew === undefined) throw new Error(`the side ${side} is not part of this fleet`);
    return crew;
  }

  /** Runs a load, shared by the first `producerCount` producers of a side. */
  async run(side: Side, producerCount: number, load: Omit<Load, 'startAtMs'>): Promise<Measured> {
    const { worker, producers } = this.#crew(side);
    await this.#server.tidy();
    const machineBefore = machineCpuMs();
    const fileBefore = await this.#server.fileBytes();
    const usageBefore = await worker.ask('usage', { collect: false });
    const redisBeforeMs = await this.#server.cpuMs();
    const share = { ...load, inFlight: load.inFlight / producerCount, startAtMs: Date.now() + HEAD_START_MS };
    const reports = await Promise.all(producers.slice(0, producerCount).map((producer) => producer.ask('load', share)));
    const redisCpuMs = (await this.#server.cpuMs()) - redisBeforeMs;
    const workerCpuMs = (await worker.ask('usage', { collect: false })).cpuMs - usageBefore.cpuMs;
    const fileBytes = (await this.#server.fileBytes()) - fileBefore;
    const machine = machineCpuMs();
    return measured(
      reports,
      { workerCpuMs, redisCpuMs, fileBytes },
      machine.busy - machineBefore.busy,
      machine.all - machineBefore.all,
    );
  }

  async stop(): Promise<void> {
    const crews = [...this.#crews.values()];
    await Promise.all(crews.flatMap(({ producers }) => producers).map((producer) => producer.stop()));
    await Promise.all(crews.map(({ worker }) => worker.stop()));
  }
}

/** What all cores did since the machine started. */
function machineCpuMs(): { readonly busy: number; readonly all: number } {
  const times = cpus().map((core) => core.times);
  const all = sum(times.flatMap(({ user, nice, sys, idle, irq }) => [user, nice, sys, idle, irq]));
  return { busy: all - sum(times.map(({ idle }) => idle)), all };
}

function measured(
  reports: readonly LoadReport[],
  cost: { readonly workerCpuMs: number; readonly redisCpuMs: number; readonly fileBytes: number },
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
      redis: perThousand(cost.redisCpuMs),
    },
    fileBytesPerCall: cost.fileBytes / calls,
    othersShare: Math.max(0, (machineBusyMs - cost.workerCpuMs - cost.redisCpuMs - callersMs) / machineMs),
  };
}
