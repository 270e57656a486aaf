/** What is measured. 64 calls are in flight in all, however many producers share them: the same work for the worker. */
import type { Load } from './protocol.ts';

export const IN_FLIGHT = 64;
export const MANY_PRODUCERS = 16;

export interface Target {
  readonly of: 'throughput' | 'latency';
  /** Pawl's figure divided by that of hand-written BullMQ: at least for throughput, at most for latency. */
  readonly ratio: number;
}

export interface Workload {
  readonly name: string;
  readonly title: string;
  readonly producers: number;
  readonly inFlight: number;
  readonly resultBytes: number;
  readonly keys: Load['keys'];
  readonly target?: Target;
  /** Also run the same load through one of Pawl's producers, to see whether the cost grows with their number. */
  readonly growth?: true;
}

const SMALL_BYTES = 200;
const LARGE_BYTES = 32 * 1_024;

export const WORKLOADS: readonly Workload[] = [
  {
    name: 'small-1',
    title: '200 B, 1 producer',
    producers: 1,
    inFlight: IN_FLIGHT,
    resultBytes: SMALL_BYTES,
    keys: 'fresh',
    target: { of: 'throughput', ratio: 1 },
  },
  {
    name: 'one-at-a-time',
    title: '200 B, one call at a time',
    producers: 1,
    inFlight: 1,
    resultBytes: SMALL_BYTES,
    keys: 'fresh',
    target: { of: 'latency', ratio: 1.25 },
  },
  {
    name: 'replays',
    title: '200 B, calls that ended before',
    producers: 1,
    inFlight: IN_FLIGHT,
    resultBytes: SMALL_BYTES,
    keys: 'repeated',
  },
  {
    name: 'large-1',
    title: '32 KiB, 1 producer',
    producers: 1,
    inFlight: IN_FLIGHT,
    resultBytes: LARGE_BYTES,
    keys: 'fresh',
  },
  {
    name: 'small-16',
    title: '200 B, 16 producers',
    producers: MANY_PRODUCERS,
    inFlight: IN_FLIGHT,
    resultBytes: SMALL_BYTES,
    keys: 'fresh',
    target: { of: 'throughput', ratio: 3 },
    growth: true,
  },
  {
    name: 'large-16',
    title: '32 KiB, 16 producers',
    producers: MANY_PRODUCERS,
    inFlight: IN_FLIGHT,
    resultBytes: LARGE_BYTES,
    keys: 'fresh',
    target: { of: 'throughput', ratio: 4 },
  },
];

/** Redis' and the worker's CPU time per call with 16 producers, divided by that with one. */
export const GROWTH_TARGET = 1.25;
/** At the producer, 99th percentile. */
export const REFUSAL_TARGET_MS = 1;
export const REFUSALS = 'refusals';
