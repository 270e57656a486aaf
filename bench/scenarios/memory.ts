/**
 * Memory over many calls: that of a producer and a worker must stay flat, and what Redis holds for a settled call must be
 * given back after the record's time to live.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Fleet } from '../fleet.ts';
import { mebibytes } from '../format.ts';
import type { Lanes, Usage } from '../protocol.ts';
import { median } from '../statistics.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT } from '../workloads.ts';

const RESULT_BYTES = 200;
const FLAT_TTL_MS = 3_000;
/** Within which what has ended is forgotten. */
const SWEEP_MS = 1_000;
/** Growth of the middle of the last quarter of samples over that of the second quarter that still counts as flat. */
const FLAT_SHARE = 0.1;
/** Growth that is always allowed: what an allocator or a compiler may still take. */
const FLAT_BYTES = 4 * 1_048_576;
const RECORD_TTL_MS = 15_000;
const RECORD_CALLS = 10_000;
/** Fills the audit trail in Redis, of which the newest 50,000 records are kept, two for each call. */
const FILLING_CALLS = 30_000;
/** Fills what is bounded by time: 20 finished jobs a second are kept for Bull Board until there are 500. */
const FILL_MS = 30_000;
/** Share of a call's memory that must be given back. */
const RETURNED_SHARE = 0.95;
const CALLS = 1_000_000;
const SAMPLES = 40;
const POLL_MS = 500;

export interface Flatness {
  readonly process: 'producer' | 'worker' | 'Redis';
  readonly figure: 'RSS' | 'heap' | 'data';
  readonly earlyBytes: number;
  readonly lateBytes: number;
  readonly flat: boolean;
}

export interface Sample {
  readonly calls: number;
  readonly producer: Usage;
  readonly worker: Usage;
  /** What Redis holds when the records of the calls before have ended. */
  readonly redisBytes: number;
}

export interface MemoryResult {
  readonly date: string;
  readonly calls: number;
  readonly flatness: readonly Flatness[];
  readonly samples: readonly Sample[];
  readonly record: RecordMemory;
}

export interface RecordMemory {
  readonly calls: number;
  readonly resultBytes: number;
  readonly bytesPerCall: number;
  readonly ttlMs: number;
  /** Of the memory that the calls took, the share that Redis had given back at the end. */
  readonly returnedShare: number;
  readonly returnedAfterMs: number;
}

export async function measureMemory(quick: boolean, say: (line: string) => void): Promise<MemoryResult> {
  const calls = quick ? CALLS / 50 : CALLS;
  const samples = await sampleProcesses(calls, quick ? SAMPLES / 5 : SAMPLES, say);
  const record = await measureRecords(say);
  return { date: new Date().toISOString().slice(0, 10), calls, flatness: judge(samples), samples, record };
}

async function sampleProcesses(calls: number, count: number, say: (line: string) => void): Promise<readonly Sample[]> {
  return withStore(startServer(), (server) => {
    const sides = new Map([['pawl', server]] as const);
    return Fleet.with({ sides, producers: 1, ttlMs: FLAT_TTL_MS, nodeOptions: ['--expose-gc'] }, async (fleet) => {
      const samples: Sample[] = [];
      const batch = Math.ceil(calls / count);
      say('filling what is bounded anyway');
      await make(fleet, IN_FLIGHT, { calls: FILLING_CALLS });
      for (let made = batch; made <= calls; made += batch) {
        await make(fleet, IN_FLIGHT, { calls: batch });
        const [producer, worker] = await Promise.all([
          fleet.producer('pawl').ask('usage', { collect: true }),
          fleet.worker('pawl').ask('usage', { collect: true }),
        ]);
        await sleep(FLAT_TTL_MS + SWEEP_MS);
        // The indexes forget with the calls that come later.
        await make(fleet, 1, { calls: 10 });
        const sample = { calls: made, producer, worker, redisBytes: await server.usedMemoryBytes() };
        samples.push(sample);
        if (samples.length % (count / 4) === 0) say(inWords(sample));
      }
      return samples;
    });
  });
}

function make(fleet: Fleet, inFlight: number, until: Lanes['until']): Promise<unknown> {
  return fleet.run('pawl', 1, { pace: { inFlight, until }, resultBytes: RESULT_BYTES, keys: 'fresh' });
}

function inWords({ calls, producer, worker, redisBytes }: Sample): string {
  const usage = ({ rssBytes, heapBytes }: Usage) => `${mebibytes(rssBytes)} MiB (heap ${mebibytes(heapBytes)})`;
  return `${calls.toLocaleString('en')} calls: producer ${usage(producer)}, worker ${usage(worker)}, Redis ${mebibytes(redisBytes)} MiB`;
}

/** Compares the last quarter of the samples with the second one; the first is warm-up. */
export function judge(samples: readonly Sample[]): readonly Flatness[] {
  const quarter = Math.floor(samples.length / 4);
  const flatness = (
    process: Flatness['process'],
    figure: Flatness['figure'],
    bytesOf: (sample: Sample) => number,
  ): Flatness => {
    const values = samples.map(bytesOf);
    const earlyBytes = median(values.slice(quarter, 2 * quarter));
    const lateBytes = median(values.slice(-quarter));
    const flat = lateBytes - earlyBytes <= Math.max(FLAT_BYTES, FLAT_SHARE * earlyBytes);
    return { process, figure, earlyBytes, lateBytes, flat };
  };
  return [
    flatness('producer', 'RSS', ({ producer }) => producer.rssBytes),
    flatness('producer', 'heap', ({ producer }) => producer.heapBytes),
    flatness('worker', 'RSS', ({ worker }) => worker.rssBytes),
    flatness('worker', 'heap', ({ worker }) => worker.heapBytes),
    flatness('Redis', 'data', ({ redisBytes }) => redisBytes),
  ];
}

async function measureRecords(say: (line: string) => void): Promise<RecordMemory> {
  return withStore(startServer(), (server) =>
    Fleet.with({ sides: new Map([['pawl', server]]), producers: 1, ttlMs: RECORD_TTL_MS }, (fleet) =>
      takeAndReturn(fleet, () => server.usedMemoryBytes(), say),
    ),
  );
}

async function takeAndReturn(
  fleet: Fleet,
  usedMemory: () => Promise<number>,
  say: (line: string) => void,
): Promise<RecordMemory> {
  // Kept jobs, the event stream, the connections' buffers.
  say('filling what is bounded anyway');
  await make(fleet, IN_FLIGHT, { calls: FILLING_CALLS });
  await make(fleet, 1, { durationMs: FILL_MS });
  await sleep(RECORD_TTL_MS + 2_000);
  await make(fleet, 1, { calls: 1 });
  const before = await usedMemory();
  await make(fleet, IN_FLIGHT, { calls: RECORD_CALLS });
  const taken = (await usedMemory()) - before;
  const lastCallMs = performance.now();
  const bytesPerCall = taken / RECORD_CALLS;
  say(
    `${RECORD_CALLS.toLocaleString('en')} calls took ${Math.round(bytesPerCall)} B each in Redis; waiting for their end`,
  );
  let returnedShare = 0;
  let returnedAfterMs = 0;
  while (returnedShare < RETURNED_SHARE && returnedAfterMs < 2 * RECORD_TTL_MS + 10_000) {
    await sleep(POLL_MS);
    // A call now and then, as in life: the indexes forget with the calls that come later.
    await make(fleet, 1, { calls: 1 });
    returnedAfterMs = performance.now() - lastCallMs;
    returnedShare = (before + taken - (await usedMemory())) / taken;
  }
  return {
    calls: RECORD_CALLS,
    resultBytes: RESULT_BYTES,
    bytesPerCall,
    ttlMs: RECORD_TTL_MS,
    returnedShare,
    returnedAfterMs,
  };
}
