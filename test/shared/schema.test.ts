import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { z as z3 } from 'zod/v3';
import { PawlError } from '../../src/shared/failure.ts';
import { compileSchema, inputJsonSchema, nearest, outputJsonSchema, validatorOf } from '../../src/shared/schema.ts';

const weather = z.object({
  city: z.string().min(2).describe('City name'),
  units: z.enum(['celsius', 'fahrenheit']).default('celsius'),
  days: z.number().int().max(7).optional(),
  place: z.object({ lat: z.number(), lon: z.number().optional() }).optional(),
  tags: z.array(z.string()).optional(),
  mode: z.literal('fast').optional(),
});
const issues = compileSchema(inputJsonSchema(weather));

describe('faults are told so that the next attempt can succeed (A14, A15)', () => {
  test('what fits has no issues; defaults need not be sent', () => {
    expect(issues({ city: 'Paris' })).toEqual([]);
  });

  test.each([
    [{}, 'city', 'is required and missing'],
    [{ city: 'P' }, 'city', 'must NOT have fewer than 2 characters; got "P"'],
    [{ city: 7 }, 'city', 'must be string; got 7'],
    [{ city: 'Paris', days: 9 }, 'days', 'must be <= 7; got 9'],
    [{ city: 'Paris', days: '3' }, 'days', 'must be integer; got "3"'],
    [{ city: 'Paris', units: 'kelvin' }, 'units', 'must be one of "celsius", "fahrenheit"; got "kelvin"'],
    [{ city: 'Paris', mode: 'slow' }, 'mode', 'must be "fast"; got "slow"'],
    [{ city: 'Paris', place: { lon: 1 } }, 'place.lat', 'is required and missing'],
    [{ city: 'Paris', tags: ['a', 1] }, 'tags.1', 'must be string; got 1'],
    [
      { city: 'Paris', unit: 'celsius' },
      'unit',
      'is not a parameter; did you mean units? Allowed: city, units, days, place, tags, mode',
    ],
    [{ city: 'Paris', xyzzy: 1 }, 'xyzzy', 'is not a parameter. Allowed: city, units, days, place, tags, mode'],
    ['Paris', '', 'must be object; got "Paris"'],
    [undefined, '', 'must be object; got undefined'],
  ])('%j: %s %s', (value, path, message) => {
    expect(issues(value)).toEqual([{ path, message }]);
  });

  test('several faults are told together, ten at most, and long values are cut', () => {
    const paths = issues({ days: 1.5, units: 1 }).map((issue) => issue.path);
    expect([...new Set(paths)].sort()).toEqual(['city', 'days', 'units']);
    const many = Object.fromEntries(Array.from({ length: 30 }, (_, index) => [`x${index}`, 1]));
    expect(issues({ city: 'Paris', ...many })).toHaveLength(10);
    expect(issues({ city: 1, mode: 'x'.repeat(500) })[1]?.message).toHaveLength('must be "fast"; got '.length + 81);
  });

  test('a misspelt parameter inside an object is refused as well, not lost in silence', () => {
    expect(issues({ city: 'Paris', place: { lat: 1, lng: 2 } }).map((issue) => issue.path)).toEqual(['place.lng']);
  });
});

describe('own properties only', () => {
  test.each(['constructor', 'toString', '__proto__', 'hasOwnProperty'])(
    'an inherited %s does not satisfy `required`',
    (name) => {
      const validate = compileSchema({ type: 'object', properties: { [name]: {} }, required: [name] });
      expect(validate({})).toEqual([{ path: name, message: 'is required and missing' }]);
    },
  );

  test('names with slashes and tildes are told as they are', () => {
    const validate = compileSchema({
      type: 'object',
      properties: { 'a/b': { type: 'object', properties: { '~c': { type: 'string' } } } },
    });
    expect(validate({ 'a/b': { '~c': 1 } })[0]?.path).toBe('a/b.~c');
  });
});

describe('JSON Schema 2020-12 from zod', () => {
  test('the input side is what callers send, the output side what comes out', () => {
    const schema = z.object({ a: z.string().default('x'), b: z.string().transform((text) => text.length) });
    expect(inputJsonSchema(schema)).toEqual({
      type: 'object',
      properties: { a: { default: 'x', type: 'string' }, b: { type: 'string' } },
      required: ['b'],
      additionalProperties: false,
    });
    expect(outputJsonSchema(z.object({ a: z.string() }))).toMatchObject({ required: ['a'] });
  });

  test('a loose object stays open', () => {
    expect(compileSchema(inputJsonSchema(z.looseObject({ a: z.string() })))({ a: 'x', b: 1 })).toEqual([]);
    expect(compileSchema(inputJsonSchema(z.record(z.string(), z.number())))({ b: 1 })).toEqual([]);
  });

  test('an intersection of objects accepts what both describe', () => {
    const both = z.intersection(z.object({ a: z.string() }), z.object({ b: z.string() }));
    expect(compileSchema(inputJsonSchema(both))({ a: 'x', b: 'y' })).toEqual([]);
  });

  test('a union of objects accepts each of them', () => {
    const either = z.object({
      at: z.discriminatedUnion('kind', [
        z.object({ kind: z.literal('a'), x: z.number() }),
        z.object({ kind: z.literal('b') }),
      ]),
    });
    const validate = compileSchema(inputJsonSchema(either));
    expect(validate({ at: { kind: 'a', x: 1 } })).toEqual([]);
    expect(validate({ at: { kind: 'b' } })).toEqual([]);
    expect(validate({ at: { kind: 'a' } })).not.toEqual([]);
  });

  test.each([
    ['a date', z.object({ at: z.date() })],
    ['a bigint', z.bigint()],
    ['a map', z.map(z.string(), z.string())],
  ])('%s has no JSON form: CONFIGURATION, when the tool is defined', (_what, schema) => {
    expect(() => inputJsonSchema(schema)).toThrow(PawlError);
  });

  test('a schema that is not valid is refused at once', () => {
    for (const schema of [{ type: 'objekt' }, { $id: {} }, { $id: 7, type: 'objekt' }])
      expect(() => compileSchema(schema)).toThrow('The schema is not valid JSON Schema 2020-12');
  });

  test('what a worker may be given is compiled at once where it may have a fault, and when it is used where zod made it', () => {
    expect(() => validatorOf({ type: 'objekt' })).toThrow('The schema is not valid JSON Schema 2020-12');
    expect(() => validatorOf(inputJsonSchema(z.object({ a: z.string().regex(/(?=a)b/) })))).toThrow('linear time');
    const validate = validatorOf(inputJsonSchema(z.object({ a: z.number(), pattern: z.string().regex(/^b/) })));
    expect(validate({ a: 1, pattern: 'b' })).toEqual([]);
    expect(validate({ a: '1', pattern: 'c' }).map(({ path }) => path)).toEqual(['a', 'pattern']);
  });

  test('formats that nobody knows restrict nothing, and nothing is printed of them', () => {
    const print = vi.spyOn(console, 'warn');
    onTestFinished(() => print.mockRestore());
    expect(compileSchema({ type: 'integer', format: 'uint32' })(7)).toEqual([]);
    expect(print).not.toHaveBeenCalled();
  });

  test('formats are checked', () => {
    const validate = compileSchema(inputJsonSchema(z.object({ to: z.email() })));
    expect(validate({ to: 'ada@example.org' })).toEqual([]);
    expect(validate({ to: 'ada' })[0]?.path).toBe('to');
  });
});

describe('the nearest names', () => {
  const names = ['read', 'write', 'edit', 'shell', 'web_search', 'web_fetch', 'memory_search'];
  test.each([
    ['raed', ['read']],
    ['READ', ['read']],
    ['search', ['web_search', 'memory_search']],
    ['read_file', ['read']],
    ['web_serch', ['web_search', 'web_fetch']],
    ['quux_frobnicate', []],
  ])('%s: %j', (word, expected) => {
    expect(nearest(word, names)).toEqual(expected);
  });

  test('at most three', () => {
    expect(nearest('a', ['ab', 'ac', 'ad', 'ae'])).toHaveLength(3);
  });
});

test.each([
  [undefined, 'got nothing'],
  ['text', 'got string'],
  [z3.object({ city: z3.string() }), 'this one is of zod 3'],
  [
    { city: z.string() },
    'got another object: z.object({ … }) makes one, and defineUntypedTool takes plain JSON Schema',
  ],
])('what is no schema of zod 4 is told as such: %#', (given, what) => {
  const make = () => inputJsonSchema(given as never);
  expect(make).toThrow(new PawlError('CONFIGURATION', `\`input\` must be a schema of zod 4; ${what}.`));
});
