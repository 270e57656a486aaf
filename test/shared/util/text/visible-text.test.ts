import { expect, test } from 'vitest';
import {
  escapeInvisible,
  escapeJson,
  escapeLines,
  formatForDisplay,
} from '../../../../src/shared/util/text/visible-text.ts';

test('what deceives the eye is written out', () => {
  expect(escapeInvisible('a\u202eb\u200bc\u001b[2J\r\n\u2066')).toBe(
    'a\\u{202E}b\\u{200B}c\\u{1B}[2J\\u{D}\n\\u{2066}',
  );
  expect(escapeLines('ls: no\r\n\u202eapproved\n')).toBe('ls: no\n  | \\u{202E}approved');
  expect(formatForDisplay({ 'x\u202e': '\u{e0041}日本' })).toBe('{\n  "x\\u{202E}": "\\u{E0041}日本"\n}');
});

test('blank characters that are no spaces are written out, and so are marks that cover the lines around', () => {
  for (const blank of ['\u2800', '\ufffc', '\u{16fe4}', '\u{1d159}'])
    expect(escapeInvisible(`a${blank}b`)).toBe(`a\\u{${blank.codePointAt(0)?.toString(16).toUpperCase()}}b`);
  const tower = '\u0336'.repeat(40);
  expect(escapeInvisible(`deny${tower}`)).toBe(`deny${'\u0336'.repeat(4)}${'\\u{336}'.repeat(36)}`);
  expect(JSON.parse(escapeJson(JSON.stringify(`deny${tower}`)))).toBe(`deny${tower}`);
  for (const text of ['tiếng Việt', 'שָׁלוֹם עֲלֵיכֶם', 'ไม่มีที่', 'हिन्दी', 'e\u0301\u0323', 'a b\u3000c'])
    expect(escapeInvisible(text)).toBe(text);
});

test('the page writes out the same characters', async () => {
  const page = new URL('../../../../dashboards/page/dom.js', import.meta.url).href;
  const { shownText } = (await import(page)) as { shownText(text: string): string };
  const characters = Array.from({ length: 0x11_0000 }, (_, code) => String.fromCodePoint(code));
  const all = characters.join('a');
  expect(shownText(all) === escapeInvisible(all)).toBe(true);
  expect(shownText('\u0336'.repeat(9))).toBe(escapeInvisible('\u0336'.repeat(9)));
});
