/**
 * The package as it is published, of the sources as they are: its JavaScript in `dist`, without types. A process of it starts in two thirds
 * of the processor time that the sources take. Beside it stand the examples and the programs of the journeys, whose `pawl` it is.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inject } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** Packages are found from there. TypeScript in `node_modules` would not run. */
const FOLDER = join(ROOT, '.built');
/** What the package is built of, and what is copied. */
const SOURCES = ['src/**', 'scripts/pack.mjs', 'package-lock.json', 'examples/demo/**'];
const COPIED = ['package.json', 'bin', 'dashboards/page', 'schemas', 'examples', 'test/journeys/fixtures'];
/** A run that began earlier has ended. */
const OLD_MS = 3_600_000;

/** Builds the package, unless it is there, and returns its folder, whose name tells what it was built of: compiled code is kept by it. */
export function buildPackage(): string {
  const files = globSync([...SOURCES, ...COPIED.flatMap((path) => [path, `${path}/**`])], { cwd: ROOT }).sort();
  const hash = createHash('sha256');
  for (const file of files) {
    const { mtimeMs, size } = statSync(join(ROOT, file));
    hash.update(`${file} ${size} ${mtimeMs}\n`);
  }
  const folder = join(FOLDER, hash.digest('hex').slice(0, 16));
  if (existsSync(folder)) return folder;
  for (const old of globSync('*', { cwd: FOLDER })) {
    const path = join(FOLDER, old);
    if (Date.now() - statSync(path).mtimeMs > OLD_MS) rmSync(path, { recursive: true, force: true });
  }
  mkdirSync(FOLDER, { recursive: true });
  const unfinished = mkdtempSync(join(FOLDER, 'unfinished-'));
  for (const path of COPIED) cpSync(join(ROOT, path), join(unfinished, path), { recursive: true });
  const pack = join(ROOT, 'scripts/pack.mjs');
  execFileSync(process.execPath, [pack, 'bundle', join(unfinished, 'dist')]);
  writeFileSync(join(unfinished, 'package.json'), execFileSync(process.execPath, [pack, 'manifest']));
  if (existsSync(folder)) rmSync(unfinished, { recursive: true });
  else renameSync(unfinished, folder);
  return folder;
}

/** The same file in the built package, or the file itself where the package has none. */
export function inBuiltPackage(file: string): string {
  const built = join(inject('builtPackage'), relative(ROOT, file));
  return existsSync(built) ? built : file;
}
