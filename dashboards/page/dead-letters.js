/** Dead letters: calls of tools that change something, which failed for good. An operator runs them again, or discards them. */
import { ask, part, withQuery } from './api.js';
import { ago, count, element } from './dom.js';
import { button, confirm, facts, filterInputs, heading, link, liveTable, pill } from './parts.js';

export const id = 'dead-letters';
export const title = 'Dead letters';
export const permission = 'operate';
export const path = '/v1/dead-letters';

const LOOK_EVERY_MS = 2_000;
const SHOWN = 100;
const SKIPPED_SHOWN = 5;
const FILTERS = { tool: 'Tool', code: 'Code', session: 'Session', circuit: 'Circuit', since: 'Since', until: 'Until' };
/** The filter stays when the operator comes back from a call. */
const filter = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, '']));

export function open(root, page) {
  const letters = liveTable({
    label: 'Dead letters',
    key: ({ callId }) => callId,
    empty: 'No dead letter matches.',
    columns: [
      { title: 'Call', kind: 'id', cell: ({ callId }) => link('calls', callId) },
      { title: 'Tool', cell: ({ tool }) => element('strong', {}, tool) },
      { title: 'Code', cell: ({ code }) => pill(code, 'bad') },
      { title: 'What went wrong', kind: 'long', cell: ({ message }) => message },
      { title: 'Attempts', kind: 'number', cell: ({ attempts }) => String(attempts) },
      { title: 'Failed', kind: 'number', cell: ({ failedAtMs }) => ago(failedAtMs) },
      { title: 'Session', kind: 'long', cell: ({ session }) => link('sessions', session) },
      {
        title: '',
        kind: 'deed',
        cell: ({ callId, unresolved }) =>
          unresolved
            ? link('calls', callId, 'in doubt')
            : button('Redrive', () => redrive({ ids: [callId] }, 'this call'), 'quiet'),
      },
    ],
  });
  const redrives = liveTable({
    label: 'Redrives',
    key: ({ redriveId }) => redriveId,
    empty: 'Nothing was redriven in the last week.',
    columns: [
      { title: 'Began', kind: 'number', cell: ({ createdAtMs }) => ago(createdAtMs) },
      { title: 'State', cell: ({ state }) => pill(state, { running: 'busy', done: 'good' }[state]) },
      { title: 'By', cell: ({ by }) => by },
      { title: 'Calls', kind: 'number', cell: ({ matched }) => matched.toLocaleString('en') },
      { title: 'Started', kind: 'number', cell: ({ started }) => started.toLocaleString('en') },
      { title: 'Skipped', kind: 'number', cell: ({ skippedCount }) => skippedCount.toLocaleString('en') },
      { title: 'Why', kind: 'long', cell: ({ reason }) => reason ?? '' },
      {
        title: '',
        kind: 'deed',
        cell: ({ redriveId, state }) => (state === 'running' ? button('Stop', () => stop(redriveId), 'quiet') : ''),
      },
    ],
  });
  const totals = element('div', { class: 'panel' });
  const inputs = filterInputs(FILTERS, filter, 'oninput', () => void looking.now());
  for (const name of ['since', 'until']) inputs[name].placeholder += ': 2026-11-26T10:00Z';
  root.append(
    heading(
      'Dead letters',
      'Calls of tools that change something, which failed for good. Redriven, each runs again under its own ID and key.',
      button('Redrive all that match', () => redrive({ filter: wanted() }, 'all that match'), 'main'),
      button('Discard all that match', () => discard({ filter: wanted() }), 'danger'),
    ),
    element('div', { class: 'filters', role: 'search' }, ...Object.values(inputs)),
    totals,
    letters.root,
    element('h3', {}, 'Redrives'),
    redrives.root,
  );
  const looking = page.follow(
    () => withQuery('/v1/dead-letters', { ...filter, limit: SHOWN }),
    LOOK_EVERY_MS,
    ({ deadLetters, counts = { total: 0, codes: {}, tools: {} } }) => {
      letters.update(deadLetters);
      const listed = (numbers) => Object.entries(numbers).map(([name, number]) => `${name} ${number}`);
      totals.replaceChildren(
        facts([
          ['Match', count(counts.total, 'dead letter')],
          ['Codes', listed(counts.codes).join(', ')],
          ['Tools', listed(counts.tools).join(', ')],
        ]),
      );
    },
  );
  const following = page.follow('/v1/dead-letters/redrives?limit=20', LOOK_EVERY_MS, (answer) =>
    redrives.update(answer.redrives),
  );

  function wanted() {
    return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== ''));
  }

  const post = (body) => ask('/v1/dead-letters', { method: 'POST', body });
  const look = () => {
    void looking.now();
    void following.now();
  };

  /** A dry run comes first: the operator sees what would happen. */
  async function dryRun(body) {
    try {
      return await post({ ...body, dryRun: true });
    } catch (error) {
      page.say(error.message);
      return undefined;
    }
  }

  async function redrive(selection, what) {
    const tried = await dryRun({ action: 'redrive', ...selection });
    if (tried === undefined) return undefined;
    const would = tried.matched - tried.skipped.length;
    return confirm({
      title: `Redrive ${what}?`,
      text: `${count(would, 'call')} would run again. ${skippedText(tried)}`,
      action: 'Redrive',
      fields: [
        { name: 'perSecond', label: 'How many a second', value: '50' },
        { name: 'reason', label: 'Why', optional: true },
      ],
      async run({ perSecond, ...values }) {
        const { started, matched } = await post({
          action: 'redrive',
          ...selection,
          ...values,
          perSecond: Number(perSecond),
        });
        page.say(`${started} of ${count(matched, 'call')} redriven by now`);
        look();
      },
    });
  }

  async function discard(selection) {
    const tried = await dryRun({ action: 'discard', ...selection });
    if (tried === undefined) return undefined;
    return confirm({
      title: `Discard ${count(tried.matched - tried.skipped.length, 'dead letter')}?`,
      text: `They leave this list, and their records stay. ${skippedText(tried)}`,
      action: 'Discard',
      danger: true,
      fields: [{ name: 'reason', label: 'Why', optional: true }],
      async run(values) {
        const { started } = await post({ action: 'discard', ...selection, ...values });
        page.say(`${count(started, 'dead letter')} discarded`);
        look();
      },
    });
  }

  function stop(redriveId) {
    return confirm({
      title: 'Stop this redrive?',
      text: 'The calls that it has not reached stay dead letters.',
      action: 'Stop it',
      danger: true,
      async run() {
        await ask(`/v1/dead-letters/redrives/${part(redriveId)}`, { method: 'DELETE' });
        look();
      },
    });
  }
}

function skippedText({ skipped }) {
  if (skipped.length === 0) return 'None would be skipped.';
  const codes = Map.groupBy(skipped, ({ code }) => code);
  const listed = [...codes].slice(0, SKIPPED_SHOWN).map(([code, calls]) => `${calls.length} ${code}`);
  return `${count(skipped.length, 'call')} would be skipped: ${listed.join(', ')}.`;
}
