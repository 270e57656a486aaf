import { execFileSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { join, matchesGlob } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, inject, test } from 'vitest';
import { OPTIONAL_FEATURES } from '../src/shared/errors/optional-packages.ts';

type Versions = Readonly<Record<string, string>>;

interface Manifest {
  readonly files: readonly string[];
  readonly dependencies: Versions;
  readonly devDependencies?: Versions;
  readonly optionalDependencies?: Versions;
  readonly peerDependencies: Versions;
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>;
}

const SCRIPT = fileURLToPath(new URL('../scripts/pack.mjs', import.meta.url));
const own = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as Manifest;

const published = JSON.parse(execFileSync(process.execPath, [SCRIPT, 'manifest'], { encoding: 'utf8' })) as Manifest;

test('the published package depends on what its code loads, and on the libraries of its types', () => {
  const folder = join(inject('builtPackage'), 'dist');
  const code = globSync('**/*.js', { cwd: folder }).map((file) => readFileSync(join(folder, file), 'utf8'));
  // Ajv writes code with a `require` of its own, which never runs here: a quotation mark stands before it.
  const isLoaded = (name: string) => {
    const load = new RegExp(`(?:\\bfrom |\\bimport ?\\(?|(?<!['\`])\\b\\w*require\\w*\\()"${name}["/]`);
    return code.some((text) => load.test(text));
  };
  const named = Object.keys(own.dependencies).filter((name) => isLoaded(name) || /^(?:bullmq|ioredis)$/.test(name));
  expect(Object.keys(published.dependencies)).toEqual(named);
  expect(own.dependencies).toMatchObject(published.dependencies);
});

test('the published package has the peers of the checkout, and requires none', () => {
  expect(published.optionalDependencies).toBeUndefined();
  expect(published.devDependencies).toBeUndefined();
  expect(published.peerDependencies).toEqual(own.peerDependencies);
  expect(published.peerDependenciesMeta).toEqual(
    Object.fromEntries(Object.keys(own.peerDependencies).map((name) => [name, { optional: true }])),
  );
});

test('the package has the pages that its README links to', () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const links = [...readme.matchAll(/(?<!!)\[[^\]]*\]\((?!https?:)([^)#]+)/g)].map(([, link = '']) => link);
  const isPacked = (link: string) => own.files.some((pattern) => matchesGlob(link.replace(/\/$/, '/a.md'), pattern));
  expect(links.length).toBeGreaterThan(20);
  expect(links.filter((link) => !isPacked(link))).toEqual([]);
});

test('docs/deployment.md names every optional package', () => {
  const page = readFileSync(new URL('../docs/deployment.md', import.meta.url), 'utf8');
  for (const { packages } of Object.values(OPTIONAL_FEATURES))
    for (const name of packages) expect(page).toContain(`\`${name}\``);
});

test('what only some features need is a peer, and pinned for the tests of the checkout', () => {
  const packages = Object.values(OPTIONAL_FEATURES).flatMap((feature): readonly string[] => feature.packages);
  for (const name of packages) {
    expect(own.dependencies, name).not.toHaveProperty([name]);
    expect(own.peerDependencies[name], name).toBe(`^${own.devDependencies?.[name]}`);
  }
});
