import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PATCH_GRAMMAR } from '../../../src/shared/patches/begin-patch.ts';
import { parsePatch } from '../../../src/shared/patches/patch.ts';
import { applied, patch } from './applied.ts';

const UNIFIED = '--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n-a\n+A\n b\n';

describe('a patch is read (C17)', () => {
  test('add, delete, update and move', () => {
    const text = patch(
      '*** Add File: a.txt',
      '+one',
      '+',
      '*** Delete File: b.txt',
      '*** Update File: c.txt',
      '*** Move to: d/c.txt',
      '@@ function c()',
      ' keep',
      '-old',
      '+new',
      '*** End of File',
    );
    expect(parsePatch(text)).toEqual([
      { kind: 'add', path: 'a.txt', content: 'one\n\n' },
      { kind: 'delete', path: 'b.txt' },
      {
        kind: 'update',
        path: 'c.txt',
        moveTo: 'd/c.txt',
        hunks: [
          {
            headings: ['function c()'],
            atEnd: true,
            noLineEnd: false,
            lines: [
              { kind: 'keep', text: 'keep' },
              { kind: 'remove', text: 'old' },
              { kind: 'add', text: 'new' },
            ],
          },
        ],
      },
    ]);
  });

  test('an added file may have empty lines without a mark, and end without a line end', () => {
    const text = patch(
      '*** Add File: a',
      '+one',
      '',
      '',
      '+two',
      '\\ No newline at end of file',
      '',
      '*** Add File: b',
      '+b',
      '',
    );
    expect(parsePatch(text)).toEqual([
      { kind: 'add', path: 'a', content: 'one\n\n\ntwo' },
      { kind: 'add', path: 'b', content: 'b\n' },
    ]);
  });

  test('a million empty lines take no time', () => {
    const blanks = '\n'.repeat(1_000_000);
    expect(parsePatch(`*** Begin Patch\n*** Update File: a\n@@\n-a${blanks}\n b\n*** End Patch`)).toHaveLength(1);
  });

  test('models may put other text around it', () => {
    const text = `Here it is:\n\`\`\`\n${patch('*** Delete File: b.txt')}\n\`\`\`\n`;
    expect(parsePatch(text)).toEqual([{ kind: 'delete', path: 'b.txt' }]);
  });

  test.each([
    ['no patch at all', 'hello', 'The patch holds no change'],
    ['no end', '*** Begin Patch\n*** Add File: a\n+x', 'Line 4 of the patch: expected "*** Add File: PATH"'],
    ['an unknown word', patch('*** Rename File: a'), 'Line 2 of the patch'],
    ['an update without hunks', patch('*** Update File: a'), 'expected "@@" and the lines of a hunk'],
    ['a line without a mark', patch('*** Update File: a', '@@', 'x'), 'a line that begins with a space, "+" or "-"'],
    ['an added line without a mark', patch('*** Add File: a', 'x'), 'begins with "+"'],
    ['a binary patch', 'diff --git a/x b/x\nGIT binary patch\n', 'binary patches cannot be applied'],
    ['a copy', `${UNIFIED}diff --git a/x b/y\ncopy from x\ncopy to y\n`, 'expected no copy'],
    ['a hunk below prose', `${UNIFIED}and then\n@@ -5 +5 @@\n-e\n+E\n`, 'Line 8 of the patch: expected "--- PATH"'],
    ['a hunk without names', `${UNIFIED}diff --git a/g b/g\n@@ -5 +5 @@\n-e\n+E\n`, 'expected "--- PATH"'],
    ['a unified diff above', UNIFIED + patch('*** Delete File: b'), 'a unified diff stands above'],
    ['a unified diff below', `${patch('*** Delete File: b')}\n${UNIFIED}`, 'expected no unified diff below'],
  ])('%s is refused with its line', (_name, text, message) => {
    expect(() => parsePatch(text)).toThrow(
      expect.objectContaining({ code: 'INVALID_PARAMS', message: expect.stringContaining(message) }),
    );
  });

  describe.each([' ', '   ', '\t', ' \t '])('white space (%j) before', (space) => {
    const files = [
      ['*** Add File: a', '+one'],
      ['*** Update File: b', '@@', ' kept', '-old', '+new'],
      ['*** Delete File: c'],
      ['*** Update File: d', '*** Move to: e', '-old', '+new', '*** End of File'],
      ['*** Update File: f', '-old', '+new'],
    ];
    const bare = parsePatch(patch(...files.flat()));
    const padded = (line: string) => (line.startsWith('***') ? space + line : line);

    test('all marks', () => {
      expect(
        parsePatch(
          patch(...files.flat())
            .split('\n')
            .map(padded)
            .join('\n'),
        ),
      ).toEqual(bare);
    });

    test.each([0, 1, 3, 4])('one head of a file (%i), and before the closing mark', (file) => {
      const lines = files.flatMap((each, index) => (index === file ? each.map(padded) : each));
      expect(parsePatch(`*** Begin Patch\n${lines.join('\n')}\n${space}*** End Patch\n\n`)).toEqual(bare);
    });
  });

  test.each(['Add', 'Update', 'Delete'])('white space before a head (%s) that follows an added file', (verb) => {
    const second = verb === 'Add' ? ['+two'] : verb === 'Update' ? ['-old', '+new'] : [];
    const files = (space: string) => patch('*** Add File: a', '+one', `${space}*** ${verb} File: b`, ...second);
    for (const space of [' ', '\t', '\u00a0']) expect(parsePatch(files(space))).toEqual(parsePatch(files('')));
  });

  test.each(['  ', '    ', '\t'])('a whole patch behind a margin (%j)', (margin) => {
    const text = patch('*** Update File: f', '@@ head', ' a', '', '-b', '+B', '*** End of File');
    const indented = text.split('\n').map((line) => (line === '' ? line : margin + line));
    expect(parsePatch(['', ...indented, ''].join('\n'))).toEqual(parsePatch(text));
    const [begin = '', ...inside] = text.split('\n');
    const end = inside.pop() ?? '';
    const indentedInside = [begin, ...inside.map((line) => margin + line), end].join('\n');
    for (const around of ['', 'Here it is:\n']) expect(parsePatch(around + indentedInside)).toEqual(parsePatch(text));
  });

  test.each(['', '  ', '\t', '\u00a0', '  \n\n\t'])(
    'lines of white space (%j) separate files, hunks and marks',
    (blank) => {
      const lines = (separator: readonly string[]) => [
        ...['*** Add File: a', '+one', ...separator],
        ...[
          '*** Update File: b',
          ...separator,
          '@@',
          ' kept',
          '-old',
          '+new',
          ...separator,
          '@@',
          '-c',
          '+d',
          ...separator,
        ],
        ...['*** Delete File: c', ...separator],
        ...[
          '*** Update File: d',
          '*** Move to: e',
          ...separator,
          '@@',
          '-old',
          '+new',
          '*** End of File',
          ...separator,
        ],
      ];
      expect(parsePatch(patch(...lines([blank])))).toEqual(parsePatch(patch(...lines([]))));
    },
  );

  test('a space before the first hunk separates, and behind a line of a hunk it is an empty line of the file', () => {
    const update = ['*** Update File: f', ' ', '@@', '-a', '+b', ' ', '@@', '-c', '+d'];
    expect(parsePatch(patch(...update))).toMatchObject([
      { hunks: [{ lines: [{}, {}, { kind: 'keep', text: '' }] }, { lines: [{}, {}] }] },
    ]);
  });

  test('several patches in one text are one patch', () => {
    expect(parsePatch(`${patch('*** Delete File: a')}\nThen:\n${patch('*** Delete File: b')}`)).toEqual([
      { kind: 'delete', path: 'a' },
      { kind: 'delete', path: 'b' },
    ]);
  });

  test('unified diffs: empty lines between hunks, and lines that read as the other format', () => {
    const text = `${UNIFIED}\n\n@@ -3,3 +3,3 @@\n *** Begin Patch\n-c\n+C\n *** End Patch\n`;
    expect(applied('a\nb\n*** Begin Patch\nc\n*** End Patch\n', text)).toBe(
      'A\nb\n*** Begin Patch\nC\n*** End Patch\n',
    );
  });

  test('a kept line that reads as a mark stays a line of its hunk', () => {
    const hunk = [' *** Begin Patch', ' *** Delete File: x', ' *** End Patch', '-old', '+new'];
    expect(parsePatch(patch('*** Update File: f', '@@', ...hunk))).toMatchObject([
      { path: 'f', hunks: [{ lines: [{}, { kind: 'keep', text: '*** Delete File: x' }, {}, {}, {}] }] },
    ]);
  });

  test('unified diffs: changes, new and removed files, renames, a missing line end', () => {
    const text = [
      'diff --git a/x.txt b/x.txt',
      'index 1..2 100644',
      '--- a/x.txt',
      '+++ b/x.txt',
      '@@ -1,2 +1,2 @@',
      ' a',
      '-b',
      '+c',
      '\\ No newline at end of file',
      'diff --git a/new b/new',
      '--- /dev/null',
      '+++ b/new',
      '@@ -0,0 +1 @@',
      '+n',
      '--- a/gone\t2026-01-01',
      '+++ /dev/null',
      '@@ -1 +0,0 @@',
      '-g',
      'diff --git a/r1 b/r2',
      'similarity index 100%',
      'rename from r1',
      'rename to r2',
    ].join('\n');
    expect(parsePatch(text).map(({ kind, path }) => `${kind} ${path}`)).toEqual([
      'update x.txt',
      'add new',
      'delete gone',
      'update r1',
    ]);
    expect(applied('a\nb\n', text)).toBe('a\nc');
  });

  test('unified diffs: empty files, and paths that git quotes', () => {
    const text = [
      'diff --git a/src/__init__.py b/src/__init__.py',
      'new file mode 100644',
      'index 000..e69',
      'diff --git "a/n\\303\\251w" "b/n\\303\\251w"',
      'new file mode 100644',
      'diff --git a/gone b/gone',
      'deleted file mode 100644',
      'diff --git "a/caf\\303\\251 \\"1\\".txt" "b/caf\\303\\251 \\"1\\".txt"',
      'new file mode 100644',
      '--- /dev/null',
      '+++ "b/caf\\303\\251 \\"1\\".txt"',
      '@@ -0,0 +1 @@',
      '+x',
      'diff --git "a/r\\t1" b/r2',
      'rename from "r\\t1"',
      'rename to r2',
    ].join('\n');
    expect(parsePatch(text)).toEqual([
      { kind: 'add', path: 'src/__init__.py', content: '' },
      { kind: 'add', path: 'néw', content: '' },
      { kind: 'delete', path: 'gone' },
      { kind: 'add', path: 'café "1".txt', content: 'x\n' },
      { kind: 'update', path: 'r\t1', moveTo: 'r2', hunks: [] },
    ]);
  });

  test('unified diffs: the header tells prefixes from folders of such names', () => {
    const body = ['@@ -1 +1 @@', '-a', '+b'];
    for (const [names, path] of [
      [['a/a/f', 'b/a/f'], 'a/f'],
      [['a/f', 'a/f'], 'a/f'],
      [['b/f', 'b/f'], 'b/f'],
      [['b b/b', 'b b/b'], 'b b/b'],
      [['f', 'f'], 'f'],
      [['i/a/f', 'w/a/f'], 'a/f'],
      [['"a/\\"f"', '"b/\\"f"'], '"f'],
      [['"b/\\"f"', '"b/\\"f"'], 'b/"f'],
    ] as const) {
      const [from, to] = names;
      const header = `diff --git ${from} ${to}`;
      const files = (...lines: readonly string[]) => parsePatch(`${lines.join('\n')}\n`);
      expect(files(header, `--- ${from}`, `+++ ${to}`, ...body)).toMatchObject([{ kind: 'update', path }]);
      expect(files(`--- ${from}`, `+++ ${to}`, ...body)[0]).not.toHaveProperty('moveTo');
      expect(files(header, 'new file mode 100644', '--- /dev/null', `+++ ${to}`, '@@ -0,0 +1 @@', '+b')).toEqual([
        { kind: 'add', path, content: 'b\n' },
      ]);
      expect(files(header, `--- ${from}`, '+++ /dev/null', '@@ -1 +0,0 @@', '-a')).toEqual([{ kind: 'delete', path }]);
      expect(files(header, 'old mode 100644', 'new mode 100755')).toMatchObject([{ path, isExecutable: true }]);
      expect(files(header, 'new file mode 100644', 'index 000..e69')).toEqual([{ kind: 'add', path, content: '' }]);
    }
    const renamed = ['diff --git b/f a/f', 'rename from b/f', 'rename to a/f', '--- b/f', '+++ a/f', ...body];
    expect(parsePatch(renamed.join('\n'))).toMatchObject([{ path: 'b/f', moveTo: 'a/f' }]);
  });

  test.each(['120000', '160000'])('unified diffs: an entry that is no file (mode %s) is refused', (mode) => {
    const text = `diff --git a/x b/x\nnew file mode ${mode}\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc/passwd\n`;
    expect(() => parsePatch(text)).toThrow('links and submodules cannot be made');
  });

  test('unified diffs: a hunk whose head counts too few lines loses none, nor do the hunks behind it', () => {
    const first = '--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+A\n-b\n+B\n@@ -4 +4 @@\n-d\n+D\n';
    expect(applied('a\nb\nc\nd\n', first)).toBe('A\nB\nc\nD\n');
    const apart =
      '--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n\n-c\n+C\n\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n\n-- \n2.47.1\n';
    expect(applied('a\nb\n\nc\n', apart)).toBe('a\nB\n\nC\n');
    expect(parsePatch(apart)).toMatchObject([
      { hunks: [{ lines: { length: 6 } }] },
      { hunks: [{ lines: { length: 2 } }] },
    ]);
    const second = '--- a/g\n+++ b/g\n@@ -1 +1 @@\n-x\n+y\n-- \n2.47.1\n';
    expect(parsePatch(first + second)).toMatchObject([
      { path: 'f', hunks: [{ lines: { length: 4 } }, { lines: { length: 2 } }] },
      { path: 'g', hunks: [{ lines: { length: 2 } }] },
    ]);
  });

  test('unified diffs: a binary file is refused instead of skipped', () => {
    const text = 'diff --git a/x b/x\nBinary files a/x and b/x differ\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n';
    expect(() => parsePatch(text)).toThrow('binary patches cannot be applied');
  });
});

test('the reader accepts every text of the grammar (C6)', () => {
  const rules = new Map(
    PATCH_GRAMMAR.split('\n').flatMap((line) => {
      const [, name, body] = /^(\w+): (.+)$/.exec(line) ?? [];
      return name === undefined || body === undefined ? [] : [[name, body] as const];
    }),
  );
  /** The grammar as one regular expression, which is possible because it has no recursion. */
  const expression = (name: string): string => {
    const body = rules.get(name) ?? '';
    if (body.startsWith('/')) return body.slice(1, -1);
    if (body.startsWith('"')) return JSON.parse(body).replaceAll('*', '\\*');
    return body.replaceAll(/\w+/g, (part) => `(?:${expression(part)})`).replaceAll(/ +(?=[(|]|$)|(?<=\|) +/g, '');
  };
  const written = fc.stringMatching(new RegExp(`^${expression('start')}$`), { maxLength: 400 });
  fc.assert(
    fc.property(written, (text) => {
      const headings = text.match(/^\*\*\* (?:Add|Delete|Update) File: /gm)?.length ?? 0;
      expect(parsePatch(text)).toHaveLength(headings);
    }),
    { numRuns: 100 },
  );
});
