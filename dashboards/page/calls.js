/** Calls: the newest ones, filtered, and the whole story of one. */
import { withQuery } from './api.js';
import { CALL_COLUMNS } from './call-columns.js';
import { count, element } from './dom.js';
import { button, filterInputs, heading, isTyping, liveTable, moveInRows } from './parts.js';
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
  if (callId === undefined) openList(root, page);
  else openStory(root, page, callId);
}

function openList(root, page) {
  const table = liveTable({
    label: 'Calls',
    columns: CALL_COLUMNS,
    key: ({ callId }) => callId,
    empty: 'No call matches.',
  });
  const summary = element('p', { class: 'hint', 'aria-live': 'off' });
  const { tool, session } = filterInputs({ tool: 'Tool', session: 'Session' }, filter, 'oninput', lookNow);
  const state = element(
    'select',
    { 'aria-label': 'State', onchange: changeState },
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
    element('div', { class: 'filters', role: 'search' }, tool, session, state),
    summary,
    table.root,
    most,
  );
  let looking = look();

  function look() {
    const everyMs = shown === MOST ? LOOK_AT_MOST_EVERY_MS : LOOK_EVERY_MS;
    const address = () => withQuery('/v1/calls', { ...filter, limit: shown });
    return page.follow(address, everyMs, ({ calls, truncated }) => {
      table.update(calls);
      const more = calls.length >= shown ? ', and more' : truncated ? '; older ones were not looked at' : '';
      summary.textContent = `${count(calls.length, 'call')}${more}`;
      most.hidden = calls.length < shown || shown === MOST;
    });
  }

  function lookNow() {
    void looking.now();
  }

  function changeState() {
    filter.state = state.value;
    lookNow();
  }

  page.onKey((event) => {
    if (event.key === 'Escape' && isTyping(event)) root.querySelector('tbody a')?.focus();
    else moveInRows(event, root, tool);
  });
}
