import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  isLongInteger,
  parseWithLongNumbersAsText,
  readExactJson,
} from '../../../../src/shared/util/json/exact-json.ts';
import { cpuMsOf } from '../../../helpers/cpu.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

describe('reading JSON exactly as it was sent', () => {
  test('keeps every JSON value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        const expected = { kind: 'value', value: JSON.parse(text) as unknown };
        expect(readExactJson(text)).toEqual(expected);
        expect(readExactJson(bytes(text.toWellFormed()))).toMatchObject({ kind: 'value' });
      }),
    );
  });

  test('accepts a whole number if and only if no digit of it changes', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: -(10n ** 25n), max: 10n ** 25n }), (number) => {
        const read = readExactJson(`{"a":[{"id":${number}}]}`);
        const isKept = Number.isSafeInteger(Number(number)) || String(Number(number)) === String(number);
        expect(read.kind).toBe(isKept ? 'value' : 'problem');
        if (read.kind === 'problem') expect(read.problem).toContain(String(number).slice(0, 10));
      }),
    );
  });

  test.each([
    ['{"id":9007199254740993}', /^holds 9007199254740993 as "id".* send it as a text$/],
    ['[-9007199254740993]', /^holds -9007199254740993/],
    ['{"id":9007199254740993.0}', /^holds 9007199254740993\.0 as "id"/],
    ['[-12345678901234567.000]', /^holds -12345678901234567\.000/],
    [`{"id":1${'0'.repeat(400)}}`, /^holds 1000.*…/],
    ['{"id":9007199254740993e0}', /^holds 9007199254740993e0 as "id"/],
    ['[-90071992547409930E-1]', /^holds -90071992547409930E-1/],
    ['[9.007199254740993e+15]', /^holds 9.007199254740993e\+15/],
    ['[0.09007199254740993e17]', /^holds 0.09007199254740993e17/],
    ['{"big":1e400}', /^holds 1e400 as "big"/],
    ['{"big":-1E+999}', /^holds -1E\+999/],
    [`${'['.repeat(200_000)}9007199254740993${']'.repeat(200_000)}`, /nested too deeply|9007199254740993/],
    [`${'['.repeat(2_000_000)}${']'.repeat(2_000_000)}`, /^is nested too deeply$/],
    ['the order 9007199254740993', /^is not JSON/],
    ['{"a\\q":9007199254740993}', /^is not JSON/],
    ['{"a\\"b":9007199254740993}', /^holds 9007199254740993 as "a\\"b",/],
    ['{"a":1,"b":[9007199254740993]}', /^holds 9007199254740993, which/],
    ['{', /^is not JSON/],
    ['', /^is not JSON/],
  ])('refuses %.40s', (text, problem) => {
    expect(readExactJson(text)).toEqual({ kind: 'problem', problem: expect.stringMatching(problem) });
  });

  test.each([
    ['9007199254740992', 9_007_199_254_740_992],
    ['{"a":0.12345678901234567890}', { a: 0.123_456_789_012_345_68 }],
    ['{"a":1e21,"b":1E+023}', { a: 1e21, b: 1e23 }],
    ['[9007199254740992e0,9.007199254740991e15,602214076e15]', [2 ** 53, 2 ** 53 - 1, 6.022_140_76e23]],
    ['[12345678901234567890e-5,9007199254740993.5]', [123_456_789_012_345.67, 9_007_199_254_740_994]],
    ['[9007199254740992.0,12345678901234567.50]', [9_007_199_254_740_992, 12_345_678_901_234_568]],
    ['{"a":"9007199254740993"}', { a: '9007199254740993' }],
    ['\uFEFF{"a":1}', { a: 1 }],
  ])('accepts %s', (text, value) => {
    expect(readExactJson(text)).toEqual({ kind: 'value', value });
    expect(readExactJson(bytes(text))).toEqual({ kind: 'value', value });
  });

  test.each([
    ['many numbers beside one long text of digits', `[${'1,'.repeat(1_000_000)}"12345678901234567890"]`],
    ['many members beside one long fraction', `[${'{"a":1},'.repeat(200_000)}0.12345678901234567]`],
    ['many numbers beyond all numbers', `[${'1e400,'.repeat(300_000)}1]`],
    ['brackets within brackets', `${'['.repeat(1_000_000)}${']'.repeat(1_000_000)}`],
    ['a text of escaped marks', `"${'\\"'.repeat(1_000_000)}"`],
    ['a text of backslashes', `"${'\\\\'.repeat(1_000_000)}"`],
  ])('takes about as long as JSON.parse for %s', async (_name, text) => {
    const limitMs = 5 * (await cpuMsOf(() => JSON.parse(`[${'[],'.repeat(500_000)}1]`)));
    expect(await cpuMsOf(() => readExactJson(text))).toBeLessThan(limitMs);
  });

  test('refuses bytes that are not UTF-8', () => {
    for (const odd of [[0xff], [0xc3, 0x28], [0xed, 0xa0, 0x80], [0xe4], [0xc0, 0x80], [0xf5, 0x80, 0x80, 0x80]]) {
      const body = Buffer.concat([bytes('{"a":"'), Buffer.from(odd), bytes('"}')]);
      expect(readExactJson(body)).toEqual({ kind: 'problem', problem: 'is not UTF-8' });
    }
  });

  test('keeps members with the names that objects inherit', () => {
    const read = readExactJson('{"__proto__":{"id":1234567890123456},"constructor":1}');
    expect(read.kind === 'value' && JSON.stringify(read.value)).toBe(
      '{"__proto__":{"id":1234567890123456},"constructor":1}',
    );
  });
});

test('long numbers of an answer become texts, and nothing else changes', () => {
  const text =
    '{"a":[-9007199254740993,9007199254740993.00,1e400,9.007199254740993e15,1e23,9007199254740992,0.125456789012345],"9007199254740993":"\\"9007199254740993"}';
  expect(parseWithLongNumbersAsText(text)).toEqual({
    a: [
      '-9007199254740993',
      '9007199254740993',
      '1e400',
      '9.007199254740993e15',
      1e23,
      '9007199254740992',
      0.125_456_789_012_345,
    ],
    '9007199254740993': '"9007199254740993',
  });
  expect(() => parseWithLongNumbersAsText('{9007199254740993:1}')).toThrow(SyntaxError);
  const keep = (_name: string, value: unknown, { source = '' }: { readonly source?: string } = {}): unknown =>
    typeof value === 'number' && isLongInteger(source) ? source : value;
  fc.assert(
    fc.property(fc.jsonValue(), fc.integer({ min: 0, max: 2 }), (value, indent) => {
      const json = JSON.stringify([value, '9007199254740993'], undefined, indent);
      expect(parseWithLongNumbersAsText(json)).toEqual(JSON.parse(json, keep));
    }),
  );
});
