/** Plans: their nodes in layers, each behind those that it needs, with how they stand. */
import { ask, part } from './api.js';
import { element, moment, shownText } from './dom.js';
import { back, button, confirm, facts, heading, link, liveTable, moveInRows, pill } from './parts.js';

export const id = 'plans';
export const title = 'Plans';
export const permission = 'use';

const LOOK_EVERY_MS = 1_000;
const PATH = '/v1/plans';
/** A layer shows so many nodes. The table below it has all of them. */
const MAX_IN_LAYER = 60;

const progressOf = ({ progress }) => (progress === undefined ? '' : `${progress.ended} of ${progress.total}`);
const isOver = ({ endedAtMs }) => endedAtMs !== undefined;
const TONES = { done: 'good', undone: 'warn', success: 'good', skipped: 'dim', stopping: 'warn', undoing: 'warn' };
const state = (name) => pill(name, TONES[name]);

export function open(root, page, key) {
  if (key === undefined) openList(root, page);
  else openPlan(root, page, key);
}

function openList(root, page) {
  const table = liveTable({
    label: 'Plans',
    key: ({ planId }) => planId,
    empty: 'There is no plan. A program, the API or “pawl plans run” makes one.',
    columns: [
      { title: 'Plan', kind: 'long', cell: ({ planId }) => link('plans', planId) },
      { title: 'State', cell: (plan) => state(plan.state) },
      { title: 'Nodes', cell: progressOf },
      { title: 'Started', kind: 'moment', cell: ({ createdAtMs }) => moment(createdAtMs) },
      { title: 'Session', kind: 'long', cell: ({ session }) => link('sessions', session) },
    ],
  });
  root.append(heading('Plans', 'Graphs of calls that need each other’s results, the newest first.'), table.root);
  page.follow(PATH, LOOK_EVERY_MS, ({ plans }) => table.update(plans));
  page.onKey((event) => moveInRows(event, root));
}

function openPlan(root, page, key) {
  const path = `${PATH}/${part(key)}`;
  const top = element('div', {});
  const about = element('div', {});
  const graph = element('ol', { class: 'layers', 'aria-label': 'Nodes in layers' });
  const table = liveTable({
    label: 'Nodes',
    key: ({ name }) => name,
    empty: 'It has no node.',
    columns: [
      { title: 'Node', kind: 'long', cell: callOf },
      { title: 'State', cell: (node) => state(node.state) },
      { title: 'Tool', kind: 'long', cell: ({ namespace, tool }) => `${namespace}.${tool}` },
      { title: 'Calls', cell: progressOf },
      { title: 'Needs', kind: 'long', cell: ({ needs }) => needs.join(', ') },
      { title: 'Result', kind: 'long', cell: resultOf },
    ],
  });
  root.append(top, about, graph, element('h3', {}, 'Nodes'), table.root);
  let shown;
  const looking = page.follow(
    path,
    LOOK_EVERY_MS,
    (plan) => {
      // Each look reads the outputs of all calls.
      if (isOver(plan)) looking.stop();
      const drawn = JSON.stringify(plan);
      if (drawn === shown) return;
      shown = drawn;
      const actions = isOver(plan) ? [] : [button('Cancel', cancel, 'danger')];
      top.replaceChildren(back('plans', 'Plans'), heading(plan.planId, undefined, ...actions));
      about.replaceChildren(described(page, plan));
      graph.replaceChildren(...layersOf(plan.nodes).map(layer));
      table.update(Object.entries(plan.nodes).map(([name, node]) => ({ ...node, name })));
    },
    (message) => top.replaceChildren(back('plans', 'Plans'), element('p', { class: 'empty' }, message)),
  );

  function cancel() {
    return confirm({
      title: 'Cancel this plan?',
      text: 'Nothing further begins, and what runs is cancelled. What was done stays.',
      action: 'Cancel it',
      danger: true,
      async run() {
        await ask(path, { method: 'DELETE' });
        page.say('The plan is being cancelled');
        void looking.now();
      },
    });
  }
}

/** The names of the nodes by how many others stand before them; each is behind all that it needs. */
function layersOf(nodes) {
  const depths = new Map();
  // The nodes come in their order: those that a node needs are before it.
  for (const [name, { needs }] of Object.entries(nodes))
    depths.set(name, Math.max(0, ...needs.map((other) => (depths.get(other) ?? 0) + 1)));
  const layers = [];
  for (const [name, depth] of depths) {
    layers[depth] ??= [];
    layers[depth].push({ ...nodes[name], name });
  }
  return layers;
}

function layer(nodes) {
  const items = nodes.slice(0, MAX_IN_LAYER).map(item);
  const more = nodes.length - MAX_IN_LAYER;
  if (more > 0) items.push(element('li', { class: 'note' }, `and ${more} more`));
  return element('li', {}, element('ul', {}, ...items));
}

function item(node) {
  const calls = progressOf(node);
  return element(
    'li',
    {},
    element('strong', {}, shownText(node.name)),
    ' ',
    state(node.state),
    element('span', { class: 'note' }, shownText(`${node.tool}${calls === '' ? '' : `, ${calls}`}`)),
  );
}

function callOf({ name, calls }) {
  return calls.length === 1 && calls[0].callId !== undefined ? link('calls', calls[0].callId, name) : shownText(name);
}

function resultOf({ skipped, error, calls }) {
  const failed = calls.find(({ errorCode }) => errorCode !== undefined);
  const undone = calls.filter(({ undo }) => undo?.status === 'success').length;
  const told =
    skipped ??
    error?.message ??
    (failed === undefined ? (calls[0]?.summary ?? '') : `${failed.errorCode}: ${failed.message ?? ''}`);
  return undone === 0 ? told : `${told === '' ? '' : `${told}; `}undone`;
}

function described(page, plan) {
  const { approval, because } = plan;
  const decided = approval?.error?.message ?? approval?.state;
  const mayDecide = approval?.state === 'pending' && page.may('decide');
  return facts([
    ['State', state(plan.state)],
    ['Because of', because],
    ['Approval', mayDecide ? link('approvals', approval.approvalId, 'decide on it') : decided],
    ['Nodes', progressOf(plan)],
    ['Session', link('sessions', plan.session)],
    ['Started', moment(plan.createdAtMs)],
    ['Ended', isOver(plan) ? moment(plan.endedAtMs) : undefined],
  ]);
}
