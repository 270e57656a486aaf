import { expect, test } from 'vitest';
import { escapeInvisible, escapeLines, formatForDisplay } from '../../../../src/shared/util/text/visible-text.ts';

test('what deceives the eye is written out', () => {
  expect(escapeInvisible('a\u202eb\u200bc\u001b[2J\r\n\u2066')).toBe(
    'a\\u{202E}b\\u{200B}c\\u{1B}[2J\\u{D}\n\\u{2066}',
  );
  expect(escapeLines('ls: no\r\n\u202eapproved\n')).toBe('ls: no\n  | \\u{202E}approved');
  expect(formatForDisplay({ 'x\u202e': '\u{e0041}日本' })).toBe('{\n  "x\\u{202E}": "\\u{E0041}日本"\n}');
});
