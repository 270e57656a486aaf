/**
 * A PostgreSQL of the benchmark's own, for the systems that run on one: the machine's programs, with data and socket in a folder
 * that is removed afterwards.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { appendFile, chown, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import { until } from '../until.ts';
import { startKept } from './kept-process.ts';
import { type Durability, processTreeCpuMs, type Store } from './store.ts';

const run = promisify(execFile);
const POLL_MS = 50;
/** Debian's and others' programs stand here, and not on the PATH. */
const DEBIAN = '/usr/lib/postgresql';

/** Loses at most a second's commits, as `appendfsync everysec` does: three times this delay (PostgreSQL, "Asynchronous Commit"). */
const WAL_WRITER_DELAY_MS = 333;

export const POSTGRESQL_DURABILITY: Readonly<Record<Durability, string>> = {
  'each second': `\`synchronous_commit=off\`, \`wal_writer_delay=${WAL_WRITER_DELAY_MS}ms\`: at most the last second is lost`,
  'each write': '`synchronous_commit=on`: a commit is answered when the disk has it',
};

/** Room for 16 producers and a worker with ten connections each. Checkpoints come between the rounds, and not in them. */
const SETTINGS = `
listen_addresses = ''
max_connections = 400
shared_buffers = 512MB
max_wal_size = 8GB
checkpoint_timeout = 1h
jit = off
wal_writer_delay = ${WAL_WRITER_DELAY_MS}ms
`;

/** Where the programs are; undefined where there are none. */
export async function findPostgresql(): Promise<string | undefined> {
  const versions = existsSync(DEBIAN) ? await readdir(DEBIAN) : [];
  const newestFirst = versions.toSorted((a, b) => Number(b) - Number(a));
  const folders = [
    ...(process.env['PATH'] ?? '').split(delimiter),
    ...newestFirst.map((name) => join(DEBIAN, name, 'bin')),
  ];
  return folders.find((folder) =>
    ['postgres', 'initdb', 'psql', 'pg_isready'].every((name) => existsSync(join(folder, name))),
  );
}

export async function startPostgresql(bin: string, durability: Durability): Promise<Store> {
  const dir = await mkdtemp(join(tmpdir(), 'pawl-pg-'));
  const user = await unprivileged();
  if (user !== undefined) await chown(dir, user.uid, user.gid);
  const data = join(dir, 'data');
  const asUser = { ...user, cwd: dir };
  await run(join(bin, 'initdb'), ['-D', data, '-U', 'bench', '-A', 'trust', '-E', 'UTF8', '--locale=C'], asUser);
  const commit = `synchronous_commit = ${durability === 'each write' ? 'on' : 'off'}\n`;
  await appendFile(join(data, 'postgresql.conf'), `${SETTINGS}${commit}unix_socket_directories = '${dir}'\n`);
  const server = await startKept([join(bin, 'postgres'), '-D', data], {
    ...user,
    stopSignal: 'INT',
    logFile: join(dir, 'log'),
  });
  const sql = async (text: string): Promise<string> =>
    (await run(join(bin, 'psql'), ['-h', dir, '-U', 'bench', '-d', 'postgres', '-Atc', text])).stdout.trim();
  await until(async () => {
    try {
      await run(join(bin, 'pg_isready'), ['-q', '-h', dir]);
      return true;
    } catch {
      return false;
    }
  }, POLL_MS);
  const version = await sql('show server_version');
  return {
    // The folder is what counts; a name must stand in a URL all the same.
    url: `postgresql://bench@localhost/postgres?host=${encodeURIComponent(dir)}`,
    title: `PostgreSQL ${version.split(' ')[0]}`,
    cpuMs: () => processTreeCpuMs(server.pid),
    fileBytes: async () => Number(await sql("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn")),
    tidy: async () => {
      await sql('checkpoint');
    },
    stop: async () => {
      await server.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** PostgreSQL refuses to run as root. Undefined for who is not root. */
async function unprivileged(): Promise<{ readonly uid: number; readonly gid: number } | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'));
  const [, , uid, gid] = users.find(([name]) => name === 'postgres') ?? users.find(([name]) => name === 'nobody') ?? [];
  if (uid === undefined || gid === undefined)
    throw new Error('there is no user postgres or nobody to run PostgreSQL as');
  return { uid: Number(uid), gid: Number(gid) };
}
