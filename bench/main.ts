/**
 * `npm run bench`: Pawl against hand-written BullMQ on the same Redis; `--full` adds what takes longer, and other systems.
 * `--help` says the rest. Writes `bench/results/latest.json` and, from it, `docs/performance.md`; a quick or partial run writes
 * `bench/results/partial.json` alone.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { compareWorkloads } from './against-bullmq.ts';
import { attempt } from './attempt.ts';
import { machine } from './machine.ts';
import { options } from './options.ts';
import { comparePeers } from './peers.ts';
import { reportPage, reportText } from './report.ts';
import type { BenchResult, Scenarios } from './result.ts';
import { measureBacklog } from './scenarios/backlog.ts';
import { measureFixedRates } from './scenarios/fixed-rates.ts';
import { measureFloor } from './scenarios/floor.ts';
import { measureMemory } from './scenarios/memory.ts';
import { measureNetwork } from './scenarios/network.ts';
import { measureRefusals } from './scenarios/refusals.ts';
import { measureStart } from './scenarios/start.ts';
import type { Scenario } from './workloads.ts';

const RESULTS = new URL('results/', import.meta.url);
const LATEST = new URL('latest.json', RESULTS);
/** Of a run that leaves the page as it is. */
const PARTIAL = new URL('partial.json', RESULTS);
const PAGE = new URL('../docs/performance.md', import.meta.url);

const { wanted, quick, json, page, effort } = options();
const measures: { readonly [S in Scenario]: () => Promise<Required<Scenarios>[S]> } = {
  floor: () => measureFloor(effort, say),
  refusals: () => measureRefusals(quick),
  'fixed-rates': () => measureFixedRates(effort, say),
  network: () => measureNetwork(effort, say),
  backlog: () => measureBacklog(quick, say),
  start: () => measureStart(quick, say),
  memory: () => measureMemory(quick, say),
};

await mkdir(RESULTS, { recursive: true });
const where = await machine();
const result: BenchResult = {
  machine: where,
  dates: Object.fromEntries([...wanted].map((name) => [name, where.date])),
  effort,
  compared: await compareWorkloads(wanted, effort, say),
  scenarios: await runScenarios(),
  peers: await comparePeers(wanted, effort, say),
};
console.log(json ? JSON.stringify(result, undefined, 2) : `\n${reportText(result)}`);
if (page === 'leave') await write(PARTIAL, `${JSON.stringify(result, undefined, 2)}\n`);
else {
  const whole = page === 'add' ? added(await lastResult(), result) : result;
  await write(LATEST, `${JSON.stringify(whole, undefined, 2)}\n`);
  await write(PAGE, reportPage(whole));
}

async function write(file: URL, text: string): Promise<void> {
  await writeFile(file, text);
  say(`written: ${fileURLToPath(file)}`);
}

async function runScenarios(): Promise<Scenarios> {
  const found: Record<string, unknown> = {};
  for (const [name, measure] of Object.entries(measures)) {
    if (!wanted.has(name)) continue;
    say(name);
    found[name] = await attempt<unknown>(name, measure);
  }
  return found as Scenarios;
}

async function lastResult(): Promise<BenchResult | undefined> {
  try {
    return JSON.parse(await readFile(LATEST, 'utf8')) as BenchResult;
  } catch {
    return undefined;
  }
}

/** The last result, with what this run measured in place of what it had of it. */
function added(last: BenchResult | undefined, now: BenchResult): BenchResult {
  if (last === undefined) return now;
  const names = new Set(now.compared.map(({ name }) => name));
  const peers = new Set(now.peers.map(({ peer }) => peer));
  return {
    ...now,
    dates: { ...last.dates, ...now.dates },
    compared: [...last.compared.filter(({ name }) => !names.has(name)), ...now.compared],
    scenarios: { ...last.scenarios, ...now.scenarios },
    peers: [...last.peers.filter(({ peer }) => !peers.has(peer)), ...now.peers],
  };
}

/** Progress goes to standard error, so that standard output holds the result alone. */
function say(line: string): void {
  console.error(line);
}
