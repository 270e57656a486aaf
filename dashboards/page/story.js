/** A call's whole story: the request, each attempt, fence and wait, the outcome, and the actions that are possible. */
import { ask, part } from './api.js';
import { callStatus } from './call-columns.js';
import { duration, element, moment, shownJson, shownText } from './dom.js';
import { back, button, confirm, facts, heading, link, pill } from './parts.js';

const LOOK_EVERY_MS = 400;
const RESTING_MS = 5_000;

export function openStory(root, page, callId) {
  const path = `/v1/calls/${part(callId)}`;
  let shown;
  let looking = follow(LOOK_EVERY_MS);
  root.append(element('p', { class: 'empty' }, 'Loading the call…'));

  function follow(everyMs) {
    return page.follow(path, everyMs, draw, miss);
  }

  /** The shown call stays when its record has expired. */
  function miss(text) {
    if (shown === undefined)
      root.replaceChildren(back('calls', 'Calls'), element('p', { class: 'empty' }, shownText(text)));
  }

  function draw(call) {
    // The page is redrawn only when the call has changed, so that a reader is not disturbed.
    const version = JSON.stringify(call);
    if (version === shown) return;
    shown = version;
    const focused = root.contains(document.activeElement) ? document.activeElement.textContent : undefined;
    root.replaceChildren(...contents(call));
    if (focused !== undefined)
      [...root.querySelectorAll('a, button')].find((each) => each.textContent === focused)?.focus();
    if (call.state === 'inflight') return;
    looking.stop();
    looking = { stop: () => {}, now: () => {} };
    resting ??= setTimeout(() => {
      resting = undefined;
      looking = follow(RESTING_MS);
    }, RESTING_MS);
  }
  let resting;
  page.signal.addEventListener('abort', () => clearTimeout(resting));

  function contents(call) {
    const standing = callStatus(call);
    const name = call.namespace === 'tools' ? call.tool : `${call.namespace}.${call.tool}`;
    return [
      back('calls', 'Calls'),
      heading(`${shownText(name)} ${call.toolVersion}`, undefined, pill(standing), ...actions(call, standing)),
      element(
        'div',
        { class: 'columns story' },
        element(
          'section',
          { 'aria-label': 'What happened' },
          element('h3', {}, 'What happened'),
          element('ol', { class: 'timeline' }, ...callEvents(call, page)),
        ),
        element('section', { 'aria-label': 'The call' }, element('h3', {}, 'The call'), details(call)),
      ),
      element('h3', {}, 'Parameters'),
      element('pre', { tabindex: 0, 'aria-label': 'Parameters' }, shownJson(call.params)),
      ...outcome(call),
    ];
  }

  function actions(call, standing) {
    const made = [];
    if (standing === 'outcome unknown' && page.may('operate'))
      made.push(button('Resolve', () => resolve(call), 'main'));
    if (call.state === 'inflight' && !call.cancelRequested && page.may('use'))
      made.push(button('Cancel', cancel, 'danger'));
    return made;
  }

  function cancel() {
    return confirm({
      title: 'Cancel this call?',
      text: 'One that waits never runs; one that runs is interrupted, and may have had its effect.',
      action: 'Cancel the call',
      danger: true,
      async run() {
        const { settlement } = await ask(path, { method: 'DELETE' });
        page.say(`Cancellation: ${settlement.replaceAll('-', ' ')}`);
      },
    });
  }

  async function resolve(call) {
    if ((await resolveCall(call, page)) === undefined) return;
    clearTimeout(resting);
    resting = undefined;
    looking.stop();
    looking = follow(LOOK_EVERY_MS);
  }

  function details(call) {
    const trace = /^[\da-f]{2}-([\da-f]{32})-/.exec(call.traceparent ?? '')?.[1];
    const url = page.traceUrl();
    const traced =
      trace === undefined || url === undefined
        ? trace
        : element('a', { href: url.replace('{traceId}', trace), target: '_blank', rel: 'noreferrer' }, trace);
    const { idempotencyKey, startAtMs, deadlineAtMs, expiresAtMs, freeAtMs, worker, fence } = call;
    return facts([
      ['Session', link('sessions', call.session)],
      ['Actor', call.actorId],
      ['Submitted', moment(call.createdAtMs)],
      ['Start', startAtMs === undefined ? undefined : moment(startAtMs)],
      ['Deadline', deadlineAtMs === undefined ? undefined : moment(deadlineAtMs)],
      ['Worker', worker],
      ['Newest fence', fence === 0 ? undefined : String(fence)],
      ['Circuit', call.circuit],
      ['Key', idempotencyKey],
      ['Request', call.requestId],
      ['Call', call.callId],
      ['Trace', traced],
      ['Kept', expiresAtMs === undefined ? undefined : `until ${moment(expiresAtMs)}`],
      ['Key free', freeAtMs === undefined ? undefined : `from ${moment(freeAtMs)}`],
    ]);
  }
}

/** Asks for the outcome of an unresolved call and writes it. Undefined when the dialog was cancelled. */
export function resolveCall(call, page) {
  const say = { succeeded: 'It succeeded', failed: 'It did not happen', retry: 'Run it again' };
  return confirm({
    title: `What became of ${shownText(call.tool)}?`,
    text: 'An attempt may have had its effect. Find out in the system that it acts on whether it happened, then say so. Running it again may do it twice.',
    action: 'Resolve',
    fields: [{ name: 'as', label: 'Outcome', options: Object.values(say) }],
    async run({ as }) {
      const [chosen] = Object.entries(say).find(([, text]) => text === as);
      const answer = await ask(`/v1/calls/${part(call.callId)}/resolution`, { method: 'POST', body: { as: chosen } });
      page.say(`Resolved: ${as.toLowerCase()}`);
      return answer;
    },
  });
}

/** The meaning of a failed attempt for further ones. */
function retryMeaning({ inDoubt, retriable }, { effects, unresolved }) {
  if (inDoubt === true && effects !== 'none' && effects !== 'idempotent') return 'may have had its effect';
  // An unresolved call is not tried again, even if this attempt was retriable.
  return retriable && unresolved !== true ? 'worth another try' : 'final';
}

/** The events of a call, in order, with the time since its submission. */
function callEvents(call, page) {
  const { createdAtMs, startAtMs, attempts, phase, state, lostAttempts, progress } = call;
  const lines = [];
  const add = (atMs, tone, title, note) =>
    void lines.push(
      element(
        'li',
        { 'data-tone': tone },
        element('time', {}, atMs === undefined ? '' : `+${duration(Math.max(0, atMs - createdAtMs))}`),
        element(
          'div',
          {},
          element('strong', {}, shownText(title)),
          note === undefined ? '' : element('span', {}, note instanceof Node ? note : shownText(note)),
        ),
      ),
    );
  add(createdAtMs, 'dim', 'Submitted', startAtMs === undefined ? 'recorded and queued in one step' : 'to start later');
  let waitedFrom = Math.max(createdAtMs, startAtMs ?? 0);
  const began = (number, { startedAtMs, fence, worker = 'a worker' }) =>
    add(
      startedAtMs,
      'busy',
      `Attempt ${number} began`,
      `fence ${fence}, ${worker}, after waiting ${duration(startedAtMs - waitedFrom)}`,
    );
  const redrives = [...(call.redrives ?? [])];
  const redriven = (before) => {
    while (redrives[0] !== undefined && redrives[0].attempts <= before) {
      const { atMs, by, code } = redrives.shift();
      add(atMs, 'warn', 'Redriven', `by ${by}, after it had failed with ${code}`);
      waitedFrom = atMs;
    }
  };
  for (const each of attempts) {
    redriven(each.attempt - 1);
    began(each.attempt, each);
    const took = duration(Math.max(0, each.finishedAtMs - each.startedAtMs));
    if (each.status === 'pending' || each.completedAtMs !== undefined)
      add(each.finishedAtMs, 'dim', `Attempt ${each.attempt} left the call to an outside system`, `after ${took}`);
    else if (each.status === 'success')
      add(each.finishedAtMs, 'good', `Attempt ${each.attempt} succeeded`, `in ${took}`);
    else if (each.status === 'lost')
      add(each.finishedAtMs, 'bad', `Attempt ${each.attempt} was lost`, 'its worker died or was cut off');
    else {
      const worth = retryMeaning(each, call);
      add(
        each.finishedAtMs,
        'bad',
        `Attempt ${each.attempt} failed: ${each.errorCode ?? 'an error'}`,
        `after ${took}, ${worth}`,
      );
    }
    if (each.completedAtMs !== undefined)
      add(
        each.completedAtMs,
        each.status === 'success' ? 'good' : 'bad',
        'Completed by the outside system',
        each.errorCode,
      );
    waitedFrom = each.finishedAtMs;
    if (each.delayMs === undefined) continue;
    add(each.finishedAtMs, 'warn', `Waits ${duration(each.delayMs)}`, 'before the next attempt');
  }
  redriven(attempts.length);
  const unrecorded = lostAttempts - attempts.filter(({ status: end }) => end === 'lost').length;
  if (unrecorded > 0)
    add(undefined, 'bad', `${unrecorded} of the starts left no record`, 'the worker died or was cut off');
  if (state === 'inflight' && phase === 'awaiting-approval')
    add(
      undefined,
      'warn',
      'Waits for a person',
      page.may('decide') ? link('approvals', call.callId, 'see Approvals') : 'an approver decides',
    );
  if (state === 'inflight' && phase === 'delayed')
    add(undefined, 'dim', 'Waits for its start', `at ${moment(startAtMs)}, without a worker`);
  if (state === 'inflight' && phase === 'pending')
    add(
      undefined,
      'dim',
      'Waits for an outside system',
      `until ${moment(call.pendingUntilMs)} at most, without a worker`,
    );
  if (state === 'inflight' && (phase === 'queued' || phase === 'claimed'))
    add(undefined, 'busy', 'Waits for a worker', 'in its tier’s queue');
  if (state === 'inflight' && phase === 'running') {
    began(attempts.length + 1, call);
    const { progress: done, total, message } = progress ?? {};
    const parts = [message, total === undefined ? undefined : `${done} of ${total}`].filter(
      (text) => text !== undefined,
    );
    add(undefined, 'busy', 'Runs now', parts.length === 0 ? undefined : parts.join(', '));
  }
  if (call.cancelRequested && state === 'inflight')
    add(undefined, 'warn', 'Asked to cancel', 'the attempt is notified');
  if (state === 'inflight') return lines;
  const { errorCode, settlement, updatedAtMs, status } = call;
  const tone = state === 'done' ? 'good' : state === 'cancelled' ? 'warn' : 'bad';
  const isResolved = call.result?.output?.metadata?.resolved === true;
  const how = [errorCode, settlement?.replaceAll('-', ' '), isResolved ? 'resolved by an operator' : undefined]
    .filter((text) => text !== undefined)
    .join(', ');
  add(updatedAtMs, tone, `Ended: ${status ?? state}`, how === '' ? undefined : how);
  return lines;
}

function outcome({ result }) {
  if (result === undefined) return [];
  if (result.error !== undefined) {
    const issues = (result.error.issues ?? []).map(({ path, message }) => `\n${path}: ${message}`).join('');
    return [
      element('h3', {}, 'Error'),
      element(
        'pre',
        { tabindex: 0, 'aria-label': 'Error' },
        shownText(`${result.error.code}: ${result.error.message}${issues}`),
      ),
    ];
  }
  return [
    element('h3', {}, 'Result'),
    element('pre', { tabindex: 0, 'aria-label': 'Result' }, shownJson(result.output?.content ?? null)),
  ];
}
