/** Calls that wait for a person: a live list, and the details of the chosen one. */
import { ApiError, ask, LISTED, part } from './api.js';
import { count, editableJson, element, shownText } from './dom.js';
import { drawTimes, facts, heading, intent, link } from './parts.js';
import { openQuestions } from './questions.js';

export const id = 'approvals';
export const title = 'Approvals';
export const permission = 'decide';

const LOOK_EVERY_MS = 250;
/** The characters of parameters that a list shows. */
const MAX_LISTED = 400;
const EDIT = 'Edit the parameters';
const KEYS = 'j and k choose, a approves, d denies, e edits the parameters, Esc leaves a field';

/** `wanted` names an approval, or the call that waits for it. */
export function open(root, page, wanted) {
  let listed = [];
  let chosen = wanted;
  let shown;
  /** The approvals that this page is deciding or has decided. Only these give way to the next one without a choice. */
  let sending;
  const decided = new Set();
  /** The chosen approval, if it is no longer pending. */
  let ended;
  let isAsking = false;
  const hand = intent();
  const list = element('ul', { class: 'list', 'aria-label': 'Calls that wait for a decision' });
  const detail = element('section', { class: 'detail', 'aria-label': 'The chosen call', 'aria-live': 'polite' });
  root.append(heading('Approvals', `Keys: ${KEYS}.`));
  openQuestions(root, page);
  const more = element('p', { class: 'hint', hidden: true }, `These are ${LISTED} of them: more may wait.`);
  root.append(more, element('div', { class: 'columns' }, list, detail));

  const looking = page.follow('/v1/approvals?state=pending', LOOK_EVERY_MS, ({ approvals }) => {
    page.badge(id, 'calls', approvals.length);
    more.hidden = approvals.length < LISTED;
    listed = approvals;
    chosen = listed.find(({ callId }) => callId === chosen)?.id ?? chosen;
    if (decided.has(chosen) && !isListed(chosen)) {
      hand.moved();
      chosen = undefined;
      history.replaceState(null, '', `#${id}`);
    }
    chosen ??= listed[0]?.id;
    draw();
    if (chosen !== undefined && !isListed(chosen) && chosen !== sending && chosen !== ended) void drawUnlisted(chosen);
  });
  const clock = setInterval(() => drawTimes(root), 1_000);
  page.signal.addEventListener('abort', () => clearInterval(clock));

  function isListed(approvalId) {
    return listed.some((each) => each.id === approvalId);
  }

  function draw() {
    const focused = list.contains(document.activeElement);
    const ids = [...list.children].map(({ dataset }) => dataset.id).join();
    if (ids !== listed.map((each) => each.id).join() || listed.length === 0)
      list.replaceChildren(
        ...(listed.length === 0
          ? [element('li', { class: 'empty' }, 'Nothing waits for a decision.')]
          : listed.map(item)),
      );
    for (const { dataset, firstElementChild: button } of list.children) {
      if (dataset.id === undefined) continue;
      const isChosen = dataset.id === chosen;
      button.setAttribute('aria-current', String(isChosen));
      if (isChosen && focused && document.activeElement !== button) button.focus();
    }
    detail.hidden = chosen === undefined;
    drawDetail();
    drawTimes(root);
  }

  function item(approval) {
    return element(
      'li',
      { 'data-id': approval.id },
      element(
        'button',
        { type: 'button', onclick: () => choose(approval.id) },
        element('strong', { class: 'title' }, shownText(approval.preview.summary)),
        saysNothing(approval) && element('span', { class: 'note' }, approval.shown.slice(0, MAX_LISTED)),
        element(
          'span',
          { class: 'note' },
          shownText(`${approval.namespace}.${approval.tool}, asked by ${askedBy(approval)}`),
        ),
        element('span', { class: 'note', 'data-expires': approval.expiresAtMs }),
      ),
    );
  }

  function choose(next) {
    chosen = next;
    ended = undefined;
    history.replaceState(null, '', `#${id}/${part(next)}`);
    draw();
  }

  function drawDetail() {
    const approval = listed.find((each) => each.id === chosen);
    if (approval === undefined && chosen !== undefined) return;
    // The details are redrawn only when they have changed, so that a reader is not disturbed.
    const version = approval === undefined ? '' : versionOf(approval);
    if (shown === version) return;
    shown = version;
    // A list truncates large parameters. The buttons come only with the whole request.
    if (approval?.shortened)
      detail.replaceChildren(element('p', { class: 'hint' }, `Loading ${count(approval.paramsBytes, 'byte')}.`));
    else detail.replaceChildren(...(approval === undefined ? [] : contents(approval)));
    if (approval !== undefined) void drawWhole(approval, version);
  }

  /**
   * Draws an approval that an address names or that another person decided. It stays until another one is chosen, because a click or
   * a text that was meant for it must not reach the next call.
   */
  async function drawUnlisted(approvalId) {
    if (isAsking) return;
    isAsking = true;
    const answer = await ask(`/v1/approvals/${part(approvalId)}`).catch((error) => error);
    isAsking = false;
    if (chosen !== approvalId || approvalId === sending || decided.has(approvalId)) return;
    const isUnknown = answer instanceof ApiError && answer.status === 404;
    // The next request tries again.
    if (answer instanceof Error && !isUnknown) return;
    // An address may name the call instead.
    if (!isUnknown) chosen = answer.id;
    const isShown = shown?.startsWith(`${chosen} `) && detail.querySelector('.approve') !== null;
    if (!isShown) {
      shown = isUnknown ? `${chosen} ` : versionOf(answer);
      detail.replaceChildren(
        ...(isUnknown ? [element('p', { class: 'empty' }, shownText(answer.message))] : contents(answer)),
      );
      drawTimes(root);
      if (!isUnknown) drawSimilar(answer.similar);
    }
    // The list has only the newest approvals.
    if (answer.state === 'pending') return;
    ended = chosen;
    for (const button of detail.querySelectorAll('.actions button')) button.disabled = true;
    detail.querySelector('.actions [data-expires]')?.remove();
    const became = isUnknown ? answer.message : endOf(answer);
    const problem = detail.querySelector('.problem');
    if (problem !== null) problem.textContent = shownText(became);
    if (isShown) page.say(shownText(became));
  }

  async function drawWhole(approval, version) {
    const whole = await ask(`/v1/approvals/${part(approval.id)}`).catch(() => undefined);
    if (shown !== version || ended === approval.id) return;
    if (whole === undefined) {
      // The next request tries again.
      if (approval.shortened) shown = undefined;
      return;
    }
    if (approval.shortened) {
      detail.replaceChildren(...contents(whole));
      drawTimes(root);
    }
    drawSimilar(whole.similar);
  }

  function drawSimilar(similar) {
    const place = detail.querySelector('.similar');
    if (place === null || similar.length === 0) return;
    const line = ({ state, decidedBy, summary, reason }) =>
      element('li', {}, shownText(`${state} by ${decidedBy}: ${summary}${reason ? ` (${reason})` : ''}`));
    place.replaceChildren(element('h4', {}, 'Decided before'), element('ul', {}, ...similar.map(line)));
  }

  function contents(approval) {
    const { annotations, taint, amendment, preview } = approval;
    const hints = Object.entries(annotations).flatMap(([name, value]) => (value ? [name.replace(/Hint$/, '')] : []));
    const remembered = amendment?.kind === 'command-prefix' ? amendment.prefix.join(' ') : 'these parameters';
    const pairs = [
      ['Tool', `${approval.namespace}.${approval.tool} ${approval.toolVersion}`],
      ['Tier', `${approval.tier}, effects ${approval.effects}`],
      ['Hints', hints.join(', ')],
      [
        'Asked by',
        approval.agentId === undefined ? askedBy(approval) : `${askedBy(approval)}, agent ${approval.agentId}`,
      ],
      ['Session', page.may('use') ? link('sessions', approval.session) : approval.session],
      ['Kind', approval.sessionKind],
      ['Plan', approval.planId !== undefined && page.may('use') ? link('plans', approval.planId) : approval.planId],
      ['Call', page.may('use') ? link('calls', approval.callId) : approval.callId],
      ['Workspace', approval.workspaceRoot],
      ['Why', approval.justification ?? ''],
      ['Rule', `${approval.rule}: ${approval.reason}`],
      ['From outside', taint.join(', ')],
      ['Digest', approval.digest],
    ];
    const reason = element('input', { id: 'reason', maxlength: 2000, autocomplete: 'off' });
    const remember = element('input', { type: 'checkbox' });
    const edited = element('textarea', {
      id: 'params',
      rows: 8,
      spellcheck: 'false',
      'aria-label': 'Parameters to run with',
    });
    const original = editableJson(approval.params);
    edited.value = original;
    const isEdited = () => withoutSpace(edited.value) !== withoutSpace(original);
    const summary = element('summary', {}, EDIT);
    edited.addEventListener('input', () => {
      summary.textContent = isEdited() ? 'Edited: the call runs with these parameters' : EDIT;
      // No later call is like the one that was asked for, if that did not run as it was asked for.
      remember.disabled = isEdited();
      if (remember.disabled) remember.checked = false;
    });
    const problem = element('p', { class: 'problem', role: 'alert' });
    const decide = (decision) => (event) => {
      if (hand.isMeant(event))
        void send(approval, { decision, reason, remember, params: isEdited() ? edited.value : undefined, problem });
      else page.say('Nothing was decided: another call has just come into this place');
    };
    const editing = element('details', {}, summary, edited);
    return [
      element('h3', {}, shownText(preview.summary)),
      preview.details === undefined || preview.details === approval.shown
        ? undefined
        : element(
            'pre',
            { class: 'preview', tabindex: 0, 'aria-label': 'Preview' },
            ...diffLines(shownText(preview.details)),
          ),
      element('h4', {}, 'Parameters'),
      element('pre', { tabindex: 0, 'aria-label': 'Parameters' }, approval.shown),
      facts(pairs),
      element('div', { class: 'similar' }),
      // A plan is approved as it was shown.
      approval.planId === undefined ? editing : undefined,
      element('label', {}, 'Reason ', reason),
      amendment === undefined
        ? undefined
        : element(
            'label',
            { class: 'check' },
            remember,
            ` Allow ${shownText(remembered)} for the rest of this session`,
          ),
      element(
        'div',
        { class: 'actions' },
        element('button', { type: 'button', class: 'approve', onclick: decide('approve') }, 'Approve'),
        element('button', { type: 'button', class: 'deny', onclick: decide('deny') }, 'Deny'),
        element('span', { class: 'time', 'data-expires': approval.expiresAtMs }),
      ),
      problem,
    ].filter((part) => part !== undefined);
  }

  async function send(approval, { decision, reason, remember, params, problem }) {
    if (sending === approval.id) return page.say('A decision about this call is on its way already');
    problem.textContent = '';
    const choice = { decision, digest: approval.digest };
    if (reason.value !== '') choice.reason = reason.value;
    if (decision === 'approve' && remember.checked) choice.remember = true;
    let body = JSON.stringify(choice);
    try {
      if (decision === 'approve' && params !== undefined) {
        JSON.parse(params);
        // The text itself is sent, so that the server refuses numbers that the browser would round.
        body = `${body.slice(0, -1)},"params":${params}}`;
      }
      sending = approval.id;
      await ask(`/v1/approvals/${part(approval.id)}`, { method: 'POST', body });
      decided.add(approval.id);
      page.say(`${decision === 'approve' ? 'Approved' : 'Denied'}: ${shownText(approval.preview.summary)}`);
      list.querySelector('button')?.focus();
      void looking.now();
    } catch (error) {
      problem.textContent = error instanceof ApiError ? error.message : `The parameters are not JSON: ${error.message}`;
    } finally {
      if (sending === approval.id) sending = undefined;
    }
  }

  page.onKey((event) => {
    const typing = event.target.matches('input:not([type="checkbox"]), textarea');
    if (event.key === 'Escape' && typing) {
      event.target.blur();
      list.querySelector('[aria-current="true"]')?.focus();
      return;
    }
    if (typing) return;
    const move = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (move !== undefined && listed.length > 0 && !event.target.matches('pre')) {
      const at = listed.findIndex((each) => each.id === chosen);
      choose(listed[Math.min(listed.length - 1, Math.max(0, at + move))].id);
      list.querySelector('[aria-current="true"]')?.focus();
    } else if (event.key === 'a') detail.querySelector('.approve')?.focus();
    else if (event.key === 'd') detail.querySelector('#reason')?.focus();
    else if (event.key === 'e') {
      const editing = detail.querySelector('details');
      if (editing !== null) editing.open = true;
      detail.querySelector('#params')?.focus();
    } else return;
    event.preventDefault();
  });
}

/** JSON without the space between its parts. */
function withoutSpace(json) {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, '$1');
}

function versionOf({ id: approvalId, digest, preview }) {
  return `${approvalId} ${digest} ${preview.summary}`;
}

/** The end of an approval that is no longer pending. */
function endOf({ state, decidedBy, decisionReason }) {
  if (state === 'expired') return 'It expired: nobody decided in time.';
  const by = decidedBy === undefined ? '' : ` by ${decidedBy}`;
  return `It was ${state}${by}${decisionReason === undefined ? '' : `: ${decisionReason}`}.`;
}

/** Lines that a diff adds and takes away stand out. */
function diffLines(text) {
  return text.split('\n').map((line) => {
    const kind = /^\+(?!\+\+)/.test(line) ? 'ins' : /^-(?!--)/.test(line) ? 'del' : 'span';
    return element(kind, {}, `${line}\n`);
  });
}

/** Whether the tool gives no preview of its own, so that the parameters are shown instead. */
function saysNothing({ preview, shown }) {
  return preview.details?.slice(0, MAX_LISTED) === shown.slice(0, MAX_LISTED);
}

/** The session's actor, and the actor that the call names instead, if any. */
function askedBy({ requestedBy, actorId }) {
  return actorId === requestedBy ? requestedBy : `${requestedBy}, in the name of ${actorId}`;
}
