/** Every figure as tables: for the terminal, and for `bench/NOTES.md`. */
import type { Compared } from './comparison.ts';
import { cpu, days, milliseconds, spread, table, times, whole } from './format.ts';
import { PEER_LIMITS, TRIED, WORKLOAD_LIMITS } from './limits-text.ts';
import type { PeerResult } from './peers.ts';
import type { BenchResult, PhaseResult } from './result.ts';
import {
  backlogText,
  bytesText,
  delayedText,
  fixedRatesText,
  floorText,
  installedText,
  memoryText,
  plansText,
  refusalsText,
  scaleText,
  segmentsText,
} from './scenario-texts.ts';
import type { NetworkResult } from './scenarios/network.ts';
import { median } from './statistics.ts';
import { verdictTable } from './verdicts.ts';
import { PEERS, type Phase, WORKLOADS } from './workloads.ts';

/** Pawl beside another queue; `more` are columns for what is not measured everywhere. */
function figures(other: string, compared: readonly Compared[], ...more: readonly Column[]): string {
  const columns: readonly Column[] = [
    ['workload', ({ title }) => title],
    [`${other} calls/s`, ({ theirs }) => whole(theirs.callsPerSecond)],
    ['Pawl calls/s', ({ pawl }) => whole(pawl.callsPerSecond)],
    ['throughput ratio', ({ throughputRatio }) => spread(throughputRatio)],
    [
      `p50 ms, ${other} → Pawl`,
      ({ theirs, pawl, latencyRatio }) =>
        `${milliseconds(theirs.p50Ms)} → ${milliseconds(pawl.p50Ms)} (${times(latencyRatio.median)})`,
    ],
    [`CPU, ${other}`, ({ theirs }) => cpu(theirs.cpu)],
    ['CPU, Pawl', ({ pawl }) => cpu(pawl.cpu)],
    ['CPU ratio', ({ cpuRatio }) => times(cpuRatio.median)],
    ...more,
  ];
  return table([columns.map(([title]) => title), ...compared.map((row) => columns.map(([, figure]) => figure(row)))]);
}

type Column = readonly [title: string, figure: (row: Compared) => string];

const FILE_BYTES: Column = [
  'file bytes per call',
  ({ theirs, pawl }) => `${whole(theirs.fileBytesPerCall)} → ${whole(pawl.fileBytesPerCall)}`,
];

/** What the terminal shows of a run, which measured in one phase alone. */
export function reportText(result: BenchResult, phase?: Phase): string {
  const { compared, scenarios, machine, peers } = result;
  const { floor, refusals, network, backlog, installed, memory, bytes, scale, segments, delayed, plans } = scenarios;
  const fixedRates = scenarios['fixed-rates'];
  return [
    `${machine.cores} cores (${machine.processor}), Node ${machine.node}, Redis ${machine.redis}, BullMQ ${machine.bullmq}`,
    'CPU: milliseconds per 1,000 calls, worker / callers / store. Medians of paired rounds.',
    ...(compared.length === 0 ? [] : [figures('BullMQ', compared, FILE_BYTES)]),
    ...(floor === undefined ? [] : [floorText(floor)]),
    ...(refusals === undefined ? [] : [refusalsText(refusals)]),
    ...(fixedRates === undefined ? [] : [fixedRatesText(fixedRates)]),
    ...(network === undefined ? [] : [networkText(network)]),
    ...(backlog === undefined ? [] : [backlogText(backlog)]),
    ...(installed === undefined ? [] : [installedText(installed)]),
    ...(memory === undefined ? [] : [memoryText(memory)]),
    ...(bytes === undefined ? [] : [bytesText(bytes)]),
    ...(scale === undefined ? [] : [scaleText(scale)]),
    ...(segments === undefined ? [] : [segmentsText(segments)]),
    ...(delayed === undefined ? [] : [delayedText(delayed)]),
    ...(plans === undefined ? [] : [plansText(plans)]),
    ...peers.map(peerText),
    ...disturbance(compared),
    verdictTable(phase === undefined ? result : { compared: [], scenarios: {}, peers: [], [phase]: result }),
  ].join('\n\n');
}

/** Said of the workloads during which other programs took much of the machine. */
function disturbance(compared: readonly Compared[]): readonly string[] {
  return compared.flatMap(({ title, rounds: { run, disturbed, leftOut }, theirs, pawl }) => {
    if (disturbed === 0) return [];
    const share = Math.round(100 * median([theirs.othersShare, pawl.othersShare]));
    return leftOut > 0
      ? [`${title}: ${leftOut} of ${run} rounds were disturbed by other programs and left out.`]
      : [
          `${title}: ${disturbed} of ${run} rounds were disturbed, too many to leave them out; other programs took ${share} % of the machine. Trust the ratios more than the figures.`,
        ];
  });
}

/** How the rows of a phase were measured. */
function phaseWords(
  { dates, effort: { rounds, roundMs, warmUpMs, cold } }: PhaseResult,
  counted = `${rounds} rounds`,
): string {
  const each = `${counted} of ${roundMs / 1_000} s for each side`;
  return cold
    ? `In the first ${roundMs / 1_000} s of new processes and a new store (${days(dates)}): ${each}, one side at a time.`
    : `In steady state (${days(dates)}): ${each}, after ${warmUpMs / 1_000} s of load.`;
}

/** Such as `1 to 3 rounds`; undefined where all systems were left out. */
function roundsOfPeers(peers: readonly PeerResult[]): string | undefined {
  const runs = peers
    .flatMap((peer) => ('leftOut' in peer ? [] : peer.comparisons))
    .flatMap(({ compared }) => compared.map(({ rounds }) => rounds.run));
  if (runs.length === 0) return undefined;
  const [fewest, most] = [Math.min(...runs), Math.max(...runs)];
  return `${fewest === most ? '' : `${fewest} to `}${most} rounds`;
}

/** The rows of a phase against hand-written BullMQ. */
function phaseText(phase: PhaseResult | undefined): string {
  if (phase === undefined || phase.compared.length === 0) return '';
  return `
${phaseWords(phase)}

${figures('BullMQ', phase.compared, FILE_BYTES)}
${paragraphs(disturbance(phase.compared))}`;
}

/** The rows of a phase against other systems. */
function phasePeersText(phase: PhaseResult | undefined): string {
  if (phase === undefined || phase.peers.length === 0) return '';
  return `${phaseWords(phase, roundsOfPeers(phase.peers))}\n\n${phase.peers.map(peerText).join('\n\n')}\n\n`;
}

function peerText(result: PeerResult): string {
  if ('leftOut' in result) return `**${result.peer}** was left out: ${result.leftOut}.`;
  const { peer, title, store, comparisons } = result;
  return comparisons
    .map(({ durability, settings, compared }) =>
      [
        `**${title} on ${store}, durable ${durability}** (${settings})`,
        figures(peer, compared),
        ...disturbance(compared),
      ].join('\n\n'),
    )
    .join('\n\n');
}

function networkText({ distances }: NetworkResult): string {
  return distances
    .map(({ roundTripMs, compared }) =>
      [
        `**A PING takes ${milliseconds(roundTripMs)} ms**`,
        figures('BullMQ', compared, FILE_BYTES),
        ...disturbance(compared),
      ].join('\n\n'),
    )
    .join('\n\n');
}

/** `bench/NOTES.md`: every figure, how it was measured, what limits it and what was tried. */
export function notesPage(result: BenchResult): string {
  const { machine, effort, compared, scenarios } = result;
  const { floor, refusals, network, backlog, installed, memory, bytes, scale, segments, delayed, plans } = scenarios;
  const missing = WORKLOADS.filter(({ name }) => !compared.some((row) => row.name === name));
  return `# Every figure of the benchmark

\`npm run bench\` writes this page (${machine.date}) from \`bench/record.json\`; its words stand in \`bench/report.ts\` and \`bench/limits-text.ts\`. Edit the words
there: \`npm run bench -- --page\` writes the page again. The summary is [docs/performance.md](../docs/performance.md).

${machine.cores} cores (${machine.processor}, ${machine.memoryGiB} GiB, ${machine.platform}), Node ${machine.node}, Redis ${machine.redis} (embedded, \`appendonly yes\`, \`appendfsync everysec\`),
Pawl ${machine.pawl}, BullMQ ${machine.bullmq}, ioredis ${machine.ioredis}.

${older(result)}## Targets

${verdictTable(result)}

## Against hand-written BullMQ

\`session.call\` against \`queue.add\` with a job ID and \`job.waitUntilFinished\`, written as well as it can be: one
\`QueueEvents\` for each producer process, ready before the first job; room for any number of listeners; finished jobs and events kept,
but boundedly. Both sides run on the same Redis, with worker processes of concurrency 64 (one, unless the row says otherwise) and a
tool that answers at once.

- 64 calls are in flight in all: 64 in one producer, or 4 in each of 16 (each a process of its own). The rows that say so, and that of one key, have more.
- ${effort.rounds} rounds of ${effort.roundMs / 1_000} s (where answers are slow, a third as many of three times the length), without those in which other programs
  took more than 30 % of the machine: in each, both sides run once, in turns of order. Figures are medians; a ratio is the median of
  the ratios within the rounds, with the lowest and the highest beside it.
- Before the first round every side runs for some seconds unmeasured; several producers, which share the cores, for longer than one.
- Redis and each worker have a scheduling group of the kernel of their own, as containers have; the callers share one. Where all share one,
  16 busy callers leave Redis an eighteenth of two cores, and hand-written BullMQ suffers most.
- CPU is user and system time in milliseconds per 1,000 calls: worker / all callers together / Redis. It is the less noisy figure.
- Pawl keeps a record of every call; here for 5 s instead of 24 h, so that every round also pays for forgetting.
- "File bytes per call" is what a call adds to Redis' append-only file. The file is rewritten between the rounds, not in them.
- Results are words in a random order, which compress to between a half and a third.
- "Calls that ended before" repeats 500 keys: Pawl replays the recorded result, BullMQ ignores the job and reads its stored one.
- "One key" has its tool run once in each round, on either side, or the benchmark fails.

${figures('BullMQ', compared, FILE_BYTES)}
${paragraphs(disturbance(compared))}${phaseText(result.steady)}${phaseText(result.cold)}${missing.length === 0 ? '' : `\nNot part of this run: ${missing.map(({ title }) => title).join('; ')} (\`npm run bench -- --full\`).\n`}
What limits each:

${WORKLOAD_LIMITS}

## A bare Redis list

${floor === undefined ? notRun('floor') : floorText(floor)}

It is the floor of whatever goes through Redis and is awaited in Node: none of the promises that Pawl and BullMQ make is in it.

## Refusals by an open circuit

${refusals === undefined ? notRun('refusals') : refusalsText(refusals)}

What limits it: no round trip. The producer answers from its pushed copy of the circuit; what is left is the envelope, the rules that
stand before the circuit (session, policy, schema), the answer and a count for the metrics, all in one process and on one core. Since
2026-11-23 nothing of it waits for a turn: a thousand refusals at once keep nothing alive but their answers, twice as many a second.

## Latency at fixed rates

${scenarios['fixed-rates'] === undefined ? notRun('fixed-rates') : fixedRatesText(scenarios['fixed-rates'])}

What limits it: at a fifth of the throughput, the hops of a single call, and a timer of 1 ms that starts the calls; near the
throughput, the queue in front of the slowest of the three processes.

## Redis over a network

Above, Redis is on the machine of its clients. Here all that goes between them is held up on its way, each way. Otherwise both sides run as
above, ${Math.ceil(effort.rounds / 3)} rounds of ${(3 * effort.roundMs) / 1_000} s.

${network === undefined ? notRun('network') : networkText(network)}

What limits it: one call at a time, two round trips: to Redis, from there to a worker in the same step, back, and from there to the
caller. With many in flight, no round trip: claims, pushes and ends of many calls share theirs, and go on while others are under way. Hand-written
BullMQ's worker fetches jobs one after the other, a round trip for each, however many it may run at a time; more workers help it.

## 100,000 calls in the queue

${backlog === undefined ? notRun('backlog') : backlogText(backlog)}

What limits it: a session's calls wait in a line of their own, and sessions take turns from a ring, so that adding and taking cost the
same however many wait. A quiet session's call waits for what workers have already taken: at most what they run at a time.

## What is installed, and how it starts

${installed === undefined ? notRun('installed') : installedText(installed)}

What limits it: loading modules. The published package is bundled: what is loaded together is one file, with the libraries of a start.
A worker loads some twenty files of Pawl's instead of three hundred and fifty, and none of BullMQ's 172 and ioredis' 45; Zod's 95 (with every
language) are loaded by a program's tools anyway, a sixth of a start. Interleaved with the package before it, in CPU time until the first call
(milliseconds, medians of 7 on a busy machine):

| process | before | now |
|---|---|---|
| \`startWorker\` in a program | 491 | 339 |
| \`pawl worker\` | 536 | 394 |
| \`pawl call\`, until its end | 367 | 321 |
| \`pawl --help\`, until its end | 64 | 59 |

The rest, of a worker: Node itself 22, Zod 57, V8's collector 40, modules of Pawl and their schemas 90, ioredis' 400 commands 15. Base tools make
their schemas when they are read, and no program is started to try the sandbox unless a tool needs it (a tenth of a start). Node's own modules
cost 10 more by \`import\` than by \`process.getBuiltinModule\`: not worth a rewrite of every import.

These are the times of a fast machine. On one whose empty Node takes 110 ms (2026-11-28) \`pawl worker\` took 756 ms, \`startWorker\` 685, \`pawl call\` 677 and
\`pawl --help\` 181: the targets are not met there. Starts of a worker with V8's flags were tried on it, in turns, 15 each (2026-11-29; wall and CPU
time in ms): without any 578 and 737, a young generation of 16 MiB 652 and 794, a collector in one thread 651 and 758, without the optimising
compiler 611 and 772, functions compiled when they first run 636 and 791, bytecode that is kept 642 and 804. None was kept.

Resident memory after 20,000 calls, 64 at a time: a worker 195 MiB instead of 261, a producer 167 (130 are wanted).
V8's young generation had 113 and 55 MiB of that. In a worker it is bounded now, but a start alone takes it to 32; V8 has no way to make it
smaller, and a bound while modules are loaded would make their compiled code unusable. A bound of 16 in a producer took it to 140, for a fifth
more CPU time with 512 calls in flight, and was not kept. Next come the arenas of malloc (63 and 31 MiB), which one arena (\`MALLOC_ARENA_MAX=1\`) makes 15 MiB smaller, and 11 MiB of
sources as texts, which are a third now (no comments, and only characters of one byte).

## Memory

${memory === undefined ? notRun('memory') : memoryText(memory)}

What limits it: a call's record, which is kept so that the same key gives the same answer; what processes hold is bounded by calls in flight, not by calls made. Redis also keeps the newest 50,000 records of the
audit trail and a sample of finished jobs for Bull Board, which are full before the measuring begins.

## A fleet of any size

${scale === undefined ? notRun('scale') : scaleText(scale)}

What limits it: with tools that take time, the workers' slots, until a shard's Redis is busy all the time; then more shards. All processes
send their audit records to one list, which has its slot on one node: it is the hottest key of a cluster. A process that makes few
calls sends a group of records for each of them, so that thousands of such processes load that node more than their calls load the
shards. One machine with 16 cores runs one Redis for each shard; beyond one shard, the limit is its cores divided by the CPU time of a call.

On one Redis the model is right to a third. For a cluster it is too kind: three nodes on this machine did a third of what it says. It leaves
out that a process reads from each node, copies of circuits, and three append-only files on one disk. Read the rows of several shards as
upper bounds.

## Bytes of a kept call

${bytes === undefined ? notRun('bytes') : bytesText(bytes)}

Before, a call took 1,526 B and 7,000 B. What made it less, about:

| change | memory | file |
|---|---|---|
| the request names no field and leaves out defaults; UUIDs in 23 characters | -430 B | -430 B |
| 132 bits of a digest in place of 256 in a call's ID, and for its parameters | -80 B | -450 B |
| a success keeps one field beside request and outcome; an outcome names no field | -320 B | -250 B |
| the indices of calls are lists: a sorted set takes 125 B for an entry, a list 27 | -250 B | -110 B |
| chained audit records are compressed | 0 | -1,200 B |
| BullMQ's event stream is off (\`bullEvents\`) | 0 | -700 B |
| jobs without defaults, lock tokens without the job's ID, no removal of logs that are not there | 0 | -350 B |

Interleaved with the state before it, small-1 went from 1.16, 1.28 and 1.26 times hand-written BullMQ to 1.41, 1.34 and 2.31 times
(\`npm run bench -- --only small-1 --quick\`, three times each, on a busy machine).

What limits it: a key with an expiry takes 75 B beside its name, a record's 480 B take a block of 512, and two indices 27 each. The next
smaller block, 448 B, needs 39 B less. Tried with 30,000 records each: with names of one letter a record keeps its block (673 B of memory without
indices and trail, as before). With these, a request in lines instead of JSON and no default version, it takes 610 B. Both were left out: whoever looks
at a record, in a script or by hand, would have to look each name up, for 4 % too much. A sum over one run also has Redis' tables, which double now and then.

## Calls that leave memory

${segments === undefined ? notRun('segments') : segmentsText(segments)}

What limits a look-up: two round trips to Redis, four steps of the thread pool to read the file, one to decompress it, and V8's collector,
which takes the buffers away. On two busy cores the thread pool's turns are most of it. With both processes scheduled first (\`chrt -r 1\`),
1,000 look-ups among 20,000 calls with texts of their own took 0.9 ms in the middle, 17.6 ms at p99, 21 ms at most, and 180 B of a file for
each call: this scenario's texts are alike. A segment of 1,000 calls took 3.5 ms of CPU for each look-up, one of 250 takes 0.4 ms.

At 200,000 calls most hashes of moved calls have one entry, and the key of each counts. With 8,640,000 they have 33 each, so that the day
takes less than what is computed here.

## Delayed calls

${delayed === undefined ? notRun('delayed') : delayedText(delayed)}

## Batches and plans

${plans === undefined ? notRun('plans') : plansText(plans)}

## Against other systems

The caller hands a call in under an idempotency key and waits for its result; one worker process of concurrency 64 has a tool that
answers at once. Each system is written as its documentation recommends (\`bench/peers/\`), with its worker, its callers and its
store on this machine, and takes turns with Pawl in the same rounds. CPU is that of its worker / callers / store. Durability is equal in pairs: "each
second" loses about the last second's calls when the machine dies, "each write" nothing that was answered.

${PEERS.map((peer) => result.peers.find((one) => one.peer === peer) ?? peer)
  .map((one) => (typeof one === 'string' ? `**${one}**: ${notRun(one)}` : peerText(one)))
  .join('\n\n')}

${phasePeersText(result.steady)}${phasePeersText(result.cold)}What limits them:

${PEER_LIMITS}

## Tried and not kept

${TRIED}
`;
}

/** Names what was measured before the day of the last run. */
function older({ machine, dates }: BenchResult): string {
  const names = Object.entries(dates).filter(([, date]) => date !== machine.date);
  return names.length === 0 ? '' : `Older: ${names.map(([name, date]) => `${name} (${date})`).join(', ')}.\n\n`;
}

function paragraphs(lines: readonly string[]): string {
  return lines.map((line) => `\n${line}\n`).join('');
}

function notRun(name: string): string {
  return `Not part of this run: \`npm run bench -- --only ${name} --add\` adds it.`;
}
