import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { connect, defineTool, startWorker } from '../../../src/index.ts';
import { temporaryFolder } from '../../helpers/context.ts';
import { signal } from '../../helpers/signal.ts';
import { createWorld } from '../../helpers/world.ts';

test('startWorker takes settings of tools in code: of two calls under a limit of one, the second waits (I17)', async () => {
  const { redisUrl, prefix } = await createWorld();
  const common = { redisUrl, prefix, logLevel: 'silent', dataDir: temporaryFolder() } as const;
  const [begun, released] = [signal(), signal()];
  let [running, most] = [0, 0];
  const hold = defineTool({
    name: 'hold',
    version: '1.0.0',
    description: 'Runs until it is let go.',
    tier: 'read-only',
    input: z.object({ n: z.number() }),
    run: async () => {
      running += 1;
      most = Math.max(most, running);
      begun.fire();
      await released.promise;
      running -= 1;
      return { output: most };
    },
  });
  const toolSettings = { hold: { limits: { concurrency: 1 } } };
  const worker = await startWorker({ ...common, tools: [hold], toolSettings });
  onTestFinished(() => worker.close());
  const pawl = await connect(common);
  onTestFinished(() => pawl.close());
  const session = await pawl.openSession();
  const calls = [1, 2, 3].map((n) => session.call('hold', { n }));
  await begun.promise;
  released.fire();
  expect((await Promise.all(calls)).map(({ status }) => status)).toEqual(['success', 'success', 'success']);
  expect(most).toBe(1);
});

test('startWorker refuses settings of tools that are none, and names the field', async () => {
  const toolSettings = { hold: { limits: { concurrency: 0 } } };
  await expect(startWorker({ tools: [], tiers: ['read-only'], toolSettings })).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message: expect.stringContaining('tools.hold.limits.concurrency'),
  });
});
