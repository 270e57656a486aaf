/** How late delayed calls start on a quiet fleet, and what 100,000 of them that are not due cost the calls that are. */
import { type Ratio, ratioOf } from '../comparison.ts';
import { Fleet } from '../fleet.ts';
import type { LatenessReport, Turn } from '../protocol.ts';
import { quantile } from '../statistics.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT } from '../workloads.ts';

export interface DelayedResult {
  readonly date: string;
  readonly lateness: LatenessReport;
  /** Delayed calls that are not due. */
  readonly delayed: number;
  /** Calls a second that are due, with those against without them, within the rounds. */
  readonly ratio: Ratio;
  /** From a call to the start of its tool, one at a time. */
  readonly waitP50Ms: { readonly without: number; readonly beside: number };
  readonly waitP99Ms: { readonly without: number; readonly beside: number };
}

const CALLS = 1_000;
const AHEAD_MS = 5_000;
const SPREAD_MS = 10_000;
const DELAYED = 100_000;
const DAY_MS = 24 * 3_600_000;
const ROUND_MS = 2_000;
const ROUNDS = 7;
const RESULT_BYTES = 200;
const ONE_AT_A_TIME_MS = 5_000;

export async function measureDelayed(quick: boolean, say: (line: string) => void): Promise<DelayedResult> {
  const delayed = quick ? DELAYED / 10 : DELAYED;
  const date = new Date().toISOString().slice(0, 10);
  const measured = await withFleet(async (fleet) => {
    say(`${CALLS} delayed calls`);
    const producer = fleet.producer('pawl');
    await rate(fleet);
    const lateness = await producer.ask('lateness', { calls: CALLS, aheadMs: AHEAD_MS, spreadMs: SPREAD_MS });
    const without = [
      await rates(fleet),
      waitsOf(await producer.ask('turns', { durationMs: ONE_AT_A_TIME_MS })),
    ] as const;
    say(`${delayed.toLocaleString('en')} delayed calls that are not due`);
    await producer.ask('fill', { calls: delayed, toolMs: 0, startAfterMs: DAY_MS });
    const beside = [
      await rates(fleet),
      waitsOf(await producer.ask('turns', { durationMs: ONE_AT_A_TIME_MS })),
    ] as const;
    return { lateness, without, beside };
  });
  const { lateness, without, beside } = measured;
  return {
    date,
    lateness,
    delayed,
    ratio: ratioOf(beside[0], without[0], (callsPerSecond) => callsPerSecond),
    waitP50Ms: { without: quantile(without[1], 0.5), beside: quantile(beside[1], 0.5) },
    waitP99Ms: { without: quantile(without[1], 0.99), beside: quantile(beside[1], 0.99) },
  };
}

function withFleet<T>(use: (fleet: Fleet) => Promise<T>): Promise<T> {
  return withStore(startServer(), (server) => Fleet.with({ sides: new Map([['pawl', server]]), producers: 1 }, use));
}

async function rates(fleet: Fleet): Promise<number[]> {
  const found: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) found.push(await rate(fleet));
  return found;
}

async function rate(fleet: Fleet): Promise<number> {
  const { callsPerSecond } = await fleet.run('pawl', 1, {
    pace: { inFlight: IN_FLIGHT, until: { durationMs: ROUND_MS } },
    resultBytes: RESULT_BYTES,
    keys: 'fresh',
  });
  return callsPerSecond;
}

function waitsOf(turns: readonly Turn[]): number[] {
  return turns.map(({ calledAtMs, startedAtMs }) => startedAtMs - calledAtMs);
}
