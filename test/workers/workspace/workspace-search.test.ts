import { mkdirSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { glob } from '../../../src/workers/tools/glob.ts';
import { grepFiles } from '../../../src/workers/tools/grep-files.ts';
import { listDir } from '../../../src/workers/tools/list-dir.ts';
import { viewImage } from '../../../src/workers/tools/view-image.ts';
import { temporaryFolder, testContext } from '../../helpers/context.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';

/** A tree with ignored, hidden, binary and linked files, next to a folder with a secret. */
function tree() {
  const folder = temporaryFolder();
  const root = join(folder, 'root');
  for (const path of ['src/deep', 'node_modules/x', '.git', '../outside'])
    mkdirSync(join(root, path), { recursive: true });
  const files = {
    'README.md': 'needle in the readme\n',
    'src/a.ts': 'one\nNeedle two\nthree\nneedle four\n',
    'src/deep/b.test.ts': 'no\nneedle(\n',
    'src/deep/ignored.log': 'needle\n',
    'node_modules/x/index.js': 'needle\n',
    '.gitignore': 'node_modules/\n',
    'src/.gitignore': '*.log\n',
    '.env': 'needle\n',
    '.git/config': 'needle\n',
    'binary.bin': 'needle\0\n',
    '../outside/secret': 'needle secret\n',
  };
  for (const [path, content] of Object.entries(files)) writeFileSync(join(root, path), content);
  symlinkSync('../outside', join(root, 'out'));
  symlinkSync('../../outside/secret', join(root, 'src/secret.ts'));
  utimesSync(join(root, 'README.md'), 1_000, 1_000);
  return testContext({ workspaceRoot: root });
}

const grep = async (params: Parameters<typeof grepFiles.parse>[0]) =>
  (await grepFiles.run(grepFiles.parse(params), tree())).output;

describe('grep_files (C17)', () => {
  test('finds lines, but none in hidden, ignored, binary or linked files', async () => {
    const { files, lines, truncated } = await grep({ pattern: 'needle' });
    expect(files).toEqual(['README.md', 'src/a.ts', 'src/deep/b.test.ts']);
    expect(lines.map(({ path, line, text }) => `${path}:${line}:${text}`)).toEqual([
      'README.md:1:needle in the readme',
      'src/a.ts:4:needle four',
      'src/deep/b.test.ts:2:needle(',
    ]);
    expect(truncated).toBe(false);
  });

  test('by case, as plain text, by name, with context, in one file', async () => {
    expect((await grep({ pattern: 'needle', ignore_case: true, include: '*.ts' })).lines).toHaveLength(3);
    expect((await grep({ pattern: 'needle(', literal: true })).files).toEqual(['src/deep/b.test.ts']);
    expect((await grep({ pattern: '^needle', path: 'src', include: 'deep/*.ts' })).files).toEqual([
      'src/deep/b.test.ts',
    ]);
    const { lines } = await grep({ pattern: 'needle', ignore_case: true, path: 'src/a.ts', context: 1 });
    expect(lines.map(({ line, isMatch }) => [line, isMatch])).toEqual([
      [1, false],
      [2, true],
      [3, false],
      [4, true],
    ]);
    expect((await grep({ pattern: 'needle', output_mode: 'files' })).lines).toEqual([]);
  });

  test('a byte order mark is no part of the first line', async () => {
    const root = temporaryFolder();
    writeFileSync(join(root, 'a.cs'), '\ufeffusing System;\n');
    const { output } = await grepFiles.run(
      grepFiles.parse({ pattern: '^using \\w+;$' }),
      testContext({ workspaceRoot: root }),
    );
    expect(output.lines).toEqual([{ path: 'a.cs', line: 1, text: 'using System;', isMatch: true }]);
  });

  test('a pattern that asks for a line end is refused, as no line has one', async () => {
    for (const params of [
      { pattern: 'one\\nNeedle' },
      { pattern: 'one\nNeedle', literal: true },
      { pattern: '\\[\\n' },
    ])
      await expect(grep(params)).rejects.toMatchObject({
        code: 'INVALID_PARAMS',
        message: expect.stringContaining('matches no line'),
      });
    for (const pattern of ['o[^\\n]e', 'o[^[:space:]\\n]e', 'n|\\\\new'])
      expect((await grep({ pattern })).files).toContain('src/a.ts');
  });

  test.each([
    ['*.LOG', ['a.log', 'sub/a.log', 'x.txt']],
    ['[!x].*', ['x.txt']],
    ['*[!a]t*t', ['a.log', 'sub/a.log']],
    ['\\[!x].*', ['a.log', 'sub/a.log', 'x.txt']],
  ])('an ignore file says what Git reads in it: %j', async (rules, expected) => {
    const context = testContext();
    for (const path of ['a.log', 'x.txt', 'sub/a.log', '.gitignore'])
      await context.workspace.write(path, path === '.gitignore' ? `${rules}\n` : 'needle\n');
    const { output } = await grepFiles.run(grepFiles.parse({ pattern: 'needle' }), context);
    expect(output.files).toEqual(expected);
  });

  test('a deeper ignore file overrules those above it', async () => {
    const ctx = tree();
    await ctx.workspace.write('src/deep/.gitignore', '!ignored.log\n');
    const { files } = (await grepFiles.run(grepFiles.parse({ pattern: '^needle', path: 'src/deep' }), ctx)).output;
    expect(files).toEqual(['src/deep/b.test.ts', 'src/deep/ignored.log']);
    const all = (await grepFiles.run(grepFiles.parse({ pattern: '^needle', path: 'src' }), ctx)).output;
    expect(all.files).toContain('src/deep/ignored.log');
  });

  test('a long line is cut between characters', async () => {
    const ctx = testContext();
    const lines = Array.from({ length: 6 }, (_, index) => `needle${'x'.repeat(490 + index)}${'😀'.repeat(20)}`);
    await ctx.workspace.write('a', lines.join('\n'));
    const found = (await grepFiles.run(grepFiles.parse({ pattern: 'needle' }), ctx)).output.lines;
    expect(found.map(({ text }) => text.isWellFormed())).toEqual(lines.map(() => true));
  });

  test('a truncated result is marked', async () => {
    expect(await grep({ pattern: 'needle', limit: 2 })).toMatchObject({
      files: ['README.md', 'src/a.ts'],
      truncated: true,
    });
  });

  test.each(['(', 'a(?=b)', '(a)\\1', '[z-a]'])('%s is no pattern of RE2', async (pattern) => {
    await expect(grep({ pattern })).rejects.toMatchObject({ code: 'INVALID_PARAMS', issues: [{ path: 'pattern' }] });
  });

  test('a pattern that would make a backtracking engine run forever ends at once', async () => {
    const ctx = testContext();
    await ctx.workspace.write('a', `${'a'.repeat(20_000)}!\n`);
    const spentMs = await cpuMsOf(() => grepFiles.run(grepFiles.parse({ pattern: '^(a+)+$' }), ctx));
    expect(spentMs).toBeLessThan(5_000);
  });

  describe('in one large file', () => {
    async function search(content: string, pattern: string, signal?: AbortSignal) {
      const ctx = testContext(signal === undefined ? {} : { signal });
      await ctx.workspace.write('large', content);
      return (await grepFiles.run(grepFiles.parse({ pattern, path: 'large' }), ctx)).output;
    }

    test('other calls make progress, and a cancelled search ends', async () => {
      const cancel = new AbortController();
      const searched = search('\n'.repeat(8 * 1024 * 1024), 'x+', cancel.signal);
      const refused = expect(searched).rejects.toThrow('enough');
      setTimeout(() => cancel.abort(new Error('enough')), 50);
      await refused;
    });

    test('a pattern of many instructions takes a step for a character', async () => {
      const content = `${'a'.repeat(199)}\n`.repeat(10_000);
      expect(await cpuMsOf(() => search(content, '\\pL{190}\\d'))).toBeLessThan(2_000);
    });

    test('a line that is too long for a pattern is skipped, and the result is marked as truncated', async () => {
      const content = `${'x '.repeat(100_000)}needle1\n needle2\n`;
      const { lines, truncated } = await search(content, '(\\w|\\d){20}|needle\\d');
      expect([lines.map(({ line }) => line), truncated]).toEqual([[2], true]);
      expect(await search(content, 'needle')).toMatchObject({ lines: [{ line: 1 }, { line: 2 }], truncated: false });
    });

    test('a pattern of too many instructions is refused', async () => {
      await expect(search('x', '.{1000}'.repeat(6))).rejects.toMatchObject({
        code: 'INVALID_PARAMS',
        message: expect.stringContaining('too complex'),
      });
    });
  });

  test('line ends are not part of lines, and close matches share their context', async () => {
    const ctx = testContext();
    await ctx.workspace.write('a', 'one\r\n\nx\n2\n3\nx\nx\r\n4\n5\n6\nx\r');
    const { lines } = (await grepFiles.run(grepFiles.parse({ pattern: '^x\\r?$', context: 2 }), ctx)).output;
    const told = lines.map(({ line, text, isMatch }) => `${line}${isMatch ? ':' : '-'}${text}`);
    expect(told).toEqual(['1-one', '2-', '3:x', '4-2', '5-3', '6:x', '7:x', '8-4', '9-5', '10-6', '11:x\r']);
  });

  test.each(['../outside', 'out', 'src/secret.ts', '/etc'])('%s leaves the workspace (A11)', async (path) => {
    await expect(grep({ pattern: 'needle', path })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });

  test('works in a worker session (A18)', async () => {
    const ctx = testContext({ kind: 'worker', workspaceRoot: tree().workspace.root });
    expect((await grepFiles.run(grepFiles.parse({ pattern: 'needle' }), ctx)).output.files).toHaveLength(3);
  });
});

describe('the start of a search does not change which files are excluded', () => {
  const files = [
    ...['a.log', 'a.ts', 'build/a.ts', 'src/a.log', 'src/a.ts', 'src/build/a.ts', 'src/deep/a.log', 'src/deep/a.ts'],
    ...['src/deep/kept.log', 'src/gen/a.ts', 'src/deep/gen/a.ts', 'src/.hidden/a.ts', 'src/deep/x.tmp', 'src/x.old'],
  ];
  const ignoreFiles = {
    '.gitignore': '*.log\n/build/\nsrc/gen/\n!kept.log\n',
    '.ignore': '*.tmp\n',
    'src/.gitignore': 'deep/gen\n',
    'src/.rgignore': '*.old\n',
  };
  async function ctxOf() {
    const ctx = testContext();
    for (const path of files) await ctx.workspace.write(path, 'needle\n');
    for (const [path, rules] of Object.entries(ignoreFiles)) await ctx.workspace.write(path, rules);
    return ctx;
  }

  test.each(['src', 'src/', './src/deep', 'src/deep/..', 'src/deep/gen', 'src/gen', 'src/.hidden'])(
    'in %s',
    async (path) => {
      const ctx = await ctxOf();
      const all = (await glob.run(glob.parse({ pattern: '**' }), ctx)).output.files;
      const below = `${join(path, '.').replace(/\/$/, '')}/`;
      // A named folder is searched, although searches from above exclude it.
      const isNamed = ['src/gen/', 'src/deep/gen/', 'src/.hidden/'].includes(below);
      const expected = (isNamed ? files : all).filter((file) => file.startsWith(below)).sort();
      expect(expected.length).toBeGreaterThan(0);
      expect((await glob.run(glob.parse({ pattern: '**', path }), ctx)).output.files.sort()).toEqual(expected);
      expect((await grepFiles.run(grepFiles.parse({ pattern: 'needle', path }), ctx)).output.files).toEqual(expected);
    },
  );
});

test('glob finds files by name, the newest first, also ignored ones when asked', async () => {
  const find = async (params: Parameters<typeof glob.parse>[0]) => (await glob.run(glob.parse(params), tree())).output;
  expect((await find({ pattern: '*.md' })).files).toEqual(['README.md']);
  expect((await find({ pattern: 'src/**/*.ts' })).files.toSorted()).toEqual(['src/a.ts', 'src/deep/b.test.ts']);
  expect((await find({ pattern: '{README.md,src/a.ts}' })).files).toEqual(['src/a.ts', 'README.md']);
  expect((await find({ pattern: '*.js', include_ignored: true })).files).toEqual(['node_modules/x/index.js']);
  expect(await find({ pattern: '**', limit: 1 })).toMatchObject({ truncated: true });
});

test('glob returns the files that changed last', async () => {
  const ctx = testContext();
  for (const [index, name] of ['a', 'b', 'c', 'd'].entries()) {
    await ctx.workspace.write(name, '');
    utimesSync(join(ctx.workspace.root, name), index, index);
  }
  const find = async (limit: number) => (await glob.run(glob.parse({ pattern: '*', limit }), ctx)).output;
  expect(await find(2)).toEqual({ files: ['d', 'c'], truncated: true });
  expect(await find(4)).toEqual({ files: ['d', 'c', 'b', 'a'], truncated: false });
});

test('list_dir lists a folder and the ones below it, not behind links, and goes on where a list was cut (C17)', async () => {
  const ctx = tree();
  const list = async (params: Parameters<typeof listDir.parse>[0]) =>
    (await listDir.run(listDir.parse(params), ctx)).output;
  expect((await list({ path: 'src' })).entries.map(({ path, kind }) => `${kind} ${path}`)).toEqual([
    'file src/.gitignore',
    'file src/a.ts',
    'directory src/deep',
    'other src/secret.ts',
  ]);
  const all = (await list({ depth: 5 })).entries.map(({ path }) => path);
  expect(all).toContain('src/deep/b.test.ts');
  expect(all.some((path) => path.startsWith('out/'))).toBe(false);
  const first = await list({ depth: 5, limit: 3 });
  const rest = await list({ depth: 5, offset: 3 });
  expect(first.truncated).toBe(true);
  expect([...first.entries, ...rest.entries].map(({ path }) => path)).toEqual(all);
  await expect(list({ path: 'out' })).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
});

test('view_image gives an image by its content, and read points to it (C19, D2)', async () => {
  const ctx = testContext();
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  await ctx.workspace.write('dot.txt', png);
  await ctx.workspace.write('text.png', 'no image');
  const result = await viewImage.run({ path: 'dot.txt' }, ctx);
  expect(result.output).toEqual({ path: 'dot.txt', mimeType: 'image/png', bytes: png.length });
  expect(result.content).toEqual([{ type: 'image', mimeType: 'image/png', data: png.toString('base64') }]);
  await expect(viewImage.run({ path: 'text.png' }, ctx)).rejects.toMatchObject({ code: 'INVALID_PARAMS' });
});

test('a malicious ignore file does not block a search', async () => {
  const root = temporaryFolder();
  const lines = ['*a*a*a*a*a*a*a*a*b', '**/a/**/a/**/a/**/a/**/a/**/b', `x${' '.repeat(50_000)}y`, '**/o*d*', '!*k*d*'];
  writeFileSync(join(root, '.gitignore'), lines.join('\n'));
  const deep = Array(60).fill('a').join('/');
  mkdirSync(join(root, deep), { recursive: true });
  const names = ['a'.repeat(200), `${'a'.repeat(200)}b`, 'old', 'kept-old', join(deep, 'c')];
  for (const name of names) writeFileSync(join(root, name), 'needle');
  const ctx = testContext({ workspaceRoot: root });
  const { files } = (await grepFiles.run(grepFiles.parse({ pattern: 'needle' }), ctx)).output;
  expect(files.toSorted()).toEqual([join(deep, 'c'), 'a'.repeat(200), 'kept-old']);
});

test('folders in each other are searched to a depth at which all of them can be open', async () => {
  const root = temporaryFolder();
  const deep = (depth: number) => join(root, ...Array<string>(depth).fill('d'));
  mkdirSync(deep(300), { recursive: true });
  for (const depth of [0, 256, 257, 300]) writeFileSync(join(deep(depth), `at-${depth}`), 'needle');
  const ctx = testContext({ workspaceRoot: root });
  const { files } = (await glob.run(glob.parse({ pattern: 'at-*' }), ctx)).output;
  expect(files.map((file) => basename(file)).toSorted()).toEqual(['at-0', 'at-256']);
});

test('a file that is named as the folder is found if its name fits, and its lines are searched whatever its name is', async () => {
  const found = async (pattern: string) =>
    (await glob.run(glob.parse({ pattern, path: 'src/a.ts' }), tree())).output.files;
  expect(await found('*.ts')).toEqual(['src/a.ts']);
  expect(await found('*.md')).toEqual([]);
  expect((await grep({ pattern: 'needle', path: 'src/a.ts', include: '*.md' })).files).toEqual(['src/a.ts']);
});

test.each(['utf16le', 'utf16be'])('a file in UTF-16 (%s) is searched as read shows it', async (encoding) => {
  const root = temporaryFolder();
  const bytes = Buffer.from('\ufefffirst\r\ngrün needle\r\n', 'utf16le');
  writeFileSync(join(root, 'a.reg'), encoding === 'utf16le' ? bytes : bytes.swap16());
  for (const pattern of ['needle', '^first$', 'gr.n', 'NEEDLE'])
    expect(
      (
        await grepFiles.run(
          grepFiles.parse({ pattern, ignore_case: pattern === 'NEEDLE' }),
          testContext({ workspaceRoot: root }),
        )
      ).output.files,
    ).toEqual(['a.reg']);
});
