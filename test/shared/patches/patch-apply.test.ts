import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parsePatch } from '../../../src/shared/patches/patch.ts';
import { applied, patch } from './applied.ts';

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
    ['typographic quotes and spaces may differ', 'say „hi‟\u202fnow\n', at('@@', '-say "hi" now', '+bye'), 'bye\n'],
    ['white space behind @@', 'f\n  a\n', at('@@ f \t', '-  a', '+  b', '@@\t', '+c'), 'f\n  b\nc\n'],
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

  test('very many hunks are applied at their stated places, without a search of the whole file', () => {
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

  test('a header without lines repeats its path, and a long one is read at once', () => {
    const head = (paths: string) => parsePatch(`diff --git ${paths}\nnew file mode 100644`);
    expect(head('a/x b/x b/x b/x')).toEqual([{ kind: 'add', path: 'x b/x', content: '' }]);
    for (const paths of ['a/x b/y', 'a/ b/', 'a/x', `a/${'x b/'.repeat(200_000)}y`])
      expect(() => head(paths)).toThrow('holds no change');
  });

  test('a unified diff takes the match nearest to its line number', () => {
    expect(applied('x\na\nx\nb\nx\n', '--- a/f\n+++ b/f\n@@ -5,2 +5,2 @@\n-x\n+y\n')).toBe('x\na\nx\nb\ny\n');
  });

  test('a unified diff whose line number is 0 does not choose between two places', () => {
    const diff = (head: string) => `--- a/f\n+++ b/f\n${head}\n-a\n+b\n`;
    for (const head of ['@@ -0,0 +0,0 @@', '@@ -0,1 +0,1 @@', '@@ -0 +0 @@']) {
      expect(applied('x\na\ny\n', diff(head))).toBe('x\nb\ny\n');
      expect(() => applied('a\nx\na\n', diff(head))).toThrow('2 places, at lines 1, 3');
    }
  });

  describe.each([
    ['to the letter', (line: string) => line],
    ['but for white space at the end', (line: string) => `${line} \t`],
    ['but for indentation', (line: string) => `\t${line}`],
    ['but for typographic characters', (line: string) => `\u00a0${line.replace('"', '\u201c')}`],
  ])('lines that resemble the wanted ones %s', (_likeness, like) => {
    const block = ['if "a"', '  b', 'end'];
    const other = block.map(like).join('\n');
    const change = [' if "a"', '-  b', '+  c', ' end'];
    const hunks = at('@@', ...change);
    const changed = other.replace(like('  b'), '  c');

    test('are changed where they occur once', () => {
      expect(applied(`x\n${other}\ny\n`, hunks)).toBe(`x\n${changed}\ny\n`);
    });

    test.each([
      ['apart', `${other}\nx\n${other}\n`, '2 places, at lines 1, 5'],
      ['three times', `x\n${`${other}\n`.repeat(3)}`, '3 places, at lines 2, 5, 8'],
      ['very often', `${other}\n`.repeat(50), 'many places, at lines 1, 4, 7, 10, 13, 16, 19, 22, 25, 28 and more'],
    ])('are refused where they occur %s, and the lines are named', (_name, content, where) => {
      expect(() => applied(content, hunks)).toThrow(
        expect.objectContaining({ code: 'PRECONDITION_FAILED', message: expect.stringContaining(`fits ${where}`) }),
      );
    });

    test('are distinguished by the end of the file, by a line number, and by the block of a heading', () => {
      const twice = `f()\n ${other.replaceAll('\n', '\n ')}\ng()\n ${other.replaceAll('\n', '\n ')}\n`;
      const inG = twice.replace(/(?<=g\(\)[\s\S]*)(?<=\n) .*b.*(?=\n)/, '  c');
      expect(inG).not.toBe(twice);
      const kept = (text: string) => text.replaceAll(/^[\s\u00a0]+|[\s\u00a0]+$/gm, '');
      expect(kept(applied(twice, at('@@ g()', ...change)))).toBe(kept(inG));
      expect(kept(applied(twice, at('@@', ...change, '*** End of File')))).toBe(kept(inG));
      const unified = ['--- a/f', '+++ b/f', '@@ -6,3 +6,3 @@', ...change, ''].join('\n');
      expect(kept(applied(twice, unified))).toBe(kept(inG));
      const inF = kept(applied(twice, at('@@ f()', ...change)));
      expect([inF.indexOf('c') < inF.indexOf('g()'), inF.lastIndexOf('b') > inF.indexOf('g()')]).toEqual([true, true]);
    });
  });

  test('a hunk is applied if and only if the file has one place for it, whatever the lines are', () => {
    const content = fc.array(fc.constantFrom('a', ' a', 'a ', 'b'), { minLength: 1, maxLength: 8 });
    const wanted = fc.array(fc.constantFrom('a', ' a', 'b'), { minLength: 1, maxLength: 3 });
    const likenesses = [(line: string) => line, (line: string) => line.trimEnd(), (line: string) => line.trim()];
    fc.assert(
      fc.property(content, wanted, (lines, old) => {
        const starts = likenesses.map((like) =>
          lines.flatMap((_, start) =>
            old.every((line, index) => like(lines[start + index] ?? '\n.') === like(line)) ? [start] : [],
          ),
        );
        const [only, second] = starts.find((places) => places.length > 0) ?? [];
        const apply = () => applied(`${lines.join('\n')}\n`, at('@@', ...old.map((line) => `-${line}`), '+new'));
        if (only === undefined || second !== undefined) expect(apply).toThrow();
        else expect(apply().split('\n').indexOf('new')).toBe(only);
      }),
      { numRuns: 500 },
    );
  });

  test.each([
    ['the only places in their order', 'x\nx\n', at('@@', '-x', '+1', '@@', '-x', '+2'), '1\n2\n'],
    ['a place that the next hunk leaves', 'x\ny\nx\n', at('@@', '-x', '+1', '@@', ' y', '-x', '+2'), '1\ny\n2\n'],
    ['the one heading that the lines follow', 'f\n  1\nf\n  2\n', at('@@ f', '-  2', '+  3'), 'f\n  1\nf\n  3\n'],
    [
      'a head of several lines',
      'f(\n  a,\n) {\n  1\n}\ng {\n  1\n}\n',
      at('@@ f(', '-  1'),
      'f(\n  a,\n) {\n}\ng {\n  1\n}\n',
    ],
    ['a copied byte order mark', '\ufeffa\nb\na\n', at('@@', '-\ufeffa', '+A'), '\ufeffA\nb\na\n'],
    ['CR LF where one line has LF', 'a\r\nb\nc\r\n', at('@@', ' a', '+x', '@@', '-c', '+y'), 'a\r\nx\r\nb\ny\r\n'],
    ['an empty line for the last line end', 'a\nb\n', at('@@', ' a', '-b', '+c', ' '), 'a\nc\n'],
    ['one that is removed', 'a\r\nb', at('@@', ' a', '-b', '-', '+c', '*** End of File'), 'a\r\nc\r\n'],
    ['one of a unified diff', 'a\nb\n', '--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+c\n \n', 'a\nc\n'],
    ['one that is there', 'a\n\na\n', at('@@', '-a', ' '), '\na\n'],
    ['CR LF among such lines', 'l\nl\nl\na\r\nb\r\n', at('@@', ' a', '+x', ' b'), 'l\nl\nl\na\r\nx\r\nb\r\n'],
    ['CR LF in more lines', 'l\nl\na\r\nb\r\n', at('@@', '-a', '+x', '+y', ' b'), 'l\nl\nx\r\ny\r\nb\r\n'],
    ['LF at the end of lines with it', 'a\r\nb\r\nc\r\nd\n', at('@@', ' d', '+x'), 'a\r\nb\r\nc\r\nd\nx\n'],
    ['LF where one line has CR LF', 'a\nb\r\nc\n', at('@@', ' b', '+x', ' c'), 'a\nb\r\nx\nc\n'],
  ])('%s', (_name, content, text, expected) => expect(applied(content, text)).toBe(expected));

  test.each([
    ['a heading', 'f\n  1\nf\n  1\n', at('@@ f', '-  1'), 'fits 2 places, at lines 2, 4'],
    ['a heading of lines to add', 'f\n  1\nf\n  1\n', at('@@ f', '+  1'), 'fits 2 places, at lines 1, 3'],
    ['overlapping lines', 'x\nx\nx\n', at('@@', '-x', '-x'), 'fits 2 places, at lines 1, 2'],
    ['a later hunk', 'a\nx\nx\n', at('@@', '-a', '@@', '-x'), 'Hunk 2 of 2 for "f" fits 2 places, at lines 2, 3'],
    ['an earlier hunk', 'x\nx\na\n', at('@@', '-x', '@@', '-a'), 'Hunk 1 of 2 for "f" fits 2 places, at lines 1, 2'],
    ['a line number between both', 'x\na\nx\n', '--- a/f\n+++ b/f\n@@ -2 +2 @@\n-x\n+y\n', 'at lines 1, 3'],
    ['a wrong line number', ' x\na\n x\nb\n', '--- a/f\n+++ b/f\n@@ -4 +4 @@\n-x\n+y\n', 'at lines 1, 3'],
  ])('%s that fits twice is refused', (_name, content, text, message) => {
    expect(() => applied(content, text)).toThrow(
      expect.objectContaining({ message: expect.stringContaining(message) }),
    );
  });

  test.each([
    ['a line that is not there', 'a\n', at('@@', '-zzz', '+b'), 'its line "zzz" does not stand in the file'],
    ['a line that differs', 'a\nb\nc\n', at('@@', ' a', ' b', '-d', '+D'), 'line 3 is "c", where the patch has "d"'],
    ['hunks out of order', 'a\nb\n', at('@@', '-b', '+B', '@@', '-a', '+A'), 'Hunk 2 of 2 for "f" does not fit'],
    ['an empty line above the end', 'a\nb\n', at('@@', '-a', ' '), 'line 2 is "b", where the patch has ""'],
    ['lines below an empty line', 'a\n', at('@@', ' a', ' ', '+b'), 'its lines stand at line 1'],
    ['an end that is none', 'x\ny\n', at('@@', '-x', '+z', '*** End of File'), 'not at the end of the file'],
    ['an absent heading', 'a\n', at('@@ g()', '-a', '+b'), 'there is no line "g()". Nothing'],
    ['additions below a heading above', 'A\nb\n', at('@@ A', '-b', '+B', '@@ A', '+c'), 'no line "A" below line 2'],
  ])('%s is reported with the lines that are there', (_name, content, text, message) => {
    expect(() => applied(content, text)).toThrow(
      expect.objectContaining({ code: 'PRECONDITION_FAILED', message: expect.stringContaining(message) }),
    );
  });
});
