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
  /** Each round starts new processes and stores, one side at a time, and counts from the first call. */
  readonly cold?: true;
}

/** Starts a fleet of one side, with a store of its own. */
export type StartSide = <T>(side: Side, use: (fleet: Fleet) => Promise<T>) => Promise<T>;

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
    /** Of which both make as many calls a second: half of what all producers did while they warmed up. */
    readonly atOneRate: Growth;
  };
  /** Pawl's calls per second divided by those of the same load with fresh keys. */
  readonly overFresh?: { readonly throughput: Ratio; readonly fresh: Measured };
}

export interface Growth {
  readonly worker: Ratio;
  readonly store: Ratio;
  readonly many: Measured;
  readonly one: Measured;
}

interface Contender {
  readonly id: ContenderId;
  readonly side: Side;
  readonly producers: number;
  /** Of all of them together. */
  readonly pace: Load['pace'];
  readonly keys: Load['keys'];
}

type Round = ReadonlyMap<ContenderId, Measured>;
export type ContenderId = 'theirs' | 'pawl' | 'one' | 'alike' | 'paced' | 'paced-one' | 'fresh';

/** A round in which other programs took more of the machine's CPU time than this, 0 to 1, is a disturbed one. */
const DISTURBED_SHARE = 0.3;
/** Several producers are warmed up for so many times as long as one. */
const SHARED_WARM_UP = 4;
const MOST_WARM_UP_MS = 30_000;
/** Of what all producers can do: nothing queues, so that a producer more or less is the only difference. */
const PACED_SHARE = 0.5;
/** Disturbed rounds are left out where so many others remain. */
const ENOUGH_ROUNDS = 3;

export async function compare(fleet: Fleet, workload: Workload, effort: Effort, against: Side): Promise<Compared> {
  const { producers, keys, resultBytes, inFlight, beside, longer = 1, callsPerRound, toolMs = 0 } = workload;
  const run = (contender: Omit<Contender, 'id'>) =>
    fleet.run(contender.side, contender.producers, {
      pace: contender.pace,
      resultBytes,
      keys: contender.keys,
      toolMs,
    });
  // At full load, whatever is measured afterwards: code that runs seldom takes long to be compiled, and many processes share the cores.
  const warmUp = (side: Side, producers: number, keys: Load['keys']) => {
    const durationMs = Math.min(MOST_WARM_UP_MS, effort.warmUpMs * (producers > 1 ? SHARED_WARM_UP : 1));
    return run({ side, producers, pace: { inFlight: Math.max(IN_FLIGHT, inFlight), until: { durationMs } }, keys });
  };
  await warmUp(against, producers, warmUpKeys(keys));
  const { callsPerSecond } = await warmUp('pawl', producers, warmUpKeys(keys));
  if (beside === 'one-producer') await warmUp('pawl', 1, keys);
  if (beside === 'fresh-keys') await warmUp('pawl', producers, 'fresh');

  const durationMs = effort.roundMs * longer;
  const lanes = { inFlight, until: callsPerRound === undefined ? { durationMs } : { calls: callsPerRound } };
  const paced = { perSecond: PACED_SHARE * callsPerSecond, durationMs };
  const contenders: readonly Contender[] = [
    { id: 'theirs', side: against, producers, pace: lanes, keys },
    { id: 'pawl', side: 'pawl', producers, pace: lanes, keys },
    ...(beside === 'one-producer'
      ? ([
          { id: 'one', side: 'pawl', producers: 1, pace: lanes, keys },
          { id: 'alike', side: 'pawl', producers: 1, pace: { ...lanes, inFlight: inFlight / producers }, keys },
          { id: 'paced', side: 'pawl', producers, pace: paced, keys },
          { id: 'paced-one', side: 'pawl', producers: 1, pace: paced, keys },
        ] as const)
      : []),
    ...(beside === 'fresh-keys' ? [{ id: 'fresh', side: 'pawl', producers, pace: lanes, keys: 'fresh' } as const] : []),
  ];
  const rounds: Round[] = [];
  for (let number = 0; number < Math.ceil(effort.rounds / longer); number += 1) {
    const round = new Map<Contender['id'], Measured>();
    for (const contender of number % 2 === 0 ? contenders : contenders.toReversed()) {
      const measured = await run(contender);
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

/** The first seconds of new processes, which are all that many agents live. Each side runs alone. */
export async function compareCold(
  startSide: StartSide,
  workload: Workload,
  effort: Effort,
  against: Side,
): Promise<Compared> {
  const { producers, keys, resultBytes, inFlight, callsPerRound, toolMs = 0 } = workload;
  const until = callsPerRound === undefined ? { durationMs: effort.roundMs } : { calls: callsPerRound };
  const load = { pace: { inFlight, until }, keys, resultBytes, toolMs };
  const sides = [
    ['theirs', against],
    ['pawl', 'pawl'],
  ] as const;
  const rounds: Round[] = [];
  for (let number = 0; number < effort.rounds; number += 1) {
    const round = new Map<'theirs' | 'pawl', Measured>();
    for (const [id, side] of number % 2 === 0 ? sides : sides.toReversed())
      round.set(id, await startSide(side, (fleet) => fleet.run(side, producers, load)));
    rounds.push(round);
  }
  // Neither the same load with fresh keys nor that of one producer ran beside it.
  const { beside: _, ...alone } = workload;
  return summary(alone, against, rounds, { run: effort.rounds, disturbed: 0, leftOut: 0 });
}

/** A key that all share would warm nothing up but its replay. */
function warmUpKeys(keys: Load['keys']): Load['keys'] {
  return keys === 'same' ? 'fresh' : keys;
}

function summary(workload: Workload, against: Side, rounds: readonly Round[], counted: Compared['rounds']): Compared {
  const all = (id: Contender['id']) => rounds.map((round) => round.get(id)).filter((one) => one !== undefined);
  const [theirs, pawl, fresh] = [all('theirs'), all('pawl'), all('fresh')];
  const growth = (many: readonly Measured[], one: readonly Measured[]): Growth => ({
    worker: ratioOf(many, one, (round) => round.cpu.worker),
    store: ratioOf(many, one, (round) => round.cpu.store),
    many: middle(many),
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
      ? {
          growth: {
            overOne: growth(pawl, all('one')),
            overAlike: growth(pawl, all('alike')),
            atOneRate: growth(all('paced'), all('paced-one')),
          },
        }
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
