/**
 * The operator's page. Each section is a module with `id`, `title`, `permission` and `open(root, page)`, which fills `root`. What it
 * follows by `page` ends when another section opens. To add a section, write its module and import it here.
 */
import { ApiError, ask, isSignedIn, LISTED, signOut, watch } from './api.js';
import * as approvals from './approvals.js';
import * as audit from './audit.js';
import * as calls from './calls.js';
import * as circuits from './circuits.js';
import * as deadLetters from './dead-letters.js';
import { element } from './dom.js';
import * as fleet from './fleet.js';
import * as ledger from './ledger.js';
import * as plans from './plans.js';
import * as schedules from './schedules.js';
import * as sessions from './sessions.js';
import * as tools from './tools.js';

const SECTIONS = [approvals, calls, deadLetters, fleet, circuits, ledger, tools, sessions, schedules, plans, audit];
const COUNT_EVERY_MS = 2_000;

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const status = document.getElementById('status');
const live = document.getElementById('live');
let sections = [];
let paths = {};
let me = { role: '', permissions: [] };
/** Aborted when another section opens. */
let opened = new AbortController();
const waiting = new Map();
/** The requests that fail. A success of another one does not count as recovery, because some need no Redis. */
const failing = new Set();
let quiet;

/** What a section uses. All that it follows ends with the signal. */
const pageUntil = (signal) => ({
  signal,
  /** Shows a message at the bottom of the page. */
  say(text) {
    status.textContent = text;
    clearTimeout(quiet);
    quiet = setTimeout(() => {
      status.textContent = '';
    }, 8_000);
  },
  /** Shows a number beside a section's name: how much there is to do, of each kind. */
  badge(id, kind, number) {
    waiting.set(`${id} ${kind}`, number);
    const sum = (of) => {
      const numbers = [...waiting].flatMap(([name, each]) => (name.startsWith(of) && each > 0 ? [each] : []));
      const more = numbers.some((each) => each >= LISTED) ? '+' : '';
      return numbers.length === 0 ? '' : `${numbers.reduce((all, each) => all + each)}${more}`;
    };
    const badge = nav.querySelector(`[data-section="${id}"] .badge`);
    if (badge !== null) badge.textContent = sum(`${id} `);
    document.title = sum('') === '' ? 'Pawl' : `(${sum('')}) Pawl`;
  },
  may: (permission) => me.permissions.includes(permission),
  /** Whether the server has a route. */
  has: (method, path) => paths[path]?.[method] !== undefined,
  traceUrl: () => me.traceUrl,
  /** `watch`, which also shows the state of the connection. `miss` gets the message when the server does not find the thing. */
  follow(path, everyMs, onData, miss) {
    const own = {};
    const answered = () => {
      failing.delete(own);
      if (failing.size === 0) connection('good', 'Live');
    };
    const watching = watch(
      path,
      everyMs,
      (answer) => {
        answered();
        onData(answer);
      },
      (error) => {
        if (miss !== undefined && (error.status === 403 || error.status === 404)) {
          answered();
          miss(error.message);
          return;
        }
        failing.add(own);
        connection('bad', error.status === 0 || error.status === 503 ? 'Reconnecting' : 'Refused');
        if (error.status !== 0 && error.status !== 401) page.say(error.message);
      },
    );
    const stop = () => {
      failing.delete(own);
      watching.stop();
    };
    signal.addEventListener('abort', stop);
    return { now: watching.now, stop };
  },
  /** Calls `pressed` for each key without a modifier, unless a dialog is open. */
  onKey(pressed) {
    const listener = (event) => {
      const isOwn =
        !event.ctrlKey && !event.metaKey && !event.altKey && document.querySelector('dialog[open]') === null;
      if (isOwn) pressed(event);
    };
    addEventListener('keydown', listener, { signal });
  },
});
/** The part of the page that no section ends. */
const page = pageUntil(new AbortController().signal);

function connection(tone, text) {
  if (live.textContent === text) return;
  live.textContent = text;
  live.dataset.tone = tone;
}

/** Reads the caller's permissions and the server's routes. Waits for a server that is away, and for a token. */
async function learn() {
  for (;;) {
    try {
      [me, { paths }] = await Promise.all([ask('/v1/me'), ask('/openapi.json')]);
      return;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      connection('bad', error.status === 401 ? 'Signed out' : 'Reconnecting');
      if (error.status !== 401) await new Promise((resolve) => setTimeout(resolve, 1_000));
    }
  }
}

function show() {
  const [id, detail] = location.hash.slice(1).split('/');
  const section = sections.find((each) => each.id === id) ?? sections[0];
  for (const each of nav.children) {
    if (each.dataset.section === section?.id) {
      each.setAttribute('aria-current', 'page');
      each.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else each.removeAttribute('aria-current');
  }
  opened.abort();
  opened = new AbortController();
  // A question belongs to the section that asked it.
  document.getElementById('confirm').close();
  main.replaceChildren();
  if (section === undefined) main.append(element('p', { class: 'empty' }, 'This token may see nothing here.'));
  else section.open(main, pageUntil(opened.signal), section.id === id && detail ? unescaped(detail) : undefined);
}

/** The name in an address. An address that was typed or cut off may be badly escaped, and is then taken unchanged. */
function unescaped(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Counts the approvals and questions that wait for a person, in every section. */
function countWhatWaits() {
  if (!page.may('decide')) return;
  page.follow('/v1/approvals?state=pending', COUNT_EVERY_MS, (answer) =>
    page.badge('approvals', 'calls', answer.approvals.length),
  );
  page.follow('/v1/questions', COUNT_EVERY_MS, (answer) =>
    page.badge('approvals', 'questions', answer.questions.length),
  );
}

await learn();
sections = SECTIONS.filter(
  ({ permission, path }) => page.may(permission) && (path === undefined || page.has('get', path)),
);
for (const { id, title } of sections)
  nav.append(element('a', { href: `#${id}`, 'data-section': id }, title, ' ', element('span', { class: 'badge' })));
if (page.may('oversee')) nav.append(element('a', { href: '/queues' }, 'Queues'));
document.getElementById('role').textContent = me.tenantId === undefined ? me.role : `${me.role} of ${me.tenantId}`;
const leave = document.getElementById('sign-out');
leave.hidden = !isSignedIn();
leave.addEventListener('click', signOut);
addEventListener('hashchange', show);
// Following the link would change the address, and so leave the open section.
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
show();
countWhatWaits();
