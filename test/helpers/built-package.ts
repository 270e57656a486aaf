/** The package as it is installed: its JavaScript in `dist`, without types. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Packages are found from there. */
const CACHE = join(ROOT, 'node_modules/.cache');

/** Returns the folder of the package, which is built at the first call and is gone when the tests of the file are over. */
export function builtPackage(): () => string {
  let folder: string | undefined;
  afterAll(() => {
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  });
  return () => (folder ??= buildPackage());
}

function buildPackage(): string {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'built-'));
  cpSync(join(ROOT, 'package.json'), join(folder, 'package.json'));
  cpSync(join(ROOT, 'bin'), join(folder, 'bin'), { recursive: true });
  execFileSync(process.execPath, [join(ROOT, 'scripts/pack.mjs'), 'bundle', join(folder, 'dist')]);
  return folder;
}
