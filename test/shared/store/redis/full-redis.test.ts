import { expect, onTestFinished, test } from 'vitest';
import { connect, startWorker } from '../../../../src/index.ts';
import { startServer } from '../../../chaos/server.ts';
import { temporaryFolder } from '../../../helpers/context.ts';
import { echo } from '../../../helpers/tools.ts';

test('of a full Redis, calls can be read and removed by a process that starts then; no worker starts on it', async () => {
  const { admin, port, [Symbol.asyncDispose]: end } = await startServer(temporaryFolder());
  onTestFinished(end);
  const redisUrl = `redis://127.0.0.1:${port}`;
  const worker = await startWorker({ redisUrl, tools: [echo] });
  const caller = await connect({ redisUrl });
  const session = await caller.openSession({ sessionKey: 's', actorId: 'ada' });
  const { status } = await session.call('echo', { text: 'hello' });
  expect(status).toBe('success');
  await caller.close();
  await worker.close();

  await admin.config('SET', 'maxmemory', '1');
  await using pawl = await connect({ redisUrl });
  const listed = async () => (await pawl.calls.list()).length;
  expect(await listed()).toBe(1);
  expect(await pawl.calls.flush({ sessionKey: 's' })).toMatchObject({ flushed: 1 });
  expect(await listed()).toBe(0);
  await expect(startWorker({ redisUrl, tools: [echo] })).rejects.toMatchObject({
    code: 'BACKEND_UNAVAILABLE',
    message: expect.stringContaining('OOM'),
  });
  await admin.config('SET', 'maxmemory', '0');
});
