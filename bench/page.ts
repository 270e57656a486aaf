/** `docs/performance.md`: one chart, one table, how it was measured, and what limits it. */
import type { Compared } from './comparison.ts';
import { days, table, times, whole } from './format.ts';
import type { PeerResult } from './peers.ts';
import type { BenchResult, PhaseResult } from './result.ts';
import { WORKLOADS } from './workloads.ts';

/** The workloads of each peer that the page shows; all of them are in the notes. */
const PEER_ROWS = ['small-1', 'small-16'];

type MeasuredPeer = Extract<PeerResult, { comparisons: unknown }>;

interface ShownRow {
  readonly title: string;
  readonly against: string;
  readonly compared: Compared;
  readonly steady: Compared | undefined;
  readonly cold: Compared | undefined;
}

function bullmqRows({ compared, steady, cold }: BenchResult): readonly ShownRow[] {
  const rowIn = (phase: PhaseResult | undefined, name: string) => phase?.compared.find((row) => row.name === name);
  return compared.map((row) => ({
    title: row.title,
    against: 'BullMQ',
    compared: row,
    steady: rowIn(steady, row.name),
    cold: rowIn(cold, row.name),
  }));
}

function peerRows({ peers, steady, cold }: BenchResult): readonly ShownRow[] {
  return measuredPeers(peers).flatMap(({ peer, title, comparisons }) =>
    comparisons.flatMap(({ durability, compared }) => {
      const rowIn = (phase: PhaseResult | undefined, name: string) =>
        measuredPeers(phase?.peers ?? [])
          .find((one) => one.peer === peer)
          ?.comparisons.find((one) => one.durability === durability)
          ?.compared.find((row) => row.name === name);
      return compared
        .filter(({ name }) => PEER_ROWS.includes(name))
        .map((row) => ({
          title: row.title,
          against: `${title}, durable ${durability}`,
          compared: row,
          steady: rowIn(steady, row.name),
          cold: rowIn(cold, row.name),
        }));
    }),
  );
}

function measuredPeers(peers: readonly PeerResult[]): readonly MeasuredPeer[] {
  return peers.filter((peer): peer is MeasuredPeer => 'comparisons' in peer);
}

function figures(rows: readonly ShownRow[]): string {
  return table([
    ['workload', 'against', 'Pawl calls/s', 'throughput', 'in steady state', 'first 5 s', 'median latency', 'CPU time'],
    ...rows.map(({ title, against, steady, cold, compared: { pawl, throughputRatio, latencyRatio, cpuRatio } }) => [
      title,
      against,
      whole(pawl.callsPerSecond),
      times(throughputRatio.median),
      steady === undefined ? '' : times(steady.throughputRatio.median),
      cold === undefined ? '' : times(cold.throughputRatio.median),
      times(latencyRatio.median),
      times(cpuRatio.median),
    ]),
  ]);
}

/** Throughput as bars, one for each workload that was compared with hand-written BullMQ. */
function chart(rows: readonly ShownRow[]): string {
  const labels = rows.map(({ compared }) => JSON.stringify(compared.name)).join(', ');
  const bars = rows.map(({ compared }) => compared.throughputRatio.median.toFixed(2)).join(', ');
  return [
    '```mermaid',
    'xychart-beta horizontal',
    '  title "Throughput of Pawl divided by that of hand-written BullMQ"',
    `  x-axis [${labels}]`,
    '  y-axis "ratio"',
    `  bar [${bars}]`,
    '```',
  ].join('\n');
}

/** What the other parts of the record found, in one line each. */
function scenarioLines({ refusals, installed, bytes, floor }: BenchResult['scenarios']): readonly string[] {
  return [
    ...(refusals === undefined
      ? []
      : [`- An open circuit refuses ${whole(refusals.bulkPerSecond)} calls a second in one producer.`]),
    ...(installed?.starts ?? [])
      .filter(({ what }) => what === 'pawl worker' || what === 'startWorker')
      .map(({ what, medianMs }) => `- From the start of ${what} to its first call: ${whole(medianMs)} ms.`),
    ...(bytes === undefined
      ? []
      : [
          `- A call of ${bytes.resultBytes} B that is kept takes ${whole(bytes.memoryBytes)} B of Redis memory, its audit records included.`,
          `- It adds ${whole(bytes.fileBytes)} B to Redis' append-only file.`,
        ]),
    ...(floor?.rows ?? []).map(
      ({ title, callsPerSecond }) =>
        `- A bare Redis list without any promise, ${title}: ${whole(callsPerSecond)} calls a second.`,
    ),
  ];
}

/** How the figures in steady state and in the first seconds were measured: a line for each of which there are figures. */
function phaseLines({ steady, cold }: BenchResult): string {
  return [
    ...(steady === undefined
      ? []
      : [
          `- In steady state, rounds take ${steady.effort.roundMs / 1_000} s, after ${steady.effort.warmUpMs / 1_000} s of load (${days(steady.dates)}).\n`,
        ]),
    ...(cold === undefined
      ? []
      : [
          `- The first ${cold.effort.roundMs / 1_000} s are those of new processes and a new store, one side at a time (${days(cold.dates)}).\n`,
        ]),
  ].join('');
}

export function performancePage(result: BenchResult): string {
  const { machine, effort, compared, scenarios } = result;
  const missing = WORKLOADS.filter(({ name }) => !compared.some((row) => row.name === name));
  const shown = bullmqRows(result);
  return `# Performance

\`npm run bench\` measures Pawl beside hand-written BullMQ and other systems. It writes this page from \`bench/record.json\`.
[bench/NOTES.md](../bench/NOTES.md) has every figure and what was tried.

The machine has ${machine.cores} cores (${machine.processor}, ${machine.memoryGiB} GiB, ${machine.platform}). Node is ${machine.node}, Redis
${machine.redis}, Pawl ${machine.pawl}, BullMQ ${machine.bullmq}. The last run was on ${machine.date}.

${chart(shown)}

Each figure below is Pawl's divided by the other side's. Throughput should be above 1, latency and CPU time below.

${figures([...shown, ...peerRows(result)])}
${missing.length === 0 ? '' : `\nNot measured: ${missing.map(({ title }) => title).join('; ')}.\n`}
${scenarioLines(scenarios).join('\n')}

## How it is measured

- Both sides use the same Redis with \`appendfsync everysec\`. Each has one worker process with 64 slots, unless the row says otherwise.
- The tool answers at once, so that only the system itself is measured. 64 calls are in flight unless the row says otherwise.
- The hand-written side adds a job with an ID and waits for it. It has one ready \`QueueEvents\` for each producer.
- Both sides run in each of ${effort.rounds} rounds of ${effort.roundMs / 1_000} s. A ratio is the median of the ratios within the rounds.
${phaseLines(result)}- Each other system is written as its own documentation recommends. Durability is equal in pairs.
- Temporal and Hatchet are not measured: the npm registry has no server of theirs.
- Redis and each worker have a scheduling group of the kernel of their own, as containers have.

## What limits it

- **Many calls in flight:** CPU time. Redis writes a record, a job and an audit entry for each call.
- **One call at a time:** two scripts in Redis, and the time until three processes wake up.
- **512 calls in flight from one producer:** the worker's slots. Hand-written BullMQ is faster there, since its worker always finds a job.
- **Large results:** copies. A result above 4 KiB is written once and fetched by its caller.
- **Many producers:** small steps. Sixteen producers send groups of three calls where one producer sends groups of thirty.
- **Refusals:** nothing but the producer's CPU. No refusal by a circuit makes a round trip.
- **A worker's start:** loading modules.
`;
}
