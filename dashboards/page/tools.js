/** The registry: the tools of the fleet, and their switches. */
import { ask, part } from './api.js';
import { count, element, exactDuration, shownJson, shownText } from './dom.js';
import { back, button, confirm, facts, heading, link, liveTable, moveInRows, pill } from './parts.js';

export const id = 'tools';
export const title = 'Tools';
export const permission = 'use';

const LOOK_EVERY_MS = 2_000;
let wanted = '';

export function open(root, page, name) {
  const table = liveTable({
    label: 'Tools',
    key: (tool) => `${nameOf(tool)}@${tool.version}`,
    empty: 'No tool matches. Workers bring tools along: pawl worker --tools FILE.',
    columns: [
      { title: 'Tool', kind: 'long', cell: (tool) => link('tools', nameOf(tool), shortNameOf(tool)) },
      { title: 'State', cell: standing },
      { title: 'Tier', cell: ({ tier }) => tier },
      { title: 'A second run', cell: ({ effects }) => effects },
      { title: 'Version', cell: ({ version }) => version },
      { title: 'Workers', kind: 'number', cell: ({ workers }) => String(workers) },
      ...(maySwitch(page)
        ? [
            {
              title: '',
              kind: 'deed',
              cell: (tool) => button(tool.enabled ? 'Disable' : 'Enable', () => turn(tool), 'quiet'),
            },
          ]
        : []),
    ],
  });
  const search = element('input', { type: 'search', 'aria-label': 'Tool', placeholder: 'Tool', oninput: find });
  search.value = wanted;
  const summary = element('p', { class: 'hint' });
  const detail = element('div', {});
  let listed = [];
  if (name === undefined)
    root.append(
      heading('Tools', 'What workers offer, and what was declared while the system ran.'),
      element('div', { class: 'filters', role: 'search' }, search),
      summary,
      table.root,
    );
  else root.append(detail);
  const looking = page.follow('/v1/tools', LOOK_EVERY_MS, ({ tools }) => {
    listed = tools;
    draw();
  });

  function find() {
    wanted = search.value.trim().toLowerCase();
    draw();
  }

  let shown;
  function draw() {
    if (name !== undefined) {
      const versions = listed.filter((tool) => nameOf(tool) === name);
      const version = JSON.stringify(versions);
      if (version === shown) return;
      shown = version;
      detail.replaceChildren(
        ...(versions.length === 0
          ? [element('p', { class: 'empty' }, 'No worker offers this tool.')]
          : versions.flatMap(contents)),
      );
      return;
    }
    const found = listed.filter((tool) =>
      `${nameOf(tool)} ${tool.tier} ${tool.description}`.toLowerCase().includes(wanted),
    );
    table.update(found.sort((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1)));
    summary.textContent = count(found.length, 'tool');
  }

  function contents(tool) {
    const hints = Object.entries(tool.annotations).flatMap(([hint, is]) => (is ? [hint.replace(/Hint$/, '')] : []));
    const deeds = maySwitch(page)
      ? [button(tool.enabled ? 'Disable' : 'Enable', () => turn(tool), tool.enabled ? 'danger' : 'main')]
      : [];
    return [
      back('tools', 'Tools'),
      heading(shownText(`${tool.title ?? shortNameOf(tool)} ${tool.version}`), undefined, standing(tool), ...deeds),
      element('p', {}, shownText(tool.description)),
      facts([
        ['Name', nameOf(tool)],
        ['Tier', tool.tier],
        ['A second run', tool.effects],
        ['Hints', hints.join(', ')],
        ['Time limit', exactDuration(tool.timeoutMs)],
        ['Workers', String(tool.workers)],
      ]),
      element('h3', {}, 'Parameters'),
      element('pre', { tabindex: 0, 'aria-label': 'Schema of the parameters' }, shownJson(tool.inputSchema)),
    ];
  }

  function turn(tool) {
    const enabled = !tool.enabled;
    return confirm({
      title: `${enabled ? 'Enable' : 'Disable'} ${shortNameOf(tool)}?`,
      text: enabled
        ? 'Sessions may call it again, everywhere, within a second.'
        : 'Calls of it are refused everywhere, within a second. What runs goes on.',
      action: enabled ? 'Enable the tool' : 'Disable the tool',
      danger: !enabled,
      async run() {
        await ask(`/v1/tools/${part(nameOf(tool))}`, { method: 'PATCH', body: { enabled } });
        page.say(`${shortNameOf(tool)} is ${enabled ? 'enabled' : 'disabled'}`);
        void looking.now();
      },
    });
  }

  page.onKey((event) => moveInRows(event, root, search));
}

function maySwitch(page) {
  return page.may('administer') && page.has('patch', '/v1/tools/{name}');
}

function standing({ enabled, workers }) {
  if (!enabled) return pill('disabled');
  return workers === 0 ? pill('no worker', 'bad') : pill('enabled');
}

function nameOf({ namespace, name }) {
  return `${namespace}.${name}`;
}

function shortNameOf(tool) {
  return tool.namespace === 'tools' ? tool.name : nameOf(tool);
}
