/** Circuits: their state, their history, and the operator's changes to them. */
import { ask } from './api.js';
import { ago, element, timeLeft } from './dom.js';
import { button, confirm, heading, liveTable, pill } from './parts.js';

export const id = 'circuits';
export const title = 'Circuits';
export const permission = 'oversee';

const LOOK_EVERY_MS = 800;
const HISTORY_EVERY_MS = 1_500;
const PATH = '/debug/tool-reliability';

export function open(root, page) {
  const circuits = liveTable({
    label: 'Circuits',
    key: ({ key, tier }) => `${tier} ${key}`,
    empty: 'Every circuit is closed, and none was ever open.',
    columns: [
      { title: 'Circuit', kind: 'long', cell: ({ key }) => element('strong', {}, key) },
      { title: 'State', cell: ({ state }) => pill(state) },
      { title: 'Does', cell: ({ enforcement }) => enforcement },
      { title: 'Failures', kind: 'number', cell: ({ failures }) => String(failures) },
      { title: 'Since', kind: 'number', cell: ({ openedAtMs }) => (openedAtMs === undefined ? '' : ago(openedAtMs)) },
      { title: 'Next', cell: next },
      { title: 'Why', kind: 'long', cell: ({ reason }) => reason ?? '' },
      {
        title: '',
        kind: 'deed',
        cell: ({ key, state }) =>
          state === 'CLOSED'
            ? button('Force open', () => force(key), 'quiet')
            : button('Reset', () => reset(key), 'quiet'),
      },
    ],
  });
  const history = liveTable({
    label: 'History of the circuits',
    key: ({ key, atMs, to }) => `${key} ${atMs} ${to}`,
    empty: 'Nothing in the last week.',
    columns: [
      { title: 'Circuit', kind: 'long', cell: ({ key }) => key },
      { title: 'Became', cell: ({ to }) => pill(to) },
      { title: 'Was', cell: ({ from }) => from.replaceAll('_', ' ') },
      { title: 'When', kind: 'number', cell: ({ atMs }) => ago(atMs) },
      { title: 'Why', kind: 'long', cell: ({ reason }) => reason ?? '' },
    ],
  });
  root.append(
    heading(
      'Circuits',
      'An open circuit refuses calls at once; after its cooldown probes decide, and two successes close it.',
      button('Force one open', () => force(), 'danger'),
    ),
    circuits.root,
    element('h3', {}, 'History'),
    history.root,
  );
  const order = ['FORCED_OPEN', 'OPEN', 'HALF_OPEN', 'CLOSED'];
  const looking = page.follow(PATH, LOOK_EVERY_MS, (answer) =>
    circuits.update(
      [...answer.circuits].sort(
        (one, other) => order.indexOf(one.state) - order.indexOf(other.state) || (one.key < other.key ? -1 : 1),
      ),
    ),
  );
  const remembering = page.follow('/v1/circuits/history', HISTORY_EVERY_MS, ({ changes }) => history.update(changes));

  const act = async (body, done) => {
    await ask(PATH, { method: 'POST', body });
    page.say(done);
    void looking.now();
    void remembering.now();
  };

  function force(key) {
    return confirm({
      title: key === undefined ? 'Force a circuit open' : `Force ${key} open?`,
      text: 'Every call of the tool is refused with circuit_open until the circuit is reset.',
      action: 'Force it open',
      danger: true,
      fields: [
        ...(key === undefined ? [{ name: 'tool', label: 'Tool' }] : []),
        { name: 'reason', label: 'Why', optional: true },
      ],
      run: (values) =>
        act({ action: 'force_open', ...(key === undefined ? {} : { key }), ...values }, 'The circuit is forced open'),
    });
  }

  function reset(key) {
    return confirm({
      title: `Reset ${key}?`,
      text: 'It closes at once, with an empty window: calls flow again.',
      action: 'Reset it',
      run: () => act({ action: 'reset', key }, 'The circuit is closed'),
    });
  }
}

function next({ state, openedAtMs, cooldownMs }) {
  if (state === 'FORCED_OPEN') return 'stays until reset';
  if (state === 'HALF_OPEN') return 'probes decide';
  if (state !== 'OPEN' || openedAtMs === undefined) return '';
  const left = timeLeft(openedAtMs + (cooldownMs ?? 0));
  return left === '' ? 'a probe may run' : `a probe in ${left}`;
}
