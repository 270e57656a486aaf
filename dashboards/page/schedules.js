/** Schedules: their next times, what became of the last ones, and the operator's changes to them. */
import { ask, part } from './api.js';
import { ago, element, moment, shownJson } from './dom.js';
import { back, button, confirm, facts, heading, link, liveTable, moveInRows, pill } from './parts.js';

export const id = 'schedules';
export const title = 'Schedules';
export const permission = 'use';

const LOOK_EVERY_MS = 1_000;
const PATH = '/v1/schedules';

const times = ({ every, cron, timezone }) =>
  cron === undefined ? `every ${typeof every === 'number' ? `${every} ms` : every}` : `${cron} (${timezone ?? 'UTC'})`;
const toneOf = { started: 'good', run: 'good', refused: 'bad', unknown: 'bad', missed: 'warn', skipped: 'dim' };
const when = (at) => (at === undefined ? '' : moment(Date.parse(at)));

export function open(root, page, key) {
  if (key === undefined) openList(root, page);
  else openSchedule(root, page, key);
}

function openList(root, page) {
  const table = liveTable({
    label: 'Schedules',
    key: (schedule) => schedule.id,
    empty: 'There is no schedule. A program, the API or “pawl schedules put” writes one.',
    columns: [
      { title: 'Schedule', kind: 'long', cell: (schedule) => link('schedules', schedule.id) },
      { title: 'State', cell: ({ state }) => pill(state) },
      { title: 'Tool', kind: 'long', cell: ({ tool }) => tool },
      { title: 'Times', kind: 'long', cell: times },
      { title: 'Next', kind: 'moment', cell: ({ next }) => when(next[0]) },
      { title: 'Last', cell: ({ last }) => (last === undefined ? '' : pill(last.result, toneOf[last.result])) },
      { title: 'Session', kind: 'long', cell: ({ session }) => link('sessions', session) },
    ],
  });
  root.append(heading('Schedules', 'Calls that are made again and again.'), table.root);
  page.follow(PATH, LOOK_EVERY_MS, ({ schedules }) => table.update(schedules));
  page.onKey((event) => moveInRows(event, root));
}

function openSchedule(root, page, key) {
  const path = `${PATH}/${part(key)}`;
  const top = element('div', {});
  const about = element('div', {});
  const recent = liveTable({
    label: 'Occurrences',
    key: ({ at, result, times }) => `${at} ${result} ${times ?? ''}`,
    empty: 'None yet.',
    columns: [
      { title: 'Time', kind: 'moment', cell: ({ at }) => when(at) },
      { title: 'Result', cell: ({ result }) => pill(result, toneOf[result]) },
      { title: 'How many', kind: 'number', cell: ({ times = 1, more }) => `${times}${more === true ? '+' : ''}` },
      { title: 'Call', kind: 'long', cell: ({ callId }) => (callId === undefined ? '' : link('calls', callId)) },
      {
        title: 'Why',
        kind: 'long',
        cell: ({ code, reason = '' }) => (code === undefined ? reason : `${code}: ${reason}`),
      },
    ],
  });
  root.append(top, about, element('h3', {}, 'Newest occurrences'), recent.root);
  let shown;
  const looking = page.follow(
    path,
    LOOK_EVERY_MS,
    (schedule) => {
      recent.update(schedule.recent);
      const drawn = JSON.stringify({ ...schedule, recent: undefined });
      if (drawn === shown) return;
      shown = drawn;
      top.replaceChildren(back('schedules', 'Schedules'), heading(schedule.id, undefined, ...actions(schedule)));
      about.replaceChildren(described(schedule));
    },
    (message) => top.replaceChildren(back('schedules', 'Schedules'), element('p', { class: 'empty' }, message)),
  );

  function actions({ state }) {
    return [
      button('Run now', () => change('run', 'Makes its call now, beside its own times.', 'Run it')),
      state === 'paused'
        ? button('Resume', () => change('resume', 'It goes on with its next time.', 'Resume it'))
        : button('Pause', () => change('pause', 'No occurrence starts until it is resumed.', 'Pause it')),
      button('Remove', remove, 'danger'),
    ];
  }

  function change(action, text, label) {
    return confirm({
      title: `${label.replace(' it', '')} ${key}?`,
      text,
      action: label,
      fields: action === 'pause' ? [{ name: 'reason', label: 'Why', optional: true }] : [],
      async run(values) {
        await ask(path, { method: 'POST', body: { action, ...values } });
        page.say(`${key}: ${action}`);
        void looking.now();
      },
    });
  }

  function remove() {
    return confirm({
      title: `Remove ${key}?`,
      text: 'It does not occur again. Calls that it made go on.',
      action: 'Remove it',
      danger: true,
      async run() {
        await ask(path, { method: 'DELETE' });
        page.say(`${key} is removed`);
        location.hash = '#schedules';
      },
    });
  }
}

function described(schedule) {
  const { state, pausedAtMs, pausedBy, pauseReason, next, counts, waiting } = schedule;
  const paused = pausedAtMs === undefined ? '' : `${ago(pausedAtMs)} by ${pausedBy}`;
  return facts([
    ['State', pill(state)],
    ['Paused', pauseReason === undefined ? paused : `${paused}: ${pauseReason}`],
    ['Times', times(schedule)],
    ['From', when(schedule.from)],
    ['Until', when(schedule.until)],
    ['Limit', schedule.limit],
    ['Next', next.map(when).join(', ')],
    ['Tool', `${schedule.namespace}.${schedule.tool}`],
    ['Parameters', element('pre', {}, shownJson(schedule.params))],
    ['Session', link('sessions', schedule.session)],
    ['Tenant', schedule.tenantId],
    ['Overlap', schedule.overlap],
    ['Missed', schedule.missed],
    ['Waiting', waiting === 0 ? undefined : waiting],
    [
      'Counts',
      Object.entries(counts)
        .map(([name, count]) => `${count} ${name}`)
        .join(', '),
    ],
    ['Written', `${moment(schedule.updatedAtMs)} by ${schedule.updatedBy}`],
  ]);
}
