import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { codeNames } from '../../../src/workers/workspace/code-files.ts';

function program(files: Readonly<Record<string, string>>): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'pawl-program-')));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), text);
  }
  return root;
}

test('the imports of a program are followed, but not out of a folder that is protected as a whole', () => {
  const root = program({
    'main.ts': `import './near.ts'; import './library/index.ts';`,
    'near.ts': `await import('./far.ts'); new Worker('./worker.ts'); fork("./child.ts"); import.meta.resolve('./found.ts');`,
    'far.ts': '',
    'worker.ts': `register('./loader.ts', import.meta.url);`,
    'child.ts': '',
    'found.ts': '',
    'loader.ts': '',
    'library/index.ts': `import './inside.ts';`,
    'library/inside.ts': '',
  });
  const names = (folders: readonly string[]) =>
    codeNames([join(root, 'main.ts')], folders)
      .filter((name) => name.startsWith(root) && name.endsWith('.ts'))
      .map((name) => name.slice(root.length + 1))
      .toSorted();
  const started = ['child.ts', 'found.ts', 'loader.ts', 'worker.ts'];
  const near = ['far.ts', 'library/index.ts', 'main.ts', 'near.ts', ...started];
  expect(names([])).toEqual([...near, 'library/inside.ts'].toSorted());
  expect(names([join(root, 'library')])).toEqual(near.toSorted());
});
