import { mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { makePlaceholders } from '../../../src/workers/sandbox/placeholders.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';

test('a placeholder is not listed', async () => {
  const root = temporaryFolder();
  mkdirSync(join(root, '.husky'));
  const { paths, remove } = await makePlaceholders([join(root, '.vscode'), join(root, '.envrc')]);
  expect(paths).toHaveLength(2);
  const { workspace } = testContext({ workspaceRoot: root });
  expect((await workspace.list('.')).map(({ path }) => path)).toEqual(['.husky']);
  await remove();
  expect(readdirSync(root)).toEqual(['.husky']);
});

test('the placeholders of a folder are marked with one file, and stay until the last run that needs them ends', async () => {
  const root = temporaryFolder();
  mkdirSync(join(root, 'below'));
  const filesIn = (path: string) => readdirSync(join(root, path)).map((name) => statSync(join(root, path, name)).ino);
  const first = await makePlaceholders(['a', 'b', 'below/c', 'below/d'].map((path) => join(root, path)));
  expect(first.paths).toHaveLength(4);
  expect(filesIn('b')).toEqual(filesIn('a'));
  expect(filesIn('below/d')).toEqual(filesIn('below/c'));
  const second = await makePlaceholders([join(root, 'a')]);
  await first.remove();
  expect(readdirSync(root)).toEqual(['a', 'below']);
  expect(readdirSync(join(root, 'below'))).toEqual([]);
  await second.remove();
  expect(readdirSync(root)).toEqual(['below']);
});
