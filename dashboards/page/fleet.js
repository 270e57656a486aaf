/** The fleet: the tiers with their load, and the workers that serve them. */
import { ask, part } from './api.js';
import { openCallbacks } from './callbacks.js';
import { ago, count, duration, element } from './dom.js';
import { button, confirm, heading, liveTable, pill } from './parts.js';

export const id = 'fleet';
export const title = 'Fleet';
export const permission = 'oversee';

const LOOK_EVERY_MS = 800;

export function open(root, page) {
  const summary = element('p', { class: 'hint' });
  const tiers = liveTable({
    label: 'Tiers',
    key: ({ tier }) => tier,
    empty: 'No tiers.',
    columns: [
      { title: 'Tier', cell: ({ tier }) => element('strong', {}, tier) },
      {
        title: 'Served',
        cell: ({ workers, inflight }) =>
          workers > 0 ? pill('served', 'good') : pill('no worker', inflight > 0 ? 'bad' : 'dim'),
      },
      { title: 'Workers', kind: 'number', cell: ({ workers }) => String(workers) },
      { title: 'Slots', kind: 'number spare', cell: ({ slots }) => slots.toLocaleString('en') },
      { title: 'In flight', kind: 'number spare', cell: ({ inflight }) => inflight.toLocaleString('en') },
      { title: 'Waiting', kind: 'number', cell: ({ waiting }) => waiting.toLocaleString('en') },
      {
        title: 'Oldest wait',
        kind: 'number',
        cell: ({ waiting, oldestWaitMs }) => (waiting === 0 ? '' : duration(oldestWaitMs)),
      },
      { title: 'Load', kind: 'wide', cell: ({ running, slots }) => load(running, slots) },
    ],
  });
  const workers = liveTable({
    label: 'Workers',
    key: (worker) => worker.id,
    empty: 'No worker lives. Start one: pawl worker, or docker compose up -d.',
    columns: [
      { title: 'Worker', kind: 'long', cell: ({ host, pid }) => element('strong', {}, `${host}:${pid}`) },
      { title: 'Tiers', cell: ({ tiers: served, draining }) => (draining ? 'draining' : served.join(', ')) },
      { title: 'Version', cell: ({ pawlVersion }) => pawlVersion },
      { title: 'Tools', kind: 'number', cell: ({ tools }) => String(tools.length) },
      { title: 'Load', kind: 'wide', cell: ({ running, concurrency }) => load(running, concurrency) },
      { title: 'Started', kind: 'number', cell: ({ startedAtMs }) => ago(startedAtMs) },
      { title: 'Seen', kind: 'number', cell: ({ seenAtMs }) => ago(seenAtMs) },
      { title: '', kind: 'deed', cell: (worker) => button('Drain', () => drain(worker.id), 'quiet') },
    ],
  });
  root.append(
    heading('Fleet', 'Workers say every five seconds that they live, and what they run.'),
    tiers.root,
    element('h3', {}, 'Workers'),
    summary,
    workers.root,
  );

  let living = [];
  const looking = page.follow('/v1/workers', LOOK_EVERY_MS, (answer) => {
    living = answer.workers;
    tiers.update(answer.tiers);
    workers.update([...answer.workers].sort((one, other) => one.startedAtMs - other.startedAtMs));
    const versions = new Set(answer.workers.map(({ pawlVersion }) => pawlVersion));
    const mixed = versions.size > 1 ? `, of ${versions.size} versions side by side` : '';
    summary.textContent = `${count(answer.workers.length, 'worker')}${mixed}`;
  });

  function drain(workerId) {
    // The button is drawn once, so the worker's state is read again when it is pressed.
    const worker = living.find(({ id: each }) => each === workerId);
    if (worker === undefined) return undefined;
    return confirm({
      title: `Drain ${worker.host}:${worker.pid}?`,
      text: `It takes no further calls, finishes the ${worker.running} it runs, and ends. Under a supervisor (pawl up, compose) another one takes its place.`,
      action: 'Drain the worker',
      danger: true,
      async run() {
        await ask(`/v1/workers/${part(worker.id)}/drain`, { method: 'POST' });
        page.say(`Asked ${worker.host}:${worker.pid} to drain`);
        void looking.now();
      },
    });
  }

  openCallbacks(root, page);
}

/** `3 of 32`, with a bar of the load. */
function load(used, of) {
  return element(
    'span',
    { class: 'load' },
    element('meter', {
      min: 0,
      max: Math.max(1, of),
      high: Math.max(1, of) * 0.9,
      value: Math.min(used, of),
      'aria-hidden': 'true',
    }),
    `${used.toLocaleString('en')} of ${of.toLocaleString('en')}`,
  );
}
