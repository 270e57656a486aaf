/** The elements of sections: states with a colour and a word, live tables, facts, and confirmations. */
import { ApiError } from './api.js';
import { element, shownText, timeLeft } from './dom.js';

const TONES = {
  good: ['done', 'success', 'succeeded', 'CLOSED', 'enabled', 'open session', 'on', 'approved', 'live'],
  bad: ['failed', 'error', 'timeout', 'OPEN', 'FORCED_OPEN', 'lost', 'outcome unknown', 'off', 'denied', 'refused'],
  warn: ['awaiting-approval', 'waiting-retry', 'HALF_OPEN', 'cancelling', 'cancelled', 'shadow', 'disabled'],
  busy: ['running', 'queued', 'claimed', 'inflight'],
};
const TONE_OF = new Map(Object.entries(TONES).flatMap(([tone, words]) => words.map((word) => [word, tone])));

/** A state, always with a word beside its colour. */
export function pill(state, tone = TONE_OF.get(state) ?? 'dim') {
  return element(
    'span',
    { class: 'pill', 'data-tone': tone },
    shownText(state).replaceAll('_', ' ').replaceAll('-', ' '),
  );
}

/** The title of a section, a hint, and its actions. */
export function heading(title, hint, ...actions) {
  return element(
    'div',
    { class: 'heading' },
    element('div', {}, element('h2', {}, title), hint === undefined ? '' : element('p', { class: 'hint' }, hint)),
    element('div', { class: 'actions' }, ...actions),
  );
}

/** Names and values; those without a value are left out. */
export function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== undefined && value !== '');
  const shown = (value) => (value instanceof Node ? value : shownText(value));
  return element(
    'dl',
    {},
    ...told.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, shown(value))]),
  );
}

/** Writes the time that is left into each element with `data-expires`. */
export function drawTimes(root) {
  for (const each of root.querySelectorAll('[data-expires]'))
    each.textContent = timeLeft(Number(each.dataset.expires)) || 'expired';
}

/** `path` of the page: a call, a session. */
export function link(section, id, text = id) {
  return element('a', { href: `#${section}/${encodeURIComponent(id)}` }, shownText(text));
}

/** The link from one thing back to its section. */
export function back(section, title) {
  return element('p', { class: 'back' }, element('a', { href: `#${section}` }, title));
}

export function button(text, onclick, kind = '') {
  return element('button', { type: 'button', class: kind, onclick }, text);
}

/**
 * A live table. A column is `{ title, cell(row), kind? }`, where a cell is text or an element. Unchanged rows are not redrawn, so that
 * focus and selection stay. The first cell's link opens the row.
 */
export function liveTable({ label, columns, key, empty }) {
  const body = element('tbody');
  const nothing = element('p', { class: 'empty', hidden: true }, empty);
  const head = element(
    'tr',
    {},
    ...columns.map(({ title, kind }) =>
      element('th', { scope: 'col', class: kind, 'aria-label': title === '' ? 'Actions' : undefined }, title),
    ),
  );
  const table = element('table', { 'aria-label': label }, element('thead', {}, head), body);
  const root = element('div', { class: 'table' }, table, nothing);
  const known = new Map();
  return {
    root,
    /** Undefined while nothing is known yet. */
    update(rows) {
      const ids = new Set(rows.map(key));
      for (const [id, row] of known) {
        if (ids.has(id)) continue;
        row.remove();
        known.delete(id);
      }
      rows.forEach((each, position) => {
        const id = key(each);
        let row = known.get(id);
        if (row === undefined) {
          row = element(
            'tr',
            { 'data-id': id },
            ...columns.map(({ title, kind }) => element('td', { 'data-label': title, class: kind })),
          );
          known.set(id, row);
        }
        for (const [at, { cell }] of columns.entries()) fill(row.children[at], cell(each));
        if (body.children[position] !== row) body.insertBefore(row, body.children[position] ?? null);
      });
      table.hidden = rows.length === 0;
      nothing.hidden = rows.length > 0;
    },
  };
}

function fill(place, content) {
  const next = content instanceof Node ? content : document.createTextNode(shownText(content ?? ''));
  const before = place.firstChild;
  if (before?.nodeType === next.nodeType && (before.outerHTML ?? before.data) === (next.outerHTML ?? next.data)) return;
  place.replaceChildren(next);
}

/** The keys j and k, or the arrows, go from row to row; Enter opens the focused link, and / goes to the search, if there is one. */
export function moveInRows(event, root, search) {
  if (isTyping(event)) return;
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
  if (step !== undefined) {
    const links = [...root.querySelectorAll('tbody td:first-child a')];
    const at = links.indexOf(document.activeElement);
    links[at === -1 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
  } else if (event.key === '/' && search !== undefined) search.focus();
  else return;
  event.preventDefault();
}

/** Inputs that write a list's filter, by name: `labels` names them, and `on` is the event that changes it. */
export function filterInputs(labels, filter, on, changed) {
  return Object.fromEntries(
    Object.entries(labels).map(([name, label]) => {
      const input = element('input', {
        type: 'search',
        'aria-label': label,
        placeholder: label,
        [on]: () => {
          filter[name] = input.value.trim();
          changed();
        },
      });
      input.value = filter[name];
      return [name, input];
    }),
  );
}

/** An element that has moved under the pointer is ignored for this long, which is more than a double click takes. */
const SEEN_AFTER_MS = 700;

/**
 * Guards against clicks on an element that has just `moved` under the pointer because another one went away. Keys are not affected,
 * because the focus does not move along.
 */
export function intent() {
  let movedAtMs = Number.NEGATIVE_INFINITY;
  return {
    moved() {
      movedAtMs = performance.now();
    },
    isMeant: ({ detail }) => detail === 0 || performance.now() - movedAtMs > SEEN_AFTER_MS,
  };
}

export function isTyping({ target }) {
  return target.matches('input:not([type="checkbox"]), textarea, select');
}

/**
 * Asks for confirmation, with the inputs that `fields` names (`{ name, label, options?, optional?, value? }`), and calls `run` with their
 * values. Errors are shown in the dialog, which stays open. Resolves with the result, or undefined when it was cancelled.
 */
export function confirm({ title, text, action, danger = false, fields = [], run }) {
  const dialog = document.getElementById('confirm');
  const problem = element('p', { class: 'problem', role: 'alert' });
  const inputs = fields.map(fieldOf);
  const submit = element('button', { type: 'submit', class: danger ? 'danger' : 'main' }, action);
  return new Promise((resolve) => {
    let answer;
    const form = element(
      'form',
      {
        async onsubmit(event) {
          event.preventDefault();
          submit.disabled = true;
          problem.textContent = '';
          try {
            const values = Object.fromEntries(
              inputs.map(({ name, input }) => [name, input.value.trim()]).filter(([, value]) => value !== ''),
            );
            answer = (await run(values)) ?? {};
            dialog.close();
          } catch (error) {
            problem.textContent = error instanceof ApiError ? error.message : `This is not possible: ${error.message}`;
          } finally {
            submit.disabled = false;
          }
        },
      },
      element('h2', { id: 'confirm-title' }, title),
      text === undefined ? '' : element('p', {}, text),
      ...inputs.map(({ label }) => label),
      problem,
      element(
        'div',
        { class: 'actions' },
        button('Keep it as it is', () => dialog.close()),
        submit,
      ),
    );
    dialog.replaceChildren(form);
    dialog.addEventListener('close', () => resolve(answer), { once: true });
    dialog.showModal();
    // The focus is not on the confirming button, so that Enter does not confirm by accident.
    (inputs[0]?.input ?? form.querySelector('button')).focus();
  });
}

function fieldOf({ name, label, options, optional = false, value = '' }) {
  const attributes = {
    name,
    required: !optional,
    maxlength: options === undefined ? 4_000 : undefined,
    autocomplete: 'off',
  };
  const input =
    options === undefined
      ? element('input', attributes)
      : element('select', attributes, ...options.map((option) => element('option', { value: option }, option)));
  if (value !== '') input.value = value;
  return { name, input, label: element('label', {}, `${label}${optional ? ' (optional)' : ''} `, input) };
}
