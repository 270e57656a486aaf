import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { startEmbeddedRedis } from '../../../../src/shared/store/redis/embedded-redis.ts';
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
