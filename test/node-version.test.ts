import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { expect, inject, onTestFinished, test } from 'vitest';
import { startProgram } from './helpers/process.ts';

const { exports } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as {
  readonly exports: Readonly<Record<string, string>>;
};
/** Modules of the package that a program can import, without the one that has types alone. */
const entries = Object.values(exports)
  .flatMap((target) => /^\.\/src\/(.+)\.ts$/.exec(target)?.[1] ?? [])
  .filter((entry) => entry !== 'types');

/** What the modules of Node 18 lack, as far as Pawl may use it. */
const LATER =
  /^(?:hash|argon2|argon2Sync|partialDeepStrictEqual|glob|globSync|openAsBlob|mkdtempDisposable(?:Sync)?|matchesGlob|enableCompileCache|findPackageJSON|flushCompileCache|getCompileCacheDir|registerHooks|stripTypeScriptTypes|duplexPair|getCACertificates|setDefaultCACertificates|getCallSites|parseEnv|styleText|crc32|\w*[zZ]std\w*)$/;

test('no module imports by name what an older Node lacks: it would fail before it can say which Node is needed', () => {
  const folder = fileURLToPath(new URL('../src/', import.meta.url));
  const sources = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  expect(sources.length).toBeGreaterThan(300);
  const named = sources.flatMap((file) =>
    [...readFileSync(join(folder, file), 'utf8').matchAll(/^import \{([^}]*)\} from 'node:/gm)].flatMap(
      ([, names = '']) =>
        names
          .split(',')
          .flatMap((name) => (LATER.test(name.trim().split(' ')[0] ?? '') ? [`${file}: ${name.trim()}`] : [])),
    ),
  );
  expect(named).toEqual([]);
});

/** The first Node on the path that is too old for Pawl. */
const oldNode = (process.env['PATH'] ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'node'))
  .filter((path) => existsSync(path))
  .find((path) => Number(execFileSync(path, ['--version'], { encoding: 'utf8' }).slice(1).split('.')[0]) < 22);

async function importedWith(node: string, folder: string, entry: string, options: readonly string[] = []) {
  const url = pathToFileURL(join(folder, `dist/${entry}.js`)).href;
  const code = `import(${JSON.stringify(url)}).catch((error) => console.log(JSON.stringify([error.code, error.message])))`;
  const started = startProgram(node, [...options, '--input-type=module', '-e', code]);
  await started.ended;
  return started.stdout() + started.stderr();
}

test('each entry says which Node is needed, on one that is too old', async () => {
  const folder = inject('builtPackage');
  expect(entries).toContain('index');
  const pretend = 'data:text/javascript,Object.defineProperty(process.versions, "node", { value: "22.21.0" })';
  for (const entry of entries) {
    const said = JSON.parse(await importedWith(process.execPath, folder, entry, ['--import', pretend]));
    expect(said).toEqual([
      'CONFIGURATION',
      expect.stringMatching(/^Pawl needs Node 22\.22 or later; this is Node 22\.21\.0\./),
    ]);
    expect(await importedWith(process.execPath, folder, entry)).toBe('');
  }
});

test.skipIf(oldNode === undefined)('each entry says so on an old Node itself, whatever that lacks', async () => {
  const folder = inject('builtPackage');
  for (const entry of [...entries, 'cli'])
    expect(await importedWith(oldNode ?? '', folder, entry), entry).toMatch(
      /^\["CONFIGURATION","Pawl needs Node 22\.22 or later/,
    );
});

test('a set-up that npm cannot make on an old Node says which Node to install', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pawl-setup-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const script = join(folder, 'scripts', 'ensure-node.mjs');
  await mkdir(join(folder, 'scripts'));
  await cp(new URL('../scripts/ensure-node.mjs', import.meta.url), script);
  await writeFile(join(folder, 'npm'), '#!/bin/sh\nexit 1\n', { mode: 0o755 });
  const pretend = 'data:text/javascript,Object.defineProperty(process.versions, "node", { value: "16.20.2" })';
  const env = { PATH: `${folder}:${process.env['PATH']}`, npm_execpath: undefined, PAWL_BOOTSTRAP: undefined };
  const started = startProgram(process.execPath, ['--import', pretend, script, '--install'], { env });
  expect(await started.ended).toMatchObject({ code: 2 });
  expect(started.stderr()).toMatch(/Node 16\.20\.2.*install Node 22 or later/);
});
