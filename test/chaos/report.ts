/** The table of a run. */
import type { RowResult } from './run.ts';

/** One row of the table: both stacks, summed over seeds. */
export interface Line {
  readonly row: number;
  readonly fault: string;
  readonly pawl: readonly RowResult[];
  readonly naive: readonly RowResult[];
}

export function linesOf(results: readonly RowResult[]): readonly Line[] {
  return [...Map.groupBy(results, ({ row }) => row)].map(([row, ofRow]) => ({
    row,
    fault: ofRow[0]?.fault ?? '',
    pawl: ofRow.filter(({ stack }) => stack === 'pawl'),
    naive: ofRow.filter(({ stack }) => stack === 'naive'),
  }));
}

const COUNTS = ['lostCalls', 'secondEffects', 'falseVerdicts'] as const;

function sum(results: readonly RowResult[], count: (typeof COUNTS)[number]): string {
  const ran = results.filter(({ skipped }) => skipped === undefined);
  return ran.length === 0 ? '–' : String(ran.reduce((total, result) => total + result[count], 0));
}

function recovery(results: readonly RowResult[]): string {
  const times = results.flatMap(({ recoveryMs }) => recoveryMs ?? []);
  return times.length === 0 ? '–' : `${(Math.max(...times) / 1_000).toFixed(1)} s`;
}

function remarks({ pawl, naive }: Line): string {
  const said = (name: string, results: readonly RowResult[]) => {
    const texts = new Set(results.flatMap(({ notes, skipped }) => (skipped === undefined ? notes : [skipped])));
    return texts.size === 0 ? [] : [`${name}: ${[...texts].join(', ')}`];
  };
  const stated = pawl[0]?.stated ?? naive[0]?.stated;
  return [...(stated === undefined ? [] : [stated]), ...said('Pawl', pawl), ...said('naive', naive)].join('; ');
}

const HEADER = ['#', 'fault', 'lost', 'second effects', 'false outcomes', 'recovery', 'remarks'];

/** Cells are “Pawl / naive”. */
export function table(results: readonly RowResult[]): string {
  const rows = linesOf(results).map((line) => [
    String(line.row),
    line.fault,
    ...COUNTS.map((count) => `${sum(line.pawl, count)} / ${sum(line.naive, count)}`),
    `${recovery(line.pawl)} / ${recovery(line.naive)}`,
    remarks(line),
  ]);
  return [HEADER, HEADER.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** What is wrong with Pawl's column, in words; rows that say what they may forget are excused in so far. */
function unclean(results: readonly RowResult[]): string {
  const found = results
    .filter(({ stack, clean }) => stack === 'pawl' && !clean)
    .flatMap(({ row, seed, breaches }) =>
      breaches.slice(0, 5).map((breach) => `- row ${row}, seed ${seed}: ${breach}`),
    );
  return found.length === 0 ? 'Nothing.' : found.join('\n');
}

function seedsOf(results: readonly RowResult[], stack: RowResult['stack']): string {
  const seeds = new Set(results.filter((result) => result.stack === stack).map(({ seed }) => seed));
  return [...seeds].sort((one, other) => one - other).join(', ');
}

/** `docs/reliability.md`. */
export function page(results: readonly RowResult[]): string {
  const ran = results.filter(({ skipped, stack }) => skipped === undefined && stack === 'pawl');
  const calls = ran.reduce((total, result) => total + result.calls, 0);
  return `# Fault-injection results

To run one row of the table again:

\`\`\`sh
npm run chaos -- --rows 5 --seed 1
\`\`\`

> Written by \`npm run chaos\`. Seeds ${seedsOf(results, 'pawl')} (naive: ${seedsOf(results, 'naive')}); ${calls} calls of Pawl's under fault.

Every row breaks something on purpose, in two systems that run the same tools on real processes and a real Redis.
One is Pawl.
The other is a BullMQ application as one writes it by hand: \`queue.add\` with the key as job ID, three attempts, \`waitUntilFinished\`.

- Locks last 1.5 s in both.
- Effects are logged outside of Redis and of the workers, by appending to a file.
- Clients ask again with the same key until they learn how a call ended.
- Cells are Pawl / naive, each summed over its own seeds.
- Recovery is the longest time from the end of the fault to the last answer, the start of new processes included.

${table(results)}

- **lost**: Redis had acknowledged the call, and 12 s after the fault no client can learn how it ended.
  The limit is 36 s for the faults 7, 8 and 10, which recover long calls one by one, and 60 s in the soak.
- **second effects**: effects beyond the first of calls that must happen once.
- **false outcomes**: success without an effect, an error although the effect took place, another call's result, or two observers who got different outcomes.
  An outcome that says that it is unknown is not false.

Fault 39 is the soak, if it was run too: \`npm run chaos -- --soak 30 --seed 1\`.
One Redis and its fleet live through all of its rounds.
The seed picks each round's faults, the run prints them, and the checker judges the round as soon as all of its calls have ended.
Fault 42 needs \`WAITAOF\`: its remark names the Redis that it ran on; all others ran on the embedded one.

Before the rig breaks real processes, a model breaks modelled ones.
\`test/model\` runs the same dispatch, executor and rules on a shared store in virtual time.
Each test run goes over 10,000 schedules of crashes, freezes, cut wires, drains and cancellations, judged by the same checker.
It goes over as many schedules each of circuits, and of approvals: approved, denied, edited, expired, cancelled, forged, and crashed over.
The model finds rules that are broken there on purpose.

Breaches beyond these three (fences, bounds, liveness, neighbours) fail the run as well: see \`test/chaos/checker.ts\`.
Found in Pawl in this run:

${unclean(results)}
`;
}
