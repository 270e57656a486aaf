import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

interface Manifest {
  readonly peerDependencies: Readonly<Record<string, string>>;
  readonly peerDependenciesMeta: Readonly<Record<string, { readonly optional: boolean }>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
}

const SCRIPT = fileURLToPath(new URL('../scripts/pack.mjs', import.meta.url));

test('the published package has the peers of the checkout, and what its users install themselves, none of them required', () => {
  const own = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8')) as Manifest;
  const published = JSON.parse(execFileSync(process.execPath, [SCRIPT, 'manifest'], { encoding: 'utf8' })) as Manifest;
  const { '@lydell/node-pty': _, ...memory } = own.optionalDependencies;
  const peers = { ...own.peerDependencies, ...memory };
  expect(published.peerDependencies).toEqual(peers);
  expect(published.peerDependenciesMeta).toEqual(
    Object.fromEntries(Object.keys(peers).map((name) => [name, { optional: true }])),
  );
});
