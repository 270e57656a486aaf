/** @module-tag slow */
import { expect, test } from 'vitest';
import { atOnce, eventually } from '../helpers/signal.ts';
import { SHORT_LOCK_MS, startFleet, tallyOf } from './fixtures/fleet.ts';

const HOUR_MS = 3_600_000;
const SKEWS = { ahead: HOUR_MS, behind: -HOUR_MS };
const DELAY_MS = 900;
/** What a retry may come late on a busy machine; a marker on the wrong clock would cost 10 s, and a delay an hour. */
const LATE_MS = 8_000;
const SKEWED_CLOCK = new URL('../chaos/fixtures/skewed-clock.ts', import.meta.url).href;

test('a worker whose clock is an hour ahead, or behind, keeps delays, deadlines and locks (row 21)', () =>
  atOnce(SKEWS, async (skewMs) => {
    const env = { NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) };
    const fleet = await startFleet({ lockDurationMs: SHORT_LOCK_MS, env });
    const gate = fleet.gate('long');
    const long = await fleet.session.submit('record_once', { gate: gate.path }, { idempotencyKey: 'long' });
    const lock = await eventually(async () => (await fleet.pawl.read(long.callId ?? ''))?.lockUntilMs);
    const delayed = await fleet.session.call('throttled', { afterMs: DELAY_MS }, { timeoutMs: 30_000 });
    expect(delayed).toMatchObject({ status: 'success', attempts: 2 });
    const [first, second] = fleet.effects(delayed.callId).map(({ mono }) => mono);
    const waitedMs = (second ?? 0) - (first ?? 0);
    expect(waitedMs).toBeGreaterThanOrEqual(DELAY_MS - 5);
    expect(waitedMs).toBeLessThan(DELAY_MS + LATE_MS);
    // It runs for longer than its lock lasted, so that it depends on renewals.
    await eventually(async () => (await fleet.pawl.backend.ledger.now()) > lock, { what: 'the end of the first lock' });
    gate.open();
    expect(await long.result).toMatchObject({ status: 'success', attempts: 1 });
  }));

const HEIRS = { 'ahead, then right': [HOUR_MS, 0], 'right, then behind': [0, -HOUR_MS] } as const;

test('what a worker postponed before it died, another one whose clock differs takes up in time', () =>
  atOnce(HEIRS, async ([firstMs, nextMs]) => {
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
  }));

test('a producer whose clock is wrong keeps the time limits of its calls', async () => {
  const fleet = await startFleet({ concurrency: 1 });
  const skewed = (skewMs: number) =>
    fleet.addProducer({ NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) });
  // On its own clock, the one would be too late at once, and the other would wait for an hour.
  const [behind, ahead] = await Promise.all([skewed(-HOUR_MS), skewed(HOUR_MS)]);
  const batch = { session: fleet.session.key, count: 1, tool: 'record_once', params: {} };
  const quick = await tallyOf(behind, { ...batch, key: 'quick', timeoutMs: 30_000 });
  expect(quick.errors).toEqual({});
  const gate = fleet.gate('gate');
  const slow = fleet.session.call('record_once', { gate: gate.path }, {});
  await eventually(() => fleet.effects().length === 3);
  const late = await tallyOf(ahead, { ...batch, key: 'late', timeoutMs: 600 });
  expect(late.errors).toEqual({ DEADLINE_EXCEEDED: 1 });
  gate.open();
  expect((await slow).status).toBe('success');
});
