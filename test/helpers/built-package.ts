/** The package as it is installed: its JavaScript in `dist`, without types. */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Packages are found from there. */
const CACHE = join(ROOT, 'node_modules/.cache');

/** Returns its folder, which is gone when the test is over. */
export function buildPackage(): string {
  mkdirSync(CACHE, { recursive: true });
  const folder = mkdtempSync(join(CACHE, 'built-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  cpSync(join(ROOT, 'package.json'), join(folder, 'package.json'));
  cpSync(join(ROOT, 'bin'), join(folder, 'bin'), { recursive: true });
  execFileSync(process.execPath, [join(ROOT, 'scripts/pack.mjs'), 'bundle', join(folder, 'dist')]);
  return folder;
}
