import { expect, test } from 'vitest';
import { startWire } from '../helpers/proxy.ts';
import { eventually } from '../helpers/signal.ts';
import { connectTo, startFleet } from './fixtures/fleet.ts';

const KIB = 1_024;
const INLINE_BYTES = 64 * KIB;

test('results around 64 KiB, of 1 MiB and above the cap come back alike, and BullMQ carries none of them', async () => {
  const { session, pawl, world, effects } = await startFleet();
  const { redis } = pawl.backend;
  const base = `${world.prefix}:{workspace}`;
  const produce = (bytes: number, seed = 'x', key = `${bytes}-${seed}`) =>
    session.call('produce', { bytes, seed }, { idempotencyKey: key });
  const textsOf = async ({ callId }: Awaited<ReturnType<typeof produce>>) =>
    (await world.keys()).filter((key) => key.startsWith(`${base}:outcome:${callId}:`));
  const lengthOf = ({ output }: Awaited<ReturnType<typeof produce>>) => (output?.content as string | undefined)?.length;

  // What the outcome says beside the text, so that the boundary is met to the byte.
  const around = JSON.stringify((await pawl.read((await produce(0)).callId ?? ''))?.outcome).length;
  // The duration's digits vary: 16 bytes are enough to stand safely on one side.
  for (const [bytes, large] of [
    [INLINE_BYTES - around - 16, false],
    [INLINE_BYTES - around + 16, true],
    [INLINE_BYTES, true],
    [1_024 * KIB, true],
  ] as const) {
    const result = await produce(bytes);
    expect(result).toMatchObject({ status: 'success' });
    expect(lengthOf(result)).toBe(bytes);
    expect(await textsOf(result)).toHaveLength(1);
    expect(await redis.hexists(`${base}:call:${result.callId}`, 'outcomeParts'), `${bytes} in parts`).toBe(
      large ? 1 : 0,
    );
  }
  // Bytes and characters are not the same.
  expect(lengthOf(await produce(30_000, 'é'))).toBe(30_000);
  expect(lengthOf(await produce(100_000, '🙂'))).toBe(100_000);

  const before = effects().length;
  const first = await produce(1_024 * KIB);
  const elsewhere = await connectTo(world);
  const replay = await (await elsewhere.session(session.key)).call(
    'produce',
    { bytes: 1_024 * KIB, seed: 'x' },
    { idempotencyKey: `${1_024 * KIB}-x` },
  );
  const byId = await elsewhere.result(first.callId ?? '');
  for (const other of [replay, byId]) expect(JSON.stringify(other?.output)).toBe(JSON.stringify(first.output));
  expect(effects()).toHaveLength(before);

  // The tool allows 2 MiB.
  const excess = await produce(2_048 * KIB);
  expect(excess).toMatchObject({ status: 'error', attempts: 1, error: { code: 'RESULT_TOO_LARGE', retriable: false } });
  expect(Buffer.byteLength(JSON.stringify(excess))).toBeLessThan(KIB);
  expect(await textsOf(excess)).toEqual([]);

  const events = await redis.xrange(`${base}:workspace:events`, '-', '+');
  expect(events.length).toBeGreaterThan(10);
  for (const [, fields] of events) expect(Buffer.byteLength(fields.join(''))).toBeLessThanOrEqual(KIB);
  const jobs = (await world.keys()).filter((key) => /:\{workspace\}:workspace:w0\.[^:]+$/.test(key));
  expect(jobs.length).toBeGreaterThan(5);
  for (const job of jobs) {
    const fields = await redis.hgetall(job);
    for (const [name, value] of Object.entries(fields))
      if (name !== 'stacktrace') expect(Buffer.byteLength(value), `${name} of a job`).toBeLessThanOrEqual(KIB);
    expect(Buffer.byteLength(fields['stacktrace'] ?? '')).toBeLessThanOrEqual(4 * KIB);
  }
});

test('a worker that is killed between the parts of a large result and the settle leaves nothing but what expires', async () => {
  const { world, session, pawl, addWorker, effects } = await startFleet({ workers: 0 });
  const wire = await startWire(world.redisUrl);
  // It writes the first parts, and hears nothing any more: it never comes to the settle.
  wire.deafenWhenSaid(':outcome:w0.');
  const worker = await addWorker({ REDIS_URL: wire.url });
  const { callId = '' } = await session.submit('produce', { bytes: 1_900 * KIB }, { idempotencyKey: 'killed' });
  const textsOf = async () => (await world.keys()).filter((key) => key.includes(`:outcome:${callId}:`));
  await eventually(async () => (await textsOf()).length > 0, { what: 'the first parts' });
  await worker.kill();
  expect(effects(callId)).not.toEqual([]);
  expect(await pawl.read(callId)).toMatchObject({ state: 'inflight', phase: 'running' });
  expect(await pawl.backend.ledger.outcome(callId)).toBeUndefined();
  const texts = await textsOf();
  expect(texts).toHaveLength(1);
  for (const text of texts) {
    const leftMs = await pawl.backend.redis.pttl(text);
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(600_000);
  }
});
