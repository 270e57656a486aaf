import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

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
