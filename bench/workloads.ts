/**
 * What is measured. Of the workloads, each side runs the same in turn: most have 64 calls in flight in all, however many producers
 * share them, so that the worker has the same work, and no call waits for a slot. The scenarios ask what no such comparison answers.
 */
import type { Load } from './protocol.ts';

export const IN_FLIGHT = 64;
export const MANY_PRODUCERS = 16;
export const MOST_PRODUCERS = 64;

export type Target =
  /** Pawl's figure divided by the other side's: at least for throughput, at most for latency and CPU time. */
  | { readonly of: 'throughput' | 'latency' | 'cpu'; readonly ratio: number }
  /** Pawl's calls per second divided by those that all slots could do if only the tools took time: at least. */
  | { readonly of: 'slots'; readonly ratio: number }
  /** CPU time per call of the worker, and of Redis, divided by that with one producer: at most. */
  | { readonly of: 'growth'; readonly ratio: number }
  /** Pawl's calls per second divided by those of fresh calls: at least. */
  | { readonly of: 'fresh'; readonly ratio: number };

/** When a fleet is measured, beside the usual short rounds: after a long load, or from the first call of new processes. */
export type Phase = 'steady' | 'cold';

export interface Workload {
  readonly name: string;
  readonly title: string;
  readonly producers: number;
  /** Worker processes of each side. */
  readonly workers: number;
  readonly inFlight: number;
  readonly resultBytes: number;
  readonly keys: Load['keys'];
  readonly targets?: readonly Target[];
  /** Targets of the row in steady state alone. */
  readonly steadyTargets?: readonly Target[];
  /** Targets of the row in the first seconds of new processes. */
  readonly coldTargets?: readonly Target[];
  /**
   * Pawl runs another load, too: the same through one producer only, to see whether the cost grows with their number, or the
   * same with fresh keys.
   */
  readonly beside?: 'one-producer' | 'fresh-keys';
  /** A round makes so many calls, instead of lasting for a time. */
  readonly callsPerRound?: number;
  /** Rounds are this many times as long, and so many times fewer: for what answers slowly. */
  readonly longer?: number;
  /** Finished jobs and events that the hand-written side keeps. */
  readonly kept?: number;
  /** How long the tool takes. Default: it answers at once. */
  readonly toolMs?: number;
  /** Part of the long record only (`--full`). */
  readonly full?: true;
}

export const SMALL_BYTES = 200;
const LARGE_BYTES = 32 * 1_024;
const HUGE_BYTES = 1_024 * 1_024;
const DUPLICATES = 1_000;
/** The slots of four workers. */
const FOUR_WORKERS = 4 * IN_FLIGHT;
/** Most of them wait for a slot. */
const DEEP = 512;

const SMALL = {
  producers: 1,
  workers: 1,
  inFlight: IN_FLIGHT,
  resultBytes: SMALL_BYTES,
  keys: 'fresh',
} as const satisfies Partial<Workload>;

export const WORKLOADS: readonly Workload[] = [
  {
    ...SMALL,
    name: 'small-1',
    title: '200 B, 1 producer',
    targets: [
      { of: 'throughput', ratio: 1.8 },
      { of: 'cpu', ratio: 0.7 },
    ],
  },
  {
    ...SMALL,
    name: 'one-at-a-time',
    title: '200 B, one call at a time',
    inFlight: 1,
  },
  {
    ...SMALL,
    name: 'replays',
    title: '200 B, calls that ended before',
    keys: 'repeated',
    beside: 'fresh-keys',
    targets: [
      { of: 'throughput', ratio: 1.3 },
      { of: 'fresh', ratio: 4 },
    ],
  },
  {
    ...SMALL,
    name: 'deep-1',
    title: '200 B, 1 producer, 512 in flight',
    inFlight: DEEP,
    full: true,
    targets: [{ of: 'throughput', ratio: 1.1 }],
  },
  {
    ...SMALL,
    name: 'deep-16',
    title: '200 B, 16 producers, 512 in flight',
    producers: MANY_PRODUCERS,
    inFlight: DEEP,
    full: true,
  },
  {
    ...SMALL,
    name: 'large-1',
    title: '32 KiB, 1 producer',
    resultBytes: LARGE_BYTES,
    targets: [{ of: 'throughput', ratio: 1.5 }],
  },
  {
    ...SMALL,
    name: 'huge-1',
    title: '1,024 KiB, 1 producer',
    resultBytes: HUGE_BYTES,
    longer: 3,
    kept: 100,
    full: true,
  },
  { ...SMALL, name: 'small-4', title: '200 B, 4 producers', producers: 4, full: true },
  { ...SMALL, name: 'workers-2', title: '200 B, 4 producers, 2 workers', producers: 4, workers: 2, full: true },
  { ...SMALL, name: 'workers-4', title: '200 B, 4 producers, 4 workers', producers: 4, workers: 4, full: true },
  { ...SMALL, name: 'tool-5', title: 'a tool of 5 ms', toolMs: 5, full: true },
  { ...SMALL, name: 'tool-50', title: 'a tool of 50 ms', toolMs: 50, full: true },
  { ...SMALL, name: 'tool-500', title: 'a tool of 500 ms', toolMs: 500, longer: 3, full: true },
  {
    ...SMALL,
    name: 'tool-50-4',
    title: 'a tool of 50 ms, 4 producers, 4 workers, 256 in flight',
    producers: 4,
    workers: 4,
    inFlight: FOUR_WORKERS,
    toolMs: 50,
    full: true,
    targets: [{ of: 'slots', ratio: 0.9 }],
  },
  {
    ...SMALL,
    name: 'duplicates',
    title: '1,000 callers in 4 producers, one key',
    producers: 4,
    keys: 'same',
    inFlight: DUPLICATES,
    callsPerRound: DUPLICATES,
    full: true,
  },
  {
    ...SMALL,
    name: 'small-16',
    title: '200 B, 16 producers',
    producers: MANY_PRODUCERS,
    beside: 'one-producer',
    targets: [{ of: 'growth', ratio: 1.25 }],
    steadyTargets: [
      { of: 'throughput', ratio: 3.5 },
      { of: 'cpu', ratio: 0.35 },
    ],
    coldTargets: [{ of: 'throughput', ratio: 3 }],
  },
  {
    ...SMALL,
    name: 'large-16',
    title: '32 KiB, 16 producers',
    producers: MANY_PRODUCERS,
    resultBytes: LARGE_BYTES,
    targets: [{ of: 'throughput', ratio: 3 }],
  },
  {
    ...SMALL,
    name: 'small-64',
    title: '200 B, 64 producers',
    producers: MOST_PRODUCERS,
    beside: 'one-producer',
    longer: 3,
    full: true,
    targets: [{ of: 'growth', ratio: 1.2 }],
  },
];

/** Rows in the order of the workloads. */
export function inOrder<Row extends { readonly name: string }>(rows: readonly Row[]): readonly Row[] {
  const placeOf = (row: Row) => WORKLOADS.findIndex(({ name }) => name === row.name);
  return rows.toSorted((a, b) => placeOf(a) - placeOf(b));
}

/** Targets of each row against hand-written BullMQ that has none of its own of the same kind. */
const EVERY_ROW: readonly Target[] = [
  { of: 'throughput', ratio: 1 },
  { of: 'latency', ratio: 1.05 },
];

export function targetsOf(name: string, phase?: Phase): readonly Target[] {
  const workload = WORKLOADS.find((each) => each.name === name);
  const own =
    phase === 'cold'
      ? (workload?.coldTargets ?? [])
      : ((phase === 'steady' ? workload?.steadyTargets : undefined) ?? workload?.targets ?? []);
  return [...EVERY_ROW.filter(({ of }) => !own.some((target) => target.of === of)), ...own];
}

/** What a comparison of two sides under one load does not show, in the order of the page. */
export const SCENARIOS = [
  { name: 'floor', title: 'A bare Redis list', full: true },
  { name: 'refusals', title: 'Refusals by an open circuit', full: false },
  { name: 'fixed-rates', title: 'Latency at fixed rates', full: true },
  { name: 'network', title: 'Redis over a network', full: true },
  { name: 'backlog', title: '100,000 calls in the queue', full: true },
  { name: 'installed', title: 'What is installed, and how it starts', full: true },
  { name: 'memory', title: 'Memory', full: true },
  { name: 'bytes', title: 'Bytes of a kept call', full: true },
  { name: 'scale', title: 'A fleet of any size, computed', full: true },
  { name: 'segments', title: 'Calls that leave memory', full: true },
  { name: 'delayed', title: 'Delayed calls', full: true },
  { name: 'plans', title: 'Batches and plans', full: true },
] as const;
export type Scenario = (typeof SCENARIOS)[number]['name'];

/** Of an open circuit's refusals, one at a time, at the producer: the 99th percentile. */
export const REFUSAL_TARGET_MS = 1;
/** Time and CPU time of a batch or plan, against the same calls one by one. */
export const TOGETHER_TARGET = 1.3;

/** Of a producer that is refused with many calls in flight. */
export const REFUSALS_PER_SECOND_TARGET = 200_000;

/**
 * Other systems that do the same work; only with `--full`, or by name. Restate runs with its default partitions, and tuned for the
 * machine, with as many partitions as it has cores: the better of the two is what Pawl has to beat.
 */
export const PEERS = ['pg-boss', 'graphile-worker', 'dbos', 'bunqueue', 'restate', 'restate-tuned'] as const;
export type Peer = (typeof PEERS)[number];
/** Of the workloads, those that they run. */
export const PEER_WORKLOADS: readonly string[] = ['small-1', 'one-at-a-time', 'large-1', 'small-16', 'large-16'];
