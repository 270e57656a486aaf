import { describe, expect, test } from 'vitest';
import { edit } from '../../../src/workers/tools/edit.ts';
import { hashOf } from '../../../src/workers/tools/lib/text-file.ts';
import { type TestContext, testContext } from '../../helpers/context.ts';

interface Change {
  readonly old_string: string;
  readonly new_string: string;
  readonly replace_all?: boolean;
}

async function fileOf(content: string | Uint8Array): Promise<TestContext> {
  const ctx = testContext();
  await ctx.workspace.write('file', content);
  return ctx;
}

const contentOf = async (ctx: TestContext): Promise<string> => Buffer.from(await ctx.workspace.read('file')).toString();
const paramsOf = (change: Change) => edit.parse({ path: 'file', ...change });

/** The file after the edit, which must succeed. */
async function edited(content: string, change: Change): Promise<string> {
  const ctx = await fileOf(content);
  await edit.run(paramsOf(change), ctx);
  return contentOf(ctx);
}

/** The error of an edit, which must leave the file alone. */
async function refusal(content: string | Uint8Array, change: Change): Promise<{ code: string; message: string }> {
  const ctx = await fileOf(content);
  const before = await ctx.workspace.read('file');
  const error = await Promise.resolve(edit.run(paramsOf(change), ctx)).then(
    () => new Error('the edit succeeded'),
    (reason: Error & { code: string }) => reason,
  );
  expect(await ctx.workspace.read('file')).toEqual(before);
  return error as Error & { code: string };
}

describe('edit replaces (A16)', () => {
  test('a text that is unique, and tells where', async () => {
    const ctx = await fileOf('one\ntwo\nthree\n');
    expect(await edit.run(paramsOf({ old_string: 'two', new_string: '2' }), ctx)).toEqual({
      output: { path: 'file', replacements: 1, hash: hashOf(Buffer.from('one\n2\nthree\n')) },
      display: 'Edited file (line 2)',
      artifacts: [{ kind: 'file-modified', reference: 'file' }],
    });
    expect(await contentOf(ctx)).toBe('one\n2\nthree\n');
  });

  test('replace_all beside edits is refused, because it would count for none of them', async () => {
    const ctx = await fileOf('a b a');
    const given = edit.parse({ path: 'file', replace_all: true, edits: [{ old_string: 'b', new_string: 'x' }] });
    await expect(edit.run(given, ctx)).rejects.toThrow('replace_all belongs into each of edits');
    expect(await contentOf(ctx)).toBe('a b a');
  });

  test('every occurrence with replace_all', async () => {
    expect(await edited('a b a', { old_string: 'a', new_string: 'aa', replace_all: true })).toBe('aa b aa');
  });

  test('to nothing, over lines, and with characters that patterns would give a meaning', async () => {
    expect(await edited('a\nb\nc\n', { old_string: 'b\n', new_string: '' })).toBe('a\nc\n');
    expect(await edited('a\nb\nc\n', { old_string: 'a\nb', new_string: 'x' })).toBe('x\nc\n');
    expect(await edited('a.b', { old_string: '.', new_string: '$&$1$$' })).toBe('a$&$1$$b');
  });

  test('in a file with CR LF, where the model writes line feeds', async () => {
    expect(await edited('a\r\nb\r\nc\r\n', { old_string: 'a\nb', new_string: 'x\ny' })).toBe('x\r\ny\r\nc\r\n');
    expect(await edited('a\r\nb\r\nc\r\n', { old_string: 'b', new_string: 'x\ny' })).toBe('a\r\nx\r\ny\r\nc\r\n');
    expect(await edited('a\r\nb\nc\r\n', { old_string: 'b', new_string: 'x\ny' })).toBe('a\r\nx\ny\nc\r\n');
  });

  test.each([
    ['a line of CR LF lines, where one ends in LF', 'a\r\nb\nc\r\n', 'c', 'x\ny', 'a\r\nb\nx\r\ny\r\n'],
    ['lines of CR LF, where another ends in LF', 'a\r\nb\r\nc\nd\r\n', 'a\nb', 'x\ny', 'x\r\ny\r\nc\nd\r\n'],
    ['lines of LF, where others end in CR LF', 'a\r\nb\nc\nd\r\n', 'b\nc', 'x\ny', 'a\r\nx\ny\nd\r\n'],
    ['lines that are copied with CR LF', 'a\r\nb\r\nc\r\n', 'a\r\nb', 'x\ny', 'x\r\ny\r\nc\r\n'],
    ['lines whose ends alone change', 'a\r\nb\r\nc', 'a\r\nb\r\n', 'a\nb\n', 'a\nb\nc'],
    ['the last line, which has no end', 'a\nb\r\nc', 'c', 'x\ny', 'a\nb\r\nx\r\ny'],
    ['a beginning with a line end', 'a\r\nb\r\nc\n', '\nb', '\nx\ny', 'a\r\nx\r\ny\r\nc\n'],
  ])('%s: new lines end as those around them', async (_name, content, old_string, new_string, expected) => {
    expect(await edited(content, { old_string, new_string })).toBe(expected);
  });

  test('no half of an emoji', async () => {
    expect(await refusal('x 😀 y', { old_string: '\ud83d', new_string: 'z' })).toMatchObject({
      code: 'PRECONDITION_FAILED',
    });
    expect(await edited('x 😀 y', { old_string: '😀', new_string: '🎉' })).toBe('x 🎉 y');
  });

  test('each of several places with the line end of its own line', async () => {
    const change = { old_string: 'a', new_string: 'x\ny', replace_all: true };
    expect(await edited('a\r\na\nb\r\na', change)).toBe('x\r\ny\r\nx\ny\nb\r\nx\r\ny');
  });

  test.each([
    ['copied and left out of the new text', '\ufeffa', 'x', '\ufeffx\nb'],
    ['copied to the new text', '\ufeffa', '\ufeffx', '\ufeffx\nb'],
    ['put before the new text', 'a', '\ufeffx', '\ufeffx\nb'],
    ['copied with lines that go', '\ufeffa\n', '', '\ufeffb'],
    ['named alone', '\ufeff', '', 'a\nb'],
  ])('a file with a byte order mark, %s', async (_name, old_string, new_string, expected) => {
    expect(await edited('\ufeffa\nb', { old_string, new_string })).toBe(expected);
  });

  test('every one of very many occurrences', async () => {
    const change = { old_string: 'foo', new_string: 'bar', replace_all: true };
    expect(await edited('foo();\n'.repeat(400_000), change)).toBe('bar();\n'.repeat(400_000));
  });
});

describe('edit refuses with a hint for the next attempt, and changes nothing', () => {
  test('a text that is absent: with the line that differs in white space only', async () => {
    const { code, message } = await refusal('if (a) {\n\treturn  1;\n}\n', {
      old_string: '    return 1;',
      new_string: 'x',
    });
    expect(code).toBe('PRECONDITION_FAILED');
    expect(message).toContain('found 0 times');
    expect(message).toContain(
      'at line 2 when white space is left aside: line 2 is "\\treturn  1;", where old_string has ',
    );
  });

  test.each([
    [
      'a line further down',
      'a\nb\nc\n',
      'a\nb\nd',
      'It begins as line 1 does, but line 3 is "c", where old_string has "d".',
    ],
    ['the likeliest of several places', 'a\nx\na\nb\nc\n', 'a\nb\nd', 'It begins as line 3 does, but line 5 is "c"'],
    [
      'white space further down',
      'a\n  b\n',
      'a\n\tb',
      'It stands at line 1 when white space is left aside: line 2 is "  b", where old_string has "\\tb".',
    ],
    [
      'a file that ends before',
      'a\nb',
      'b\nc',
      'It begins as line 2 does, but the file ends there, where old_string has "c".',
    ],
    ['several line ends', 'a\r\nb\nc\n', 'a\nb\nc', 'Edit those above line 2 apart from the others.'],
    ['a line end', 'a\nb\r\nc', 'a\nb\nc', 'line 2 ends in CR LF, the lines above it in LF. Edit those above line 2'],
    ['several line ends below', 'x\na\r\nb\nc\n', 'a\r\nb\r\nc', 'It stands at line 2, but with both kinds'],
    ['line ends after a part of a line', 'xa\r\nb\nc', 'a\nb\nc', 'It stands at line 1, but with both kinds'],
    ['line ends before a part of a line', 'a\nb\r\ncx', 'a\nb\nc', 'It stands at line 1, but with both kinds'],
    ['a line end that the file has not', 'a\nb\n', 'a\r\nb', 'line 1 is "a", where old_string has "a\\r"'],
    ['empty lines before it', 'a\nb\n', '\n\na\nb', 'but not the empty lines at its beginning'],
    ['line numbers', 'a\n  b\n', '1\ta\n2\t  b', 'without the numbers at the beginning of its lines'],
    ['HTML entities', 'if (a && b < c) {\n', 'if (a &amp;&amp; b &lt; c) {', 'has HTML entities'],
    ['escapes', 'say("a");\n\tb\n', 'say(\\"a\\");\\n\\tb', 'are read as escapes'],
    ['straight quotes', 'say “it’s”\n', 'say "it\'s"', 'with other quotes'],
    ['typographic quotes', 'say "it\'s"\n', 'say “it’s”', 'with other quotes'],
    ['letters of another composition', 'caf\u00e9\n', 'cafe\u0301', 'composed of other characters'],
    ['spaces that look alike', 'a\u00a0b\n', 'a b', 'line 1 is "a\\u00a0b", where old_string has "a b"'],
    ['white space alone', 'a\n', '\n\n', 'It is nothing but white space'],
  ])('a text that is absent: by %s', async (_name, content, oldText, expected) => {
    const { message } = await refusal(content, { old_string: oldText, new_string: 'x' });
    expect(message).toContain(expected);
  });

  test('a text that is absent: with the nearest line, or none', async () => {
    const content = 'alpha\nconst total = items.length;\nomega\n';
    const near = await refusal(content, { old_string: 'const totals = item.length;', new_string: 'x' });
    expect(near.message).toContain('The nearest line is line 2: "const total = items.length;"');
    const far = await refusal(content, { old_string: 'zzzzz', new_string: 'x' });
    expect(far.message).toContain('No line resembles it');
  });

  test('a long text that is absent from a long file', async () => {
    const { message } = await refusal('const alpha = 1;\n'.repeat(50_000), {
      old_string: 'abcdefghij'.repeat(5_000),
      new_string: 'x',
    });
    expect(message).toContain('No line resembles it');
  });

  test('a text that is not unique: with how often and where', async () => {
    const { code, message } = await refusal('a\nb\na\n', { old_string: 'a', new_string: 'x' });
    expect(code).toBe('PRECONDITION_FAILED');
    expect(message).toContain('found 2 times in "file", at lines 1, 3');
    expect(message).toContain('replace_all');
  });

  test.each([
    ['letters', 'xaaay', 'aa', 2, '1, 1'],
    ['lines', 'a\na\na\n', 'a\na\n', 2, '1, 2'],
    ['lines of CR LF', 'a\r\na\r\na\r\n', 'a\na\n', 2, '1, 2'],
    ['empty lines', 'a\n\n\n\nb', '\n\n', 3, '1, 2, 3'],
    ['blocks with a common border', '}\nx\n}\nx\n}\n', '}\nx\n}\n', 2, '1, 3'],
    ['lines that end in CR LF and in LF', 'a\r\nb\r\na\nb\n', 'a\nb\n', 2, '1, 3'],
  ])('%s that stand at places which overlap or look alike', async (_name, content, old_string, count, lines) => {
    const { code, message } = await refusal(content, { old_string, new_string: 'x' });
    expect({ code, message }).toMatchObject({
      code: 'PRECONDITION_FAILED',
      message: expect.stringContaining(`found ${count} times in "file", at lines ${lines};`),
    });
  });

  test('a new text that is the old one, and a file that is not UTF-8', async () => {
    expect((await refusal('a', { old_string: 'a', new_string: 'a' })).code).toBe('INVALID_PARAMS');
    const latin1 = Uint8Array.of(0x61, 0xe9, 0x62);
    expect((await refusal(latin1, { old_string: 'a', new_string: 'x' })).code).toBe('PRECONDITION_FAILED');
  });

  test('a missing file and a path that leaves the workspace (A11)', async () => {
    const ctx = testContext();
    const change = { old_string: 'a', new_string: 'b', replace_all: false };
    await expect(edit.run({ path: 'absent', ...change }, ctx)).rejects.toMatchObject({ code: 'NOT_FOUND' });
    await expect(edit.run({ path: '../x', ...change }, ctx)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
  });
});

describe('after a crash the file shows whether the edit happened', () => {
  test.each([
    ['the old text is there and the new one is not', 'old', 'old', 'new', 'not-done'],
    ['the new text is there and the old one is not', 'new', 'old', 'new', 'done'],
    ['the text to delete is gone', 'rest', 'old', '', 'done'],
    ['the text to delete is there', 'old rest', 'old', '', 'not-done'],
    ['neither is there', 'other', 'old', 'new', 'unknown'],
    ['both are there', 'old new', 'old', 'new', 'unknown'],
    ['the new text holds the old one, and is there', 'import a;', 'import', 'import a;', 'unknown'],
    ['the new text holds the old one, and is not there', 'import', 'import', 'import a;', 'not-done'],
  ])('%s', async (_case, content, oldText, newText, state) => {
    const ctx = await fileOf(content);
    const params = paramsOf({ old_string: oldText, new_string: newText });
    expect(await edit.probe?.(params, ctx)).toMatchObject({ state });
  });
});

test('an edit of more places, or to a longer file, than its worker can hold changes nothing', async () => {
  const many = await refusal('a'.repeat(1_000_001), { old_string: 'a', new_string: 'b', replace_all: true });
  expect(many).toMatchObject({ code: 'INVALID_PARAMS', message: expect.stringContaining('at most 1000000 places') });
  const long = await refusal('a\n'.repeat(5_000), {
    old_string: 'a',
    new_string: 'b'.repeat(4_000),
    replace_all: true,
  });
  expect(long).toMatchObject({ code: 'INVALID_PARAMS', message: expect.stringContaining('more than 16777216') });
});
