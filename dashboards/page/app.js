/**
 * The operator's page. Each section is a module with `id`, `title` and `open(root, page)`, which fills `root` and answers a function
 * that ends what it started. To add one, write its module and name it here.
 */
import * as approvals from './approvals.js';
import { element } from './dom.js';

const SECTIONS = [approvals];

const main = document.getElementById('main');
const nav = document.getElementById('nav');
const status = document.getElementById('status');
let close = () => {};

const page = {
  /** One line at the top: what went wrong, or nothing. */
  say(text) {
    if (status.textContent !== text) status.textContent = text;
  },
  /** Beside a section's name: how much there is to do. */
  badge(id, count) {
    const badge = nav.querySelector(`[data-section="${id}"] .badge`);
    badge.textContent = count === 0 ? '' : String(count);
    document.title = count === 0 ? 'Pawl' : `(${count}) Pawl`;
  },
};

for (const { id, title } of SECTIONS)
  nav.append(element('a', { href: `#${id}`, 'data-section': id }, title, ' ', element('span', { class: 'badge' })));
nav.append(element('a', { href: '/queues' }, 'Queues'));

function show() {
  const [id] = location.hash.slice(1).split('/');
  const section = SECTIONS.find((each) => each.id === id) ?? SECTIONS[0];
  for (const link of nav.children) {
    if (link.dataset.section === section.id) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  close();
  main.replaceChildren();
  close = section.open(main, page);
}

addEventListener('hashchange', show);
show();
