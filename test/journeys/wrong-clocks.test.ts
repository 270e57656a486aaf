import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { eventually } from '../helpers/signal.ts';
import { startFleet, tallyOf } from './fixtures/fleet.ts';

const HOUR_MS = 3_600_000;
const RIGHT = ['right', 0] as const;
const AHEAD = ['an hour ahead', HOUR_MS] as const;
const BEHIND = ['an hour behind', -HOUR_MS] as const;
const DELAY_MS = 900;
/** What a retry may come late: timers, a marker, a busy machine. */
const LATE_MS = 700;
/** A worker that waits asks for the next job a few times; one that spins asks thousands of times. */
const ASKED_OFTEN = 60;

const SKEWED_CLOCK = new URL('../chaos/fixtures/skewed-clock.ts', import.meta.url).href;

/** How many scripts the workers of a prefix run meanwhile. */
async function scriptsRun(redisUrl: string, prefix: string) {
  const monitor = await new Redis(redisUrl).monitor();
  onTestFinished(() => monitor.disconnect());
  let count = 0;
  monitor.on('monitor', (_time: string, [command = '', ...rest]: string[], _source: string, _database: string) => {
    if (/^evalsha$/i.test(command) && rest.some((argument) => argument.includes(prefix))) count += 1;
  });
  return () => count;
}

test.each([AHEAD, BEHIND])(
  'a worker whose clock is %s keeps delays, deadlines and locks (row 21)',
  async (_where, skewMs) => {
    const fleet = await startFleet({
      env: { NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) },
    });
    const scripts = await scriptsRun(fleet.world.redisUrl, fleet.world.prefix);
    // Runs for longer than its lock lasts, so that it depends on renewals.
    const long = fleet.session.call('record_once', { beforeMs: 2_200 }, { idempotencyKey: 'long', timeoutMs: 10_000 });
    const delayed = await fleet.session.call('throttled', { afterMs: DELAY_MS }, { timeoutMs: 10_000 });
    expect(delayed).toMatchObject({ status: 'success', attempts: 2 });
    const [first, second] = fleet.effects(delayed.callId).map(({ mono }) => mono);
    const waitedMs = (second ?? 0) - (first ?? 0);
    expect(waitedMs).toBeGreaterThanOrEqual(DELAY_MS - 5);
    expect(waitedMs).toBeLessThan(DELAY_MS + LATE_MS);
    expect(scripts()).toBeLessThan(ASKED_OFTEN);
    expect(await long).toMatchObject({ status: 'success', attempts: 1 });
  },
);

test.each([
  [AHEAD, RIGHT],
  [RIGHT, BEHIND],
  [BEHIND, AHEAD],
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

test.each([AHEAD, BEHIND])(
  'a producer whose clock is %s keeps the time limits of its calls',
  async (_where, skewMs) => {
    const fleet = await startFleet();
    const env = { NODE_OPTIONS: `--import ${SKEWED_CLOCK}`, CLOCK_SKEW_MS: String(skewMs) };
    const [one, other] = await Promise.all([fleet.addProducer(env), fleet.addProducer(env)]);
    const batch = { session: fleet.session.key, count: 1, tool: 'record_once' };
    const gate = fleet.gate('never').path;
    const [quick, late] = await Promise.all([
      tallyOf(one, { ...batch, key: 'quick', params: {}, timeoutMs: 5_000 }),
      tallyOf(other, { ...batch, key: 'late', params: { gate }, timeoutMs: 400 }),
    ]);
    expect(quick.errors).toEqual({});
    expect(fleet.effects(quick.callIds[0])).toHaveLength(2);
    expect(late.errors).toMatchObject({ DEADLINE_EXCEEDED: 1 });
  },
);
