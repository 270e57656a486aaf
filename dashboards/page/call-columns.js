/** The status of a call in one word, and the columns of tables of calls. */
import { ago, duration, element, moment } from './dom.js';
import { link, pill } from './parts.js';

/** The status of a call in one word: its phase while it is in flight. */
export function callStatus({ state, phase, unresolved, cancelRequested }) {
  if (unresolved === true) return 'outcome unknown';
  if (state !== 'inflight') return state;
  return cancelRequested ? 'cancelling' : (phase ?? state);
}

/** The status; of a delayed call, when it starts, and of a pending one, when it expires, too. */
function stateOf(call) {
  const status = callStatus(call);
  const untilMs = { delayed: call.startAtMs, pending: call.pendingUntilMs }[status];
  return untilMs === undefined ? pill(status) : element('span', {}, pill(status), ` until ${moment(untilMs)}`);
}

export const CALL_COLUMNS = [
  {
    title: 'Call',
    cell: ({ callId, namespace, tool }) => link('calls', callId, namespace === 'tools' ? tool : `${namespace}.${tool}`),
  },
  { title: 'State', cell: stateOf },
  { title: 'Session', kind: 'long', cell: ({ session }) => session },
  {
    title: 'Attempts',
    kind: 'number',
    cell: ({ attempts, lostAttempts, phase }) => String(attempts.length + lostAttempts + (phase === 'running' ? 1 : 0)),
  },
  {
    title: 'Took',
    kind: 'number',
    cell: ({ state, createdAtMs, updatedAtMs }) => (state === 'inflight' ? '' : duration(updatedAtMs - createdAtMs)),
  },
  { title: 'Submitted', kind: 'number', cell: ({ createdAtMs }) => ago(createdAtMs) },
  { title: 'What went wrong', kind: 'long', cell: ({ errorCode }) => errorCode ?? '' },
];
