import { randomInt } from 'node:crypto';
import { expect, test } from 'vitest';
import type { Effects, ToolResultEnvelope } from '../../src/index.ts';
import { eventually, within } from '../helpers/signal.ts';
import { connectTo, type Fleet, startFleet } from './fixtures/fleet.ts';
import { EFFECTS_CLASSES } from './fixtures/tools.ts';
import { breaches, type ObservedCall } from './invariants.ts';

/** The same number gives the same calls and the same moments to kill; what runs then is up to the machine. */
const SEED = Number(process.env['PAWL_TEST_SEED'] ?? randomInt(1, 2 ** 31));
const CALLS = 300;
const KILLS = 5;

/** mulberry32: a small generator whose whole state is one number. */
function seeded(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface PlannedCall {
  readonly effects: Effects;
  readonly key: string;
  readonly params: Readonly<Record<string, unknown>>;
}

function plan(random: () => number): { readonly calls: readonly PlannedCall[]; readonly killsAt: readonly number[] } {
  const calls = Array.from({ length: CALLS }, (_, number) => ({
    effects: EFFECTS_CLASSES[number % EFFECTS_CLASSES.length] ?? 'none',
    key: `call-${number}`,
    params: {
      label: `call-${number}`,
      beforeMs: Math.floor(random() * 150),
      afterMs: Math.floor(random() * 50),
      deaf: random() < 0.3,
    },
  }));
  const killsAt = Array.from({ length: KILLS }, (_, kill) => Math.floor(((kill + random()) * CALLS * 0.8) / KILLS));
  return { calls, killsAt };
}

test('300 calls over all effects classes settle once while workers are killed and one stands still', async () => {
  console.log(`seed ${SEED}: PAWL_TEST_SEED=${SEED} repeats the plan`);
  const { calls, killsAt } = plan(seeded(SEED));
  const fleet = await startFleet({
    workers: 3,
    concurrency: 4,
    lockDurationMs: 1_500,
    env: { PAWL_STALLED_INTERVAL_MS: '500' },
  });
  const reader = await connectTo(fleet.world);
  const submitted = await Promise.all(calls.map((planned) => submit(fleet, planned)));
  const replacements: Promise<unknown>[] = [];
  for (const [kill, moment] of killsAt.entries()) {
    await eventually(() => fleet.effects().filter((line) => line.phase === 'begin').length > moment, {
      what: `begin number ${moment}`,
    });
    if (kill === 2) await standStill(fleet);
    // The one that began last has something to lose.
    await fleet.workerOf(await busyWorker(fleet)).kill();
    replacements.push(fleet.addWorker());
  }
  // A new worker may be given calls before this process knows it.
  await Promise.all(replacements);
  submitted.push(await cutOnce(fleet));

  const observed = await Promise.all(
    submitted.map(async ({ callId, planned, own }): Promise<ObservedCall> => {
      const result = await within(own, 30_000, () => `the end of ${callId}: ${JSON.stringify(planned)}`);
      const other = await reader.result(callId, { waitMs: 30_000 });
      const record = await reader.read(callId);
      if (record === undefined || other === undefined) throw new Error(`nobody remembers ${callId}`);
      const again = await (await submit(fleet, planned)).own;
      expect(again.fromCache, `${callId} runs again after ${JSON.stringify(result)}`).toBe(true);
      return { callId, effects: planned.effects, told: [result, other, again], record };
    }),
  );
  const ends = Object.groupBy(observed, ({ effects, told: [end] }) =>
    [effects, end?.status === 'success' ? 'success' : end?.error?.code].join(' '),
  );
  console.log(
    Object.entries(ends)
      .map(([end, { length } = []]) => `${end}: ${length}`)
      .sort()
      .join(', '),
  );
  expect(breaches(observed, fleet.effects()), `seed ${SEED}`).toEqual([]);
  for (const tier of ['read-only', 'workspace'] as const)
    expect((await reader.backend.ledger.index.counts({ tier, shard: 0 })).inflight).toBe(0);
});

interface SubmittedCall {
  readonly callId: string;
  readonly planned: PlannedCall;
  readonly own: Promise<ToolResultEnvelope>;
}

async function submit({ session }: Fleet, planned: PlannedCall): Promise<SubmittedCall> {
  const { effects, key, params } = planned;
  const submission = await session.submit(`record_${effects}`, params, { idempotencyKey: key });
  return { callId: submission.callId ?? '', planned, own: Promise.resolve(submission.result) };
}

/** The living worker of the newest begin. */
function busyWorker(fleet: Fleet): Promise<number> {
  return eventually(() => {
    const line = fleet.effects().findLast(({ phase, pid }) => phase === 'begin' && isAlive(fleet, pid));
    return line?.pid;
  });
}

const dead = new Set<number>();
function isAlive(fleet: Fleet, pid: number): boolean {
  const worker = fleet.workerOf(pid);
  void worker.ended.then(() => dead.add(pid));
  return !dead.has(pid);
}

/** Stops a worker in the middle of an attempt until somebody else has decided what becomes of it. */
async function standStill(fleet: Fleet): Promise<void> {
  const worker = fleet.workerOf(await busyWorker(fleet));
  worker.pause();
  const held = fleet
    .effects()
    .filter(({ phase, pid, callId }) => phase === 'begin' && pid === worker.pid && !hasEffect(fleet, callId));
  await eventually(
    async () => {
      const records = await Promise.all(held.map(({ callId }) => fleet.pawl.read(callId)));
      return records.every((record, index) => record?.state !== 'inflight' || record.fence !== held[index]?.fence);
    },
    { what: 'another worker for what the standing one held' },
  );
  worker.resume();
}

function hasEffect(fleet: Fleet, callId: string): boolean {
  return fleet.effects(callId).some((line) => line.phase === 'effect');
}

/** Whatever the dice said: kills the worker of one `once` call between its begin and its effect. */
async function cutOnce(fleet: Fleet): Promise<SubmittedCall> {
  const planned = { effects: 'once', key: 'cut', params: { gate: fleet.gate('never-opened').path } } as const;
  const submitted = await submit(fleet, planned);
  const begin = await eventually(() => fleet.effects(submitted.callId)[0], {
    what: 'the cut call',
  });
  await fleet.workerOf(begin.pid).kill();
  await fleet.addWorker();
  expect(await submitted.own).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
  return submitted;
}
