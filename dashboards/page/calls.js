/** Calls: the newest ones, filtered, and the whole story of one. */
import { part } from './api.js';
import { CALL_COLUMNS } from './call-columns.js';
import { count, element } from './dom.js';
import { button, heading, isTyping, liveTable, moveInRows } from './parts.js';
import { openStory } from './story.js';

export const id = 'calls';
export const title = 'Calls';
export const permission = 'use';

const LOOK_EVERY_MS = 700;
const SHOWN = 100;
/** The API lists no more at once. So many are read less often. */
const MOST = 1_000;
const LOOK_AT_MOST_EVERY_MS = 5_000;
const STATES = {
  '': 'All states',
  inflight: 'In flight',
  'awaiting-approval': 'Awaiting approval',
  delayed: 'Delayed',
  queued: 'Queued',
  running: 'Running',
  pending: 'Pending',
  'waiting-retry': 'Waiting for a retry',
  done: 'Done',
  failed: 'Failed',
  cancelled: 'Cancelled',
  unresolved: 'Outcome unknown',
};
/** The filter and the length of the list stay when the operator comes back from a call. */
const filter = { tool: '', session: '', state: '' };
let shown = SHOWN;

export function open(root, page, callId) {
  return callId === undefined ? openList(root, page) : openStory(root, page, callId);
}

function openList(root, page) {
  const table = liveTable({
    label: 'Calls',
    columns: CALL_COLUMNS,
    key: ({ callId }) => callId,
    empty: 'No call matches.',
  });
  const summary = element('p', { class: 'hint', 'aria-live': 'off' });
  const field = (name, label) => {
    const input = element('input', {
      type: 'search',
      'aria-label': label,
      placeholder: label,
      oninput: () => change(name, input),
    });
    input.value = filter[name];
    return input;
  };
  const tool = field('tool', 'Tool');
  const state = element(
    'select',
    { 'aria-label': 'State', onchange: () => change('state', state) },
    ...Object.entries(STATES).map(([value, text]) => element('option', { value }, text)),
  );
  state.value = filter.state;
  const most = button(`Show up to ${MOST} calls`, () => {
    shown = MOST;
    looking.stop();
    looking = look();
  });
  most.hidden = true;
  root.append(
    heading('Calls', 'The newest first. Keys: / filters, j and k choose, Enter opens.'),
    element('div', { class: 'filters', role: 'search' }, tool, field('session', 'Session'), state),
    summary,
    table.root,
    most,
  );
  let looking = look();

  function look() {
    const everyMs = shown === MOST ? LOOK_AT_MOST_EVERY_MS : LOOK_EVERY_MS;
    return page.follow(address, everyMs, ({ calls, truncated }) => {
      table.update(calls);
      const more = calls.length >= shown ? ', and more' : truncated ? '; older ones were not looked at' : '';
      summary.textContent = `${count(calls.length, 'call')}${more}`;
      most.hidden = calls.length < shown || shown === MOST;
    });
  }

  function address() {
    const wanted = Object.entries({ ...filter, limit: shown }).filter(([, value]) => value !== '');
    return `/v1/calls?${wanted.map(([name, value]) => `${name}=${part(value)}`).join('&')}`;
  }

  function change(name, { value }) {
    filter[name] = value.trim();
    void looking.now();
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') !== null) return;
    if (event.key === 'Escape' && isTyping(event)) root.querySelector('tbody a')?.focus();
    else if (event.key === '/' && !isTyping(event)) {
      tool.focus();
      event.preventDefault();
    } else if (!isTyping(event)) moveInRows(event, root);
  }
  addEventListener('keydown', pressed);
  return () => {
    looking.stop();
    removeEventListener('keydown', pressed);
  };
}
