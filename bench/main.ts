/**
 * `npm run bench`: Pawl against hand-written BullMQ on the same Redis; `--full` adds what takes longer, and other systems.
 * `--help` says the rest. What is measured goes into the record, `bench/record.json`, and from there into `docs/performance.md`;
 * a run that leaves them as they are writes `bench/results/partial.json` alone.
 */
import { existsSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { compareWorkloads } from './against-bullmq.ts';
import { attempt } from './attempt.ts';
import type { Effort } from './comparison.ts';
import { isSameMachine, machine } from './machine.ts';
import { type Options, options } from './options.ts';
import { performancePage } from './page.ts';
import { comparePeers } from './peers.ts';
import { notesPage, reportText } from './report.ts';
import type { BenchResult, PhaseResult, Scenarios } from './result.ts';
import { measureBacklog } from './scenarios/backlog.ts';
import { measureBytes } from './scenarios/bytes.ts';
import { measureDelayed } from './scenarios/delayed.ts';
import { measureFixedRates } from './scenarios/fixed-rates.ts';
import { measureFloor } from './scenarios/floor.ts';
import { measureInstalled } from './scenarios/installed.ts';
import { measureMemory } from './scenarios/memory.ts';
import { measureNetwork } from './scenarios/network.ts';
import { measurePlans } from './scenarios/plans.ts';
import { measureRefusals } from './scenarios/refusals.ts';
import { measureScale } from './scenarios/scale.ts';
import { measureSegments } from './scenarios/segments.ts';
import { inOrder, type Phase, type Scenario } from './workloads.ts';

const RECORD = new URL('record.json', import.meta.url);
const PARTIAL = new URL('results/partial.json', import.meta.url);
const PAGE = new URL('../docs/performance.md', import.meta.url);
const NOTES = new URL('NOTES.md', import.meta.url);

const chosen = options();
const record = await readRecord();
if (!chosen.pageOnly) await measure(chosen);
else if (record !== undefined) await writePages(record);
else say('There is no record: npm run bench -- --full makes one.');

async function measure({ wanted, whole, quick, json, keeps, effort, phase }: Options): Promise<void> {
  const where = await machine();
  const isOfHere = record !== undefined && isSameMachine(record.machine, where);
  // Figures of two machines do not stand side by side.
  const isKept = keeps && (isOfHere || whole);
  if (keeps && !isKept) say('The record is of another machine, and stays as it is: --full replaces it as a whole.');
  const compared = await compareWorkloads(wanted, effort, say);
  const scenarios = await runScenarios(wanted, quick, effort);
  const peers = await comparePeers(wanted, effort, say);
  const measured = [...compared.map(({ name }) => name), ...Object.keys(scenarios), ...peers.map(({ peer }) => peer)];
  const dates = Object.fromEntries(measured.map((name) => [name, where.date]));
  const result: BenchResult = { machine: where, dates, effort, compared, scenarios, peers };
  console.log(json ? JSON.stringify(result, undefined, 2) : `\n${reportText(result, phase)}`);
  if (!isKept) return writeFigures(PARTIAL, result);
  const next = isOfHere ? added(record, result, phase) : result;
  await writeFigures(RECORD, next);
  await writePages(next);
}

async function writePages(result: BenchResult): Promise<void> {
  await write(PAGE, performancePage(result));
  await write(NOTES, notesPage(result));
}

async function writeFigures(file: URL, result: BenchResult): Promise<void> {
  await mkdir(new URL('.', file), { recursive: true });
  await write(file, `${JSON.stringify(result, undefined, 2)}\n`);
}

async function write(file: URL, text: string): Promise<void> {
  await writeFile(file, text);
  say(`written: ${fileURLToPath(file)}`);
}

async function runScenarios(wanted: ReadonlySet<string>, quick: boolean, effort: Effort): Promise<Scenarios> {
  const measures: { readonly [S in Scenario]: () => Promise<Required<Scenarios>[S]> } = {
    floor: () => measureFloor(effort, say),
    refusals: () => measureRefusals(quick),
    'fixed-rates': () => measureFixedRates(effort, say),
    network: () => measureNetwork(effort, say),
    backlog: () => measureBacklog(quick, say),
    installed: () => measureInstalled(quick, say),
    memory: () => measureMemory(quick, say),
    bytes: () => measureBytes(quick, say),
    scale: () => measureScale(quick, say),
    segments: () => measureSegments(quick, say),
    delayed: () => measureDelayed(quick, say),
    plans: () => measurePlans(quick, say),
  };
  const found: Record<string, unknown> = {};
  for (const [name, measure] of Object.entries(measures)) {
    if (!wanted.has(name)) continue;
    say(name);
    const figures = await attempt<unknown>(name, measure);
    if (figures !== undefined) found[name] = figures;
  }
  return found as Scenarios;
}

async function readRecord(): Promise<BenchResult | undefined> {
  if (!existsSync(RECORD)) return undefined;
  return JSON.parse(await readFile(RECORD, 'utf8')) as BenchResult;
}

/** The record, with what this run measured in place of what it had of it. */
function added(last: BenchResult, now: BenchResult, phase: Phase | undefined): BenchResult {
  if (phase !== undefined) return { ...last, [phase]: replaced(last[phase], now) };
  const { steady, cold } = last;
  return {
    ...now,
    ...replaced(last, now),
    ...(steady !== undefined && { steady }),
    ...(cold !== undefined && { cold }),
    scenarios: { ...last.scenarios, ...now.scenarios },
  };
}

function replaced(last: PhaseResult | undefined, { dates, effort, compared, peers }: PhaseResult): PhaseResult {
  const names = new Set(compared.map(({ name }) => name));
  const measuredPeers = new Set(peers.map(({ peer }) => peer));
  return {
    dates: { ...last?.dates, ...dates },
    effort,
    compared: inOrder([...(last?.compared ?? []).filter(({ name }) => !names.has(name)), ...compared]),
    peers: [...(last?.peers ?? []).filter(({ peer }) => !measuredPeers.has(peer)), ...peers],
  };
}

/** Progress goes to standard error, so that standard output holds the result alone. */
function say(line: string): void {
  console.error(line);
}
