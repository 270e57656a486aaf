/** The package as it is installed: JavaScript in `dist`, without a compiler's run. */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join } from 'node:path';
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
  for (const name of readdirSync(join(ROOT, 'src'), { recursive: true, encoding: 'utf8' })) {
    const [from, to] = [join(ROOT, 'src', name), join(folder, 'dist', name)];
    if (!name.includes('.')) continue;
    mkdirSync(dirname(to), { recursive: true });
    if (name.endsWith('.ts')) writeFileSync(to.replace(/\.ts$/, '.js'), asJavaScript(readFileSync(from, 'utf8')));
    else cpSync(from, to);
  }
  return folder;
}

function asJavaScript(source: string): string {
  return stripTypeScriptTypes(source).replace(
    /(\b(?:from|import)\s*\(?\s*)'(\.[^'\n]+)\.ts'/g,
    (_all, before: string, path: string) => `${before}'${path}.js'`,
  );
}
