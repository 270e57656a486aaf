/**
 * Latency at fixed rates. The calls of a side start at fixed times, at shares of what it can do at most, whatever is still in
 * flight; and a call's latency counts from the moment at which it should have started, so that a standstill shows in all calls
 * that it held up (no coordinated omission).
 */
import { type Effort, type Ratio, ratioOf } from '../comparison.ts';
import { Fleet, type Measured } from '../fleet.ts';
import { median } from '../statistics.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT, MANY_PRODUCERS } from '../workloads.ts';

export interface FixedRatesResult {
  readonly resultBytes: number;
  readonly rounds: number;
  readonly roundMs: number;
  readonly rates: readonly RateResult[];
}

export interface RateResult {
  readonly producers: number;
  /** Of each side, each with 64 slots. */
  readonly workers: number;
  /** How long the tool takes; the latency includes it. */
  readonly toolMs: number;
  /** Of the side's own throughput with a call in flight for each slot, 0 to 1; in the rows of the lower throughput for both sides. */
  readonly share: number;
  readonly of: 'own' | 'lower';
  readonly bullmq: RateFigures;
  readonly pawl: RateFigures;
  readonly p50Ratio: Ratio;
  readonly p99Ratio: Ratio;
}

export interface RateFigures {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

const RESULT_BYTES = 200;
const LOADS: readonly RateLoad[] = [
  { producers: 1, workers: 1, toolMs: 0, shares: [0.2, 0.5, 0.8] },
  { producers: MANY_PRODUCERS, workers: 1, toolMs: 0, shares: [0.5] },
  { producers: 4, workers: 4, toolMs: 50, shares: [0.8] },
];
const SAME_SHARE = 0.5;
const BASE_ROUNDS = 3;
const SIDES = ['bullmq', 'pawl'] as const;
type RateLoad = Pick<RateResult, 'producers' | 'workers' | 'toolMs'> & { readonly shares: readonly number[] };
type Rates = Readonly<Record<(typeof SIDES)[number], number>>;

export async function measureFixedRates(effort: Effort, say: (line: string) => void): Promise<FixedRatesResult> {
  const rounds = Math.ceil(effort.rounds / 3);
  const roundMs = 3 * effort.roundMs;
  const rates: RateResult[] = [];
  for (const load of LOADS)
    await withStore(startServer(), (server) => {
      const { producers, workers, toolMs, shares } = load;
      return Fleet.with({ sides: new Map(SIDES.map((side) => [side, server])), producers, workers }, async (fleet) => {
        const most = await throughput(fleet, load, effort.warmUpMs, roundMs);
        const lower = Math.min(most.bullmq, most.pawl);
        const wanted = [
          ...shares.map((share) => ({ share, of: 'own' as const, most })),
          { share: SAME_SHARE, of: 'lower' as const, most: { bullmq: lower, pawl: lower } },
        ];
        for (const { share, of, most } of wanted) {
          say(`${producers === 1 ? '1 producer' : `${producers} producers`}, ${100 * share} %`);
          const perSecond = { bullmq: share * most.bullmq, pawl: share * most.pawl };
          const figures = await atRates(fleet, load, perSecond, rounds, roundMs);
          rates.push({ producers, workers, toolMs, share, of, ...figures });
        }
      });
    });
  return { resultBytes: RESULT_BYTES, rounds, roundMs, rates };
}

/** What each side can do at most, in calls per second. */
async function throughput(fleet: Fleet, load: RateLoad, warmUpMs: number, roundMs: number): Promise<Rates> {
  const run = (side: keyof Rates, durationMs: number) =>
    fleet.run(side, load.producers, {
      pace: { inFlight: load.workers * IN_FLIGHT, until: { durationMs } },
      resultBytes: RESULT_BYTES,
      keys: 'fresh',
      toolMs: load.toolMs,
    });
  const found = { bullmq: [] as number[], pawl: [] as number[] };
  for (const side of SIDES) await run(side, warmUpMs);
  for (let number = 0; number < BASE_ROUNDS; number += 1)
    for (const side of SIDES) found[side].push((await run(side, roundMs)).callsPerSecond);
  return { bullmq: median(found.bullmq), pawl: median(found.pawl) };
}

async function atRates(
  fleet: Fleet,
  { producers, toolMs }: RateLoad,
  rates: Rates,
  rounds: number,
  durationMs: number,
): Promise<Pick<RateResult, 'bullmq' | 'pawl' | 'p50Ratio' | 'p99Ratio'>> {
  const found = { bullmq: [] as Measured[], pawl: [] as Measured[] };
  for (let number = 0; number < rounds; number += 1)
    for (const side of number % 2 === 0 ? SIDES : SIDES.toReversed())
      found[side].push(
        await fleet.run(side, producers, {
          pace: { perSecond: rates[side], durationMs },
          resultBytes: RESULT_BYTES,
          keys: 'fresh',
          toolMs,
        }),
      );
  const figures = (side: keyof Rates): RateFigures => ({
    perSecond: rates[side],
    p50Ms: median(found[side].map(({ p50Ms }) => p50Ms)),
    p99Ms: median(found[side].map(({ p99Ms }) => p99Ms)),
  });
  return {
    bullmq: figures('bullmq'),
    pawl: figures('pawl'),
    p50Ratio: ratioOf(found.pawl, found.bullmq, ({ p50Ms }) => p50Ms),
    p99Ratio: ratioOf(found.pawl, found.bullmq, ({ p99Ms }) => p99Ms),
  };
}
