/** Runs the workloads against hand-written BullMQ, those with the same processes together. */
import { freemem } from 'node:os';
import { attempt } from './attempt.ts';
import { type Compared, compare, compareCold, type Effort, type StartSide } from './comparison.ts';
import { Fleet } from './fleet.ts';
import { startServer } from './stores/redis.ts';
import { withStore } from './stores/store.ts';
import { inOrder, WORKLOADS, type Workload } from './workloads.ts';

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
    ({ producers, workers, kept }) => `${producers} ${workers} ${kept}`,
  );
  for (const workloads of stages.values()) {
    const names = workloads.map(({ name }) => name).join(', ');
    compared.push(...((await attempt(names, () => runStage(workloads, effort, say))) ?? []));
  }
  return inOrder(compared);
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
  const size = { producers, workers, ...(kept === undefined ? {} : { kept }) };
  const inTurn = async (compareOne: (workload: Workload) => Promise<Compared>) => {
    const compared: Compared[] = [];
    for (const workload of workloads) {
      say(workload.title);
      compared.push(await compareOne(workload));
    }
    return compared;
  };
  if (effort.cold) {
    const startSide: StartSide = (side, use) =>
      withStore(startServer(), (server) => Fleet.with({ sides: new Map([[side, server]]), ...size }, use));
    return inTurn((workload) => compareCold(startSide, workload, effort, 'bullmq'));
  }
  say(`starting ${processes} processes`);
  return withStore(startServer(), (server) => {
    const sides = new Map([
      ['bullmq', server],
      ['pawl', server],
    ] as const);
    return Fleet.with({ sides, ...size }, (fleet) => inTurn((workload) => compare(fleet, workload, effort, 'bullmq')));
  });
}
