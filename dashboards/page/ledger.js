/** The ledger: unresolved calls, the counts of the ledger, and the switches of the reliability layer. */
import { ask } from './api.js';
import { CALL_COLUMNS } from './call-columns.js';
import { count, element } from './dom.js';
import { button, confirm, facts, heading, liveTable, pill } from './parts.js';
import { resolveCall } from './story.js';

export const id = 'ledger';
export const title = 'Ledger';
export const permission = 'operate';

const LOOK_EVERY_MS = 1_000;
const DOUBT_EVERY_MS = 2_000;
const PATH = '/debug/tool-reliability';

export function open(root, page) {
  const doubt = liveTable({
    label: 'Calls in doubt',
    key: ({ callId }) => callId,
    empty: 'No call is in doubt: every one that began has its outcome.',
    columns: [
      ...CALL_COLUMNS.filter((column) => ['Call', 'Session', 'Submitted', 'What went wrong'].includes(column.title)),
      { title: '', kind: 'deed', cell: (call) => button('Resolve', () => resolve(call), 'quiet') },
    ],
  });
  root.append(
    heading('Ledger', 'What is remembered of calls, so that each has its effect once.'),
    element('h3', {}, 'In doubt'),
    element(
      'p',
      { class: 'hint' },
      'An attempt may have had its effect, and running it again could do it twice. An operator finds out, and resolves the call.',
    ),
    doubt.root,
  );
  const doubting = page.follow('/v1/calls?state=unresolved&limit=100', DOUBT_EVERY_MS, ({ calls }) => {
    page.badge(id, 'calls', calls.length);
    doubt.update(calls);
  });
  if (page.may('oversee')) remembered(root, page);

  async function resolve(call) {
    if ((await resolveCall(call, page)) !== undefined) void doubting.now();
  }
}

/** The counts and switches of the whole fleet. */
function remembered(root, page) {
  const counts = liveTable({
    label: 'Calls remembered, by tier',
    key: ({ tier }) => tier,
    empty: 'Nothing is remembered.',
    columns: [
      { title: 'Tier', cell: ({ tier }) => element('strong', {}, tier) },
      { title: 'In flight', kind: 'number', cell: ({ inflight }) => inflight.toLocaleString('en') },
      { title: 'Remembered', kind: 'number', cell: ({ calls }) => calls.toLocaleString('en') },
    ],
  });
  const switches = element('div', { class: 'panel' });
  let drawn;
  root.append(
    heading('Remembered calls', undefined, button('Forget ended calls', flush, 'danger')),
    counts.root,
    element('h3', {}, 'Reliability'),
    switches,
  );
  const looking = page.follow(PATH, LOOK_EVERY_MS, (answer) => {
    counts.update(Object.entries(answer.ledger.tiers).map(([tier, each]) => ({ tier, ...each })));
    const version = JSON.stringify([answer.switches, answer.shadow]);
    if (version === drawn) return;
    drawn = version;
    switches.replaceChildren(...drawSwitches(answer));
  });

  function drawSwitches({ switches: now, shadow }) {
    const different = now.tools
      .filter(({ enabled }) => enabled !== now.enabled)
      .map(({ tool, enabled }) => `${tool} ${enabled ? 'on' : 'off'}`);
    const said = now.operator?.all?.reason;
    return [
      facts([
        ['Layer', pill(now.enabled ? 'on' : 'off')],
        ['Why', said],
        ['Single tools', different.join(', ')],
        [
          'Open circuits',
          { on: 'refuse calls', off: 'observe only', shadow: 'are told, and refuse nothing' }[now.openMode],
        ],
        ['Derived keys', now.deriveKeys],
        ['In shadow', shadow.map(({ kind, tool, count: times }) => `${tool}: ${kind} ${times}`).join(', ')],
      ]),
      element(
        'div',
        { class: 'actions' },
        now.enabled ? button('Turn off', () => turn(false), 'danger') : button('Turn on', () => turn(true), 'main'),
      ),
    ];
  }

  function turn(on) {
    return confirm({
      title: on ? 'Turn the reliability layer on?' : 'Turn the reliability layer off?',
      text: on
        ? 'Duplicates are merged again, failures retried, and open circuits refuse, on the whole fleet.'
        : 'On the whole fleet calls become direct calls: no merging of duplicates, no retries, no circuits. Approvals, sandbox and signatures stay.',
      action: on ? 'Turn it on' : 'Turn it off',
      danger: !on,
      fields: [
        { name: 'tool', label: 'Only this tool', optional: true },
        { name: 'reason', label: 'Why', optional: true },
      ],
      async run(values) {
        await ask(PATH, { method: 'POST', body: { action: on ? 'enable' : 'disable', ...values } });
        page.say(`Reliability is ${on ? 'on' : 'off'}${values.tool === undefined ? '' : ` for ${values.tool}`}`);
        void looking.now();
      },
    });
  }

  function flush() {
    return confirm({
      title: 'Forget calls that have ended?',
      text: 'Asked for again, they run again. Calls in flight and in doubt stay. Name a session or a tool, or leave both empty for all.',
      action: 'Forget them',
      danger: true,
      fields: [
        { name: 'session', label: 'Session', optional: true },
        { name: 'tool', label: 'Tool', optional: true },
      ],
      async run(values) {
        const { flushed } = await ask(PATH, { method: 'POST', body: { action: 'flush', ...values } });
        page.say(`${count(flushed, 'call')} forgotten`);
        void looking.now();
      },
    });
  }
}
