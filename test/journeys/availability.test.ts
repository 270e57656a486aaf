/** A17, cell by cell, through the real fleet: the nine base tools times three session kinds, a producer, Redis and a worker. */
import { expect, onTestFinished, test } from 'vitest';
import { baseTools, connect, startWorker } from '../../src/index.ts';
import { SESSION_KINDS } from '../../src/shared/sessions/channel-kinds.ts';
import { AVAILABLE, PARAMS } from '../conformance/availability.ts';
import { temporaryFolder } from '../helpers/context.ts';
import { createWorld } from '../helpers/world.ts';

test('A17, A18: nine base tools times three session kinds', async () => {
  const world = await createWorld();
  const folder = temporaryFolder();
  const common = {
    redisUrl: world.redisUrl,
    prefix: world.prefix,
    logLevel: 'silent',
    dataDir: temporaryFolder(),
  } as const;
  const worker = await startWorker({ ...common, tools: baseTools, allowedHosts: ['127.0.0.1:9'] });
  onTestFinished(() => worker.close());
  const pawl = await connect(common);
  onTestFinished(() => pawl.close());
  const main = await pawl.openSession({ workspaceRoot: folder, channel: { kind: 'operator' } });
  const sessions = { main, branch: await main.branch(), worker: await main.worker() };

  const cells = Object.keys(AVAILABLE).flatMap((name) => SESSION_KINDS.map((kind) => ({ name, kind })));
  const denied = await Promise.all(
    cells.map(async ({ name, kind }) => {
      const { error } = await sessions[kind].call(name, PARAMS[name] ?? {}, { retryBudget: { maxAttempts: 1 } });
      return error?.code === 'PERMISSION_DENIED';
    }),
  );
  const available = Object.fromEntries(
    Object.keys(AVAILABLE).map((name) => [
      name,
      cells.filter((cell, index) => cell.name === name && denied[index] === false).map(({ kind }) => kind),
    ]),
  );
  expect(available).toEqual(AVAILABLE);
});
