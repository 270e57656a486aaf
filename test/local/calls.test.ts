import { createLocalRunner } from '../../src/local/run-tool.ts';
import { connect, DEFAULT_CONCURRENCY } from '../../src/main.ts';
import { resolveSettings } from '../../src/shared/config/resolve-settings.ts';
import { RedisDedupeStore } from '../../src/shared/store/dedupe/dedupe-redis.ts';
import { openConnection } from '../../src/shared/store/redis/connection.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { TIERS } from '../../src/shared/tools/tool.ts';
import { ToolWorker } from '../../src/workers/worker.ts';
import type { CallFront, FrontOptions } from '../conformance/call-tools.ts';
import { describeCalls } from '../conformance/calls.ts';
import { createWorld } from '../helpers/world.ts';

async function localFront(options: FrontOptions & Pick<Parameters<typeof createLocalRunner>[0], 'store'>) {
  const runner = createLocalRunner(options);
  return {
    openSession: (open) => runner.openSession(open),
    circuit: async (tool) => (await runner.circuits.list()).find(({ key }) => key === `tool:tools.${tool}`)?.circuit,
    setCircuit: async (action, tool) => void (await runner.circuits.set(action, { tool }, 'a test')),
    close: () => runner.close(0),
  } satisfies CallFront;
}

describeCalls('a local runner', localFront);

describeCalls('a local runner with its records in Redis', async (options) => {
  const world = await createWorld();
  const redis = openConnection({ url: world.redisUrl, name: `${world.prefix}:test`, mode: 'fail-fast' });
  const front = await localFront({ ...options, store: new RedisDedupeStore({ redis, prefix: world.prefix }) });
  return {
    ...front,
    close: async () => {
      await front.close();
      redis.disconnect();
      await world.dispose();
    },
  };
});

describeCalls('a fleet', async ({ tools, settings }) => {
  const world = await createWorld();
  const partition = {
    redisUrl: world.redisUrl,
    prefix: world.prefix,
    signingKeys: [{ kid: 'test', key: 'a-test-signs-its-calls' }],
  };
  // Not `startWorker`, whose `tools` are the tools: policies for single tools come to it from the configuration file.
  const worker = await ToolWorker.start({
    settings: resolveSettings({ options: { ...partition, ...settings } }),
    tools,
    tiers: TIERS,
    concurrency: DEFAULT_CONCURRENCY,
    log: silentLogger,
    environment: {},
  });
  const pawl = await connect({ ...partition, ...settings, log: silentLogger });
  return {
    openSession: (open) => pawl.openSession(open),
    circuit: async (tool) => (await pawl.circuits.list()).find(({ key }) => key === `tool:tools.${tool}`)?.circuit,
    setCircuit: async (action, tool) => void (await pawl.circuits.set(action, { tool }, 'a test')),
    close: async () => {
      await pawl.close();
      await worker.close(0);
      await world.dispose();
    },
  };
});
