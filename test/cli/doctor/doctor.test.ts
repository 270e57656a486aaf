import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { checkNode } from '../../../src/cli/doctor/doctor.ts';
import { startServer } from '../../chaos/server.ts';
import { startProgram } from '../../helpers/process.ts';
import { atOnce } from '../../helpers/signal.ts';
import { type CliFixture, openPlace } from '../pawl.ts';

interface Report {
  readonly usable: boolean;
  readonly checks: readonly {
    readonly check: string;
    readonly state: string;
    readonly message: string;
    readonly fix?: string;
  }[];
}

const LAUNCHER = fileURLToPath(new URL('../../../bin/pawl.mjs', import.meta.url));
const WITH_MOUNTS = ['--mount', ...(process.getuid?.() === 0 ? [] : ['--map-root-user']), 'sh'];
const canMount = spawnSync('unshare', [...WITH_MOUNTS, '-c', 'mount -t tmpfs none /mnt']).status === 0;

let place: CliFixture;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place[Symbol.asyncDispose]());

test('doctor finds everything usable, explains the durability, and reports that no worker runs', async () => {
  const { code, stdout } = await place.run(['doctor', '--json'], { env: { PAWL_HTTP_PORT: '0' } });
  const report = JSON.parse(stdout) as Report;
  expect({ code, usable: report.usable }).toEqual({ code: 0, usable: true });
  const found = new Map(report.checks.map((check) => [check.check, check]));
  expect([...found.keys()].sort()).toEqual(
    [
      'clocks',
      'configuration',
      'data folder',
      'eviction',
      'node',
      'persistence',
      'port',
      'redis',
      'sandbox',
      'packages',
      'signatures',
      'workers',
    ].sort(),
  );
  expect(found.get('persistence')?.message).toMatch(/^appendfsync \w+: .*forget/);
  expect(found.get('signatures')).toMatchObject({
    state: 'warn',
    message: expect.stringContaining('approve calls'),
    fix: expect.stringContaining('PAWL_SIGNING_KEYS'),
  });
  expect(found.get('workers')).toMatchObject({ state: 'warn', fix: expect.stringContaining('pawl up') });
});

test.each([
  ['PAWL_HTTP_PROT', 'did you mean PAWL_HTTP_PORT'],
  ['pawl_prefix', 'did you mean PAWL_PREFIX?'],
  ['PAWL_SIGNING_KEY_FILE', 'did you mean PAWL_SIGNING_KEYS_FILE'],
  ['TOOL_RELIABILTY_ENABLED', 'did you mean TOOL_RELIABILITY_ENABLED'],
])('doctor names the misspelt variable %s', async (name, hint) => {
  const { code, stdout } = await place.run(['doctor', '--json'], { env: { PAWL_HTTP_PORT: '0', [name]: '1' } });
  const found = (JSON.parse(stdout) as Report).checks.find(({ message }) => message.startsWith(name));
  expect(code).toBe(0);
  expect(found).toMatchObject({ state: 'warn', fix: expect.stringContaining(hint) });
});

test('doctor says nothing of variables that other programs read', async () => {
  const env = { PAWL_HTTP_PORT: '0', PAWL_SECRET_SHOP: 's', PAWL_GRAFANA_PORT: '1', HTTP_PORT: '1' };
  const { stdout } = await place.run(['doctor', '--json'], { env });
  expect(stdout).not.toContain('reads no variable');
});

test('doctor says that programs run without a sandbox where the setting turns it off', async () => {
  const env = { PAWL_HTTP_PORT: '0', PAWL_SANDBOX: 'off' };
  const { stdout } = await place.run(['doctor', '--json'], { env });
  const found = (JSON.parse(stdout) as Report).checks.find(({ check }) => check === 'sandbox');
  expect(found).toEqual({
    check: 'sandbox',
    state: 'warn',
    message: 'programs run without a sandbox here (PAWL_SANDBOX=off)',
    fix: expect.stringContaining('unset PAWL_SANDBOX'),
  });
});

test.each([
  ['a Redis that does not answer', { REDIS_URL: 'redis://:hidden@127.0.0.1:1' }, 7, 'redis', 'ECONNREFUSED'],
  ['an address that is none', { REDIS_URL: 'http://somewhere' }, 2, 'redis', 'must be redis://'],
  ['an API process that would not start', { PAWL_HTTP_HOST: '0.0.0.0' }, 2, 'port', 'PAWL_API_TOKENS'],
  ['a wrong setting', { PAWL_LOCK_DURATION_MS: 'soon' }, 2, 'configuration', 'PAWL_LOCK_DURATION_MS'],
])('doctor names %s and how to mend it', async (_case, env, exitCode, check, message) => {
  const { code, stdout } = await place.run(['doctor', '--json'], { env: { PAWL_HTTP_PORT: '0', ...env } });
  const report = JSON.parse(stdout) as Report;
  expect({ code, usable: report.usable }).toEqual({ code: exitCode, usable: false });
  const failed = report.checks.filter(({ state }) => state === 'fail');
  expect(failed).toMatchObject([{ check, message: expect.stringContaining(message), fix: expect.any(String) }]);
  expect(stdout).not.toContain('hidden');
});

test('doctor explains why a Redis refuses commands: memory, channels for its user, the password, the limit of clients', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-full-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const { admin, port, [Symbol.asyncDispose]: end } = await startServer(folder);
  onTestFinished(end);
  await admin.config('SET', 'maxmemory', '1');
  await admin.call('ACL', 'SETUSER', 'plain', 'on', '>word', '~*', '+@all', 'resetchannels');
  const cases = {
    memory: { user: '', message: 'OOM', fix: 'maxmemory' },
    channels: { user: 'plain:word@', message: 'channel', fix: ':* &' },
    password: { user: 'plain:words@', message: 'WRONGPASS', fix: 'correct the user and the password' },
  };
  const look = async ({ user, message, fix }: (typeof cases)[keyof typeof cases]) => {
    const env = { REDIS_URL: `redis://${user}127.0.0.1:${port}`, PAWL_HTTP_PORT: '0' };
    const { code, stdout } = await place.run(['doctor', '--json'], { env });
    expect(code).toBe(7);
    const failed = (JSON.parse(stdout) as Report).checks.filter(({ state }) => state === 'fail');
    expect(failed).toMatchObject([
      { check: 'redis', message: expect.stringContaining(message), fix: expect.stringContaining(fix) },
    ]);
  };
  await atOnce(cases, look);
  await admin.config('SET', 'maxclients', '1');
  await look({ user: '', message: 'Redis cannot be used', fix: 'maxclients' });
});

test('doctor looks whether the port of the metrics can be used', async () => {
  const other = createServer((client) => client.destroy());
  await new Promise<void>((listening) => other.listen(0, '127.0.0.1', listening));
  onTestFinished(() => new Promise<void>((closed) => void other.close(() => closed())));
  const { port } = other.address() as AddressInfo;
  const find = async (metricsPort: number) => {
    const env = { PAWL_HTTP_PORT: '0', PAWL_METRICS_PORT: String(metricsPort) };
    const { code, stdout } = await place.run(['doctor', '--json'], { env });
    return { code, ...(JSON.parse(stdout) as Report).checks.find(({ check }) => check === 'metrics port') };
  };
  expect(await find(port)).toMatchObject({ code: 2, state: 'fail', fix: expect.stringContaining('PAWL_METRICS_PORT') });
  expect(await find(0)).toMatchObject({ code: 0, state: 'ok' });
  const worker = place.start(['worker', '--json'], { PAWL_METRICS_PORT: '0' });
  const { metricsPort } = JSON.parse(await worker.line('"event":"ready"')) as { metricsPort: number };
  expect(await find(metricsPort)).toMatchObject({ code: 0, message: expect.stringContaining('by a Pawl') });
  worker.signal('SIGTERM');
  await worker.ended;
});

test.each([
  ['elsewhere', {}],
  ['embedded', { REDIS_URL: '' }],
])('doctor names the data folder alone, where it cannot be written to and Redis is %s', async (_where, redis) => {
  const file = join(place.folder, 'file');
  writeFileSync(file, '');
  const env = { PAWL_HTTP_PORT: '0', PAWL_DATA_DIR: join(file, 'data'), ...redis };
  const { code, stdout } = await place.run(['doctor', '--json'], { env });
  expect(code).toBe(2);
  expect((JSON.parse(stdout) as Report).checks.filter(({ state }) => state === 'fail')).toMatchObject([
    { check: 'data folder', message: expect.stringContaining('cannot be written to'), fix: expect.any(String) },
  ]);
});

test.runIf(canMount)('doctor looks whether the disk of the data folder has room', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'pawl-disk-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const fill = 'mount -t tmpfs -o size=16k none "$0"; head -c 16384 /dev/zero >"$0/fill"; exec "$@"';
  const { redisUrl, prefix } = place.world;
  const env = { REDIS_URL: redisUrl, PAWL_PREFIX: prefix, PAWL_HTTP_PORT: '0', PAWL_DATA_DIR: folder };
  const doctor = startProgram(
    'unshare',
    [...WITH_MOUNTS, '-c', fill, folder, process.execPath, LAUNCHER, 'doctor', '--json'],
    { cwd: place.folder, env },
  );
  expect(await doctor.ended).toMatchObject({ code: 2 });
  expect((JSON.parse(doctor.stdout()) as Report).checks.filter(({ state }) => state === 'fail')).toMatchObject([
    { check: 'data folder', message: expect.stringContaining('ENOSPC'), fix: expect.stringContaining('make room') },
  ]);
});

test('a Redis that is too old is a matter of configuration, as it is to a worker', async () => {
  const env = { REDIS_URL: await olderServer(place.world.redisUrl), PAWL_HTTP_PORT: '0' };
  const { code, stdout } = await place.run(['doctor', '--json'], { env });
  expect(code).toBe(2);
  expect((JSON.parse(stdout) as Report).checks.filter(({ state }) => state === 'fail')).toMatchObject([
    { check: 'redis', message: expect.stringContaining('is too old'), fix: expect.stringContaining('newer Redis') },
  ]);
});

/** The address of a Redis that says of itself that it is older than it is. */
async function olderServer(redisUrl: string): Promise<string> {
  const { pathname, protocol, hostname, port } = new URL(redisUrl);
  const listener = createServer((client) => {
    const server = protocol === 'redis:' ? connect(Number(port), hostname) : connect(pathname);
    client.pipe(server);
    server.on('data', (bytes) => {
      client.write(bytes.toString('latin1').replace(/(redis|valkey)_version:\d/g, '$1_version:5'), 'latin1');
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.on('error', () => {});
      one.on('close', () => other.destroy());
    }
  });
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening));
  onTestFinished(() => new Promise<void>((closed) => void listener.close(() => closed())));
  const address = listener.address();
  return `redis://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
}

test('a Node that is too old is refused', () => {
  expect(checkNode('20.19.2')).toMatchObject({ state: 'fail', fix: expect.stringContaining('nodejs.org') });
  expect(checkNode('22.21.0').state).toBe('fail');
  expect(checkNode('22.22.0').state).toBe('ok');
  expect(checkNode('26.1.0').state).toBe('ok');
});
