import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PATCH_GRAMMAR, parsePatch } from '../../src/shared/patch.ts';
import { applyHunks } from '../../src/shared/patch-apply.ts';

const patch = (...lines: string[]): string => ['*** Begin Patch', ...lines, '*** End Patch'].join('\n');

/** The content after the patch's only file. */
function applied(content: string, text: string): string {
  const [file] = parsePatch(text);
  if (file?.kind !== 'update') throw new Error('not an update');
  return applyHunks(file.path, content, file.hunks);
}

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

  test('around it may stand what models put there', () => {
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
  ])('%s is refused with its line', (_name, text, message) => {
    expect(() => parsePatch(text)).toThrow(
      expect.objectContaining({ code: 'INVALID_PARAMS', message: expect.stringContaining(message) }),
    );
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

  test.each(['120000', '160000'])('unified diffs: what is no file (mode %s) is refused, and not made one', (mode) => {
    const text = `diff --git a/x b/x\nnew file mode ${mode}\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc/passwd\n`;
    expect(() => parsePatch(text)).toThrow('links and submodules cannot be made');
  });

  test('unified diffs: a hunk whose head counts too few lines loses none, nor does what follows it', () => {
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

  test('unified diffs: a binary file is refused, and not passed over', () => {
    const text = 'diff --git a/x b/x\nBinary files a/x and b/x differ\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n';
    expect(() => parsePatch(text)).toThrow('binary patches cannot be applied');
  });
});

test('whatever the grammar lets a model write is read (C6)', () => {
  const rules = new Map(
    PATCH_GRAMMAR.split('\n').flatMap((line) => {
      const [, name, body] = /^(\w+): (.+)$/.exec(line) ?? [];
      return name === undefined || body === undefined ? [] : [[name, body] as const];
    }),
  );
  /** The grammar has no recursion: as one regular expression. */
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
    { numRuns: 300 },
  );
});

describe('hunks are applied', () => {
  const at = (...lines: string[]) => patch('*** Update File: f', ...lines);

  test.each([
    ['a change', 'a\nb\nc\n', at('@@', ' a', '-b', '+B', ' c'), 'a\nB\nc\n'],
    ['without @@ at the first hunk', 'a\nb\n', at('-b', '+B'), 'a\nB\n'],
    ['the place below a heading', 'f()\n  x\ng()\n  x\n', at('@@ g()', '-  x', '+  y'), 'f()\n  x\ng()\n  y\n'],
    ['the place below several', 'A\nf\n1\nB\nf\n1\n', at('@@ B', '@@ f', '-1', '+2'), 'A\nf\n1\nB\nf\n2\n'],
    ['hunks below one heading', 'A\nf\n1\ng\n1\n', at('@@ A', '-1', '+2', '@@ A', ' g', '-1', '+2'), 'A\nf\n2\ng\n2\n'],
    ['empty lines between hunks', 'a\nb\nc\n', at('@@', '-a', '+A', '', '', '@@', '-c', '+C', '', ''), 'A\nb\nC\n'],
    ['an empty line between kept ones', 'a\n\nb\n', at('@@', ' a', '', '-b', '+B'), 'a\n\nB\n'],
    ['that no line end follows', 'a\nb\n', at('@@', ' a', '-b', '+B', '\\ No newline at end of file'), 'a\nB'],
    ['a byte order mark stays', '\ufeffa\nb\n', at('@@', '-a', '+A', ' b'), '\ufeffA\nb\n'],
    ['and is not doubled', '\ufeffa\n', at('@@', '-\ufeffa', '+\ufeffA'), '\ufeffA\n'],
    ['the place at the end', 'x\ny\nx\n', at('@@', '-x', '+z', '*** End of File'), 'x\ny\nz\n'],
    ['several hunks in order', 'a\nb\nc\nd\n', at('@@', '-a', '+A', '@@', '-d', '+D'), 'A\nb\nc\nD\n'],
    ['additions alone go to the end', 'a\n', at('@@', '+b'), 'a\nb\n'],
    ['a file without a line end keeps none', 'a\nb', at('@@', '-a', '+A'), 'A\nb'],
    ['a file with CR LF keeps it', 'a\r\nb\r\n', at('@@', '-b', '+B'), 'a\r\nB\r\n'],
    ['mixed line ends stay', 'a\r\nb\nc\r\nd\n', at('@@', '-b', '+B'), 'a\r\nB\nc\r\nd\n'],
    ['the end, though white space differs there', 'x\ny\nx  \n', at('@@', '-x', '+z', '*** End of File'), 'x\ny\nz\n'],
    ['additions at the end', 'a\nb\n', at('@@ a', '+c', '*** End of File'), 'a\nb\nc\n'],
    ['additions below a last line without a line end', 'a', at('@@', '+b'), 'a\nb\n'],
    ['a last line without a line end removed', 'a\nb', at('@@', ' a', '-b'), 'a\n'],
    ['white space at line ends may differ, and kept lines stay', 'a  \nb\n', at('@@', ' a', '-b', '+B'), 'a  \nB\n'],
    ['indentation may differ', '\ta\n\tb\n', at('@@', ' a', '-b', '+\tB'), '\ta\n\tB\n'],
    ['typographic quotes may differ', 'say “hi”\n', at('@@', '-say "hi"', '+bye'), 'bye\n'],
    ['an empty file', '', at('@@', '+a'), 'a\n'],
    ['all lines removed', 'a\n', at('@@', '-a'), ''],
    ['the exact line before a similar one', ' x\nx\n', at('@@', '-x', '+y'), ' x\ny\n'],
  ])('%s', (_name, content, text, expected) => expect(applied(content, text)).toBe(expected));

  test('a unified diff removes a last line without a line end, and leaves the line end above', () => {
    const text = '--- a/f\n+++ b/f\n@@ -1,2 +1 @@\n a\n-b\n\\ No newline at end of file\n';
    expect(applied('a\nb', text)).toBe('a\n');
    const into = '--- a/f\n+++ b/f\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n';
    expect(applied('', into)).toBe('x');
  });

  test('very long files, and very many equal lines', () => {
    const long = 'line\n'.repeat(400_000);
    expect(applied(`${long}last\n`, at('@@', '-last', '+LAST'))).toBe(`${long}LAST\n`);
    const equal = ' line\n'.repeat(100_000);
    expect(() => applied(long, at('@@', `${equal}-last`))).toThrow('does not fit');
  });

  test('very many hunks are applied where they stand, and not looked for all over a long file', () => {
    const [count, file] = [60_000, 'x\n'.repeat(60_000)];
    const hunks = (line: string) => at(...Array.from({ length: count }, () => ['@@', line, '+y'].join('\n')));
    expect(applied(file, hunks('-x'))).toBe('y\n'.repeat(count));
    expect(() => applied(file, hunks('-x '))).toThrow(expect.objectContaining({ code: 'INVALID_PARAMS' }));
  });

  test('a patch of more files than can be open at a time is refused before anything is opened', () => {
    const files = (count: number) => patch(...Array.from({ length: count }, (_, index) => `*** Add File: f${index}`));
    expect(parsePatch(files(1_000))).toHaveLength(1_000);
    expect(() => parsePatch(files(1_001))).toThrow('changes 1001 files; at most 1000 can be changed in one step');
  });

  test('of a head without lines both paths are the same, and a long one is read at once', () => {
    const head = (paths: string) => parsePatch(`diff --git ${paths}\nnew file mode 100644`);
    expect(head('a/x b/x b/x b/x')).toEqual([{ kind: 'add', path: 'x b/x', content: '' }]);
    for (const paths of ['a/x b/y', 'a/ b/', 'a/x', `a/${'x b/'.repeat(200_000)}y`])
      expect(() => head(paths)).toThrow('holds no change');
  });

  test('a unified diff takes the match nearest to its line number', () => {
    expect(applied('x\na\nx\nb\nx\n', '--- a/f\n+++ b/f\n@@ -5,2 +5,2 @@\n-x\n+y\n')).toBe('x\na\nx\nb\ny\n');
  });

  test.each([
    ['a line that is not there', 'a\n', at('@@', '-zzz', '+b'), 'its line "zzz" does not stand in the file'],
    ['a line that differs', 'a\nb\nc\n', at('@@', ' a', ' b', '-d', '+D'), 'line 3 is "c", where the patch has "d"'],
    ['hunks out of order', 'a\nb\n', at('@@', '-b', '+B', '@@', '-a', '+A'), 'Hunk 2 of 2 for "f" does not fit'],
    ['an end that is none', 'x\ny\n', at('@@', '-x', '+z', '*** End of File'), 'not at the end of the file'],
    ['an absent heading', 'a\n', at('@@ g()', '-a', '+b'), 'there is no line "g()" below line 0'],
    ['additions below a heading above', 'A\nb\n', at('@@ A', '-b', '+B', '@@ A', '+c'), 'no line "A" below line 2'],
  ])('%s is told with what stands there', (_name, content, text, message) => {
    expect(() => applied(content, text)).toThrow(
      expect.objectContaining({ code: 'PRECONDITION_FAILED', message: expect.stringContaining(message) }),
    );
  });
});
