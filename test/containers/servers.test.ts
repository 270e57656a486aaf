/** The records and the journeys on every server that Pawl promises to run on. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { GenericContainer, Wait } from 'testcontainers';
import { describe, expect, test } from 'vitest';
import { hasDocker, hasImage } from './docker.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const SERVERS = [
  { image: 'redis:6.2-alpine', command: 'redis-server' },
  { image: 'redis:7-alpine', command: 'redis-server' },
  { image: 'redis:8-alpine', command: 'redis-server' },
  { image: 'valkey/valkey:8-alpine', command: 'valkey-server' },
  { image: 'valkey/valkey:9-alpine', command: 'valkey-server' },
] as const;
/** Nobody but this machine reaches the server, so that protected mode, which some images keep, is not needed. */
const OPTIONS = '--appendonly yes --maxmemory-policy noeviction --protected-mode no'.split(' ');
const SUITES = [
  'test/shared/store',
  'test/journeys/one-effect',
  'test/journeys/endings',
  'test/journeys/killed-workers',
];

const present = hasDocker() ? SERVERS.filter(({ image }) => hasImage(image)) : [];

describe.skipIf(present.length === 0)('the core suites are green', () => {
  test.each(present)('on $image', async ({ image, command }) => {
    const container = await new LoopbackContainer(image)
      .withCommand([command, '--save', '', ...OPTIONS])
      .withExposedPorts(6_379)
      .withWaitStrategy(Wait.forLogMessage(/Ready to accept connections/))
      .start();
    try {
      const run = spawnSync(process.execPath, ['node_modules/vitest/vitest.mjs', 'run', ...SUITES], {
        cwd: ROOT,
        encoding: 'utf8',
        env: { ...process.env, REDIS_URL: `redis://127.0.0.1:${container.getMappedPort(6_379)}`, FORCE_COLOR: '0' },
      });
      expect(run.status, `${run.stdout.slice(-4_000)}${run.stderr.slice(-2_000)}`).toBe(0);
    } finally {
      await container.stop();
    }
  });
});

/** Published on loopback alone: a test must not open a Redis to the network. */
class LoopbackContainer extends GenericContainer {
  protected override async beforeContainerCreated(): Promise<void> {
    const bindings = this.hostConfig.PortBindings as Record<string, { HostIp?: string }[]>;
    for (const binding of Object.values(bindings).flat()) binding.HostIp = '127.0.0.1';
  }
}
