import { expect, test } from 'vitest';
import { moment, outputLines, table } from '../../src/cli/print.ts';

test.each([
  [{ exitCode: 0, stdout: 'Fri Nov 27\n', stderr: '' }, ['exitCode       0', 'stdout         Fri Nov 27']],
  [{ stdout: 'one\r\ntwo\n' }, ['stdout', '  | one', '  | two']],
  [{ files: [{ path: 'a' }, { path: 'b' }] }, ['files', '  | {"path":"a"}', '  | {"path":"b"}']],
  [{ files: [], more: {}, next: null }, []],
  [{ usage: { tokens: 3 } }, ['usage', '  | {', '  |   "tokens": 3', '  | }']],
  ['a text', ['output         a text']],
  [
    [1, 2],
    ['output', '  | 1', '  | 2'],
  ],
  [7, ['output         7']],
  // What a file or a page says cannot move the cursor, or look like a line of the command itself.
  [{ 'a\npawl: done': 1, 'b\npawl: done': 'c\nd' }, ['a\\u{A}pawl: done 1', 'b\\u{A}pawl: done', '  | c', '  | d']],
  [{ content: 'a\u001b[2Kb\npawl: done' }, ['content', '  | a\\u{1B}[2Kb', '  | pawl: done']],
])('the output %j is shown below what the tool says of it', (content, lines) => {
  expect(outputLines(content)).toEqual(lines);
});

test('of a long output the first lines are shown, with how many are left out', () => {
  const lines = outputLines({ stdout: Array.from({ length: 1_000 }, (_, number) => number).join('\n') });
  expect(lines).toHaveLength(41);
  expect(lines.at(-1)).toBe('and 961 lines more: --json prints all');
});

test('a time that a damaged record does not have keeps no list from being printed', () => {
  expect([Number.NaN, 1e16, 0].map(moment)).toEqual(['unknown', 'unknown', '1970-01-01T00:00:00.000Z']);
});

test.each([
  ['plain', 5],
  ['日本語', 6],
  ['한국어', 6],
  ['ｗｉｄｅ', 8],
  ['ﾊﾝｶｸ', 4],
  ['a🎉', 3],
  ['e\u0301te\u0301', 3],
  ['שלום', 4],
  ['ไทย', 3],
])('a column is as wide as %s is in a terminal: %i', (text, width) => {
  const columns = [
    { title: '', text: (row: string) => row },
    { title: '|', text: () => '|' },
  ];
  const [title = '', cell = ''] = table([text], columns).split('\n');
  expect([title.indexOf('|'), cell]).toEqual([width + 2, `${text}  |`]);
  const right = [{ title: '', align: 'right' as const, text: (row: string) => row }];
  expect(table([text, 'x'.repeat(12)], right).split('\n')[1]).toBe(' '.repeat(12 - width) + text);
});
