/** People who decide on calls at the same time, too late, or on what has changed since; and workers that die of it. */
import type { Ask, Deed } from '../protocol.ts';
import { LEASE_MS, type Producer, type Rig } from '../rig.ts';
import { passes, type Row } from './row.ts';

const CALLS_EACH = 6;
/** As asked for, and as one who approves may edit it. */
const AMOUNT = 1;
const EDITED = 2;
/** How long the caller that is in a hurry gives people. */
const LIMIT_MS = 1_500;

/** Deeds that went through, by call. */
type Decisions = Map<string, Deed[]>;

function asks(prefix: string, params: (number: number) => Ask['params'] = () => ({})): Ask[] {
  return Array.from({ length: CALLS_EACH }, (_, number) => {
    const key = `${prefix}-${number}`;
    return { tool: 'transfer', key, params: { label: key, amount: AMOUNT, ...params(number) } };
  });
}

/** Hands calls in, and waits until people can be asked about them. */
async function waiting(rig: Rig, producer: Producer, calls: readonly Ask[]): Promise<Promise<unknown>[]> {
  const pending = calls.map((ask) => rig.persist(producer, ask));
  await Promise.all(calls.map((ask) => rig.acknowledged(ask)));
  return pending;
}

/** All of them at the same time, each by one of the people. */
async function race(rig: Rig, people: readonly Producer[], ask: Ask, deeds: readonly Deed[], decisions: Decisions) {
  const callId = await rig.acknowledged(ask);
  const told = await Promise.all(
    deeds.map(async (deed, index) => {
      await passes(rig.random.between(0, 3));
      return people[index % people.length]?.act(callId, deed);
    }),
  );
  const done = deeds.filter(({ kind }, index) => kind !== 'cancel' && told[index]?.kind === 'ok');
  decisions.set(ask.key, [...(decisions.get(ask.key) ?? []), ...done]);
}

const approve: Deed = { kind: 'approve', by: 'grace' };
const RACES: Readonly<Record<string, readonly Deed[]>> = {
  twice: [approve, { ...approve, by: 'joan' }],
  denied: [approve, { kind: 'deny', by: 'joan' }],
  cancelled: [approve, { kind: 'cancel', by: 'joan' }],
  edited: [approve, { ...approve, by: 'joan', amount: EDITED }],
  all: [
    approve,
    { ...approve, by: 'joan', amount: EDITED },
    { kind: 'deny', by: 'alan' },
    { kind: 'cancel', by: 'alan' },
  ],
};

async function atOnce(rig: Rig, people: readonly [Producer, ...Producer[]], decisions: Decisions) {
  const pending: Promise<unknown>[] = [];
  for (const [name, deeds] of Object.entries(RACES)) {
    const calls = asks(name);
    pending.push(...(await waiting(rig, people[0], calls)));
    await Promise.all(calls.map((ask) => race(rig, people, ask, deeds, decisions)));
  }
  return pending;
}

/** Half of the decisions come while the time to decide ends, half after it. */
async function tooLate(rig: Rig, people: readonly Producer[], decisions: Decisions) {
  const hasty = await rig.producer({ APPROVAL_LIMIT_MS: String(LIMIT_MS) });
  const askedAtMs = performance.now();
  const calls = asks('late');
  const pending = await waiting(rig, hasty, calls);
  await Promise.all(
    calls.map(async (ask, number) => {
      const atMs = number % 2 === 0 ? rig.random.between(-30, 30) : 200;
      await passes(askedAtMs + LIMIT_MS + atMs - performance.now());
      await race(rig, people, ask, [approve], decisions);
    }),
  );
  return pending;
}

/** The worker dies after it has used the decision: before the effects of one half of the calls, after those of the other. */
async function workerDies(rig: Rig, people: readonly [Producer, ...Producer[]], decisions: Decisions) {
  const gate = rig.gate('approved');
  const calls = asks('dies', (number) => (number % 2 === 0 ? { gate: gate.path } : { lastGate: gate.path }));
  const pending = await waiting(rig, people[0], calls);
  await Promise.all(calls.map((ask) => race(rig, people, ask, [approve], decisions)));
  await Promise.all(calls.map(({ key, params }) => rig.reached(key, 'gate' in params ? 'begin' : 'effect')));
  await Promise.all(rig.workers.map((worker) => worker.kill()));
  gate.open();
  await rig.worker();
  // Whoever takes over has found the calls.
  await passes(2 * LEASE_MS);
  return pending;
}

/** Between asking and deciding, all workers are replaced by ones with another version of the tool. */
async function toolChanges(rig: Rig, people: readonly [Producer, ...Producer[]], decisions: Decisions) {
  const calls = asks('changed');
  const pending = await waiting(rig, people[0], calls);
  await Promise.all(rig.workers.map((worker) => worker.kill()));
  await rig.worker({ TOOL_GENERATION: '2' });
  await Promise.all(calls.map((ask) => race(rig, people, ask, [approve], decisions)));
  // Nobody can approve these any more.
  await Promise.all(calls.map((ask) => race(rig, people, ask, [{ kind: 'deny', by: 'grace' }], decisions)));
  return pending;
}

/** I6: every effect has exactly one decision, an approval of what it was done with; and the tool is the one that was shown. */
function boundEffects(rig: Rig, decisions: Decisions): void {
  const twice = [...decisions.values()].filter(({ length }) => length > 1);
  rig.bound('I6', 'calls that were decided on more than once', twice.length, 0);
  const unapproved = rig.effects().filter(({ key, phase, amount }) => {
    const [decision] = decisions.get(key) ?? [];
    return phase === 'effect' && !(decision?.kind === 'approve' && (decision.amount ?? AMOUNT) === amount);
  });
  rig.bound('I6', 'effects of which nobody had approved', unapproved.length, 0);
  const approvals = [...decisions.values()].flat().filter(({ kind }) => kind === 'approve').length;
  const effects = rig.effects().filter(({ phase }) => phase === 'effect').length;
  rig.notes.push(`${effects} effects of ${approvals} approvals`);
  const changed = rig.effects().filter(({ key }) => key.startsWith('changed-'));
  rig.bound('I6', 'lines of a tool that had changed since it was shown', changed.length, 0);
}

const approvalRaces: Row = {
  number: 36,
  fault:
    'approved twice, approved and denied, edited or cancelled at once, too late, of a changed tool; workers die of it',
  env: { PAWL_SIGNING_KEYS: 'chaos:a-key-that-only-these-processes-know' },
  async run(rig) {
    const [one, other] = await Promise.all([rig.producer(), rig.producer(), rig.worker(), rig.worker()]);
    const people = [one, other] as const;
    const decisions: Decisions = new Map();
    const pending = [
      ...(await atOnce(rig, people, decisions)),
      ...(await tooLate(rig, people, decisions)),
      ...(await workerDies(rig, people, decisions)),
      ...(await toolChanges(rig, people, decisions)),
    ];
    rig.healed();
    await rig.settle(pending);
    boundEffects(rig, decisions);
  },
};

export const approvalRows: readonly Row[] = [approvalRaces];
