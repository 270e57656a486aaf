/** A server that reads its data takes long until it answers, and is not given up. */
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { readState } from '../../../../src/shared/store/redis/embedded/server-state.ts';
import { startEmbeddedRedis } from '../../../../src/shared/store/redis/embedded-redis.ts';
import { eventually, signal } from '../../../helpers/signal.ts';

let dataDir: string;

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'pawl-embedded-'));
});

afterEach(async () => {
  await eventually(() => !existsSync(join(dataDir, 'redis', 'endpoint.json')), { what: 'the end of the server' });
  await rm(dataDir, { recursive: true, force: true });
});

test.each([
  ['+PONG', 'ready'],
  ['-MISCONF Errors writing to the AOF file: No space left on device', 'ready'],
  ['-LOADING Redis is loading the dataset in memory', 'loading'],
])('a server that answers PING with %s is %s', async (answer, state) => {
  const server = createServer((client) => client.end(`${answer}\r\n$24\r\nredis_version:7.0.15\r\n\r\n+OK\r\n`));
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  expect(await readState(`redis://127.0.0.1:${(server.address() as AddressInfo).port}`)).toBe(state);
});

describe('a server that reads its data for long', () => {
  /** An environment in which a stand-in that says so is `redis-server`. */
  async function standIn(until = ''): Promise<NodeJS.ProcessEnv> {
    const folder = await mkdtemp(join(tmpdir(), 'pawl-loading-'));
    const script = fileURLToPath(new URL('../../../helpers/fixtures/loading-redis.ts', import.meta.url));
    await writeFile(
      join(folder, 'redis-server'),
      `#!/bin/sh\nexec '${process.execPath}' '${script}' '${until}' "$@"\n`,
    );
    await chmod(join(folder, 'redis-server'), 0o755);
    onTestFinished(() => rm(folder, { recursive: true }));
    return { ...process.env, PATH: `${folder}${delimiter}${process.env['PATH']}` };
  }

  test('is waited for past the time that a silent one has', async () => {
    const environment = await standIn();
    let passedMs = 0;
    const now = Date.now;
    // From its first answer on ten seconds pass at every look at the clock.
    vi.spyOn(Date, 'now').mockImplementation(() => {
      if (existsSync(join(dataDir, 'redis', 'asked'))) passedMs += 10_000;
      return now() + passedMs;
    });
    onTestFinished(() => void vi.restoreAllMocks());
    const lines: string[] = [];
    const redis = await startEmbeddedRedis({ dataDir, environment, log: (line) => lines.push(line) });
    expect(passedMs).toBeGreaterThan(60_000);
    expect(lines.filter((line) => line.includes('reads its data'))).toHaveLength(1);
    await redis.stop();
  });

  test('is waited for by those who come meanwhile, too', async () => {
    const read = join(dataDir, 'read');
    const environment = await standIn(read);
    const firstWaits = signal();
    const first = startEmbeddedRedis({
      dataDir,
      environment,
      log: (line) => line.includes('reads its data') && firstWaits.fire(),
    });
    await firstWaits.promise;
    const secondWaits = signal();
    const second = startEmbeddedRedis({
      dataDir,
      environment,
      log: (line) => line.includes('reads its data') && secondWaits.fire(),
    });
    await secondWaits.promise;
    await writeFile(read, '');
    const both = await Promise.all([first, second]);
    expect(both[0].url).toBe(both[1].url);
    await Promise.all(both.map((redis) => redis.stop()));
  });
});
