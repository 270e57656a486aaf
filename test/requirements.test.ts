import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';

const TESTS = fileURLToPath(new URL('.', import.meta.url));
const PAGE = readFileSync(new URL('../docs/requirements.md', import.meta.url), 'utf8');
const ID = /(?<![A-Za-z0-9_-])(?:TR-\d{1,2}|[ARCID]\d{1,2})(?![0-9A-Za-z-])/g;

const rows = [...PAGE.matchAll(/^\| (?<id>\S+) \| (?<what>[^|]+) \| (?<tests>[^|]+) \|$/gm)]
  .map(({ groups }) => ({ id: groups?.['id'] ?? '', tests: groups?.['tests'] ?? '' }))
  .filter(({ id }) => id.match(ID) !== null);

/** The titles of tests that stand in a file: the first argument, or the text of a table's row. */
function titlesIn(path: string): readonly string[] {
  const text = readFileSync(`${TESTS}${path}`, 'utf8');
  return [...text.matchAll(/\b(?:test|describe)(?:\.\w+(?:\([^)]*\))?)*\(\s*(['"`])(.*?)\1/g)].map(
    (match) => match[2] ?? '',
  );
}

const files = readdirSync(TESTS, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.ts'));

test('the page lists every item once, each with a test that is there', () => {
  expect(rows.length).toBe(140);
  expect(new Set(rows.map(({ id }) => id)).size).toBe(rows.length);
  for (const { id, tests } of rows) {
    const named = [...tests.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? '');
    expect(named.length, id).toBeGreaterThan(0);
    for (const path of named) expect(existsSync(`${TESTS}${path}`), `${id}: ${path}`).toBe(true);
  }
});

test('each item names a test whose title carries its ID, where a title does', () => {
  const titles = new Map(files.map((path) => [path, titlesIn(path).flatMap((title) => title.match(ID) ?? [])]));
  const strays = rows.filter(({ id, tests }) => {
    const titled = files.filter((path) => titles.get(path)?.includes(id) === true);
    return titled.length > 0 && !titled.some((path) => tests.includes(`\`${path}\``));
  });
  expect(strays.map(({ id }) => id)).toEqual([]);
});

test('an ID in the title of a test leads to the page', () => {
  const known = new Set(rows.map(({ id }) => id));
  const unknown = files.flatMap((path) =>
    titlesIn(path).flatMap((title) =>
      (title.match(ID) ?? []).filter((id) => !known.has(id)).map((id) => `${path}: ${id} in "${title}"`),
    ),
  );
  expect(unknown).toEqual([]);
});

test('no test of the suite is pending', () => {
  const pending = files.filter((path) =>
    /\b(?:test|it|describe)\.todo\(/.test(readFileSync(`${TESTS}${path}`, 'utf8')),
  );
  expect(pending.filter((path) => path !== 'requirements.test.ts')).toEqual([]);
});
