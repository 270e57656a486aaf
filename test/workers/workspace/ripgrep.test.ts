/** Both searches find the same: the walk alone, and the walk over ripgrep's candidates. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { WorkspaceSearch } from '../../../src/shared/tools/capabilities.ts';
import { type CandidateFinder, ripgrep, ripgrepArguments } from '../../../src/workers/workspace/ripgrep.ts';
import { searchWithin } from '../../../src/workers/workspace/workspace-search.ts';
import { temporaryFolder } from '../../helpers/context.ts';

const hasRipgrep = spawnSync('rg', ['--version']).status === 0;
if (!hasRipgrep) console.warn('skipped: ripgrep is not installed here');

const { signal } = new AbortController();
const noScout: CandidateFinder = async () => undefined;

function tree(files: Readonly<Record<string, string | Buffer>>): string {
  const root = join(temporaryFolder(), 'root');
  mkdirSync(root);
  for (const [path, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), content);
  }
  return root;
}

/** The content that could make the two differ: encodings, line ends, ignore files of all kinds, odd names, links. */
function oddTree(): string {
  const root = tree({
    'plain.txt': 'needle\nb\n  x - y [z] a&b\n',
    'line-ends.txt': 'needle\r\nfoo needle\r\n',
    'carriage-return.txt': 'a\rneedle\n',
    'vertical-tab.txt': 'a\vneedle\n',
    'umlaut.txt': 'é\naéb\nNÄDEL needle\n',
    'kelvin.txt': '\u212aelvin \u017fort\n',
    'latin-1.txt': Buffer.from('a\xe9b needle\n', 'latin1'),
    'utf-16.txt': Buffer.from('\ufeffneedle\n', 'utf16le'),
    'mark.txt': '\ufeffneedle\n',
    'late-zero.txt': `${'needle\n'.repeat(2_000)}\0`,
    'zero.txt': 'needle\0\n',
    '-e': 'needle\n',
    'two\nlines': 'needle\n',
    '.hidden': 'needle\n',
    '.git/config': 'needle\n',
    '.git/info/exclude': 'plain.txt\n',
    '../.gitignore': 'plain.txt\n',
    '.gitignore': '*.log\n/build/\n',
    '.rgignore': 'plain.txt\n!c.log\n',
    '.ignore': '!d.log\ne.txt\n',
    'c.log': 'needle\n',
    'd.log': 'needle\n',
    'e.txt': 'needle\n',
    'sub/c.log': 'needle\n',
    'a.log': 'needle\n',
    'build/x': 'needle\n',
    'sub/.gitignore': '!a.log\n',
    'sub/a.log': 'needle\n',
    'sub/.ignore': 'left-out\nc.log\n!e.txt\n',
    'sub/e.txt': 'needle\n',
    'sub/left-out': 'needle\n',
    'sub/deep/b.ts': 'needle two\n',
    '../outside/secret': 'needle secret\n',
  });
  symlinkSync('../outside', join(root, 'out'));
  symlinkSync('../../outside/secret', join(root, 'sub/secret.ts'));
  return root;
}

const PATTERNS = [
  ...['needle', '^needle$', '^.$', '^a.b', 'needle$', '\\bneedle\\b', 'n[^x]{2}dle', '(?:needle|b)', '(?i)NEEDLE'],
  ...[
    'a\\Wneedle',
    '\\S{3}',
    '[a\\s]needle',
    '\\w+ two',
    'x - y',
    '\\[z\\]',
    '[a&&b]',
    '[[z]]',
    'a{,2}',
    '\\<',
    '\\x6e',
    'é',
  ],
  ...[
    '-e',
    '--pre=cat',
    '--files',
    '',
    ' ',
    '.*',
    '\\pL',
    '[\\d--e]',
    '^',
    '$',
    '^$',
    '$^',
    '($)(^)',
    '\\Q.\\E',
    '(?s)a.n',
  ],
].filter((pattern) => pattern !== '');

async function bothWays(root: string, search: WorkspaceSearch): Promise<void> {
  const ways = [noScout, ripgrep].map((scout) =>
    searchWithin(root, search, signal, scout).catch((error: Error) => ({ refused: error.message })),
  );
  const [walked, scouted] = await Promise.all(ways);
  expect(scouted, JSON.stringify(search)).toEqual(walked);
}

describe.skipIf(!hasRipgrep)('searches with and without ripgrep find the same (C17)', () => {
  test('whatever the pattern, the encoding, the line ends and the ignore files', async () => {
    const root = oddTree();
    const options = [{}, { ignoreCase: true }, {}, { literal: true }, {}, { contextLines: 1, limit: 3 }];
    for (const [index, pattern] of PATTERNS.entries())
      await bothWays(root, { pattern, ...options[index % options.length] });
    await bothWays(root, { pattern: 'needle', path: 'sub' });
    await bothWays(root, { pattern: 'needle', path: 'plain.txt' });
    await bothWays(root, { pattern: 'needle', path: 'out' });
    await bothWays(root, { pattern: 'needle', glob: '*.ts' });
    for (const glob of ['.hidden', '.*', '{.hidden,*.ts}', '.git/*'])
      for (const more of [{ pattern: 'needle' }, {}]) await bothWays(root, { ...more, glob });
    await bothWays(root, { pattern: 'needle', path: 'sub/deep', glob: '*.ts' });
  });

  /** What may have the name of an ignore file, made at a path. */
  const UNREAD: Readonly<Record<string, (path: string) => void>> = {
    'a FIFO': (path) => execFileSync('mkfifo', [path]),
    'a folder': (path) => mkdirSync(path),
    'a link to a device that never ends': (path) => symlinkSync('/dev/zero', path),
    'a link to a file': (path) => symlinkSync(join(dirname(path), 'b.txt'), path),
    'a link to nothing': (path) => symlinkSync('nowhere', path),
    'a large sparse file': (path) => {
      writeFileSync(path, 'a.txt\n');
      truncateSync(path, 20 * 1024 ** 3);
    },
    'more than is read of one': (path) => writeFileSync(path, `${'#\n'.repeat(64 * 1024)}a.txt\n`),
  };

  const PLACES = ['.gitignore', 'sub/.ignore', '.hidden/.rgignore'];

  test.each(Object.keys(UNREAD).map((kind, index) => [kind, PLACES[index % PLACES.length] ?? ''] as const))(
    'beside %s in place of %s',
    async (kind, path) => {
      const root = tree({
        'a.txt': 'needle\n',
        'sub/a.txt': 'needle\n',
        'sub/b.txt': 'a.txt\n',
        '.hidden/a.txt': 'a\n',
      });
      UNREAD[kind]?.(join(root, path));
      for (const search of [{ pattern: 'needle' }, { glob: '.hidden/*' }]) await bothWays(root, search);
      const found = await searchWithin(root, { pattern: 'needle' }, signal);
      expect(found.files.map((file) => file.path)).toEqual(['a.txt', 'sub/a.txt']);
    },
  );

  test('in a file that is too large to be read at once', async () => {
    const root = tree({ 'large.txt': Buffer.alloc(9 * 1024 * 1024, 'needle\n') });
    for (const pattern of ['needle', '^n']) await bothWays(root, { pattern });
  });

  test.each([{}, { glob: '*.ts' }, { glob: 'sub/**' }, { includeIgnored: true }, { limit: 2 }, { path: 'sub' }])(
    'files by name: %o',
    async (search) => bothWays(oddTree(), search),
  );

  test('of any lines and patterns', async () => {
    const piece = fc.constantFrom(
      ...'aAkKé-._ $^|*+?(){}[]\\&~'.split(''),
      '\\w',
      '\\s',
      '\\b',
      '[^a]',
      '[a-z]',
      '{2}',
    );
    const line = fc.string({
      unit: fc.constantFrom('a', 'A', 'k', '\u212a', 'é', ' ', '-', '\r', '\v', '$', '[', '\\'),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(piece, { minLength: 1, maxLength: 6 }).map((pieces) => pieces.join('')),
        fc.array(fc.array(line, { maxLength: 4 }), { minLength: 3, maxLength: 3 }),
        fc.boolean(),
        async (pattern, files, ignoreCase) => {
          const root = tree(Object.fromEntries(files.map((lines, index) => [`${index}`, `${lines.join('\n')}\n`])));
          await bothWays(root, { pattern, ignoreCase });
        },
      ),
      { numRuns: 25 },
    );
  });

  test('ripgrep is called, and names the files that hold the pattern', async () => {
    const root = tree({ 'a.txt': 'needle\n', 'b.txt': 'hay\n', '.gitignore': 'c.txt\n', 'c.txt': 'needle\n' });
    expect(await ripgrep(root, { pattern: 'needle' }, signal)).toEqual(['a.txt']);
    expect(await ripgrep(root, { pattern: '[a&&b]' }, signal)).toBeUndefined();
    await expect(ripgrep(root, {}, AbortSignal.abort(new Error('stop')))).rejects.toThrow('stop');
  });
});

test('a pattern is never read as an option', () => {
  const wanted = ripgrepArguments({ pattern: '--pre=sh', literal: true });
  expect(wanted?.filter((each) => each.includes('pre'))).toEqual(['--regexp=\\-\\-pre\\=sh']);
});

test('whatever ripgrep names, nothing outside of the workspace is read (A11)', async () => {
  const root = oddTree();
  const liar: CandidateFinder = async () => [
    '../outside/secret',
    'out/secret',
    'sub/secret.ts',
    '/etc/passwd',
    'line-ends.txt',
    'a.log',
  ];
  const { files } = await searchWithin(root, { pattern: '.' }, signal, liar);
  expect(files.map(({ path }) => path)).toEqual(['line-ends.txt']);
});
