/** Ends of calls that could not be posted to their URL. */
import { ask, part } from './api.js';
import { ago, element } from './dom.js';
import { button, liveTable, pill } from './parts.js';

const LOOK_EVERY_MS = 2_000;

export function openCallbacks(root, page) {
  const table = liveTable({
    label: 'Failing callbacks',
    key: ({ id }) => id,
    empty: 'No callback fails.',
    columns: [
      { title: 'Callback', kind: 'long', cell: ({ url }) => element('strong', {}, url) },
      { title: 'Call', kind: 'long', cell: ({ callId }) => callId },
      { title: 'State', cell: ({ state }) => pill(state, 'bad') },
      { title: 'Sent', kind: 'number', cell: ({ attempts }) => String(attempts) },
      { title: 'Last', cell: ({ lastStatus, lastError = '' }) => String(lastStatus ?? lastError) },
      { title: 'Ended', kind: 'number', cell: ({ settledAtMs }) => ago(settledAtMs) },
      { title: '', kind: 'deed', cell: ({ id }) => button('Replay', () => replay(id), 'quiet') },
    ],
  });
  const title = element('h3', {}, 'Failing callbacks');
  root.append(title, table.root);
  const found = { failing: [], failed: [] };
  const looking = Object.keys(found).map((state) =>
    page.follow(`/v1/callbacks?state=${state}`, LOOK_EVERY_MS, ({ callbacks }) => {
      found[state] = callbacks;
      const all = [...found.failing, ...found.failed];
      title.hidden = all.length === 0;
      table.root.hidden = all.length === 0;
      table.update(all);
    }),
  );

  async function replay(id) {
    await ask(`/v1/callbacks/${part(id)}`, { method: 'POST', body: { action: 'replay' } });
    page.say('The callback is sent again');
    for (const each of looking) void each.now();
  }
}
