/** The figures as a table for people, and as the page in the documentation. */
import type { Compared, Ratio } from './comparison.ts';
import type { CpuCost } from './fleet.ts';
import type { MemoryResult } from './memory.ts';
import type { RefusalReport } from './protocol.ts';
import { median } from './statistics.ts';
import { GROWTH_TARGET, REFUSAL_TARGET_MS, WORKLOADS } from './workloads.ts';

export interface Machine {
  readonly date: string;
  readonly cores: number;
  readonly processor: string;
  readonly platform: string;
  readonly memoryGiB: number;
  readonly node: string;
  readonly redis: string;
  readonly pawl: string;
  readonly bullmq: string;
  readonly ioredis: string;
}

/** What `bench/results/latest.json` holds. */
export interface BenchResult {
  readonly machine: Machine;
  readonly rounds: number;
  readonly roundMs: number;
  readonly compared: readonly Compared[];
  readonly refusals?: RefusalReport;
}

interface Verdict {
  readonly what: string;
  readonly measured: string;
  readonly target: string;
  readonly met: boolean;
}

/** Every target of which there is a figure. */
export function verdicts({ compared, refusals }: Pick<BenchResult, 'compared' | 'refusals'>): readonly Verdict[] {
  const found: Verdict[] = [];
  for (const { name, title, throughputRatio, latencyRatio, growth } of compared) {
    const target = WORKLOADS.find((workload) => workload.name === name)?.target;
    if (target?.of === 'throughput')
      found.push({
        what: `${title}: throughput`,
        measured: times(throughputRatio.median),
        target: `at least ${times(target.ratio)}`,
        met: throughputRatio.median >= target.ratio,
      });
    if (target?.of === 'latency')
      found.push({
        what: `${title}: median latency`,
        measured: times(latencyRatio.median),
        target: `at most ${times(target.ratio)}`,
        met: latencyRatio.median <= target.ratio,
      });
    for (const part of growth === undefined ? [] : (['worker', 'redis'] as const))
      found.push({
        what: `${title}: CPU per call of ${part === 'redis' ? 'Redis' : 'the worker'}, against one producer`,
        measured: times(growth?.[part].median ?? Number.NaN),
        target: `at most ${times(GROWTH_TARGET)}`,
        met: (growth?.[part].median ?? Number.NaN) <= GROWTH_TARGET,
      });
  }
  if (refusals !== undefined)
    found.push({
      what: 'refusal by an open circuit: 99th percentile',
      measured: `${milliseconds(refusals.p99Ms)} ms`,
      target: `under ${REFUSAL_TARGET_MS} ms`,
      met: refusals.p99Ms < REFUSAL_TARGET_MS,
    });
  return found;
}

function times(ratio: number): string {
  return `${ratio.toFixed(2)}×`;
}

function spread({ median, lowest, highest }: Ratio): string {
  return `${times(median)} (${lowest.toFixed(2)} to ${highest.toFixed(2)})`;
}

function whole(value: number): string {
  return Math.round(value).toLocaleString('en');
}

function milliseconds(value: number): string {
  return value < 0.1 ? value.toFixed(4) : value.toFixed(2);
}

function cpu({ worker, callers, redis }: CpuCost): string {
  return [worker, callers, redis].map(whole).join(' / ');
}

type Row = readonly string[];

function figures(compared: readonly Compared[]): readonly Row[] {
  return [
    [
      'workload',
      'BullMQ calls/s',
      'Pawl calls/s',
      'throughput ratio',
      'p50 ms, BullMQ → Pawl',
      'CPU, BullMQ',
      'CPU, Pawl',
      'CPU ratio',
      'file bytes per call',
    ],
    ...compared.map((row) => [
      row.title,
      whole(row.bullmq.callsPerSecond),
      whole(row.pawl.callsPerSecond),
      spread(row.throughputRatio),
      `${milliseconds(row.bullmq.p50Ms)} → ${milliseconds(row.pawl.p50Ms)} (${times(row.latencyRatio.median)})`,
      cpu(row.bullmq.cpu),
      cpu(row.pawl.cpu),
      times(row.cpuRatio.median),
      `${whole(row.bullmq.fileBytesPerCall)} → ${whole(row.pawl.fileBytesPerCall)}`,
    ]),
  ];
}

/** Markdown, with columns aligned for a terminal. */
function table([head, ...body]: readonly Row[]): string {
  const rows = [head ?? [], ...body];
  const widths = (head ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  const line = (row: Row) => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  return [line(head ?? []), `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`, ...body.map(line)].join(
    '\n',
  );
}

function verdictTable(result: Pick<BenchResult, 'compared' | 'refusals'>): string {
  return table([
    ['target', 'measured', 'wanted', 'met'],
    ...verdicts(result).map(({ what, measured, target, met }) => [what, measured, target, met ? 'yes' : 'NO']),
  ]);
}

/** What the terminal shows. */
export function reportText(result: BenchResult): string {
  const { compared, refusals, machine } = result;
  return [
    `${machine.cores} cores (${machine.processor}), Node ${machine.node}, Redis ${machine.redis}, BullMQ ${machine.bullmq}`,
    'CPU: milliseconds per 1,000 calls, worker / callers / Redis. Medians of paired rounds.',
    '',
    ...(compared.length === 0 ? [] : [table(figures(compared)), '']),
    ...(refusals === undefined ? [] : [refusalLine(refusals), '']),
    ...disturbance(compared).flatMap((line) => [line, '']),
    verdictTable(result),
  ].join('\n');
}

function refusalLine({ calls, p50Ms, p99Ms, maxMs }: RefusalReport): string {
  return `An open circuit refused ${whole(calls)} calls, one at a time: median ${milliseconds(p50Ms)} ms, 99th percentile ${milliseconds(p99Ms)} ms, longest ${milliseconds(maxMs)} ms.`;
}

/** Said of the workloads during which other programs took much of the machine. */
function disturbance(compared: readonly Compared[]): readonly string[] {
  return compared.flatMap(({ title, rounds: { run, disturbed, leftOut }, bullmq, pawl }) => {
    if (disturbed === 0) return [];
    const share = Math.round(100 * median([bullmq.othersShare, pawl.othersShare]));
    return leftOut > 0
      ? [`${title}: ${leftOut} of ${run} rounds were disturbed by other programs and left out.`]
      : [
          `${title}: ${disturbed} of ${run} rounds were disturbed, too many to leave them out; other programs took ${share} % of the machine. Trust the ratios more than the figures.`,
        ];
  });
}

export function memoryText({ flatness, record }: MemoryResult): string {
  const mebibytes = (bytes: number) => (bytes / 1_048_576).toFixed(1);
  return [
    table([
      ['process', 'figure', 'after warm-up, MiB', 'at the end, MiB', 'growth', 'flat'],
      ...flatness.map(({ process, figure, earlyBytes, lateBytes, flat }) => [
        process,
        figure,
        mebibytes(earlyBytes),
        mebibytes(lateBytes),
        `${((100 * (lateBytes - earlyBytes)) / earlyBytes).toFixed(1)} %`,
        flat ? 'yes' : 'NO',
      ]),
    ]),
    '',
    `Redis memory per settled call of ${record.resultBytes} B: ${whole(record.bytesPerCall)} B (over ${whole(record.calls)} calls).`,
    `${record.returnedShare >= 0.95 ? 'Given back' : 'NOT GIVEN BACK'} after the time to live of ${record.ttlMs / 1_000} s: ${(100 * record.returnedShare).toFixed(1)} % of it, ${(record.returnedAfterMs / 1_000).toFixed(1)} s after the last call.`,
  ].join('\n');
}

/** `docs/performance.md`. */
export function reportPage(result: BenchResult, memory: MemoryResult | undefined): string {
  const { machine, compared, refusals } = result;
  return `# Performance

Written by \`npm run bench\` (${machine.date}); edit \`bench/report.ts\`, not this page.

${machine.cores} cores (${machine.processor}, ${machine.memoryGiB} GiB, ${machine.platform}), Node ${machine.node}, Redis ${machine.redis} (embedded, \`appendonly yes\`, \`appendfsync everysec\`),
Pawl ${machine.pawl}, BullMQ ${machine.bullmq}, ioredis ${machine.ioredis}.

## Against hand-written BullMQ

\`session.call\` against \`queue.add\` with a job ID and \`job.waitUntilFinished\`, written as well as it can be: one
\`QueueEvents\` for each producer process, ready before the first job; room for any number of listeners; finished jobs kept, but
boundedly. Both sides run on the same Redis, with one worker process of concurrency 64 and a tool that answers at once.

- 64 calls are in flight in all: 64 in one producer, or 4 in each of 16 (each a process of its own).
- ${result.rounds} rounds of ${result.roundMs / 1_000} s, without those in which other programs took more than 30 % of the machine: in each, both sides run once, in turns of order. Figures are medians; a ratio is the median of the ratios
  within the rounds, with the lowest and the highest beside it.
- CPU is user and system time in milliseconds per 1,000 calls: worker / all callers together / Redis. It is the less noisy figure.
- Pawl keeps a record of every call; here for 5 s instead of 24 h, so that every round also pays for forgetting.
- "File bytes per call" is what a call adds to Redis' append-only file. The file is rewritten between the rounds, not in them.
- "Calls that ended before" repeats 500 keys: Pawl replays the recorded result, BullMQ ignores the job and reads its stored one.

${table(figures(compared))}
${disturbance(compared)
  .map((line) => `\n${line}\n`)
  .join('')}${refusals === undefined ? '' : `\n${refusalLine(refusals)}\n`}
## Targets

${verdictTable(result)}

## What limits each number

${LIMITS}
${memory === undefined ? '' : `\n## Memory\n\n${memory.calls.toLocaleString('en')} calls through one producer and one worker (\`npm run bench -- --memory\`, ${memory.date}); the heap is measured after a collection.\n\n${memoryText(memory)}\n`}`;
}

const LIMITS = `- **One producer, 64 in flight: CPU time of all three.** Calls that come at the same time share their steps: claim and enqueue in
  one script, settle, end, take and begin in another. What is left for each call in Redis is about 20 commands inside these: a record of
  about 25 fields, a job, four events for BullMQ's listeners, a lock, the expiry, its share of the audit trail; 8 KB of append-only
  file in all. Hand-written BullMQ has no record, no index, no fence, no trail and no signature to check. The worker spends half as
  much again as BullMQ's does: it validates, limits, traces, audits and fences each attempt.
- **One call at a time: waking processes up.** Both sides have four hops on the way: in, wake, take, and back; what differs is the
  work at each of them. Nothing can be shared with other calls here, so that every script, record and event is paid in full.
- **16 producers: waking processes up.** With 4 calls in flight each, an answer wakes a process for few calls; calls that ended
  together stay together, and share it. Each hand-written producer is also woken for every event of all others. What a call costs
  Pawl's worker and Redis with sixteen producers, against one, is among the targets.
- **32 KiB: copies.** Each copy of a result that a script writes costs Redis about 2.5 µs per KiB (arguments, value, append-only
  file). A result of more than 4 KiB is written once, into the record, and fetched from there by whoever waits; BullMQ writes it
  twice, and sends it to every producer.
- **Replays: one script each way.** Nothing is written but the audit record; the producer's own CPU time is what is left.
- **Refusals: no round trip.** The producer answers from its pushed copy of the circuit.

Tried and not kept, with the effect on CPU time per call in paired rounds: ioredis' auto-pipelining (+24 %), BullMQ's whole text for
taking and ending inside our one script (Redis ±0 %, worker +13 %), plain \`EVALSHA\` instead of ioredis' script commands (+2 %, within
the noise), Redis' time as text, so that Lua formats no numbers
(none).`;
