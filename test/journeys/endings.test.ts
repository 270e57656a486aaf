import { expect, test } from 'vitest';
import { eventually, within } from '../helpers/signal.ts';
import { connectTo, type Fleet, SHORT_LOCK_MS, startFleet } from './fixtures/fleet.ts';

/** Hands a call in and waits until its tool's code runs. */
async function begin(fleet: Fleet, tool: string, params: Readonly<Record<string, unknown>>, key: string) {
  const submission = await fleet.session.submit(tool, params, { idempotencyKey: key });
  const callId = submission.callId ?? '';
  await eventually(() => fleet.effects(callId).some(({ phase }) => phase === 'begin'), { what: `the begin of ${key}` });
  return { callId, result: Promise.resolve(submission.result) };
}

const hasEffect = (fleet: Fleet, callId: string) => fleet.effects(callId).some(({ phase }) => phase === 'effect');

test('a cancellation from another process ends in one of four settlements, and every reader learns the same', async () => {
  const fleet = await startFleet({ concurrency: 4 });
  const other = await connectTo(fleet.world);
  const gate = fleet.gate('go');

  // Running, and nothing can have happened: reads.
  const reading = await begin(fleet, 'record_none', { gate: gate.path }, 'reading');
  expect(await other.cancel(reading.callId)).toMatchObject({ settlement: 'cancelled', result: { status: 'error' } });
  expect(await reading.result).toMatchObject({ error: { code: 'CANCELLED' } });

  // Running, and the tool proves that nothing happened.
  const proven = await begin(fleet, 'record_once', { gate: gate.path, proves: true }, 'proven');
  expect(await other.cancel(proven.callId)).toMatchObject({ settlement: 'cancelled' });

  // Running, and nobody can tell.
  const cut = await begin(fleet, 'record_once', { gate: gate.path }, 'cut');
  expect(await other.cancel(cut.callId)).toMatchObject({ settlement: 'unsettled', result: { attempts: 1 } });
  expect(await cut.result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });

  // Running, and the tool finishes all the same: what happened, happened.
  const deaf = await begin(fleet, 'record_once', { beforeMs: 300, deaf: true }, 'deaf');
  expect(await other.cancel(deaf.callId)).toMatchObject({ settlement: 'too-late', result: { status: 'success' } });
  expect(await deaf.result).toMatchObject({ status: 'success' });
  expect(hasEffect(fleet, deaf.callId)).toBe(true);

  // Finished before.
  const result = await fleet.session.call('record_once', {}, { idempotencyKey: 'finished' });
  expect(await other.cancel(result.callId ?? '')).toMatchObject({
    settlement: 'too-late',
    result: { status: 'success', output: result.output },
  });

  // Not begun: every slot of the tier is taken.
  const holders = await Promise.all([1, 2, 3, 4].map((n) => begin(fleet, 'record_keyed', { gate: gate.path }, `${n}`)));
  const queued = await fleet.session.submit('record_once', {}, { idempotencyKey: 'queued' });
  expect(await other.cancel(queued.callId ?? '')).toMatchObject({
    settlement: 'cancelled-before-start',
    result: { attempts: 0, error: { code: 'CANCELLED' } },
  });
  expect(await queued.result).toMatchObject({ attempts: 0, error: { code: 'CANCELLED' } });
  gate.open();
  for (const holder of holders) expect(await holder.result).toMatchObject({ status: 'success' });

  // Said once, it stays: the cancelled ones never run, also not under their key.
  for (const [key, tool, params] of [
    ['queued', 'record_once', {}],
    ['cut', 'record_once', { gate: gate.path }],
  ] as const) {
    const again = await fleet.session.call(tool, params, { idempotencyKey: key });
    expect(again).toMatchObject({ fromCache: true, error: { code: 'CANCELLED' } });
    expect(hasEffect(fleet, again.callId ?? '')).toBe(false);
  }
  expect(fleet.effects(queued.callId)).toEqual([]);
  expect((await fleet.pawl.backend.ledger.index.counts({ tier: 'workspace', shard: 0 })).inflight).toBe(0);
  await expect(other.cancel('w0.unknown')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
});

test('a worker that drains finishes what it runs, longer than its lock, and takes nothing new', async () => {
  const fleet = await startFleet({ lockDurationMs: SHORT_LOCK_MS });
  const gate = fleet.gate('go');
  const running = await begin(fleet, 'record_once', { gate: gate.path }, 'running');
  const [worker] = fleet.workers;
  worker?.signal('SIGTERM');
  await worker?.line('draining');
  const queued = await fleet.session.submit('record_once', { label: 'late' }, { idempotencyKey: 'late' });
  const { lockUntilMs = 0 } = (await fleet.pawl.read(running.callId)) ?? {};
  await eventually(async () => (await fleet.pawl.backend.ledger.now()) > lockUntilMs, { what: 'the end of the lock' });
  expect(await fleet.pawl.read(queued.callId ?? '')).toMatchObject({ phase: 'queued', fence: 0 });
  gate.open();
  expect(await running.result).toMatchObject({ status: 'success', attempts: 1 });
  expect(await worker?.ended).toEqual({ code: 0, signal: null });
  await fleet.addWorker();
  expect(await queued.result).toMatchObject({ status: 'success', attempts: 1 });
});

test('past the grace period an idempotent attempt is released without consuming an attempt, and a once attempt is of unknown outcome', async () => {
  const fleet = await startFleet({ env: { PAWL_DRAIN_MS: '200' } });
  const gate = fleet.gate('go');
  const params = { gate: gate.path };
  const idempotent = await begin(fleet, 'record_idempotent', params, 'idempotent');
  const once = await begin(fleet, 'record_once', params, 'once');
  const proven = await begin(fleet, 'record_once', { ...params, proves: true }, 'proven');
  const [worker] = fleet.workers;
  worker?.signal('SIGTERM');
  expect(await once.result).toMatchObject({ status: 'error', error: { code: 'OUTCOME_UNKNOWN' } });
  expect(await worker?.ended).toEqual({ code: 0, signal: null });
  expect(await fleet.pawl.read(idempotent.callId)).toMatchObject({ state: 'inflight', attempts: [] });
  gate.open();
  await fleet.addWorker();
  for (const { callId, result } of [idempotent, proven]) {
    expect(await result).toMatchObject({ status: 'success', attempts: 1 });
    expect(fleet.effects(callId).map(({ phase, attempt }) => `${phase} ${attempt}`)).toEqual([
      'begin 1',
      'begin 1',
      'effect 1',
    ]);
  }
  expect(hasEffect(fleet, once.callId)).toBe(false);
});

test('an unknown outcome is resolved as succeeded, as failed or by another run, and as nothing else', async () => {
  const fleet = await startFleet({ lockDurationMs: SHORT_LOCK_MS });
  const gate = fleet.gate('go');
  const params = { gate: gate.path };
  const keys = ['succeeded', 'failed', 'retry', 'stopped'];
  const calls = await Promise.all(keys.map((key) => begin(fleet, 'record_once', params, key)));
  // Somebody who asked and went away again: what they did not wait for must not be taken for the next answer.
  const left = await fleet.session.submit('record_once', params, { idempotencyKey: 'left' });
  if (left.kind === 'pending') left.stop();
  await eventually(() => fleet.effects(left.callId).length === 1);
  const [succeeded, failed, retry, stopped] = calls.map(({ callId }) => callId) as [string, string, string, string];
  await expect(fleet.pawl.resolve(succeeded, { as: 'failed' })).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
  await Promise.all([fleet.workers[0]?.kill(), fleet.addWorker()]);
  for (const { result } of calls)
    expect(await within(result, 30_000, 'the unknown outcome')).toMatchObject({ error: { code: 'OUTCOME_UNKNOWN' } });

  await fleet.pawl.resolve(succeeded, { as: 'succeeded', output: { seen: 'in the bank statement' } });
  await fleet.pawl.resolve(failed, { as: 'failed' });
  await eventually(async () => (await fleet.pawl.read(left.callId ?? ''))?.state === 'failed');
  await fleet.pawl.resolve(left.callId ?? '', { as: 'retry' });
  const secondRun = fleet.pawl.result(left.callId ?? '');
  await eventually(() => fleet.effects(left.callId).length === 2);
  gate.open();
  expect(await secondRun).toMatchObject({ status: 'success' });
  await fleet.pawl.resolve(retry, { as: 'retry' });
  expect(await fleet.pawl.result(retry)).toMatchObject({ status: 'success', callId: retry });

  const other = await connectTo(fleet.world);
  const session = await other.session(fleet.session.key);
  const [first, second, third, fourth] = await Promise.all(
    keys.map((idempotencyKey) => session.call('record_once', params, { idempotencyKey })),
  );
  expect(first).toMatchObject({
    status: 'success',
    fromCache: true,
    output: { content: { seen: 'in the bank statement' } },
  });
  expect(second).toMatchObject({ status: 'error', fromCache: true, error: { code: 'TOOL_FAILED' } });
  expect(third).toMatchObject({ status: 'success', fromCache: true });
  expect(fourth).toMatchObject({ status: 'error', fromCache: true, error: { code: 'OUTCOME_UNKNOWN' } });
  expect([succeeded, failed, stopped].map((callId) => fleet.effects(callId).length)).toEqual([1, 1, 1]);
  expect(fleet.effects(retry).map(({ phase, fence }) => `${phase} ${fence}`)).toEqual([
    'begin 1',
    'begin 3',
    'effect 3',
  ]);
  await expect(fleet.pawl.resolve(retry, { as: 'retry' })).rejects.toMatchObject({ code: 'CALL_NOT_RESOLVABLE' });
});
