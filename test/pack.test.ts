import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { OPTIONAL_FEATURES } from '../src/shared/errors/optional-packages.ts';

type Versions = Readonly<Record<string, string>>;

interface Manifest {
  readonly dependencies: Versions;
  readonly devDependencies?: Versions;
  readonly optionalDependencies?: Versions;
  readonly peerDependencies: Versions;
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>;
}

const SCRIPT = fileURLToPath(new URL('../scripts/pack.mjs', import.meta.url));
const own = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as Manifest;

test('the published package has the dependencies and the peers of the checkout, and requires no peer', () => {
  const published = JSON.parse(execFileSync(process.execPath, [SCRIPT, 'manifest'], { encoding: 'utf8' })) as Manifest;
  expect(published.dependencies).toEqual(own.dependencies);
  expect(published.optionalDependencies).toBeUndefined();
  expect(published.devDependencies).toBeUndefined();
  expect(published.peerDependencies).toEqual(own.peerDependencies);
  expect(published.peerDependenciesMeta).toEqual(
    Object.fromEntries(Object.keys(own.peerDependencies).map((name) => [name, { optional: true }])),
  );
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
