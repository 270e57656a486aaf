/**
 * `npm run chaos`: runs the fault matrix against Pawl and against a naive BullMQ application, prints the table, and writes
 * `docs/reliability.md` when all of it ran. Exit code 1 when a row of Pawl's is not clean.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { page, table } from './report.ts';
import { STACKS, type StackName } from './rig.ts';
import { ROWS } from './rows/index.ts';
import type { Row } from './rows/row.ts';
import { type RowResult, runRow } from './run.ts';
import { soakRow } from './soak.ts';

const USAGE = `npm run chaos -- [options]
  --rows 1,2,5     only these rows of the matrix
  --stacks pawl    only this stack (pawl, naive)
  --seed N         the first seed (default 1); the same seed gives the same plan
  --seeds N        so many seeds, one after the other (default 1)
  --full           rows that have a longer form run in it (48: five minutes; 49: 10,000 calls; 50: 1,000 calls; 51 to 53; 54: 1,000 nodes)
  --soak MINUTES   one fleet under load for so long, faults of all rows at random; the rounds are told on stderr
  --write          write docs/reliability.md although not all rows ran
  --json           print results as lines of JSON
  --page FILE      run nothing; write docs/reliability.md from such lines, of one run or of several put together`;

const SHOWN_BREACHES = 8;

const { values } = parseArgs({
  options: {
    rows: { type: 'string' },
    stacks: { type: 'string' },
    seed: { type: 'string', default: '1' },
    seeds: { type: 'string', default: '1' },
    full: { type: 'boolean', default: false },
    soak: { type: 'string' },
    write: { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    page: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(130));

if (values.help) console.log(USAGE);
else if (values.page !== undefined) writePage(resultsIn(values.page));
else process.exitCode = await main();

async function main(): Promise<number> {
  const wanted = values.rows?.split(',').map(Number);
  const rows =
    values.soak === undefined
      ? ROWS.filter(({ number }) => wanted?.includes(number) ?? true).map((row) =>
          values.full ? (row.atFullSize?.() ?? row) : row,
        )
      : [soakRow(Number(values.soak), (line) => console.error(line))];
  const stacks = STACKS.filter((name) => (values.stacks ?? (values.soak && 'pawl'))?.split(',').includes(name) ?? true);
  const seeds = Array.from({ length: Number(values.seeds) }, (_, index) => Number(values.seed) + index);
  if (
    rows.length === 0 ||
    Number.isNaN(Number(values.soak ?? 0)) ||
    stacks.length === 0 ||
    seeds.some((seed) => !Number.isInteger(seed))
  ) {
    console.error(USAGE);
    return 2;
  }
  const results: RowResult[] = [];
  for (const seed of seeds)
    for (const row of rows) results.push(...(await Promise.all(stacks.map((stack) => attempt(row, stack, seed)))));
  if (!values.json) console.log(`\n${table(results)}`);
  const complete = values.soak === undefined && rows.length === ROWS.length && stacks.length === STACKS.length;
  if (complete || values.write) writePage(results);
  return results.some(({ stack, clean }) => stack === 'pawl' && !clean) ? 1 : 0;
}

function resultsIn(file: string): RowResult[] {
  const lines = readFileSync(file, 'utf8').split('\n');
  const results = lines.filter((line) => line !== '').map((line) => JSON.parse(line) as RowResult);
  return results.sort((one, other) => one.row - other.row);
}

function writePage(results: readonly RowResult[]): void {
  writeFileSync(fileURLToPath(new URL('../../docs/reliability.md', import.meta.url)), page(results));
}

async function attempt(row: Row, stack: StackName, seed: number): Promise<RowResult> {
  const result = await runRow(row, stack, seed);
  if (values.json) console.log(JSON.stringify(result));
  else tell(result);
  return result;
}

function tell({ row, stack, seed, skipped, clean, calls, breaches, tookMs, recoveryMs, notes }: RowResult): void {
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;
  const verdict =
    skipped ?? (breaches.length === 0 ? 'clean' : `${breaches.length} breaches${clean ? ' (stated)' : ''}`);
  const recovered = recoveryMs === undefined ? '' : `, recovered in ${seconds(recoveryMs)}`;
  const noted = notes.length === 0 ? '' : ` [${notes.join(', ')}]`;
  console.log(`row ${row} ${stack} seed ${seed}: ${verdict}, ${calls} calls in ${seconds(tookMs)}${recovered}${noted}`);
  for (const breach of breaches.slice(0, SHOWN_BREACHES)) console.log(`    ${breach}`);
}
