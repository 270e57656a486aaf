/** The audit trail, with a search. */
import { withQuery } from './api.js';
import { count, element, moment, shownText } from './dom.js';
import { filterInputs, heading, link, liveTable } from './parts.js';

export const id = 'audit';
export const title = 'Audit';
export const permission = 'operate';
/** The section is shown if the server has this route. */
export const path = '/v1/audit';

const LOOK_EVERY_MS = 1_000;
const SHOWN = 200;
const BRIEF = 90;
const FIRST = ['what', 'action', 'answer', 'state', 'status', 'code', 'reason', 'change', 'attempt', 'fence', 'worker'];
const FIELDS = { session: 'Session', tool: 'Tool', since: 'Since, as 2026-11-22T10:00Z' };
const filter = { session: '', tool: '', since: '' };
/** Fields with a column of their own, and fields that are of no use to people. */
const ELSEWHERE = [
  'id',
  'seq',
  'seal',
  'atMs',
  'type',
  'callId',
  'sessionKey',
  'session',
  'tool',
  'toolName',
  'by',
  'actorId',
];

export function open(root, page) {
  const table = liveTable({
    label: 'Audit trail',
    key: (record) => record.id ?? JSON.stringify(record),
    empty: 'No record matches.',
    columns: [
      { title: 'When', kind: 'moment', cell: ({ atMs }) => (atMs === undefined ? '' : moment(atMs)) },
      { title: 'What', cell: ({ type }) => element('strong', {}, String(type ?? '').replaceAll('-', ' ')) },
      { title: 'Who', kind: 'long', cell: ({ by, actorId }) => by ?? actorId ?? '' },
      { title: 'Tool', cell: ({ tool, toolName }) => text(tool ?? toolName) },
      { title: 'Session', kind: 'long', cell: ({ sessionKey, session }) => text(sessionKey ?? session) },
      {
        title: 'Call',
        cell: ({ callId }) => (callId === undefined ? '' : link('calls', callId, `${callId.slice(0, 10)}…`)),
      },
      { title: 'More', kind: 'long', cell: more },
    ],
  });
  const summary = element('p', { class: 'hint' });
  const inputs = filterInputs(FIELDS, filter, 'onchange', () => void looking.now());
  root.append(
    heading(
      'Audit',
      'The newest first. Each record names the digest of the one before; pawl audit verify checks the whole trail.',
    ),
    element('div', { class: 'filters', role: 'search' }, ...Object.values(inputs)),
    summary,
    table.root,
  );
  const address = () => withQuery(path, { ...filter, limit: SHOWN });
  const looking = page.follow(address, LOOK_EVERY_MS, (answer) => {
    const records = Object.values(answer).find(Array.isArray) ?? [];
    table.update(records.slice(0, SHOWN));
    summary.textContent = `${count(Math.min(SHOWN, records.length), 'record')}${records.length >= SHOWN ? ', and more' : ''}`;
  });
}

function text(value) {
  return typeof value === 'object' && value !== null ? (value.name ?? '') : (value ?? '');
}

/** The most telling fields come first. The others are in the tooltip, and in `pawl audit ls --json`. */
function more(record) {
  const rank = ([name]) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  const told = Object.entries(record)
    .filter(([name, value]) => !ELSEWHERE.includes(name) && value !== '' && value !== null)
    .sort((one, other) => rank(one) - rank(other));
  const shown = told
    .map(([name, value]) => `${name} ${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join(', ');
  const brief = shown.length > BRIEF ? `${shown.slice(0, BRIEF)}…` : shown;
  return element('span', { title: shownText(shown) }, shownText(brief));
}
