/** What the fleet's scripts promise of circuits and attempts, kept in one process. */
import { describe, expect, test } from 'vitest';
import { LocalCircuits } from '../../src/local/circuits.ts';
import { fakeClock } from '../../src/local/fake-clock.ts';
import { KeyedQueue } from '../../src/local/keyed-queue.ts';
import { LocalLedger } from '../../src/local/ledger.ts';
import type { Outcome } from '../../src/shared/calls/outcome.ts';
import { type Circuit, CLOSED_CIRCUIT } from '../../src/shared/circuits/circuit-breaker.ts';
import type { PawlError } from '../../src/shared/errors/failure.ts';
import { InMemoryDedupeStore } from '../../src/shared/store/dedupe/dedupe-memory.ts';
import type { CallJob } from '../../src/shared/store/queues/jobs.ts';
import type { InboxEvent } from '../../src/shared/store/queues/result-inbox.ts';
import type { CircuitBroadcast } from '../../src/shared/store/redis/broadcasts.ts';
import { signal } from '../helpers/signal.ts';
import { CIRCUIT, callIdFor, claimOf, PLACE } from '../shared/store/calls.ts';

const OPEN: Circuit = { state: 'OPEN', epoch: 1, openedAtMs: 5, cooldownMs: 30_000, failures: 5, reason: 'a test' };

const sample = (epoch: number, windowSize: number) => ({ circuit: CIRCUIT, epoch, windowSize, windowMs: 120_000 });

function openCircuits() {
  const broadcast: CircuitBroadcast[] = [];
  return { broadcast, circuits: new LocalCircuits(fakeClock(), (item) => broadcast.push(item)) };
}

describe('circuits of one process', () => {
  test('one that never changed is closed, in epoch 0, and not listed', async () => {
    const { circuits } = openCircuits();
    expect(await circuits.read(PLACE, CIRCUIT)).toEqual(CLOSED_CIRCUIT);
    await circuits.addFailure(PLACE, sample(0, 20));
    expect([...(await circuits.list(PLACE))]).toEqual([]);
  });

  test('the window holds failures and successes, the newest first, and no more than its size', async () => {
    const { circuits } = openCircuits();
    await circuits.addFailure(PLACE, sample(0, 3));
    await circuits.addFailure(PLACE, sample(0, 3));
    circuits.addSuccess(PLACE, sample(0, 3));
    const { window } = await circuits.addFailure(PLACE, sample(0, 3));
    expect(window.map(({ ok }) => ok)).toEqual([false, true, false]);
  });

  test('an outcome of an earlier epoch, or one that comes while the circuit is open, is dropped', async () => {
    const { circuits } = openCircuits();
    await circuits.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 0);
    expect(await circuits.addFailure(PLACE, sample(1, 20))).toMatchObject({
      circuit: OPEN,
      window: [],
    });
    await circuits.change({ partition: PLACE, key: CIRCUIT }, OPEN, { state: 'CLOSED', epoch: 2 }, 0);
    circuits.addSuccess(PLACE, sample(0, 20));
    expect((await circuits.addFailure(PLACE, sample(0, 20))).window).toEqual([]);
    expect((await circuits.addFailure(PLACE, sample(2, 20))).window).toHaveLength(1);
  });

  test('only a change that was decided on the stored epoch is made, empties the window and is broadcast', async () => {
    const { circuits, broadcast } = openCircuits();
    await circuits.addFailure(PLACE, sample(0, 20));
    expect(await circuits.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, OPEN, 700)).toEqual({
      changed: true,
      circuit: OPEN,
    });
    const stale = { ...OPEN, reason: 'too late' };
    expect(await circuits.change({ partition: PLACE, key: CIRCUIT }, CLOSED_CIRCUIT, stale, 0)).toEqual({
      changed: false,
      circuit: OPEN,
    });
    expect(await circuits.window(PLACE, CIRCUIT)).toEqual([]);
    expect(broadcast).toEqual([{ type: 'circuit', partition: PLACE, key: CIRCUIT, circuit: OPEN, retryAfterMs: 700 }]);
    expect([...(await circuits.list(PLACE))]).toEqual([[CIRCUIT, OPEN]]);
    expect([...(await circuits.list({ tier: 'system', shard: 0 }))]).toEqual([]);
  });
});

function openLedger() {
  const clock = fakeClock();
  const jobs: CallJob[] = [];
  const events: InboxEvent[] = [];
  const stopped: PawlError[] = [];
  const store = new InMemoryDedupeStore({ clock });
  const ledger = new LocalLedger({
    store,
    circuits: new LocalCircuits(clock, () => {}),
    schedule: clock.schedule,
    retentionMs: 60_000,
    onJob: (job) => jobs.push(job),
    onEvent: (event) => events.push(event),
    onStop: (_callId, reason) => stopped.push(reason),
    onError: (error) => {
      throw error;
    },
  });
  const begin = async (name: string) => {
    await ledger.claim(claimOf(name));
    const answer = await ledger.begin(jobs.at(-1) as CallJob, { workerId: 'w', leaseMs: 1, token: 't' });
    if (answer.kind !== 'started') throw new Error(`the attempt is ${answer.kind}`);
    return answer;
  };
  return { ledger, store, jobs, events, stopped, begin };
}

const cancelled: Outcome = { status: 'error', toolName: 'note', durationMs: 0, attempts: 0 };
const ENDINGS = { state: 'cancelled', beforeStart: cancelled, betweenAttempts: cancelled, ttlMs: 1_000 } as const;

describe('attempts of one process', () => {
  test('a cancelled attempt is asked to stop, and cannot be postponed for another one', async () => {
    const { ledger, stopped, begin } = openLedger();
    const { fence } = await begin('a');
    expect(await ledger.cancel(callIdFor('a'), ENDINGS)).toEqual({ kind: 'requested' });
    expect(stopped).toMatchObject([{ code: 'CANCELLED' }]);
    expect(await ledger.renewLease(callIdFor('a'), fence)).toEqual({ renewed: true, cancelRequested: true });
    expect(await ledger.postpone(callIdFor('a'), fence, { phase: 'waiting-retry', attempts: [], delayMs: 10 })).toBe(
      'cancelled',
    );
  });

  test('a deadline asks a running attempt for nothing', async () => {
    const { ledger, stopped, begin } = openLedger();
    const { fence } = await begin('a');
    expect(await ledger.cancel(callIdFor('a'), { ...ENDINGS, state: 'failed' })).toEqual({ kind: 'requested' });
    expect(stopped).toEqual([]);
    expect(await ledger.postpone(callIdFor('a'), fence, { phase: 'waiting-retry', attempts: [], delayMs: 10 })).toBe(
      'postponed',
    );
  });

  test('a call that waits for its next attempt is cancelled at once, and never begins again', async () => {
    const { ledger, jobs, events, begin } = openLedger();
    const { fence } = await begin('a');
    await ledger.postpone(callIdFor('a'), fence, { phase: 'waiting-retry', attempts: [], delayMs: 10 });
    expect(await ledger.cancel(callIdFor('a'), ENDINGS)).toMatchObject({ kind: 'cancelled' });
    expect(events.at(-1)).toMatchObject({ type: 'settled', state: 'cancelled' });
    const again = await ledger.begin(jobs[0] as CallJob, { workerId: 'w', leaseMs: 1, token: 't2' });
    expect(again).toEqual({ kind: 'stale' });
    expect(await ledger.cancel(callIdFor('a'), ENDINGS)).toEqual({ kind: 'too-late' });
    expect(await ledger.cancel(callIdFor('b'), ENDINGS)).toEqual({ kind: 'gone' });
  });

  test('only the newest fence writes', async () => {
    const { ledger, jobs, begin } = openLedger();
    const first = await begin('a');
    await ledger.postpone(callIdFor('a'), first.fence, { phase: 'queued', attempts: [], delayMs: 0 });
    const second = await ledger.begin(jobs[0] as CallJob, { workerId: 'w', leaseMs: 1, token: 't2' });
    expect(second).toMatchObject({ kind: 'started', recovered: false, earlierAttempts: [] });
    expect(await ledger.postpone(callIdFor('a'), first.fence, { phase: 'queued', attempts: [], delayMs: 0 })).toBe(
      'fenced',
    );
    expect(await ledger.renewLease(callIdFor('a'), first.fence)).toMatchObject({ renewed: false });
    const outcome: Outcome = {
      status: 'success',
      toolName: 'note',
      durationMs: 1,
      attempts: 1,
      output: { content: null },
    };
    const ending = {
      state: 'done',
      outcome,
      outcomeJson: JSON.stringify(outcome),
      attempts: [],
      ttlMs: 1_000,
    } as const;
    expect(await ledger.settle({ callId: callIdFor('a'), fence: first.fence, ...ending })).toBe('fenced');
    const { fence } = second as typeof first;
    expect(await ledger.settle({ callId: callIdFor('a'), fence, ...ending })).toBe('settled');
  });

  test('a lease that another process took stops the attempt, which then writes nothing', async () => {
    const { ledger, store, stopped, begin } = openLedger();
    const { fence } = await begin('a');
    const record = await store.get(callIdFor('a'));
    if (record === undefined) throw new Error('there is no record');
    await store.compareAndSet(record.key, record.version, record);
    await ledger.own.prolong();
    expect(stopped).toMatchObject([{ code: 'LEASE_LOST' }]);
    expect(await ledger.postpone(callIdFor('a'), fence, { phase: 'queued', attempts: [], delayMs: 0 })).toBe('fenced');
    await ledger.own.close();
  });
});

test('turns are taken in order, one at a time for each name, also after one that failed', async () => {
  const locks = new KeyedQueue();
  const gate = signal();
  const order: string[] = [];
  const first = locks.run('a', async () => {
    await gate.promise;
    order.push('a1');
    throw new Error('no');
  });
  const second = locks.run('a', async () => void order.push('a2'));
  await locks.run('b', async () => void order.push('b1'));
  expect(order).toEqual(['b1']);
  gate.fire();
  await expect(first).rejects.toThrow('no');
  await second;
  expect(order).toEqual(['b1', 'a1', 'a2']);
});
