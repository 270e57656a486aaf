import { expect, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { startFleet, tallyOf } from './fixtures/fleet.ts';

const HOUR_MS = 3_600_000;
const RIGHT = ['right', 0] as const;
const AHEAD = ['an hour ahead', HOUR_MS] as const;
const BEHIND = ['an hour behind', -HOUR_MS] as const;
const DELAY_MS = 900;
/** What a retry may come late on a busy machine; a marker on the wrong clock would cost 10 s, and a delay an hour. */
const LATE_MS = 4_000;
const SKEWED_CLOCK = new URL('../chaos/fixtures/skewed-clock.ts', import.meta.url).href;

test.each([AHEAD, BEHIND])(
  'a worker whose clock is %s keeps delays, deadlines and locks (row 21)',
  async (_where, skewMs) => {
    const fleet = await startFleet({
      env: { NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) },
    });
    // Runs for longer than its lock lasts, so that it depends on renewals.
    const long = fleet.session.call('record_once', { beforeMs: 2_200 }, { idempotencyKey: 'long', timeoutMs: 10_000 });
    const delayed = await fleet.session.call('throttled', { afterMs: DELAY_MS }, { timeoutMs: 10_000 });
    expect(delayed).toMatchObject({ status: 'success', attempts: 2 });
    const [first, second] = fleet.effects(delayed.callId).map(({ mono }) => mono);
    const waitedMs = (second ?? 0) - (first ?? 0);
    expect(waitedMs).toBeGreaterThanOrEqual(DELAY_MS - 5);
    expect(waitedMs).toBeLessThan(DELAY_MS + LATE_MS);
    expect(await long).toMatchObject({ status: 'success', attempts: 1 });
  },
);

test.each([
  [AHEAD, RIGHT],
  [RIGHT, BEHIND],
])(
  'what one worker (%s) postponed before it died, another one (%s) takes up in time',
  async ([, firstMs], [, nextMs]) => {
    const delayMs = 2_500;
    const fleet = await startFleet({ workers: 0 });
    const skewed = (skewMs: number) =>
      fleet.addWorker({ NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) });
    const first = await skewed(firstMs);
    const retrying = new Promise((heard) => fleet.session.events.once('retrying', heard));
    const call = fleet.session.call('throttled', { afterMs: delayMs }, {});
    await retrying;
    // The job is postponed right after the record.
    await eventually(async () => (await fleet.world.keys()).some((key) => key.endsWith(':delayed')));
    await first.kill();
    await skewed(nextMs);
    const { status, callId } = await call;
    expect(status).toBe('success');
    const [begunMs, againMs] = fleet.effects(callId).map(({ mono }) => mono);
    const waitedMs = (againMs ?? 0) - (begunMs ?? 0);
    expect(waitedMs).toBeGreaterThanOrEqual(delayMs - 5);
    expect(waitedMs).toBeLessThan(delayMs + LATE_MS);
  },
);

test('a producer whose clock is wrong keeps the time limits of its calls', async () => {
  const fleet = await startFleet({ concurrency: 1 });
  const skewed = (skewMs: number) =>
    fleet.addProducer({ NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) });
  // On its own clock, the one would be too late at once, and the other would wait for an hour.
  const [behind, ahead] = await Promise.all([skewed(-HOUR_MS), skewed(HOUR_MS)]);
  const batch = { session: fleet.session.key, count: 1, tool: 'record_once', params: {} };
  const quick = await tallyOf(behind, { ...batch, key: 'quick', timeoutMs: 10_000 });
  expect(quick.errors).toEqual({});
  const gate = fleet.gate('gate');
  const slow = fleet.session.call('record_once', { gate: gate.path }, {});
  await eventually(() => fleet.effects().length === 3);
  const late = await tallyOf(ahead, { ...batch, key: 'late', timeoutMs: 600 });
  expect(late.errors).toEqual({ DEADLINE_EXCEEDED: 1 });
  gate.open();
  expect((await slow).status).toBe('success');
});
