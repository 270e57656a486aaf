/** `pawl workers`: lists the worker processes of the fleet, and asks one of them to end. */
import type { CatalogueContent } from '../../shared/store/fleet/catalogue.ts';
import { capitalized, didYouMean } from '../../shared/util/text/nearest.ts';
import { pawlCommand, printList, printResult, usageError } from '../context.ts';
import { type Column, duration, moment } from '../print.ts';

type Worker = CatalogueContent['workers'][number];

function columns(nowMs: number): readonly Column<Worker>[] {
  return [
    { title: 'WORKER', text: ({ id }) => id },
    { title: 'TIERS', text: ({ tiers, draining }) => (draining === true ? 'draining' : tiers.join(',')) },
    { title: 'RUNS', align: 'right', text: ({ running }) => String(running) },
    { title: 'SLOTS', align: 'right', text: ({ concurrency, tiers }) => String(concurrency * tiers.length) },
    { title: 'TOOLS', align: 'right', text: ({ tools }) => String(tools.length) },
    { title: 'HEARD', align: 'right', text: ({ seenAtMs }) => `${duration(Math.max(0, nowMs - seenAtMs))} ago` },
    { title: 'SINCE', text: ({ startedAtMs }) => moment(startedAtMs) },
    { title: 'PAWL', text: ({ pawlVersion }) => pawlVersion },
  ];
}

export const listWorkers = pawlCommand(async (context, pawl) => {
  const { workers } = await pawl.backend.catalogue.read();
  const rows = [...workers].sort((a, b) => (a.id < b.id ? -1 : 1));
  const none = `no worker is running: start one with 'pawl up' or 'pawl worker'`;
  printList(context, { workers: rows }, { rows, columns: columns(pawl.backend.clock.now()), none });
});

export const drainWorker = pawlCommand(async (context, pawl, id: string) => {
  const { workers } = await pawl.backend.catalogue.read();
  if (!workers.some((worker) => worker.id === id)) {
    const ids = workers.map((worker) => worker.id);
    const hint = capitalized(didYouMean(id, ids)) || `'pawl workers' lists them.`;
    throw usageError(`There is no worker ${JSON.stringify(id)}. ${hint}`);
  }
  await pawl.workers.drain(id);
  const text = `${id} was asked to accept no further calls, finish its running ones, and end`;
  printResult(context, { id, asked: 'drain' }, text);
});
