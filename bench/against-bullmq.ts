/** Runs the workloads against hand-written BullMQ, those with the same processes together. */
import { freemem } from 'node:os';
import { attempt } from './attempt.ts';
import { type Compared, compare, type Effort, type Round, summary } from './comparison.ts';
import { Fleet, type Measured } from './fleet.ts';
import { startServer } from './stores/redis.ts';
import { withStore } from './stores/store.ts';
import { WORKLOADS, type Workload } from './workloads.ts';

/** All that a short-lived agent's processes live. */
const COLD_MS = 5_000;
const COLD_ROUNDS = 7;

/** Resident memory of one process of either side, amply. */
const PROCESS_BYTES = 120 * 2 ** 20;

export async function compareWorkloads(
  wanted: ReadonlySet<string>,
  effort: Effort,
  say: (line: string) => void,
): Promise<readonly Compared[]> {
  const compared: Compared[] = [];
  const stages = Map.groupBy(
    WORKLOADS.filter(({ name }) => wanted.has(name)),
    ({ name, producers, workers, kept, cold }) => (cold ? name : `${producers} ${workers} ${kept}`),
  );
  for (const workloads of stages.values()) {
    const names = workloads.map(({ name }) => name).join(', ');
    compared.push(...((await attempt(names, () => runStage(workloads, effort, say))) ?? []));
  }
  return compared.toSorted((a, b) => placeOf(a.name) - placeOf(b.name));
}

async function runStage(
  workloads: readonly Workload[],
  effort: Effort,
  say: (line: string) => void,
): Promise<readonly Compared[]> {
  const [{ producers, workers, kept } = { producers: 0, workers: 0, kept: undefined }] = workloads;
  const processes = 2 * (producers + workers);
  if (processes * PROCESS_BYTES > freemem()) {
    say(`left out, for ${processes} processes do not fit into memory: ${workloads.map(({ name }) => name).join(', ')}`);
    return [];
  }
  const [first] = workloads;
  if (first?.cold) return [await compareCold(first, say)];
  say(`starting ${processes} processes`);
  return withStore(startServer(), (server) => {
    const sides = new Map([
      ['bullmq', server],
      ['pawl', server],
    ] as const);
    return Fleet.with({ sides, producers, workers, ...(kept === undefined ? {} : { kept }) }, async (fleet) => {
      const compared: Compared[] = [];
      for (const workload of workloads) {
        say(workload.title);
        compared.push(await compare(fleet, workload, effort, 'bullmq'));
      }
      return compared;
    });
  });
}

/** The first seconds of new processes, which are all that many agents live. Each side runs alone. */
async function compareCold(workload: Workload, say: (line: string) => void): Promise<Compared> {
  const { title, producers, workers, inFlight, keys, resultBytes } = workload;
  say(title);
  const load = { pace: { inFlight, until: { durationMs: COLD_MS } }, keys, resultBytes };
  const rounds: Round[] = [];
  for (let number = 0; number < COLD_ROUNDS; number += 1) {
    const round = new Map<'theirs' | 'pawl', Measured>();
    const sides = [
      ['theirs', 'bullmq'],
      ['pawl', 'pawl'],
    ] as const;
    for (const [id, side] of number % 2 === 0 ? sides : sides.toReversed())
      await withStore(startServer(), (server) =>
        Fleet.with({ sides: new Map([[side, server]]), producers, workers }, async (fleet) => {
          round.set(id, await fleet.run(side, producers, load));
        }),
      );
    rounds.push(round);
  }
  return summary(workload, 'bullmq', rounds, { run: COLD_ROUNDS, disturbed: 0, leftOut: 0 });
}

function placeOf(name: string): number {
  return WORKLOADS.findIndex((workload) => workload.name === name);
}
