import { expect, test } from 'vitest';
import { readableLogLine } from '../../../src/shared/telemetry/readable-log.ts';

const line = (fields: object) => `${JSON.stringify({ level: 30, time: 1_000, pid: 7, ...fields })}\n`;

test.each([
  [{ msg: 'the worker is ready' }, '00:00:01.000 info  the worker is ready  pid=7'],
  [{ level: 40, tool: 'pay', ms: 5, msg: 'slow' }, '00:00:01.000 warn  slow  pid=7 tool=pay ms=5'],
  [{ level: 35, msg: 'a level of its own' }, '00:00:01.000 35    a level of its own  pid=7'],
  [{ error: 'no answer', empty: '', list: [1] }, '00:00:01.000 info    pid=7 error="no answer" empty= list=[1]'],
  [{ msg: 'two\nlines\u202e', pid: 'a=b' }, '00:00:01.000 info  two\\u{A}lines\\u{202E}  pid="a=b"'],
])('a log line of %j is readable in a terminal, and stays one line', (fields, text) => {
  expect(readableLogLine(line(fields))).toBe(`${text}\n`);
});

test.each(['no JSON\n', '{"level":30,"msg":"cut', 'null\n', '{"level":30,"time":"never"}\n'])(
  'the line %j, which no logger of Pawl writes, is shown as it is',
  (text) => {
    expect(readableLogLine(text)).toBe(text);
  },
);
