import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isLong, JsonReader, jsonPieces, jsonText } from '../../../../src/shared/util/json/json-stream.ts';

const LONG = 70_000;

/** Values, about every other one of which is long. */
const values = fc.letrec<{ any: unknown }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 4 },
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.nat({ max: 25_000 }).map((count) => 'a\\"é🙂\ud83d\n'.repeat(count)),
    fc.nat({ max: 25_000 }).map((count) => 'prose é🙂\u2028\u007f\n'.repeat(count)),
    fc.double(),
    fc.constantFrom<unknown>(true, null, undefined, () => 1, new Date(0), new String('boxed')),
    fc.array(tie('any'), { maxLength: 6 }),
    fc.dictionary(fc.oneof(fc.string(), fc.constantFrom('__proto__', '7', 'constructor')), tie('any'), { maxKeys: 5 }),
  ),
})).any;

function readIn(steps: number, text: string): unknown {
  const reader = new JsonReader();
  for (let from = 0; from < text.length; from += steps) reader.push(text.slice(from, from + steps));
  return reader.end();
}

describe('JSON in pieces', () => {
  test('equals the text of JSON.stringify, and is read as JSON.parse reads it, wherever it is cut', () => {
    fc.assert(
      fc.property(values, fc.integer({ min: 1, max: 3 * LONG }), (value, steps) => {
        const text = JSON.stringify(value);
        expect(jsonText(value) === text).toBe(true);
        if (text === undefined) return;
        if (isLong(value)) expect([...jsonPieces(value)].join('') === text).toBe(true);
        const read = readIn(text.length > 5_000 ? Math.max(steps, 997) : steps, text);
        expect(JSON.stringify(read) === JSON.stringify(JSON.parse(text))).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  test.each<[string, unknown]>([
    ['a text whose pairs of surrogates stand on every boundary', `x${'🙂'.repeat(LONG)}`],
    ['a text of nothing but what is escaped', '\u0001"\\'.repeat(LONG)],
    ['a text of halves of pairs', '\ud83d'.repeat(LONG)],
    ['many short items', Array.from({ length: 30_000 }, (_, index) => ({ index, name: `item ${index}` }))],
    ['short items between long ones', [1, 'x'.repeat(LONG), 2, undefined, ['y'.repeat(LONG)], {}, 'z'.repeat(LONG)]],
    ['an object whose only member is long', { member: 'x'.repeat(LONG) }],
    ['members without JSON', { no: undefined, long: 'x'.repeat(LONG), function: () => 1 }],
    ['an object that is nested deep, around something long', nested(40, 'x'.repeat(LONG))],
    ['names that objects inherit', JSON.parse(`{"__proto__":${JSON.stringify('x'.repeat(LONG))},"constructor":1}`)],
    ['the bytes of a buffer', { bytes: Buffer.alloc(LONG, 'bytes') }],
    ['numbers in one block', [new Float64Array(LONG).fill(0.5).fill(Number.NaN, 5_000), new Int8Array([1, -1])]],
    ['a long name', { ['n'.repeat(LONG)]: 'x'.repeat(LONG) }],
  ])('%s', (_what, value) => {
    expect(isLong(value)).toBe(true);
    const text = JSON.stringify(value);
    expect([...jsonPieces(value)].join('') === text).toBe(true);
    for (const steps of [4_093, 65_536, 262_144, text.length]) {
      const read = readIn(steps, text);
      expect(JSON.stringify(read) === text).toBe(true);
      expect(Object.getPrototypeOf(read)).toBe(Object.getPrototypeOf(value));
    }
  });

  test('numbers in one block are written only as far as the reader takes them: all at once they would exhaust the memory', () => {
    const bytes = 2 ** 28;
    for (const [numbers, start] of [
      [new Uint8Array(bytes), '{"0":0,"1":0,'],
      [Buffer.alloc(bytes), '{"type":"Buffer","data":[0,0,'],
    ] as const) {
      expect(isLong(numbers)).toBe(true);
      expect(jsonPieces(numbers).next().value?.startsWith(start)).toBe(true);
    }
    expect(() => [...jsonPieces(new BigInt64Array(LONG))]).toThrow('BigInt');
  });

  test('a value that is not JSON-serializable is refused as JSON.stringify refuses it', () => {
    const circle: Record<string, unknown> = { long: 'x'.repeat(LONG) };
    circle['itself'] = circle;
    for (const value of [circle, { long: 'x'.repeat(LONG), count: 1n }]) {
      expect(() => JSON.stringify(value)).toThrow(TypeError);
      expect(() => [...jsonPieces(value)]).toThrow(TypeError);
    }
  });

  test('a text in one piece equals that of JSON.stringify, for every character in it', () => {
    for (let code = 0; code < 0x1_00; code += 1) {
      const character = String.fromCharCode(code);
      for (const text of [`${'x'.repeat(5_000)}\n${character}y`, `${'→'.repeat(5_000)}${character}`])
        expect(jsonText({ content: { text } })).toBe(JSON.stringify({ content: { text } }));
    }
    for (const text of ['\ud83d', '\udc00\ud83d', '\u2028', '🙂'].map(
      (character) => `${character}${'x'.repeat(5_000)}`,
    ))
      expect(jsonText([text, 1])).toBe(JSON.stringify([text, 1]));
  });

  test.each(['', '[1', '{"a":', '1,2', `["${'x'.repeat(LONG)}`, '[1]]', '[tru]'])('%s is no JSON', (text) => {
    expect(() => readIn(LONG, text)).toThrow(SyntaxError);
  });
});

function nested(depth: number, innermost: unknown): unknown {
  let value = innermost;
  for (let level = 0; level < depth; level += 1) value = level % 2 === 0 ? [level, value] : { level, value };
  return value;
}
