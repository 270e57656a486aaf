import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { startEmbeddedRedis } from '../../../../src/shared/store/redis/embedded-redis.ts';
import { findRedisBinary } from '../../../../src/shared/store/redis/redis-binary.ts';
import { startScript } from '../../../helpers/process.ts';
import { eventually, isGone } from '../../../helpers/signal.ts';

const FIXTURE = new URL('../../../helpers/fixtures/redis-user.ts', import.meta.url);

async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-binary-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function serverPid(url: string): Promise<number> {
  const redis = new Redis(url);
  const info = await redis.info('server');
  redis.disconnect();
  return Number(/process_id:(\d+)/.exec(info)?.[1]);
}

function librariesOf(pid: number | 'self'): readonly string[] {
  const files = readFileSync(`/proc/${pid}/maps`, 'utf8').matchAll(/(\/\S+\.so\S*)/g);
  return [...new Set([...files].map(([, file = '']) => basename(file)))];
}

const SEARCH_PATHS = [
  undefined,
  '',
  ':',
  '/nowhere:',
  ':/nowhere',
  '/nowhere::/nowhere',
  '.',
  'relative/..',
  '/nowhere:.',
];

test.runIf(process.platform === 'linux')(
  'the embedded Redis loads no library from the folder where Pawl was started, whatever LD_LIBRARY_PATH says',
  async () => {
    const known = await startEmbeddedRedis({ dataDir: await temporaryFolder() });
    const pid = await serverPid(known.url);
    // Node must start there, too: only what the server alone loads is put there. A file that is no library ends whoever loads it.
    const planted = librariesOf(pid).filter((name) => !librariesOf('self').includes(name));
    await known.stop();
    expect(planted).not.toEqual([]);
    const folder = await temporaryFolder();
    for (const name of planted) await writeFile(join(folder, name), 'no library');
    for (const searchPath of SEARCH_PATHS) {
      const env = { LD_LIBRARY_PATH: searchPath };
      const user = startScript(FIXTURE, [await temporaryFolder()], { cwd: folder, env });
      const url = (await user.line(/^ready /)).slice('ready '.length);
      const server = await serverPid(url);
      expect(readFileSync(`/proc/${server}/maps`, 'utf8'), String(searchPath)).not.toContain(folder);
      user.endInput();
      await user.ended;
      await eventually(() => isGone(server), { what: 'the end of the server' });
    }
    await eventually(() => isGone(pid), { what: 'the end of the first server' });
  },
  120_000,
);

/** Stands for the distribution's programs: the package that it "downloads" holds a server that only says its version. */
async function distribution(): Promise<string> {
  const folder = await temporaryFolder();
  const program = (name: string, text: string) =>
    writeFile(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  await program(
    'apt-get',
    'PATH=/usr/bin:/bin; for each; do case "$each" in *archives=*) touch "$(echo "$each" | cut -d= -f2)/one.deb";; esac; done',
  );
  await program(
    'dpkg-deb',
    `PATH=/usr/bin:/bin; mkdir -p "$3/usr/bin"; server="$3/usr/bin/redis-check-rdb"
printf '#!/bin/sh\\necho Redis server v=7.2.0\\n' > "$server"; chmod 755 "$server"`,
  );
  await symlink('/usr/bin/dirname', join(folder, 'dirname'));
  return folder;
}

test('a program in a data folder, which may have come with a repository, is not run where there is a cache folder', async () => {
  const [cacheDir, dataDir] = await Promise.all([temporaryFolder(), temporaryFolder()]);
  const planted = join(dataDir, 'cache', 'pawl', 'redis', `${process.platform}-${process.arch}`);
  await mkdir(planted, { recursive: true });
  await writeFile(join(planted, 'redis-server'), `#!/bin/sh\n: > '${dataDir}/ran'\necho v=7.2.0\n`, { mode: 0o755 });
  await findRedisBinary({ cacheDir, dataDir, environment: { PATH: '/nowhere' } }).catch(() => undefined);
  expect(existsSync(join(dataDir, 'ran'))).toBe(false);
});

test.runIf(existsSync('/var/lib/dpkg/status'))(
  'a server is fetched into the data folder where the cache folder cannot be made, as for a service without a home',
  async () => {
    const dataDir = await temporaryFolder();
    const file = join(await temporaryFolder(), 'file');
    await writeFile(file, '');
    const options = { cacheDir: join(file, '.cache'), dataDir, environment: { PATH: await distribution() } };
    const fetched = await findRedisBinary(options);
    expect(fetched).toMatchObject({ kind: 'executable', version: '7.2.0', origin: 'Debian package' });
    expect(fetched).toMatchObject({ command: expect.stringContaining(`${dataDir}/`) });
    expect(await findRedisBinary(options)).toMatchObject({ version: '7.2.0', origin: 'cache' });
  },
);
