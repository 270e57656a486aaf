/**
 * Compares Pawl with another side in paired rounds: in each, every contender runs once, in turns of order, so that whatever
 * else the machine does meets all of them alike. A ratio is the median of the ratios within the rounds.
 */
import type { Fleet, Measured, Side } from './fleet.ts';
import type { Load } from './protocol.ts';
import { median } from './statistics.ts';
import { IN_FLIGHT, type Workload } from './workloads.ts';

export interface Effort {
  readonly rounds: number;
  readonly roundMs: number;
  readonly warmUpMs: number;
}

/** A ratio over the rounds. */
export interface Ratio {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
}

export interface Compared {
  readonly name: string;
  readonly title: string;
  readonly against: Side;
  /** That were run, and how many of them were left out because other programs took much of the machine meanwhile. */
  readonly rounds: { readonly run: number; readonly disturbed: number; readonly leftOut: number };
  readonly theirs: Measured;
  readonly pawl: Measured;
  /** Pawl's calls per second divided by those of the other side in the same round. */
  readonly throughputRatio: Ratio;
  readonly latencyRatio: Ratio;
  /** CPU time of all processes together. */
  readonly cpuRatio: Ratio;
  /** Pawl's cost per call with all producers divided by that with one of them. */
  readonly growth?: {
    /** That has all calls in flight. */
    readonly overOne: Growth;
    /** That has as many calls in flight as each of them. */
    readonly overAlike: Growth;
  };
  /** Pawl's calls per second divided by those of the same load with fresh keys. */
  readonly overFresh?: { readonly throughput: Ratio; readonly fresh: Measured };
}

export interface Growth {
  readonly worker: Ratio;
  readonly store: Ratio;
  readonly one: Measured;
}

interface Contender {
  readonly id: 'theirs' | 'pawl' | 'one' | 'alike' | 'fresh';
  readonly side: Side;
  readonly producers: number;
  /** Of all of them. */
  readonly inFlight: number;
  readonly keys: Load['keys'];
}

type Round = ReadonlyMap<Contender['id'], Measured>;

/** A round in which other programs took more of the machine's CPU time than this, 0 to 1, is a disturbed one. */
const DISTURBED_SHARE = 0.3;
/** Several producers are warmed up for so many times as long as one. */
const SHARED_WARM_UP = 4;
/** Disturbed rounds are left out where so many others remain. */
const ENOUGH_ROUNDS = 3;

export async function compare(fleet: Fleet, workload: Workload, effort: Effort, against: Side): Promise<Compared> {
  const { producers, keys, resultBytes, inFlight, beside, longer = 1 } = workload;
  const contenders: readonly Contender[] = [
    { id: 'theirs', side: against, producers, inFlight, keys },
    { id: 'pawl', side: 'pawl', producers, inFlight, keys },
    ...(beside === 'one-producer'
      ? ([
          { id: 'one', side: 'pawl', producers: 1, inFlight, keys },
          { id: 'alike', side: 'pawl', producers: 1, inFlight: inFlight / producers, keys },
        ] as const)
      : []),
    ...(beside === 'fresh-keys' ? [{ id: 'fresh', side: 'pawl', producers, inFlight, keys: 'fresh' } as const] : []),
  ];
  const run = (contender: Contender, pace: Load['pace']) =>
    fleet.run(contender.side, contender.producers, { pace, resultBytes, keys: contender.keys });
  const until =
    workload.callsPerRound === undefined ? { durationMs: effort.roundMs * longer } : { calls: workload.callsPerRound };
  for (const contender of contenders) {
    // At full load, whatever is measured afterwards: code that runs seldom takes long to be compiled, and many processes share the cores.
    const durationMs = effort.warmUpMs * (contender.producers > 1 ? SHARED_WARM_UP : 1);
    await run({ ...contender, keys: warmUpKeys(contender.keys) }, { inFlight: IN_FLIGHT, until: { durationMs } });
  }
  const rounds: Round[] = [];
  for (let number = 0; number < Math.ceil(effort.rounds / longer); number += 1) {
    const round = new Map<Contender['id'], Measured>();
    for (const contender of number % 2 === 0 ? contenders : contenders.toReversed()) {
      const measured = await run(contender, { inFlight: contender.inFlight, until });
      if (keys === 'same' && measured.runs !== 1)
        throw new Error(`${contender.side} ran the tool ${measured.runs} times for one key`);
      round.set(contender.id, measured);
    }
    rounds.push(round);
  }
  const quiet = rounds.filter((round) => [...round.values()].every((one) => one.othersShare <= DISTURBED_SHARE));
  const kept = quiet.length >= ENOUGH_ROUNDS ? quiet : rounds;
  return summary(workload, against, kept, {
    run: rounds.length,
    disturbed: rounds.length - quiet.length,
    leftOut: rounds.length - kept.length,
  });
}

/** A key that all share would warm nothing up but its replay. */
function warmUpKeys(keys: Load['keys']): Load['keys'] {
  return keys === 'same' ? 'fresh' : keys;
}

function summary(workload: Workload, against: Side, rounds: readonly Round[], counted: Compared['rounds']): Compared {
  const all = (id: Contender['id']) => rounds.map((round) => round.get(id)).filter((one) => one !== undefined);
  const [theirs, pawl, fresh] = [all('theirs'), all('pawl'), all('fresh')];
  const growthOver = (one: readonly Measured[]): Growth => ({
    worker: ratioOf(pawl, one, (round) => round.cpu.worker),
    store: ratioOf(pawl, one, (round) => round.cpu.store),
    one: middle(one),
  });
  const throughput = (round: Measured) => round.callsPerSecond;
  return {
    name: workload.name,
    title: workload.title,
    against,
    rounds: counted,
    theirs: middle(theirs),
    pawl: middle(pawl),
    throughputRatio: ratioOf(pawl, theirs, throughput),
    latencyRatio: ratioOf(pawl, theirs, (round) => round.p50Ms),
    cpuRatio: ratioOf(pawl, theirs, ({ cpu }) => cpu.worker + cpu.callers + cpu.store),
    ...(workload.beside === 'one-producer'
      ? { growth: { overOne: growthOver(all('one')), overAlike: growthOver(all('alike')) } }
      : {}),
    ...(workload.beside === 'fresh-keys'
      ? { overFresh: { throughput: ratioOf(pawl, fresh, throughput), fresh: middle(fresh) } }
      : {}),
  };
}

/** The median of the ratios within the rounds. */
export function ratioOf<T>(above: readonly T[], below: readonly T[], figure: (one: T) => number): Ratio {
  const ratios = above.map((value, index) => {
    const other = below[index];
    return other === undefined ? Number.NaN : figure(value) / figure(other);
  });
  return { median: median(ratios), lowest: Math.min(...ratios), highest: Math.max(...ratios) };
}

/** The median of each figure by itself. */
export function middle(rounds: readonly Measured[]): Measured {
  const of = (figure: (round: Measured) => number) => median(rounds.map(figure));
  return {
    callsPerSecond: of((round) => round.callsPerSecond),
    p50Ms: of((round) => round.p50Ms),
    p99Ms: of((round) => round.p99Ms),
    cpu: {
      worker: of((round) => round.cpu.worker),
      callers: of((round) => round.cpu.callers),
      store: of((round) => round.cpu.store),
    },
    fileBytesPerCall: of((round) => round.fileBytesPerCall),
    runs: of((round) => round.runs),
    othersShare: of((round) => round.othersShare),
  };
}
