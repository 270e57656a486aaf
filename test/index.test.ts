import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { createWorld } from './helpers/world.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** The modules that a file which imports Pawl loads, ours by their paths and libraries by their names. */
function loadedBy(specifier: string): readonly string[] {
  const script = `
    import { registerHooks } from 'node:module';
    const loaded = [];
    registerHooks({ load: (url, context, next) => { loaded.push(url); return next(url, context); } });
    await import(${JSON.stringify(specifier)});
    console.log(JSON.stringify(loaded));`;
  const args = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', script];
  return JSON.parse(execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' })) as string[];
}

test('a file that imports Pawl to define a tool loads neither a client nor a worker, and no library of Redis', () => {
  const loaded = loadedBy('pawl');
  expect(loaded.some((url) => url.endsWith('/src/shared/tool.ts'))).toBe(true);
  const heavy = /\/(?:ioredis|bullmq)\/|\/src\/(?:producer\/client|workers\/worker|shared\/store\/redis)\.ts$/;
  expect(loaded.filter((url) => heavy.test(url))).toEqual([]);
});

/** How many lines of the level info a program writes that connects and ends. */
function infoLines(folder: string, options: object, environment: Readonly<Record<string, string>>): number {
  const script = `
    import { connect } from ${JSON.stringify(new URL('../src/index.ts', import.meta.url))};
    await (await connect(${JSON.stringify(options)})).close();`;
  const { LOG_LEVEL: _, ...inherited } = process.env;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '--eval', script], {
    cwd: folder,
    encoding: 'utf8',
    env: { ...inherited, ...environment },
  });
  expect(status, stderr).toBe(0);
  return stderr.split('\n').filter((line) => line.includes('"level":30')).length;
}

test('a program of one’s own hears warnings, and more when an option, the environment or the file asks for it', async () => {
  const world = await createWorld();
  onTestFinished(() => world[Symbol.asyncDispose]());
  const folder = mkdtempSync(join(tmpdir(), 'pawl-log-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  // Of the promise that is asked for here each process tells as information.
  const environment = { REDIS_URL: world.redisUrl, PAWL_PREFIX: world.prefix, PAWL_DURABILITY: 'waitaof' };
  expect(infoLines(folder, {}, environment)).toBe(0);
  expect(infoLines(folder, { logLevel: 'info' }, environment)).toBeGreaterThan(0);
  expect(infoLines(folder, {}, { ...environment, LOG_LEVEL: 'info' })).toBeGreaterThan(0);
  writeFileSync(join(folder, 'pawl.config.json'), JSON.stringify({ logLevel: 'info' }));
  expect(infoLines(folder, {}, environment)).toBeGreaterThan(0);
});
