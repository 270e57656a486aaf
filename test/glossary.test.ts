import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { dialectIn, filesBelow } from './helpers/glossary.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

test.each(['src', 'docs', 'README.md', 'CHANGELOG.md', 'test', 'examples'])(
  '%s keeps to the words of the glossary',
  (folder) => {
    const findings = filesBelow(ROOT, [folder])
      // The samples below are what the rule finds.
      .filter(({ path }) => path !== 'test/glossary.test.ts')
      .flatMap(({ path, text }) => dialectIn(path, text));
    expect(findings.map(({ at, text, instead }) => `${at}: "${text}" → ${instead}`)).toEqual([]);
  },
);

test.each([
  [
    'src/a.ts',
    '/** Whoever waits is told. */\n',
    ['the caller, the worker, the operator', 'emit, notify, or report', 'a sentence with a subject'],
  ],
  ['src/a.ts', '// Of each job.\n', ['a sentence with a subject']],
  ['src/a.lua', '-- Whoever waits.\nlocal job', ['the caller, the worker, the operator', 'a sentence with a subject']],
  ['src/a.ts', '/** Retries are counted (R27). */\n', ['the reason itself']],
  ['src/a.ts', "throw new Error('The call was handed in too late.');\n", ['submit']],
  ['src/a.ts', "const told = 'told';\n", []],
  ['docs/a.md', 'The job is handed back.\n', ['release']],
  ['docs/a.md', '```ts\n// handed back\n```\nUse `told`.\n', []],
  [
    'test/a.test.ts',
    "test('nobody is told', () => {});\n",
    ['the actor: no caller, no worker, a person', 'emit, notify, or report'],
  ],
])('%s: %j is found', (path, text, expected) => {
  expect(
    dialectIn(path, text)
      .map(({ instead }) => instead)
      .toSorted(),
  ).toEqual([...expected].toSorted());
});
