/** Checks the pages in docs: their links, the index, and the functions that the call path names. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGES = [
  'README.md',
  ...readdirSync(join(ROOT, 'docs')).flatMap((name) => (/\.md$/.test(name) ? [join('docs', name)] : [])),
];

const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

/** The anchors of a page's headings, as GitHub makes them. */
function anchorsOf(path: string): ReadonlySet<string> {
  const headings = read(path)
    .replaceAll(/^```[\s\S]*?^```/gm, '')
    .matchAll(/^#+ (.+)$/gm);
  return new Set(
    [...headings].map(([, title = '']) =>
      title
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N}_\- ]/gu, '')
        .replaceAll(' ', '-'),
    ),
  );
}

test.each(PAGES)('every link of %s leads to a file and a heading that exist', (page) => {
  const broken = [...read(page).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, link = '']) => link)
    .filter((link) => !/^https?:/.test(link))
    .filter((link) => {
      const [path = '', anchor] = link.split('#');
      const target = path === '' ? page : join(dirname(page), path);
      if (!existsSync(join(ROOT, target))) return true;
      return anchor !== undefined && target.endsWith('.md') && !anchorsOf(target).has(anchor);
    });
  expect(broken).toEqual([]);
});

test('docs/README.md lists every page', () => {
  const index = read('docs/README.md');
  const missing = PAGES.map((page) => relative('docs', page)).filter(
    (page) => !page.startsWith('..') && page !== 'README.md' && !index.includes(`(${page})`),
  );
  expect(missing).toEqual([]);
});

describe('docs/call-path.md', () => {
  interface Step {
    readonly name: string;
    readonly path: string;
  }

  /** The steps of each table, by its heading. */
  const tables = new Map(
    read('docs/call-path.md')
      .split(/^## /m)
      .slice(1)
      .map((section) => {
        const rows = section.matchAll(/^\|[^|]*\| `([^`]+)` \| \[`([^`]+)`\]\(\.\.\/src\/([^)]+)\) \|$/gm);
        const steps = [...rows].map(([, name = '', shown = '', path = '']): Step => {
          expect(shown).toBe(path);
          return { name, path };
        });
        return [section.split('\n', 1)[0] ?? '', steps] as const;
      }),
  );

  /** Whether a file declares the function, method or class; `Class.#method` needs both. */
  function declares({ name, path }: Step): boolean {
    const source = read(join('src', path));
    const [first = '', method] = name.split('.');
    if (method === undefined) return new RegExp(`^export (?:async )?(?:function|class) ${first}\\b`, 'm').test(source);
    const isClass = new RegExp(`^export class ${first}\\b`, 'm').test(source);
    return isClass && new RegExp(`^ {2}(?:async )?${method}(?:<[^(]*>)?\\(`, 'm').test(source);
  }

  test('names functions that are in their files', () => {
    const steps = [...tables.values()].flat();
    expect(steps.length).toBeGreaterThan(20);
    const missing = steps.filter((step) => !existsSync(join(ROOT, 'src', step.path)) || !declares(step));
    expect(missing).toEqual([]);
    expect(declares({ name: 'Executor.#nothing', path: 'workers/execution/execute-job.ts' })).toBe(false);
  });

  test.each([
    ['From the caller to Redis', 12, 7],
    ['On the worker', 20, 10],
  ] as const)('the path “%s” has at most %i functions in %i files', (heading, functions, files) => {
    const steps = tables.get(heading) ?? [];
    expect(steps.length).toBeGreaterThan(0);
    expect(new Set(steps.map(({ name }) => name)).size).toBeLessThanOrEqual(functions);
    expect(new Set(steps.map(({ path }) => path)).size).toBeLessThanOrEqual(files);
  });
});
