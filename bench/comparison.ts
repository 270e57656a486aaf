/**
 * Compares Pawl with hand-written BullMQ in paired rounds: in each, every contender runs once, in turns of order, so that
 * whatever else the machine does meets all of them alike. A ratio is the median of the ratios within the rounds.
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
  /** That were run, and how many of them were left out because other programs took much of the machine meanwhile. */
  readonly rounds: { readonly run: number; readonly disturbed: number; readonly leftOut: number };
  readonly bullmq: Measured;
  readonly pawl: Measured;
  /** Pawl's calls per second divided by those of hand-written BullMQ in the same round. */
  readonly throughputRatio: Ratio;
  readonly latencyRatio: Ratio;
  /** CPU time of all processes together. */
  readonly cpuRatio: Ratio;
  /** Cost per call with all producers divided by that with one of them. */
  readonly growth?: { readonly worker: Ratio; readonly redis: Ratio; readonly one: Measured };
}

interface Contender {
  readonly id: 'bullmq' | 'pawl' | 'one';
  readonly side: Side;
  readonly producers: number;
}

type Round = ReadonlyMap<Contender['id'], Measured>;

/** A round in which other programs took more of the machine's CPU time than this, 0 to 1, is a disturbed one. */
const DISTURBED_SHARE = 0.3;
/** Disturbed rounds are left out where so many others remain. */
const ENOUGH_ROUNDS = 3;

export async function compare(fleet: Fleet, workload: Workload, effort: Effort): Promise<Compared> {
  const contenders: readonly Contender[] = [
    { id: 'bullmq', side: 'bullmq', producers: workload.producers },
    { id: 'pawl', side: 'pawl', producers: workload.producers },
    ...(workload.growth === true ? [{ id: 'one', side: 'pawl', producers: 1 } as const] : []),
  ];
  const run = (contender: Contender, load: Omit<Load, 'startAtMs'>) =>
    fleet.run(contender.side, contender.producers, load);
  // At full load, whatever is measured afterwards: code that runs seldom takes long to be compiled.
  const warmUp = { ...loadOf(workload), inFlight: IN_FLIGHT, until: { durationMs: effort.warmUpMs } };
  for (const contender of contenders) await run(contender, warmUp);
  const rounds: Round[] = [];
  for (let number = 0; number < effort.rounds; number += 1) {
    const round = new Map<Contender['id'], Measured>();
    for (const contender of number % 2 === 0 ? contenders : contenders.toReversed())
      round.set(contender.id, await run(contender, { ...loadOf(workload), until: { durationMs: effort.roundMs } }));
    rounds.push(round);
  }
  const quiet = rounds.filter((round) => [...round.values()].every((one) => one.othersShare <= DISTURBED_SHARE));
  const kept = quiet.length >= ENOUGH_ROUNDS ? quiet : rounds;
  return summary(workload, kept, {
    run: rounds.length,
    disturbed: rounds.length - quiet.length,
    leftOut: rounds.length - kept.length,
  });
}

function loadOf({ inFlight, resultBytes, keys }: Workload) {
  return { inFlight, resultBytes, keys };
}

function summary(workload: Workload, rounds: readonly Round[], counted: Compared['rounds']): Compared {
  const all = (id: Contender['id']) => rounds.map((round) => round.get(id)).filter((one) => one !== undefined);
  const [bullmq, pawl, one] = [all('bullmq'), all('pawl'), all('one')];
  const ratio = (above: readonly Measured[], below: readonly Measured[], figure: (one: Measured) => number): Ratio => {
    const ratios = above.map((value, index) => {
      const other = below[index];
      return other === undefined ? Number.NaN : figure(value) / figure(other);
    });
    return { median: median(ratios), lowest: Math.min(...ratios), highest: Math.max(...ratios) };
  };
  return {
    name: workload.name,
    title: workload.title,
    rounds: counted,
    bullmq: middle(bullmq),
    pawl: middle(pawl),
    throughputRatio: ratio(pawl, bullmq, (round) => round.callsPerSecond),
    latencyRatio: ratio(pawl, bullmq, (round) => round.p50Ms),
    cpuRatio: ratio(pawl, bullmq, ({ cpu }) => cpu.worker + cpu.callers + cpu.redis),
    ...(one.length === 0
      ? {}
      : {
          growth: {
            worker: ratio(pawl, one, (round) => round.cpu.worker),
            redis: ratio(pawl, one, (round) => round.cpu.redis),
            one: middle(one),
          },
        }),
  };
}

/** The median of each figure by itself. */
function middle(rounds: readonly Measured[]): Measured {
  const of = (figure: (round: Measured) => number) => median(rounds.map(figure));
  return {
    callsPerSecond: of((round) => round.callsPerSecond),
    p50Ms: of((round) => round.p50Ms),
    p99Ms: of((round) => round.p99Ms),
    cpu: {
      worker: of((round) => round.cpu.worker),
      callers: of((round) => round.cpu.callers),
      redis: of((round) => round.cpu.redis),
    },
    fileBytesPerCall: of((round) => round.fileBytesPerCall),
    othersShare: of((round) => round.othersShare),
  };
}
