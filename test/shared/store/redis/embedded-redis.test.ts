import { execFileSync } from 'node:child_process';
import { existsSync, watch } from 'node:fs';
import { cp, mkdir, mkdtemp, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest';
import { DataFolderInUseError, EmbeddedRedisError } from '../../../../src/shared/store/redis/embedded/data-folder.ts';
import { type EmbeddedRedis, startEmbeddedRedis } from '../../../../src/shared/store/redis/embedded-redis.ts';
import { startScript, type TestProcess } from '../../../helpers/process.ts';
import { eventually, isGone } from '../../../helpers/signal.ts';

const FIXTURE = new URL('../../../helpers/fixtures/redis-user.ts', import.meta.url);

let dataDir: string;

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), 'pawl-embedded-'));
});

afterEach(async () => {
  await eventually(() => !existsSync(join(dataDir, 'redis', 'endpoint.json')), { what: 'the end of the server' });
  await rm(dataDir, { recursive: true, force: true });
});

const startUser = () => startScript(FIXTURE, [dataDir]);

async function urlOf(user: TestProcess): Promise<string> {
  return (await user.line(/^ready /)).slice('ready '.length);
}

/** Runs commands on a connection of its own, which counts as no user. */
async function withClient<T>(url: string, use: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
  redis.on('error', () => {});
  try {
    return await use(redis);
  } finally {
    redis.disconnect();
  }
}

async function serverPid(url: string): Promise<number> {
  const info = await withClient(url, (redis) => redis.info('server'));
  return Number(/process_id:(\d+)/.exec(info)?.[1]);
}

const gone = (pid: number) => eventually(() => isGone(pid), { what: `the end of process ${pid}` });

describe('one server', () => {
  test('serves every process that names the same data folder', async () => {
    const [first, second] = [startUser(), startUser()];
    const [firstUrl, secondUrl] = await Promise.all([urlOf(first), urlOf(second)]);
    expect(secondUrl).toBe(firstUrl);
    await withClient(firstUrl, (redis) => redis.set('shared', 'yes'));
    expect(await withClient(secondUrl, (redis) => redis.get('shared'))).toBe('yes');
    const pid = await serverPid(firstUrl);
    first.endInput();
    second.endInput();
    await gone(pid);
  });

  test('is left alone by who uses a copy of its data folder, and is found where that was moved to', async () => {
    const [copy, moved] = [`${dataDir}-copy`, `${dataDir}-moved`];
    onTestFinished(() =>
      Promise.all([copy, moved].map((path) => rm(path, { recursive: true, force: true }))).then(() => {}),
    );
    const first = await startEmbeddedRedis({ dataDir });
    await withClient(first.url, (redis) => redis.set('of', 'the first'));
    await cp(dataDir, copy, { recursive: true });
    // Else its sign is waited for, as if it were young.
    await utimes(join(copy, 'redis', 'alive'), 0, 0);
    const second = await startEmbeddedRedis({ dataDir: copy });
    expect(second.url).not.toBe(first.url);
    expect(await withClient(second.url, (redis) => redis.getset('of', 'the copy'))).toBe('the first');
    expect(await withClient(first.url, (redis) => redis.get('of'))).toBe('the first');
    await rename(dataDir, moved);
    const again = await startEmbeddedRedis({ dataDir: moved });
    expect(again.url).toBe(first.url);
    await rename(moved, dataDir);
    const pids = await Promise.all([first, second].map(({ url }) => serverPid(url)));
    await Promise.all([first, second, again].map((redis) => redis.stop()));
    await Promise.all(pids.map(gone));
  });

  test('is started once when many start it at the same moment', async () => {
    const all = await Promise.all(Array.from({ length: 12 }, () => startEmbeddedRedis({ dataDir })));
    const pids = new Set(await Promise.all(all.map(({ url }) => serverPid(url))));
    expect(pids.size).toBe(1);
    await Promise.all(all.map((redis) => redis.stop()));
  });

  test('listens on no port and keeps what it should keep', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    expect(redis.url).toMatch(/^unix:\/\//);
    const settings = await withClient(redis.url, (client) =>
      Promise.all(
        ['port', 'appendonly', 'appendfsync', 'save', 'maxmemory-policy', 'hash-max-ziplist-value'].map((name) =>
          client.config('GET', name),
        ),
      ),
    );
    expect(settings.map((pair) => (Array.isArray(pair) ? pair[1] : pair))).toEqual([
      '0',
      'yes',
      'everysec',
      '',
      'noeviction',
      '2048',
    ]);
    await redis.stop();
    await redis.stop();
  });
});

test('keeps its data in a folder whose name has any character', async () => {
  for (const name of [
    'line\nbreak',
    'return\r',
    '\ttab\b\u0007\u001b\u007f',
    '"quoted"',
    "it's",
    'back\\x41slash\\',
    ' $HOME `id` # %s ü ',
  ]) {
    const folder = join(dataDir, name);
    const redis = await startEmbeddedRedis({ dataDir: folder });
    const pid = await serverPid(redis.url);
    await withClient(redis.url, (client) => client.set('kept', 'yes'));
    await redis.stop();
    await gone(pid);
    expect(existsSync(join(folder, 'redis', 'redis.log')), JSON.stringify(name)).toBe(true);
    expect(existsSync(join(folder, 'redis', 'appendonlydir')), JSON.stringify(name)).toBe(true);
    await eventually(() => !existsSync(join(folder, 'redis', 'endpoint.json')), { what: 'the end of the keeper' });
  }
});

describe('its lifetime', () => {
  test('does not depend on the process that started it, also after kill -9', async () => {
    const starter = startUser();
    const url = await urlOf(starter);
    const pid = await serverPid(url);
    const other = startUser();
    expect(await urlOf(other)).toBe(url);
    await starter.kill();
    await withClient(url, (redis) => redis.set('after', 'the starter'));
    expect(await serverPid(url)).toBe(pid);
    expect(isGone(pid)).toBe(false);
    await other.kill();
    await gone(pid);
    await eventually(() => !existsSync(dirname(new URL(url).pathname)), { what: 'the removal of the run folder' });
  });

  test('ends with a single user that is killed', async () => {
    const user = startUser();
    const pid = await serverPid(await urlOf(user));
    await user.kill();
    await gone(pid);
  });

  test('is not prolonged by a child of a user', async () => {
    const user = startScript(new URL('../../../helpers/fixtures/redis-user-with-child.ts', import.meta.url), [dataDir]);
    const pid = await serverPid(await urlOf(user));
    const child = Number((await user.line(/^child /)).slice('child '.length));
    await user.kill();
    await gone(pid);
    expect(isGone(child)).toBe(false);
  });

  test('starts again at once after the last user left, with the data', async () => {
    for (let round = 1; round <= 5; round += 1) {
      const redis = await startEmbeddedRedis({ dataDir });
      expect(await withClient(redis.url, (client) => client.incr('rounds'))).toBe(round);
      await redis.stop();
    }
  });
});

describe('after a crash', () => {
  test('the server comes back on the same socket with the data, and clients reconnect', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    await withClient(redis.url, async (client) => {
      await client.set('kept', 'yes');
      const pid = await serverPid(redis.url);
      process.kill(pid, 'SIGKILL');
      await gone(pid);
      expect(await client.get('kept')).toBe('yes');
      expect(await serverPid(redis.url)).not.toBe(pid);
    });
    expect(await readFile(join(dataDir, 'redis', 'keeper.log'), 'utf8')).toContain('starting it again (1 of 5)');
    await redis.stop();
  });

  test('a server whose keeper was killed is replaced, never doubled', async () => {
    const user = startUser();
    const url = await urlOf(user);
    const orphan = await serverPid(url);
    await withClient(url, (client) => client.set('kept', 'yes'));
    process.kill(keeperPid(dirname(new URL(url).pathname)), 'SIGKILL');
    const redis = await eventually(() => startEmbeddedRedis({ dataDir }));
    expect(isGone(orphan)).toBe(true);
    expect(await withClient(redis.url, (client) => client.get('kept'))).toBe('yes');
    await redis.stop();
  });

  test('a lock of a dead process does not hold up the next start', async () => {
    const dead = startScript(new URL('../../../helpers/fixtures/nothing.ts', import.meta.url));
    await dead.ended;
    await (await startEmbeddedRedis({ dataDir })).stop();
    await writeFile(join(dataDir, 'redis', 'start.lock'), JSON.stringify({ pid: dead.pid }));
    await (await startEmbeddedRedis({ dataDir })).stop();
  });

  test('a lock of another container stands as long as it is renewed, whatever runs under its number here', async () => {
    const dead = startScript(new URL('../../../helpers/fixtures/nothing.ts', import.meta.url));
    await dead.ended;
    const lock = join(dataDir, 'redis', 'start.lock');
    await mkdir(dirname(lock));
    await writeFile(lock, JSON.stringify({ pid: dead.pid, space: 'pid:[1]' }));
    // Each attempt at the lock is a file of its own.
    const attempts = new Set<string>();
    const watcher = watch(dirname(lock), (_event, name) => {
      if (/^start\.lock\.\d+\.\w+$/.test(name ?? '')) attempts.add(name ?? '');
    });
    onTestFinished(() => watcher.close());
    const user = startUser();
    await eventually(() => attempts.size >= 4 || user.stdout() !== '', { what: 'attempts at the lock' });
    expect(user.stdout()).toBe('');
    await utimes(lock, 0, 0);
    await urlOf(user);
    user.endInput();
  });

  test('a server that cannot start is given up with its own words', async () => {
    await (await startEmbeddedRedis({ dataDir })).stop();
    await eventually(() => !existsSync(join(dataDir, 'redis', 'endpoint.json')));
    const manifest = join(dataDir, 'redis', 'appendonlydir', 'appendonly.aof.manifest');
    await writeFile(manifest, 'not a manifest\n');
    const attempt: Promise<EmbeddedRedis> = startEmbeddedRedis({ dataDir });
    await expect(attempt).rejects.toThrow(EmbeddedRedisError);
    await expect(attempt).rejects.toThrow(/ends as soon as it starts[\s\S]*manifest/i);
  });
});

/** Where the server's socket is. */
const runDirOf = ({ url }: EmbeddedRedis) => dirname(new URL(url).pathname);

describe('a server whose run folder is out of sight', () => {
  const endpointFile = () => join(dataDir, 'redis', 'endpoint.json');
  const aliveFile = () => join(dataDir, 'redis', 'alive');

  test('is known by the signs in the data folder, and no second one is started beside it', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    const pid = await serverPid(redis.url);
    const endpoint = await readFile(endpointFile(), 'utf8');
    // What a container, or a service with a /tmp of its own, makes of it.
    await writeFile(endpointFile(), endpoint.replaceAll(runDirOf(redis), '/no/such/folder'));
    const second = startEmbeddedRedis({ dataDir });
    await expect(second).rejects.toThrow(DataFolderInUseError);
    await expect(second).rejects.toThrow(
      new RegExp(`lives on ${join(dataDir, 'redis')}.*${runDirOf(redis)}.*PAWL_DATA_DIR`),
    );
    expect(await serverPid(redis.url)).toBe(pid);
    await writeFile(endpointFile(), endpoint);
    await redis.stop();
    await gone(pid);
    await eventually(() => !existsSync(aliveFile()), { what: 'the end of the signs' });
  });

  test('is not shut down when nothing but its FIFO is missing', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    const pid = await serverPid(redis.url);
    const fifo = join(runDirOf(redis), 'users');
    await rename(fifo, `${fifo}-aside`);
    await expect(startEmbeddedRedis({ dataDir })).rejects.toThrow(DataFolderInUseError);
    expect(await serverPid(redis.url)).toBe(pid);
    await redis.stop();
    await gone(pid);
  });

  test('ends with its last user although the run folder was removed', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    const pid = await serverPid(redis.url);
    await rm(runDirOf(redis), { recursive: true });
    await redis.stop();
    await gone(pid);
  });

  test('is taken for ended when its signs are old, or do not go on', async () => {
    await mkdir(join(dataDir, 'redis'));
    await writeFile(aliveFile(), 'a machine that lost its power');
    await utimes(aliveFile(), 0, 0);
    await (await startEmbeddedRedis({ dataDir })).stop();
    await eventually(() => !existsSync(endpointFile()));

    await writeFile(aliveFile(), 'a machine that lost its power just now');
    let passedMs = 0;
    const now = Date.now;
    vi.spyOn(Date, 'now').mockImplementation(() => now() + passedMs);
    onTestFinished(() => void vi.restoreAllMocks());
    const log = (line: string) => {
      if (line.startsWith('waiting to see')) passedMs = 10_000;
    };
    await (await startEmbeddedRedis({ dataDir, log })).stop();
    expect(passedMs).toBe(10_000);
  });

  test('keeps its files young while it lives', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    const kept = ['users', 'redis.conf', 'redis.sock', '.'].map((name) => join(runDirOf(redis), name));
    await Promise.all(kept.map((path) => utimes(path, 0, 0)));
    for (const path of kept)
      await eventually(async () => (await stat(path)).mtimeMs > 0, { what: `a touch of ${path}` });
    await redis.stop();
  });
});

describe('a server that ends again and again', () => {
  test('is started again as long as it has users, and a new one is reported at once', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    await withClient(redis.url, (client) => client.set('kept', 'yes'));
    const manifest = join(dataDir, 'redis', 'appendonlydir', 'appendonly.aof.manifest');
    const whole = await readFile(manifest, 'utf8');
    await writeFile(manifest, 'not a manifest\n');
    process.kill(await serverPid(redis.url), 'SIGKILL');
    await eventually(() => existsSync(join(runDirOf(redis), 'failed')), { what: 'the sixth end' });
    await expect(startEmbeddedRedis({ dataDir })).rejects.toThrow(/ends as soon as it starts[\s\S]*manifest/i);
    await writeFile(manifest, whole);
    expect(await withClient(redis.url, (client) => client.get('kept'))).toBe('yes');
    await (await startEmbeddedRedis({ dataDir })).stop();
    await redis.stop();
  });

  test('ends with its last user also between two starts', async () => {
    const redis = await startEmbeddedRedis({ dataDir });
    const supervisor = keeperPid(runDirOf(redis));
    await writeFile(join(dataDir, 'redis', 'appendonlydir', 'appendonly.aof.manifest'), 'not a manifest\n');
    process.kill(await serverPid(redis.url), 'SIGKILL');
    await eventually(() => existsSync(join(runDirOf(redis), 'failed')), { what: 'the sixth end' });
    await redis.stop();
    await gone(supervisor);
    expect(existsSync(runDirOf(redis))).toBe(false);
  });
});

/** The `sh` whose arguments name the run folder and which leads its session. */
function keeperPid(runDir: string): number {
  const list = execFileSync('ps', ['-eo', 'pid=,sess=,args='], { encoding: 'utf8' });
  for (const line of list.split('\n')) {
    const [pid = '', session = ''] = line.trim().split(/\s+/);
    if (pid === session && line.includes('redis-keeper.sh') && line.includes(runDir)) return Number(pid);
  }
  throw new Error(`no keeper of ${runDir} in:\n${list}`);
}
