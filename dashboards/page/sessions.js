/** Sessions, and the messages of tools to the people of one. */
import { ask, part } from './api.js';
import { CALL_COLUMNS } from './call-columns.js';
import { ago, element, exactDuration, moment, shownText } from './dom.js';
import { back, button, confirm, facts, heading, link, liveTable, moveInRows, pill } from './parts.js';

export const id = 'sessions';
export const title = 'Sessions';
export const permission = 'use';

const LOOK_EVERY_MS = 1_000;
const SHOWN = 200;

export function open(root, page, key) {
  if (key === undefined) openList(root, page);
  else openSession(root, page, key);
}

function openList(root, page) {
  const table = liveTable({
    label: 'Sessions',
    key: ({ sessionKey }) => sessionKey,
    empty: 'No session was opened yet.',
    columns: [
      { title: 'Session', kind: 'long', cell: ({ sessionKey }) => link('sessions', sessionKey) },
      { title: 'State', cell: standing },
      { title: 'Kind', cell: ({ kind }) => kind },
      { title: 'Actor', kind: 'long', cell: ({ actorId }) => actorId },
      { title: 'Tenant', cell: ({ tenantId }) => tenantId ?? '' },
      { title: 'Below', kind: 'long', cell: ({ parent }) => (parent === undefined ? '' : link('sessions', parent)) },
      { title: 'Channel', cell: ({ channel }) => channel?.kind ?? '' },
      { title: 'Opened', kind: 'number', cell: ({ createdAtMs }) => ago(createdAtMs) },
    ],
  });
  root.append(heading('Sessions', `The newest ${SHOWN}, at most. Keys: j and k choose, Enter opens.`), table.root);
  const path = `/v1/sessions?limit=${SHOWN}`;
  page.follow(path, LOOK_EVERY_MS, ({ sessions }) => table.update(sessions));
  page.onKey((event) => moveInRows(event, root));
}

function openSession(root, page, key) {
  const path = `/v1/sessions/${part(key)}`;
  const top = element('div', {});
  const messages = element('ol', { class: 'messages', 'aria-label': 'Messages', 'aria-live': 'polite' });
  const calls = liveTable({
    label: 'Calls of the session',
    columns: CALL_COLUMNS.filter((column) => column.title !== 'Session'),
    key: ({ callId }) => callId,
    empty: 'It made no call that is remembered.',
  });
  const remembered = liveTable({
    label: 'Remembered approvals',
    columns: [
      { title: 'Tool', cell: ({ tool, approvalId }) => link('approvals', approvalId, tool) },
      { title: 'What', kind: 'long', cell: ({ amendment }) => (amendment.prefix ?? ['the same parameters']).join(' ') },
      { title: 'By', kind: 'long', cell: ({ by }) => by },
      { title: 'Until', kind: 'moment', cell: ({ validUntilMs }) => moment(validUntilMs) },
      { title: '', cell: (one) => button('Forget', () => forget(one), 'danger') },
    ],
    key: ({ approvalId }) => approvalId,
    empty: 'Each call that needs an approval is asked about.',
  });
  const decides = page.may('decide');
  root.append(top, element('h3', {}, 'Messages'), messages, element('h3', {}, 'Calls'), calls.root);
  if (decides) root.append(element('h3', {}, 'Remembered approvals'), remembered.root);
  let drawn;
  let told;
  const once = (before, answer, draw) => {
    const version = JSON.stringify(answer);
    if (version !== before) draw();
    return version;
  };
  const follow = (asked, onData) => page.follow(asked, LOOK_EVERY_MS, onData, miss);
  const looking = [
    follow(path, (session) => {
      drawn = once(drawn, session, () => top.replaceChildren(...about(session)));
    }),
    follow(`${path}/messages`, (answer) => {
      told = once(told, answer, () => drawMessages(answer.messages));
    }),
    follow(`/v1/calls?session=${part(key)}&limit=50`, (answer) => calls.update(answer.calls)),
    ...(decides ? [follow(`${path}/remembered`, (answer) => remembered.update(answer.remembered))] : []),
  ];

  function miss(text) {
    if (drawn === undefined)
      top.replaceChildren(back('sessions', 'Sessions'), element('p', { class: 'empty' }, shownText(text)));
  }

  function about(session) {
    const deeds = session.state !== 'closed' && page.may('use') ? [button('Close', close, 'danger')] : [];
    return [
      back('sessions', 'Sessions'),
      heading(shownText(session.sessionKey), undefined, standing(session), ...deeds),
      facts([
        ['Kind', session.kind],
        ['Actor', session.actorId],
        ['Agent', session.agentId],
        ['Model', session.agent?.model],
        ['Tenant', session.tenantId],
        ['Below', session.parent === undefined ? undefined : link('sessions', session.parent)],
        ['Channel', session.channel?.kind],
        ['Workspace', session.workspaceRoot],
        ['From outside', session.taint?.map(({ source }) => shownText(source)).join(', ')],
        ['Skills', session.skills?.join(', ')],
        ['Budget', amounts(session.budget, session.spent)],
        ['Budget of a turn', amounts(session.budget?.perTurn)],
        ['Budget of a call', amounts(session.budget?.perCall)],
        ['Opened', moment(session.createdAtMs)],
      ]),
    ];
  }

  function drawMessages(list) {
    const shown = list.map(({ text, from, callId, sentAtMs }) =>
      element(
        'li',
        {},
        element('p', {}, shownText(text)),
        element(
          'span',
          { class: 'time' },
          `${moment(sentAtMs)}${from === key ? '' : `, from ${shownText(from)}`}, `,
          link('calls', callId, 'the call'),
        ),
      ),
    );
    messages.replaceChildren(
      ...(shown.length === 0
        ? [element('li', { class: 'empty' }, 'No tool said anything here in the last day.')]
        : shown),
    );
  }

  function close() {
    return confirm({
      title: 'Close this session?',
      text: 'It and the sessions below it take no further calls; those in flight are cancelled.',
      action: 'Close the session',
      danger: true,
      async run() {
        await ask(path, { method: 'DELETE' });
        page.say('The session is closed');
        for (const each of looking) void each.now();
      },
    });
  }

  function forget({ approvalId, tool }) {
    return confirm({
      title: 'Take this back?',
      text: `The next call of ${shownText(tool)} like it is asked about again; what runs already goes on.`,
      action: 'Forget it',
      danger: true,
      async run() {
        await ask(`${path}/remembered/${part(approvalId)}`, { method: 'DELETE' });
        page.say('It is forgotten');
        for (const each of looking) void each.now();
      },
    });
  }
}

function standing({ state }) {
  return pill(state, state === 'closed' ? 'dim' : 'good');
}

/** `3 of 200 calls, 4 of 50 cost units`; without what is spent, the limits alone. */
function amounts(limits, spent) {
  const units = { calls: [String, ' calls'], costUnits: [String, ' cost units'], timeMs: [exactDuration, ''] };
  return Object.entries(units)
    .filter(([unit]) => limits?.[unit] !== undefined)
    .map(
      ([unit, [write, noun]]) =>
        `${spent === undefined ? '' : `${write(spent[unit])} of `}${write(limits[unit])}${noun}`,
    )
    .join(', ');
}
