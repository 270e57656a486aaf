/** Redis runs a command, and its answer gets lost with the connection: the command is sent again, and answers as if it had run once. */
import { tmpdir } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { resolveSettings } from '../../../src/shared/config/resolve-settings.ts';
import { type Backend, openBackend } from '../../../src/shared/store/backend.ts';
import { RedisDedupeStore } from '../../../src/shared/store/dedupe/dedupe-redis.ts';
import { reserve, spent } from '../../../src/shared/store/limits/budgets.ts';
import { jobIdOf } from '../../../src/shared/store/queues/jobs.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { startWire } from '../../helpers/proxy.ts';
import { createWorld } from '../../helpers/world.ts';
import { callIdFor } from './calls.ts';

const PLACE = { tier: 'workspace', shard: 0 } as const;
const LIMIT = { name: 'tool:note', concurrency: 1 };

/** A backend, and `unheard`: runs a step, where the answer to the first command that has `said` in it gets lost. */
async function withLoss() {
  const world = await createWorld();
  const wire = await startWire(world.redisUrl);
  const backend = await openBackend({
    settings: resolveSettings({ options: { redisUrl: wire.url, prefix: world.prefix, dataDir: tmpdir() } }),
    mode: 'fail-fast',
    name: 'test',
    log: silentLogger,
  });
  onTestFinished(() => backend.close());
  const unheard = async <Answer>(said: string, step: (backend: Backend) => Promise<Answer>): Promise<Answer> => {
    const lost = wire.loseAnswerTo(said);
    const answer = await step(backend);
    await lost;
    return answer;
  };
  return { world, backend, unheard };
}

test('a key is claimed for the one that claimed it', async () => {
  const { world, backend, unheard } = await withLoss();
  const store = new RedisDedupeStore({ redis: backend.redis, prefix: world.prefix });
  const record = { key: 'k', state: 'inflight', expiresAtMs: Date.now() + 60_000, marker: 'mine' } as never;
  expect(await unheard('mine', () => store.setIfNotExists(record))).toEqual({ created: true });
  expect(await unheard('mine', () => store.compareAndSet('k', 1, record))).toMatchObject({ swapped: true });
  expect(await store.setIfNotExists(record)).toMatchObject({ created: false });
});

const TASK = { type: 'input', input: 'do it' } as never;

test('an agent is spawned, gets more messages, and takes each once', async () => {
  const { backend, unheard } = await withLoss();
  expect(await unheard('do it', ({ agents }) => agents.spawn('a', 'p', TASK, 8))).toBe('spawned');
  expect(await unheard('message-1', ({ agents }) => agents.tell('a', 'p', 'message-1', TASK))).toBe('sent');
  const order = await backend.agents.take('a', 'p');
  if (order === undefined) throw new Error('no message');
  await unheard('do it', ({ agents }) => agents.putBack(order, 'p'));
  expect((await backend.agents.take('a', 'p'))?.turn).toBe(1);
  expect((await backend.agents.take('a', 'p'))?.turn).toBe(2);
  expect(await backend.agents.take('a', 'p')).toBeUndefined();
});

test('a slot under a limit is renewed, and goes on being renewed', async () => {
  const { backend, unheard } = await withLoss();
  const starter = { jobId: 'job' };
  const answer = await backend.limits.acquire(LIMIT, starter, 60_000);
  if (answer.kind !== 'granted') throw new Error('not granted');
  const until = await unheard(String(answer.heldUntilMs), ({ limits }) =>
    limits.renew(LIMIT, starter, answer.heldUntilMs, 90_000),
  );
  expect(until).toBeGreaterThan(answer.heldUntilMs);
  expect(await backend.limits.renew(LIMIT, starter, until ?? 0, 90_000)).toBeGreaterThan(0);
});

test('a slot and a lock that are released go to the next one', async () => {
  const { backend, unheard } = await withLoss();
  // The call of the second one has ended meanwhile: it passes on what it gets.
  const [first, second, third] = ['a', 'b', 'c'].map((name) => ({ callId: callIdFor(name), generation: '0' }));
  if (first === undefined || second === undefined || third === undefined) throw new Error('no jobs');
  const starterOf = (job: typeof first) => ({ jobId: jobIdOf(job.callId, job.generation) });
  const acquire = async (job: typeof first) => (await backend.limits.acquire(LIMIT, starterOf(job), 60_000)).kind;
  expect([await acquire(first), await acquire(second)]).toEqual(['granted', 'waiting']);
  await unheard(starterOf(first).jobId, ({ limits }) => limits.release(LIMIT, starterOf(first)));
  expect(await acquire(third)).toBe('granted');

  const lock = { resource: 'stove', mode: 'exclusive' } as const;
  const hold = async (job: typeof first) => (await backend.locks.acquire(job, 1, lock, false)).kind;
  expect([await hold(first), await hold(second)]).toEqual(['granted', 'waiting']);
  await unheard(first.callId, ({ locks }) => locks.release(first, 1));
  expect(await hold(third)).toBe('granted');
});

test('the time of an attempt is charged once', async () => {
  const { backend, unheard } = await withLoss();
  const { access } = backend.ledger;
  await access.redis.hset(access.fleet.budget('b'), 'calls', '1');
  await unheard('4321', ({ ledger }) => ledger.spendTime(['b'], 4_321));
  expect(await access.redis.hget(access.fleet.budget('b'), 'timeMs')).toBe('4321');
});

test('a call is charged once to its budgets, and refunded once', async () => {
  const { backend, unheard } = await withLoss();
  const { access } = backend.ledger;
  const charge = { accounts: [{ name: 'ada', limits: { calls: 9 }, keptMs: 60_000 }], costUnits: 0.5 } as never;
  const reserved = await unheard('0.5', () => reserve(access, charge));
  if ('spent' in reserved) throw new Error('spent');
  expect(await spent(access, 'ada')).toMatchObject({ calls: 1, costUnits: 0.5 });
  await unheard('0.5', () => reserved.giveBack());
  expect(await spent(access, 'ada')).toMatchObject({ calls: 0, costUnits: 0 });
});

test('a circuit is changed by the one that changed it', async () => {
  const { backend, unheard } = await withLoss();
  const { breakers } = backend;
  const at = { partition: PLACE, key: 'tool:tools.note' };
  const before = await breakers.read(PLACE, at.key);
  const next = { state: 'FORCED_OPEN', epoch: before.epoch + 1, reason: 'maintenance' } as never;
  expect(await unheard('maintenance', () => breakers.change(at, before, next, 0))).toMatchObject({ changed: true });
  expect(await breakers.history(PLACE, 10)).toHaveLength(1);
});

test('a failure is counted once', async () => {
  const { backend, unheard } = await withLoss();
  const sample = { circuit: 'tool:tools.note', epoch: 0, windowSize: 20, windowMs: 60_000 };
  const counted = await unheard('"windowSize":20', ({ breakers }) => breakers.addFailure(PLACE, sample));
  expect(counted.window).toHaveLength(1);
  expect(await backend.breakers.window(PLACE, sample.circuit)).toHaveLength(1);
});

test('a schedule is written, taken and removed by the one that did so', async () => {
  const { backend, unheard } = await withLoss();
  const record = { id: 's', revision: 1, tool: { name: 'note', namespace: 'tools' }, params: {}, sessionKey: 'k' };
  const progress = { change: 1, cursorMs: 0, recent: [], counts: {} };
  const change = { record, progress, dueAtMs: 1 } as never;
  expect(await unheard('schedules', ({ schedules }) => schedules.write('s', '', change))).toBe(true);
  const taken = await unheard('schedules', ({ schedules }) => schedules.take(5));
  expect(taken.schedules).toHaveLength(1);
  const { seen } = await backend.schedules.read('s');
  expect(await unheard('schedules', ({ schedules }) => schedules.remove('s', seen))).toBe(true);
});

test('a group is created, driven, taken, cancelled and ended by the one that did so', async () => {
  const { backend, unheard } = await withLoss();
  const head = { id: 'b_1', kind: 'batch', createdAtMs: 1 } as const;
  const created = await unheard('"kind":"batch"', ({ groups }) => groups.create(head, { entries: [] }));
  expect(created).toMatchObject({ fence: 1 });
  const taken = await unheard('b_1', ({ groups }) => groups.take('b_1'));
  if (taken === undefined) throw new Error('not taken');
  expect(taken.fence).toBe(2);
  expect(await unheard('b_1', ({ groups }) => groups.cancel('b_1', 'ada'))).toBe('written');
  const end = { end: { keptMs: 60_000 } };
  expect(await unheard('b_1', ({ groups }) => groups.advance(taken, end))).toMatchObject({ cancelledBy: 'ada' });
  expect(await backend.groups.openCount()).toBe(0);
});

test('a redrive is taken by the one that took it', async () => {
  const { backend, unheard } = await withLoss();
  await backend.redrives.begin('r', { by: 'ada', perSecond: 1, matched: 1 }, [[{ callId: 'w0.c', failedAtMs: 1 }]]);
  expect(await unheard('redrive:r', ({ redrives }) => redrives.take('r'))).toMatchObject({ fence: 1 });
});

test('a client leaves, and a call that none had taken is known to be untouched', async () => {
  const { backend, unheard } = await withLoss();
  await backend.clientCalls.join('c', ['lamp'], 60_000);
  const call = { callId: 'w0.call', fence: 1, tool: 'lamp', params: {} } as never;
  expect(await unheard('lamp', ({ clientCalls }) => clientCalls.published(call, false))).toBe('offered');
  expect(await unheard('w0.call', ({ clientCalls }) => clientCalls.withdraw(call))).toEqual({ state: 'untouched' });
  expect(await unheard('client:c', ({ clientCalls }) => clientCalls.leave('c'))).toBe(true);
});

test('a skill and a standing approval are removed by the one that removed them', async () => {
  const { backend, unheard } = await withLoss();
  await backend.skills.write({ name: 'cook' } as never);
  expect(await unheard('"name":"cook"', ({ skills }) => skills.remove('cook'))).toBe(true);
  expect(await backend.skills.remove('cook')).toBe(false);
  const amendment = { kind: 'same-parameters', paramsDigest: 'd' } as const;
  const tool = { namespace: 'tools', name: 'note', version: '1.0.0', definition: 'd' };
  const request = { id: 'w0.call.1', session: { key: 'k' }, tool, amendment } as never;
  const nowMs = Date.now();
  await backend.standingApprovals.add(request, 'grace', nowMs);
  const removed = unheard('"approvalId"', ({ standingApprovals }) => standingApprovals.remove('k', 'w0.call.1', nowMs));
  expect(await removed).toMatchObject({ by: 'grace' });
});

test('a message to people is shown once', async () => {
  const { backend, unheard } = await withLoss();
  const message = { text: 'Dinner is ready.', from: 'k', callId: 'w0.call', sentAtMs: 1 };
  await unheard('Dinner', ({ messages }) => messages.add('k', message as never));
  expect(await backend.messages.list('k')).toEqual([message]);
});

test('a preview is begun by the one that began it', async () => {
  const { backend, unheard } = await withLoss();
  const id = `${callIdFor('call')}.1`;
  expect(await unheard('previewed', ({ approvals }) => approvals.beginPreview(id))).toBe(true);
  expect(await backend.approvals.beginPreview(id)).toBe(false);
});
