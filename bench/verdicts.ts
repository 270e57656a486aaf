/** What was aimed at, against what was measured. */

import type { Compared } from './comparison.ts';
import { milliseconds, table, times, whole } from './format.ts';
import type { PeerResult } from './peers.ts';
import type { BenchResult, PhaseResult } from './result.ts';
import type { BytesResult } from './scenarios/bytes.ts';
import type { InstalledResult, ProcessMemory, StartTime } from './scenarios/installed.ts';
import {
  IN_FLIGHT,
  type Peer,
  type Phase,
  REFUSAL_TARGET_MS,
  REFUSALS_PER_SECOND_TARGET,
  SMALL_BYTES,
  type Target,
  TOGETHER_TARGET,
  targetsOf,
  WORKLOADS,
} from './workloads.ts';

export interface Verdict {
  readonly what: string;
  readonly measured: string;
  readonly target: string;
  readonly met: boolean;
}

type Measurements = Pick<BenchResult, 'compared' | 'steady' | 'cold' | 'scenarios' | 'peers'>;

/** Full against empty, either way. */
const BACKLOG_TOLERANCE = 0.1;
const QUIET_CALLS = 20;
/** What Pawl adds to the tool's own time, when calls come at a share of what the fleet can do. */
const MOST_ADDED_MS = 20;
const MOST_MEMORY_BYTES = 700;
const MOST_FILE_BYTES = 4_000;

/** Every target of which there is a figure. */
export function verdicts({ compared, steady, cold, scenarios, peers }: Measurements): readonly Verdict[] {
  const { refusals, backlog, installed, memory, bytes, plans } = scenarios;
  const rates = scenarios['fixed-rates']?.rates ?? [];
  return [
    ...compared.flatMap((row) => targetsOf(row.name).flatMap((target) => ofWorkload(row, target))),
    ...ofPhase('steady', 'In steady state', steady),
    ...ofPhase('cold', 'In the first 5 s', cold),
    ...(refusals === undefined
      ? []
      : [
          {
            what: 'Refusal by an open circuit: 99th percentile',
            measured: `${milliseconds(refusals.p99Ms)} ms`,
            target: `under ${REFUSAL_TARGET_MS} ms`,
            met: refusals.p99Ms < REFUSAL_TARGET_MS,
          },
          {
            what: 'Refusals in a producer, many at once',
            measured: `${whole(refusals.bulkPerSecond)}/s`,
            target: `above ${whole(REFUSALS_PER_SECOND_TARGET)}/s`,
            met: refusals.bulkPerSecond > REFUSALS_PER_SECOND_TARGET,
          },
        ]),
    ...rates
      .filter(({ toolMs, of }) => toolMs > 0 && of === 'own')
      .map(({ producers, workers, toolMs, share, pawl }) => ({
        what: `A tool of ${toolMs} ms, ${producers} producers, ${workers} workers, at ${whole(100 * share)} % of the most: added latency, 99th percentile`,
        measured: `${milliseconds(pawl.p99Ms - toolMs)} ms`,
        target: `at most ${MOST_ADDED_MS} ms`,
        met: pawl.p99Ms - toolMs <= MOST_ADDED_MS,
      })),
    ...(backlog?.sides ?? [])
      .filter(({ side }) => side === 'pawl')
      .flatMap(({ enqueue, run }) =>
        [
          { what: 'enqueue', ratio: enqueue.ratio.median },
          { what: 'run', ratio: run.ratio.median },
        ].map(({ what, ratio }) => ({
          what: `${whole(backlog?.queued ?? 0)} queued: ${what} rate, against an empty queue`,
          measured: times(ratio),
          target: `at least ${times(1 - BACKLOG_TOLERANCE)}`,
          met: ratio >= 1 - BACKLOG_TOLERANCE,
        })),
      ),
    ...(backlog?.quiet ?? []).map(({ queued, toolMs, slots, waitP99Ms, callMs }) => ({
      what: `Quiet session behind ${whole(queued)} calls of ${toolMs} ms, ${slots === 1 ? '1 slot' : `${slots} slots`}: p99 of the wait`,
      measured: `${(waitP99Ms / callMs).toFixed(1)} calls' time`,
      target: `under ${QUIET_CALLS} calls' time`,
      met: waitP99Ms / callMs < QUIET_CALLS,
    })),
    ...(plans?.shapes ?? []).flatMap(({ title, time, cpu }) =>
      [
        { what: 'time', ratio: time.median },
        { what: 'CPU time', ratio: cpu.median },
      ].map(({ what, ratio }) => ({
        what: `${title}: ${what}, against the same calls one by one`,
        measured: times(ratio),
        target: `at most ${times(TOGETHER_TARGET)}`,
        met: ratio <= TOGETHER_TARGET,
      })),
    ),
    ...(installed === undefined ? [] : installedVerdicts(installed)),
    ...(bytes === undefined ? [] : bytesVerdicts(bytes)),
    ...(memory?.flatness ?? []).map(({ process, figure, earlyBytes, lateBytes, flat }) => ({
      what: `Memory over ${whole(memory?.calls ?? 0)} calls: ${process}, ${figure}`,
      measured: `${((100 * (lateBytes - earlyBytes)) / earlyBytes).toFixed(1)} %`,
      target: 'flat after warm-up',
      met: flat,
    })),
    ...ofPeers(peers),
  ];
}

function ofPhase(phase: Phase, words: string, measured: PhaseResult | undefined): readonly Verdict[] {
  if (measured === undefined) return [];
  return [
    ...measured.compared.flatMap((row) =>
      targetsOf(row.name, phase).flatMap((target) => ofWorkload({ ...row, title: `${words}, ${row.title}` }, target)),
    ),
    ...ofPeers(measured.peers).map((verdict) => ({ ...verdict, what: `${words}, ${verdict.what}` })),
  ];
}

function ofPeers(peers: readonly PeerResult[]): readonly Verdict[] {
  return peers
    .flatMap((one) => ('leftOut' in one ? [] : one.comparisons.map((comparison) => ({ ...comparison, ...one }))))
    .flatMap(({ peer, title, durability, compared }) =>
      compared.map((row) => fasterThan(peer, `${title}, ${durability}`, row)),
    );
}

const ALIKE = 'against one producer with as many calls in flight as each of them';
const SAME_RATE = 'against one producer that makes as many calls a second';

function ofWorkload(row: Compared, target: Target) {
  const { name, title, pawl, throughputRatio, latencyRatio, cpuRatio, growth, overFresh } = row;
  const atLeast = (what: string, ratio: number | undefined): readonly Verdict[] =>
    ratio === undefined
      ? []
      : [
          {
            what: `${title}: ${what}`,
            measured: times(ratio),
            target: `at least ${times(target.ratio)}`,
            met: ratio >= target.ratio,
          },
        ];
  const atMost = (what: string, ratio: number | undefined): readonly Verdict[] =>
    ratio === undefined
      ? []
      : [
          {
            what: `${title}: ${what}`,
            measured: times(ratio),
            target: `at most ${times(target.ratio)}`,
            met: ratio <= target.ratio,
          },
        ];
  switch (target.of) {
    case 'throughput':
      return atLeast('throughput', throughputRatio.median);
    case 'slots':
      return atLeast('throughput, against what the slots can do', pawl.callsPerSecond / slotsRate(name));
    case 'fresh':
      return atLeast('throughput, against fresh calls', overFresh?.throughput.median);
    case 'latency':
      return atMost('median latency', latencyRatio.median);
    case 'cpu':
      return atMost('CPU time of all processes', cpuRatio.median);
    case 'growth':
      return [
        ...atMost('CPU per call of the worker, against one producer', growth?.overOne.worker.median),
        ...atMost('CPU per call of Redis, against one producer', growth?.overOne.store.median),
        ...atMost(`CPU per call of the worker, ${ALIKE}`, growth?.overAlike.worker.median),
        ...atMost(`CPU per call of Redis, ${ALIKE}`, growth?.overAlike.store.median),
        ...atMost(`CPU per call of the worker, ${SAME_RATE}`, growth?.atOneRate.worker.median),
        ...atMost(`CPU per call of Redis, ${SAME_RATE}`, growth?.atOneRate.store.median),
      ];
    default:
      return target satisfies never;
  }
}

/** Calls per second of all slots, if only the tools took time. */
function slotsRate(name: string): number {
  const { workers = 0, toolMs = 0 } = WORKLOADS.find((each) => each.name === name) ?? {};
  return (workers * IN_FLIGHT * 1_000) / toolMs;
}

/** What has one call in flight is about latency, all else about throughput. */
function fasterThan(peer: Peer, side: string, { name, title, throughputRatio, latencyRatio }: Compared): Verdict {
  const workload = WORKLOADS.find((each) => each.name === name);
  if (workload?.inFlight === 1)
    return {
      what: `${side}: ${title}: median latency`,
      measured: times(latencyRatio.median),
      target: `under ${times(1)}`,
      met: latencyRatio.median < 1,
    };
  const target = peer.startsWith('restate') ? (workload?.resultBytes === SMALL_BYTES ? 2.5 : 1) : 3;
  return {
    what: `${side}: ${title}: throughput`,
    measured: times(throughputRatio.median),
    target: `at least ${times(target)}`,
    met: throughputRatio.median >= target,
  };
}

export function verdictTable(result: Measurements): string {
  return table([
    ['target', 'measured', 'wanted', 'met'],
    ...verdicts(result).map(({ what, measured, target, met }) => [what, measured, target, met ? 'yes' : 'NO']),
  ]);
}

const MOST_PACKAGES = 120;
const MOST_DISK_BYTES = 60_000_000;
const MOST_START_MS: Partial<Record<StartTime['what'], number>> = {
  'pawl --help': 120,
  'pawl call': 350,
  'pawl worker': 450,
  startWorker: 350,
};
const MOST_RESIDENT_BYTES: Readonly<Record<ProcessMemory['process'], number>> = {
  worker: 200 * 1_048_576,
  producer: 130 * 1_048_576,
};

function bytesVerdicts({ resultBytes, memoryBytes, fileBytes }: BytesResult): readonly Verdict[] {
  const verdict = (what: string, bytes: number, most: number) => ({
    what: `A kept call of ${resultBytes} B: ${what}`,
    measured: `${whole(bytes)} B`,
    target: `at most ${whole(most)} B`,
    met: bytes <= most,
  });
  return [
    verdict('Redis memory', memoryBytes, MOST_MEMORY_BYTES),
    verdict('append-only file', fileBytes, MOST_FILE_BYTES),
  ];
}

function installedVerdicts({ packages, diskBytes, starts, memory }: InstalledResult) {
  const atMost = (what: string, measured: number, most: number, unit: string) => ({
    what,
    measured: `${whole(measured)} ${unit}`,
    target: `at most ${whole(most)} ${unit}`,
    met: measured <= most,
  });
  return [
    atMost('`npm install pawl`: packages', packages, MOST_PACKAGES, 'packages'),
    atMost('`npm install pawl`: disk', diskBytes / 1_000_000, MOST_DISK_BYTES / 1_000_000, 'MB'),
    ...starts.flatMap(({ what, medianMs }) => {
      const most = MOST_START_MS[what];
      return most === undefined ? [] : [atMost(`Installed, \`${what}\``, medianMs, most, 'ms')];
    }),
    ...memory.map(({ process, idleBytes }) =>
      atMost(
        `Resident memory of a ${process} after its first call`,
        idleBytes / 1_048_576,
        MOST_RESIDENT_BYTES[process] / 1_048_576,
        'MiB',
      ),
    ),
  ];
}
