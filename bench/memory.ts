/**
 * Memory over many calls: that of a producer and a worker must stay flat, and what Redis holds for a settled call must be
 * given back after the record's time to live.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Fleet } from './fleet.ts';
import type { Usage } from './protocol.ts';
import { startServer } from './server.ts';
import { median } from './statistics.ts';
import { IN_FLIGHT } from './workloads.ts';

const RESULT_BYTES = 200;
const FLAT_TTL_MS = 3_000;
/** Growth of the middle of the last quarter of samples over that of the second quarter that still counts as flat. */
const FLAT_SHARE = 0.1;
/** Growth that is always allowed: what an allocator or a compiler may still take. */
const FLAT_BYTES = 4 * 1_048_576;
const RECORD_TTL_MS = 15_000;
const RECORD_CALLS = 10_000;
/** Fills what is bounded anyway: 20 finished jobs a second are kept for Bull Board until there are 500. */
const FILL_MS = 30_000;
/** Share of a call's memory that must be given back. */
const RETURNED_SHARE = 0.95;
const POLL_MS = 500;

export interface Flatness {
  readonly process: 'producer' | 'worker';
  readonly figure: 'RSS' | 'heap';
  readonly earlyBytes: number;
  readonly lateBytes: number;
  readonly flat: boolean;
}

export interface MemoryResult {
  readonly date: string;
  readonly calls: number;
  readonly flatness: readonly Flatness[];
  readonly samples: readonly { readonly calls: number; readonly producer: Usage; readonly worker: Usage }[];
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

export async function measureMemory(calls: number, say: (line: string) => void): Promise<MemoryResult> {
  const samples = await sampleProcesses(calls, say);
  const record = await measureRecords(say);
  return { date: new Date().toISOString().slice(0, 10), calls, flatness: judge(samples), samples, record };
}

async function sampleProcesses(calls: number, say: (line: string) => void): Promise<MemoryResult['samples']> {
  const server = await startServer();
  try {
    const fleet = await Fleet.start(server, {
      sides: ['pawl'],
      producers: 1,
      ttlMs: FLAT_TTL_MS,
      nodeOptions: ['--expose-gc'],
    });
    try {
      const samples: MemoryResult['samples'][number][] = [];
      const batch = Math.ceil(calls / 40);
      for (let made = batch; made <= calls; made += batch) {
        await fleet.run('pawl', 1, {
          inFlight: IN_FLIGHT,
          resultBytes: RESULT_BYTES,
          keys: 'fresh',
          until: { calls: batch },
        });
        const [producer, worker] = await Promise.all([
          fleet.producer('pawl').ask('usage', { collect: true }),
          fleet.worker('pawl').ask('usage', { collect: true }),
        ]);
        samples.push({ calls: made, producer, worker });
        if (samples.length % 10 === 0)
          say(`${made.toLocaleString('en')} calls: producer ${inWords(producer)}, worker ${inWords(worker)}`);
      }
      return samples;
    } finally {
      await fleet.stop();
    }
  } finally {
    await server.stop();
  }
}

function inWords({ rssBytes, heapBytes }: Usage): string {
  return `${(rssBytes / 1_048_576).toFixed(1)} MiB (heap ${(heapBytes / 1_048_576).toFixed(1)})`;
}

/** Compares the last quarter of the samples with the second one; the first is warm-up. */
export function judge(samples: MemoryResult['samples']): readonly Flatness[] {
  const quarter = Math.floor(samples.length / 4);
  const flatness = (process: Flatness['process'], figure: Flatness['figure']): Flatness => {
    const values = samples.map((sample) => sample[process][figure === 'RSS' ? 'rssBytes' : 'heapBytes']);
    const earlyBytes = median(values.slice(quarter, 2 * quarter));
    const lateBytes = median(values.slice(-quarter));
    const flat = lateBytes - earlyBytes <= Math.max(FLAT_BYTES, FLAT_SHARE * earlyBytes);
    return { process, figure, earlyBytes, lateBytes, flat };
  };
  return (['producer', 'worker'] as const).flatMap((process) => [flatness(process, 'RSS'), flatness(process, 'heap')]);
}

async function measureRecords(say: (line: string) => void): Promise<RecordMemory> {
  const server = await startServer();
  try {
    const fleet = await Fleet.start(server, { sides: ['pawl'], producers: 1, ttlMs: RECORD_TTL_MS });
    try {
      return await takeAndReturn(fleet, () => server.usedMemoryBytes(), say);
    } finally {
      await fleet.stop();
    }
  } finally {
    await server.stop();
  }
}

async function takeAndReturn(
  fleet: Fleet,
  usedMemory: () => Promise<number>,
  say: (line: string) => void,
): Promise<RecordMemory> {
  const make = (calls: number, inFlight: number) =>
    fleet.run('pawl', 1, { inFlight, resultBytes: RESULT_BYTES, keys: 'fresh', until: { calls } });
  // Kept jobs, the event stream, the connections' buffers.
  say('filling what is bounded anyway');
  await make(2_000, IN_FLIGHT);
  await fleet.run('pawl', 1, {
    inFlight: 1,
    resultBytes: RESULT_BYTES,
    keys: 'fresh',
    until: { durationMs: FILL_MS },
  });
  await sleep(RECORD_TTL_MS + 2_000);
  await make(1, 1);
  const before = await usedMemory();
  await make(RECORD_CALLS, IN_FLIGHT);
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
    await make(1, 1);
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
