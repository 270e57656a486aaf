/**
 * Set-ups as a new operator might have them, each mended with what Pawl, `pawl doctor` and the runbook say, and nothing else.
 *
 * @module-tag slow
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { expect, onTestFinished, test } from 'vitest';
import { startEmbeddedRedis } from '../../src/shared/store/redis/embedded-redis.ts';
import { type CliFixture, openPlace } from '../cli/pawl.ts';
import { eventually } from '../helpers/signal.ts';

interface Check {
  readonly check: string;
  readonly state: 'ok' | 'warn' | 'fail';
  readonly message: string;
  readonly fix?: string;
}

type Environment = Readonly<Record<string, string>>;

async function newPartition(): Promise<CliFixture> {
  const partition = await openPlace();
  onTestFinished(() => partition[Symbol.asyncDispose]());
  return partition;
}

/** What `pawl doctor` says is to be mended. */
async function failures(partition: CliFixture, env: Environment = {}): Promise<readonly Check[]> {
  const { code, stdout } = await partition.run(['doctor', '--json'], { env: { PAWL_HTTP_PORT: '0', ...env } });
  const { usable, checks } = JSON.parse(stdout) as { readonly usable: boolean; readonly checks: readonly Check[] };
  expect(code === 0).toBe(usable);
  return checks.filter(({ state }) => state === 'fail');
}

/** The lines of an entry's shell blocks. */
function commandsOf(entry: string): readonly string[] {
  const page = readFileSync(new URL('../../docs/runbook.md', import.meta.url), 'utf8');
  const section = page.split(/^## /m).find((part) => part.startsWith(`${entry}\n`));
  if (section === undefined) throw new Error(`docs/runbook.md has no entry ${JSON.stringify(entry)}`);
  return [...section.matchAll(/^ *```sh\n([\s\S]*?)^ *```$/gm)].flatMap(([, text = '']) =>
    text
      .split('\n')
      .map((line) => line.trim())
      .filter((line) => line !== ''),
  );
}

const greet = (partition: CliFixture, env: Environment = {}) =>
  partition.run(['call', 'greet', '--params', '{"name":"Ada"}', '--timeout', '10000'], { env });

test('a Redis that evicts: workers refuse to start, doctor names the setting, and the runbook’s commands mend it', async () => {
  const partition = await newPartition();
  const dataDir = mkdtempSync(join(tmpdir(), 'pawl-evicting-'));
  const server = await startEmbeddedRedis({ dataDir, log: () => {} });
  const redis = new Redis(server.url.replace('unix://', ''));
  onTestFinished(async () => {
    redis.disconnect();
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });
  await redis.config('SET', 'maxmemory-policy', 'allkeys-lru');
  const env = { REDIS_URL: server.url };
  const refused = partition.start(['worker', '--tools', 'tools.ts'], env);
  expect((await refused.ended).code).toBe(2);
  expect(refused.stderr()).toContain('maxmemory-policy');

  const [failed, ...others] = await failures(partition, env);
  expect(others).toEqual([]);
  expect(failed).toMatchObject({ check: 'eviction', fix: 'CONFIG SET maxmemory-policy noeviction' });
  const commands = commandsOf('Redis forgets calls');
  expect(commands.some((line) => line.endsWith(failed?.fix ?? 'nothing'))).toBe(true);
  for (const line of commands) {
    const [command = '', ...args] = line.replace(/^redis-cli -u "\$REDIS_URL" /, '').split(' ');
    expect(await redis.call(command, ...args)).toBe('OK');
  }

  expect(await failures(partition, env)).toEqual([]);
  const worker = await partition.worker(env);
  expect(await greet(partition, env)).toMatchObject({ code: 0, stdout: expect.stringContaining('Ada') });
  worker.signal('SIGTERM');
  await worker.ended;
});

test('no worker for a tier: doctor counts what waits and says which command starts one', async () => {
  const partition = await newPartition();
  // The tier's only worker has left; what it offered is still known.
  const left = await partition.worker();
  left.signal('SIGTERM');
  await left.ended;
  const reads = partition.start(['worker', '--tiers', 'read-only', '--tools', 'tools.ts', '--json']);
  await reads.line('"event":"ready"');
  const call = partition.start(['call', 'linger', '--params', '{"ms":1}', '--json']);

  const [failed] = await eventually(async () => {
    const found = await failures(partition);
    return found.length > 0 && found;
  });
  expect(failed).toMatchObject({
    check: 'workers',
    message: expect.stringMatching(/^1 call of the tier workspace wait/),
  });
  const [, command = ''] = /'pawl ([^']+)'/.exec(failed?.fix ?? '') ?? [];
  const started = partition.start([...command.split(' '), '--tools', 'tools.ts', '--json']);
  await started.line('"event":"ready"');

  expect((await call.ended).code).toBe(0);
  expect(await failures(partition)).toEqual([]);
});

test('processes with different signing keys: doctor names the process, and the same keys everywhere mend it', async () => {
  const partition = await newPartition();
  const [mine, theirs] = [
    { PAWL_SIGNING_KEYS: 'k1:the-key-of-the-fleet' },
    { PAWL_SIGNING_KEYS: 'k1:another-key-of-old' },
  ];
  const worker = await partition.worker(theirs);
  const refused = await greet(partition, mine);
  expect(refused.code).not.toBe(0);
  expect(refused.stdout + refused.stderr).toMatch(/SIGNATURE_INVALID|sign/i);

  const [failed] = await failures(partition, mine);
  expect(failed).toMatchObject({
    check: 'signatures',
    message: expect.stringContaining(`pid ${worker.pid}`),
    fix: expect.stringContaining('the same PAWL_SIGNING_KEYS'),
  });
  expect(JSON.stringify(failed)).not.toMatch(/the-key-of|another-key/);
  worker.signal('SIGTERM');
  await worker.ended;
  await partition.worker(mine);

  expect(await failures(partition, mine)).toEqual([]);
  expect(await greet(partition, mine)).toMatchObject({ code: 0, stdout: expect.stringContaining('Ada') });
});

test('a signing key in the data folder that is empty, as a crash leaves one, or cannot be read is reported and signs nothing', async () => {
  const partition = await newPartition();
  const dataDir = mkdtempSync(join(tmpdir(), 'pawl-keyless-'));
  const server = await startEmbeddedRedis({ dataDir, log: () => {} });
  onTestFinished(async () => {
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });
  const key = join(dataDir, 'signing-key');
  writeFileSync(key, '');
  const calls = () => partition.run(['calls'], { env: { REDIS_URL: undefined, PAWL_DATA_DIR: dataDir } });
  expect(await calls()).toMatchObject({
    code: 2,
    stderr: expect.stringContaining(`${key} contains no key. Remove it`),
  });
  rmSync(key);
  mkdirSync(key);
  expect(await calls()).toMatchObject({ code: 2, stderr: expect.stringContaining(`${key} cannot be read: EISDIR`) });
  rmSync(key, { recursive: true });
  expect((await calls()).code).toBe(0);
});

test('doctor points to the log of an embedded Redis that does not start, and does not ask to install one that is there', async () => {
  const partition = await newPartition();
  const dataDir = join(partition.folder, 'damaged');
  mkdirSync(join(dataDir, 'redis'), { recursive: true });
  writeFileSync(join(dataDir, 'redis', 'appendonlydir'), 'no folder');
  const doctor = await partition.run(['doctor'], { env: { REDIS_URL: undefined, PAWL_DATA_DIR: dataDir } });
  expect(doctor.code).toBe(7);
  expect(doctor.stdout).toContain(`→ look into ${join(dataDir, 'redis', 'redis.log')}`);
  expect(doctor.stdout).not.toContain('install redis-server');
});
