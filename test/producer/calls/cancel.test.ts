/** How long a call that was cancelled is found. */
import { expect, test } from 'vitest';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { gated } from '../../helpers/tools.ts';

const settings = { ttl: { cancelledMs: 50_000 }, tools: { own: { ttl: { cancelledMs: 70_000 } } } };

test.each([
  { name: 'own', where: 'tools.NAME.ttl', keptMs: 70_000 },
  { name: 'other', where: 'ttl', keptMs: 50_000 },
])('a cancelled call is kept as long as $where says, whether it ran or not', async ({ name, keptMs }) => {
  const gate = gated(name, { effects: 'none' });
  const { session, pawl, startWorker } = await startFleet({ tools: [gate.tool], settings, workers: 0 });
  const keptFor = async (callId: string) => {
    const record = await pawl.read(callId);
    return (record?.expiresAtMs ?? 0) - (record?.updatedAtMs ?? 0);
  };
  await startWorker().then((worker) => worker.close());
  const waiting = pending(await session.submit(name, {}, { idempotencyKey: 'waiting' }));
  expect((await session.cancel(waiting.callId)).settlement).toBe('cancelled-before-start');
  expect(await keptFor(waiting.callId)).toBe(keptMs);
  await startWorker();
  const running = pending(await session.submit(name, {}, { idempotencyKey: 'running' }));
  await gate.arrived();
  expect((await session.cancel(running.callId)).settlement).toBe('cancelled');
  expect(await keptFor(running.callId)).toBe(keptMs);
});
