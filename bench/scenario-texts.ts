/** What each scenario found, for the terminal and the page alike. */
import { cpu, mebibytes, milliseconds, spread, table, whole } from './format.ts';
import type { BacklogResult } from './scenarios/backlog.ts';
import type { BytesResult, Share } from './scenarios/bytes.ts';
import type { DelayedResult } from './scenarios/delayed.ts';
import type { FixedRatesResult } from './scenarios/fixed-rates.ts';
import type { FloorResult } from './scenarios/floor.ts';
import type { InstalledResult } from './scenarios/installed.ts';
import type { MemoryResult } from './scenarios/memory.ts';
import type { PlansResult } from './scenarios/plans.ts';
import type { RefusalsResult } from './scenarios/refusals.ts';
import type { ScaleResult } from './scenarios/scale.ts';
import type { SegmentsResult } from './scenarios/segments.ts';

export function refusalsText(result: RefusalsResult): string {
  const { calls, p50Ms, p99Ms, maxMs, bulkCalls, bulkPerSecond, commandsPerThousand } = result;
  return [
    `${whole(calls)} calls, one at a time: median ${milliseconds(p50Ms)} ms, 99th percentile ${milliseconds(p99Ms)} ms, longest ${milliseconds(maxMs)} ms.`,
    `${whole(bulkCalls)} calls, many at once: ${whole(bulkPerSecond)} a second in one producer.`,
    `Redis ran ${commandsPerThousand.toFixed(2)} commands for 1,000 refusals, heartbeats and metrics of all processes included.`,
  ].join('\n');
}

export function fixedRatesText({ resultBytes, rounds, roundMs, rates }: FixedRatesResult): string {
  return [
    `Calls start at fixed times, whatever is in flight, and latency counts from when a call should have started; ${resultBytes} B results, ${rounds} rounds of ${roundMs / 1_000} s for each row. "Own" is a share of what the side did with a call in flight for each slot in this run; "slower side's" is the same rate for both. A worker has 64 slots; latencies include the tool's time.`,
    table([
      [
        'producers',
        'workers',
        'tool, ms',
        'rate',
        'calls/s, BullMQ → Pawl',
        'p50 ms, BullMQ → Pawl',
        'p99 ms, BullMQ → Pawl',
        'p50 ratio',
        'p99 ratio',
      ],
      ...rates.map(({ producers, workers, toolMs, share, of, bullmq, pawl, p50Ratio, p99Ratio }) => [
        String(producers),
        String(workers),
        String(toolMs),
        `${Math.round(100 * share)} % of ${of === 'own' ? 'its own' : "the slower side's"}`,
        `${whole(bullmq.perSecond)} → ${whole(pawl.perSecond)}`,
        `${milliseconds(bullmq.p50Ms)} → ${milliseconds(pawl.p50Ms)}`,
        `${milliseconds(bullmq.p99Ms)} → ${milliseconds(pawl.p99Ms)}`,
        spread(p50Ratio),
        spread(p99Ratio),
      ]),
    ]),
  ].join('\n\n');
}

export function backlogText({ queued, block, rounds, sides, quiet }: BacklogResult): string {
  return [
    `${whole(block)} calls of two producers are added while no worker runs (one of the two is timed), and then run by a new worker (its first thousand are not timed): to an empty queue, and to one in which ${whole(queued)} calls of the other producer wait, in turns, ${rounds} times.`,
    table([
      ['side', 'rate', 'empty, calls/s', 'full, calls/s', 'full / empty'],
      ...sides.flatMap(({ side, enqueue, run }) =>
        [
          { name: 'enqueue', rates: enqueue },
          { name: 'run', rates: run },
        ].map(({ name, rates }) => [
          side === 'pawl' ? 'Pawl' : 'BullMQ',
          name,
          whole(rates.empty),
          whole(rates.full),
          spread(rates.ratio),
        ]),
      ),
    ]),
    ...(quiet.length === 0
      ? []
      : [
          "A quiet session calls one at a time while a loud one's calls wait. A call's time is how long a call of the loud session holds its slot in the worker; \"overtaken by\" is how many of them began between the quiet session's call and its start.",
          table([
            [
              'loud session',
              'slots',
              'quiet calls',
              'wait ms, p50 / p99',
              "a call's time, ms",
              "wait in calls' time, p99",
              'overtaken by, p50 / p99',
            ],
            ...quiet.map((row) => [
              `${whole(row.queued)} calls of ${row.toolMs} ms`,
              whole(row.slots),
              whole(row.calls),
              `${milliseconds(row.waitP50Ms)} / ${milliseconds(row.waitP99Ms)}`,
              milliseconds(row.callMs),
              (row.waitP99Ms / row.callMs).toFixed(1),
              `${whole(row.overtakenP50)} / ${whole(row.overtakenP99)}`,
            ]),
          ]),
        ]),
  ].join('\n\n');
}

export function installedText({ rounds, packages, diskBytes, starts, memory }: InstalledResult): string {
  return [
    `\`npm install pawl --omit=dev\` puts ${packages} packages and ${whole(diskBytes / 1_000_000)} MB on the disk. Times are medians of ${rounds} rounds in turn, of processes with Node's compile cache: a command until it has ended, a worker until a call that waits for it runs.`,
    table([
      ['process', 'median, ms', 'shortest, ms'],
      ...starts.map(({ what, medianMs, shortestMs }) => [what, whole(medianMs), whole(shortestMs)]),
    ]),
    'Resident memory after the first call, and after 20,000 calls, 64 at a time:',
    table([
      ['process', 'first call, MiB', '20,000 calls, MiB'],
      ...memory.map(({ process, idleBytes, loadedBytes }) => [process, mebibytes(idleBytes), mebibytes(loadedBytes)]),
    ]),
  ].join('\n\n');
}

export function floorText({ rounds, rows }: FloorResult): string {
  return [
    `A list takes each call to a worker, and another one its answer back, as many at a time as there are (\`BLMPOP\`): no job, no record, no retry, no signature, and what a process held when it died is lost. ${rounds} rounds each; CPU as above.`,
    table([
      ['workload', 'calls/s', 'p50 ms', 'CPU'],
      ...rows.map((row) => [row.title, whole(row.callsPerSecond), milliseconds(row.p50Ms), cpu(row.cpu)]),
    ]),
  ].join('\n\n');
}

export function memoryText({ date, calls, flatness, record }: MemoryResult): string {
  return [
    `${whole(calls)} calls through one producer and one worker (${date}). The heap is measured after a collection, Redis when the calls' records have ended; "after warm-up" is the median of the second quarter of the samples, "at the end" that of the last.`,
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
    [
      `Redis memory per settled call of ${record.resultBytes} B: ${whole(record.bytesPerCall)} B (over ${whole(record.calls)} calls).`,
      `${record.returnedShare >= 0.95 ? 'Given back' : 'NOT GIVEN BACK'} after the time to live of ${record.ttlMs / 1_000} s: ${(100 * record.returnedShare).toFixed(1)} % of it, ${(record.returnedAfterMs / 1_000).toFixed(1)} s after the last call.`,
    ].join('\n'),
  ].join('\n\n');
}

/** Shares below this are not worth a line. */
const SHOWN_BYTES = 5;

export function bytesText({ date, calls, resultBytes, memoryBytes, memory, fileBytes, file }: BytesResult): string {
  return [
    `${whole(calls)} calls of ${resultBytes} B through one producer and one worker, each kept for a day (${date}): ${whole(memoryBytes)} B of Redis' memory for each call (\`used_memory\`), ${whole(fileBytes)} B of its append-only file. Of the calls' own keys \`MEMORY USAGE\` says:`,
    sharesTable('key', memory),
    'The file has:',
    sharesTable('command and key', file),
  ].join('\n\n');
}

export function segmentsText(result: SegmentsResult): string {
  const { date, calls, resultBytes, keptBytes, movedBytes, fileBytes, movedPerSecond } = result;
  const { lookupP50Ms, lookupP99Ms, longestLookupMs, pingP99Ms, dayBytes } = result;
  return `${whole(calls)} calls of ${resultBytes} B (${date}): ${whole(keptBytes)} B of Redis' memory for each, ${whole(movedBytes)} B and ${whole(fileBytes)} B of a file when its record has moved to a [segment](../docs/segments.md). A mover moves ${whole(movedPerSecond)} calls a second. Finding a call in a segment that was not read before takes ${milliseconds(lookupP50Ms)} ms in the middle, ${milliseconds(lookupP99Ms)} ms at p99, ${milliseconds(longestLookupMs)} ms at most; a PING between two of them took ${milliseconds(pingP99Ms)} ms at p99. Computed from that: a day of 100 calls a second, of which the last ten minutes are in memory, takes ${mebibytes(dayBytes)} MiB.`;
}

export function delayedText({ date, lateness, delayed, ratio, waitP50Ms, waitP99Ms }: DelayedResult): string {
  return [
    `${whole(lateness.calls)} delayed calls through one producer and one worker, their starts spread over 10 s (${date}): late by ${milliseconds(lateness.p50Ms)} ms in the middle, ${milliseconds(lateness.p99Ms)} ms at p99, ${milliseconds(lateness.maxMs)} ms at most; ${whole(lateness.early)} were early.`,
    `Beside ${whole(delayed)} delayed calls that are not due, the others run at ${spread(ratio)} of their rate without them. One at a time, a call waits ${milliseconds(waitP50Ms.beside)} ms for its worker in the middle and ${milliseconds(waitP99Ms.beside)} ms at p99; without them ${milliseconds(waitP50Ms.without)} and ${milliseconds(waitP99Ms.without)} ms.`,
  ].join('\n\n');
}

export function plansText({ date, calls, rounds, shapes }: PlansResult): string {
  const row = ({ title, time, cpu, single, together }: PlansResult['shapes'][number]) => [
    title,
    whole(single.callsPerSecond),
    whole(together.callsPerSecond),
    spread(time),
    spread(cpu),
  ];
  return [
    `${whole(calls)} calls that answer at once, 100 in flight (a chain: one), against the same calls made one by one, in ${rounds} rounds (${date}).`,
    table([['', 'one by one, calls/s', 'together, calls/s', 'time', 'CPU'], ...shapes.map(row)]),
  ].join('\n\n');
}

function sharesTable(title: string, shares: readonly Share[]): string {
  const shown = shares.filter(({ bytes }) => bytes >= SHOWN_BYTES);
  return table([[title, 'bytes per call'], ...shown.map(({ of, bytes }) => [`\`${of}\``, whole(bytes)])]);
}

export function scaleText({ costs, checks, computed }: ScaleResult): string {
  const step = (name: string, { perGroup, perCall }: { readonly perGroup: number; readonly perCall: number }) => [
    name,
    perGroup.toFixed(0),
    perCall.toFixed(1),
  ];
  const share = (busy: number) => `${Math.round(100 * busy)} %`;
  return [
    'Measured: what a step costs, in CPU microseconds.',
    table([
      ['step', 'each group', 'each call in it'],
      step('producer', costs.producer),
      step('a script in Redis (a call goes through two)', costs.redis),
      step('worker', costs.worker),
      step('audit records on their node', costs.audit),
    ]),
    'Checked: the same fleet on this machine, measured and computed, calls a second.',
    table([
      ['fleet', 'measured', 'computed', 'computed / measured'],
      ...checks.map(({ title, measured, computed: found }) => [
        title,
        whole(measured),
        whole(found),
        `${(found / measured).toFixed(2)}×`,
      ]),
    ]),
    `Computed: ${whole(computed[0]?.size.producers ?? 0)} producers with one call in flight each, workers of ${computed[0]?.size.slots} slots, a core for each process, a network of ${(2 * (computed[0]?.size.networkUs ?? 0)) / 1_000} ms there and back. The last columns say how busy the busiest of each kind is.`,
    table([
      [
        'tool',
        'shards',
        'workers',
        'calls/s',
        'p50 ms',
        'producer',
        'shard',
        'node of the audit list',
        'worker',
        'slots',
      ],
      ...computed.map(({ size, callsPerSecond, p50Ms, busy }) => [
        `${size.toolUs / 1_000} ms`,
        String(size.shards),
        whole(size.workers),
        whole(callsPerSecond),
        milliseconds(p50Ms),
        ...[busy.producer, busy.shard, busy.audit, busy.worker, busy.slots].map(share),
      ]),
    ]),
  ].join('\n\n');
}
