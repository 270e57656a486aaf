import { createRequire } from 'node:module';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { z as z3 } from 'zod/v3';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { compileSchema, inputJsonSchema, outputJsonSchema, parseWith } from '../../../src/shared/schema/schema.ts';
import { validatorOf } from '../../../src/shared/schema/validator.ts';

const weather = z.object({
  city: z.string().min(2).describe('City name'),
  units: z.enum(['celsius', 'fahrenheit']).default('celsius'),
  days: z.number().int().max(7).optional(),
  place: z.object({ lat: z.number(), lon: z.number().optional() }).optional(),
  tags: z.array(z.string()).optional(),
  mode: z.literal('fast').optional(),
});
const issues = compileSchema(inputJsonSchema(weather));

describe('issues help the next attempt to succeed (A14, A15)', () => {
  test('a fitting value has no issues; defaults need not be sent', () => {
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
      'is unknown; did you mean units? Allowed: city, units, days, place, tags, mode',
    ],
    [{ city: 'Paris', xyzzy: 1 }, 'xyzzy', 'is unknown. Allowed: city, units, days, place, tags, mode'],
    ['Paris', '', 'must be object; got "Paris"'],
    [undefined, '', 'must be object; got undefined'],
  ])('%j: %s %s', (value, path, message) => {
    expect(issues(value)).toEqual([{ path, message }]);
  });

  test('several issues come together, ten at most, and long values are cut', () => {
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

describe('a wrong argument in a union is explained by the intended alternative', () => {
  const tagged = z.discriminatedUnion('op', [
    z.object({ op: z.literal('create'), title: z.string(), tags: z.array(z.string()).optional() }),
    z.object({ op: z.enum(['rename', 'move']), to: z.string() }),
    z.object({ op: z.literal('delete'), id: z.number() }),
  ]);
  const named = tagged.options.map((option, index) => option.meta({ id: `Option${index}` }));
  test.each([
    ['inline', compileSchema(inputJsonSchema(z.object({ do: tagged })))],
    ['as a plain choice', compileSchema(inputJsonSchema(z.object({ do: z.union(tagged.options) })))],
    ['by name', compileSchema(inputJsonSchema(z.object({ do: z.union(named) })))],
  ])('which its tag shows: %s', (_how, validate) => {
    expect(validate({ do: { op: 'move', to: 'x' } })).toEqual([]);
    expect(validate({ do: { op: 'move', to: 7 } })).toEqual([{ path: 'do.to', message: 'must be string; got 7' }]);
    expect(validate({ do: { op: 'delete' } })).toEqual([{ path: 'do.id', message: 'is required and missing' }]);
    const allowed = '"create", "rename", "move", "delete"';
    expect(validate({ do: { op: 'remove' } })).toEqual([
      { path: 'do.op', message: `must be one of ${allowed}; got "remove"` },
    ]);
    expect(validate({ do: {} })).toEqual([
      { path: 'do.op', message: `is required and missing; it is one of ${allowed}` },
    ]);
    expect(validate({ do: 7 })).toEqual([{ path: 'do', message: 'must be object; got 7' }]);
  });

  test('which its type shows, without issues of the others', () => {
    const validate = compileSchema(inputJsonSchema(z.object({ at: z.object({ x: z.number() }).nullable() })));
    expect(validate({ at: { x: 'y' } })).toEqual([{ path: 'at.x', message: 'must be number; got "y"' }]);
  });

  test('whose tag is optional, without issues of the others', () => {
    const either = z.union([
      z.object({ by: z.literal('mail').optional(), to: z.email() }),
      z.object({ by: z.literal('phone').optional(), to: z.number() }),
    ]);
    expect(compileSchema(inputJsonSchema(either))({ by: 'phone', to: 'x' })).toEqual([
      { path: 'to', message: 'must be number; got "x"' },
    ]);
  });

  test('where nothing shows it, "no alternative fits" comes last', () => {
    const validate = compileSchema(inputJsonSchema(z.object({ a: z.union([z.string().min(1), z.number().min(1)]) })));
    expect(validate({ a: true }).map(({ message }) => message.split(';')[0])).toEqual([
      'must be string',
      'must be number',
      'must match a schema in anyOf',
    ]);
  });

  test('OpenAPI’s own keyword for tags does no harm', () => {
    const option = (op: string) => ({ type: 'object', properties: { op: { const: op } }, required: ['op'] });
    const discriminator = { propertyName: 'op', mapping: { a: '#/oneOf/0' } };
    const validate = compileSchema({ oneOf: [option('a'), option('b')], discriminator });
    expect(validate({ op: 'b' })).toEqual([]);
    expect(validate({ op: 'c' })).toHaveLength(1);
    // A reference into the choice itself.
    const more = { type: 'object', properties: { again: { $ref: '#/anyOf/0' } } };
    expect(compileSchema({ ...more, anyOf: [option('a'), option('b')] })({ op: 'a', again: { op: 'a' } })).toEqual([]);
  });

  test('long issues are cut', () => {
    const names = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`name_${index}`, z.string()]));
    const [issue] = compileSchema(inputJsonSchema(z.object({ of: z.object(names).partial() })))({ of: { x: 1 } });
    expect(issue?.message).toHaveLength(301);
  });

  test('however deep unions nest, each is checked once', () => {
    const args = { type: 'array', items: { $ref: '#/$defs/Filter' } };
    const option = (op: string, properties: object) => ({
      type: 'object',
      properties: { ...properties, op: { const: op } },
      required: ['op'],
    });
    const $defs = {
      Filter: { oneOf: ['and', 'or', 'nor'].map((op) => option(op, { args })).concat(option('eq', {})) },
    };
    const validate = compileSchema({ type: 'object', properties: { filter: { $ref: '#/$defs/Filter' } }, $defs });
    const nested = (leaf: object) =>
      Array.from({ length: 60 }).reduce<object>((inner) => ({ args: [inner], op: 'nor' }), leaf);
    expect(validate({ filter: nested({ op: 'eq' }) })).toEqual([]);
    expect(validate({ filter: nested({ op: 'is' }) })).toEqual([
      { path: expect.stringMatching(/^filter(\.args\.0){60}\.op$/), message: expect.stringContaining('got "is"') },
    ]);
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

  test('names with slashes and tildes are quoted as they are', () => {
    const validate = compileSchema({
      type: 'object',
      properties: { 'a/b': { type: 'object', properties: { '~c': { type: 'string' } } } },
    });
    expect(validate({ 'a/b': { '~c': 1 } })[0]?.path).toBe('a/b.~c');
  });
});

describe('JSON Schema 2020-12 from zod', () => {
  test('the input side describes parameters, the output side parsed ones', () => {
    const schema = z.object({ a: z.string().default('x'), b: z.string().transform((text) => text.length) });
    expect(inputJsonSchema(schema)).toEqual({
      type: 'object',
      properties: { a: { default: 'x', type: 'string' }, b: { type: 'string' } },
      required: ['b'],
      additionalProperties: false,
    });
    expect(outputJsonSchema(z.object({ a: z.string() }))).toMatchObject({ required: ['a'] });
  });

  test('misspelt parameters of named and recursive objects are refused as well', () => {
    const Address = z.object({ street: z.string(), floor: z.number().optional() }).meta({ id: 'Address' });
    const Person = z.object({
      home: Address,
      get friends() {
        return z.array(Person).optional();
      },
    });
    const validate = compileSchema(inputJsonSchema(z.object({ who: Person })));
    const home = { street: 'x' };
    expect(validate({ who: { home, friends: [{ home }] } })).toEqual([]);
    expect(validate({ who: { home: { ...home, flor: 1 } } })[0]?.path).toBe('who.home.flor');
    expect(validate({ who: { home, friends: [{ home, nick: 1 }] } })[0]?.path).toBe('who.friends.0.nick');
    expect(validate({ who: { home, friends: [{ home: { ...home, flor: 1 } }] } })[0]?.message).toContain('floor?');
  });

  test('an intersection of named objects accepts the members of both, and its definitions stay open elsewhere', () => {
    const Inner = z.object({ c: z.string() }).meta({ id: 'Inner' });
    const One = z.object({ a: z.string(), inner: Inner }).meta({ id: 'One' });
    const Two = z.object({ b: z.string(), inner: z.object({ d: z.string() }) }).meta({ id: 'Two' });
    const Apart = z.object({ e: z.string() }).meta({ id: 'Apart' });
    const validate = compileSchema(
      inputJsonSchema(z.object({ both: z.intersection(One, Two), one: One.optional(), apart: Apart.optional() })),
    );
    const both = { a: 'x', b: 'y', inner: { c: 'z', d: 'z' } };
    expect(validate({ both, one: both })).toEqual([]);
    expect(validate({ both, apart: { e: 'x', f: 'y' } })[0]?.path).toBe('apart.f');
  });

  test('a loose object stays open', () => {
    expect(compileSchema(inputJsonSchema(z.looseObject({ a: z.string() })))({ a: 'x', b: 1 })).toEqual([]);
    expect(compileSchema(inputJsonSchema(z.record(z.string(), z.number())))({ b: 1 })).toEqual([]);
  });

  test('an intersection of objects accepts the members of both', () => {
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
    ['a pattern that ignores case', z.string().regex(/^abc$/i), ['ABC', 'abc'], ['abd', 'xABC']],
    ['a pattern of lines', z.string().regex(/^b$/m), ['a\nb', 'b'], ['ab']],
    ['a dot that takes line ends', z.string().regex(/^a.b$/s), ['a\nb'], ['ab']],
    ['patterns with and without flags', z.string().regex(/A/i).regex(/b/).startsWith('x'), ['xab'], ['xaB', 'ab']],
    ['a pattern of an email address', z.email({ pattern: /^a@b\.c$/i }), ['A@B.c'], ['x@b.c']],
    ['a class of two classes, which zod alone checks', z.string().regex(/^[\p{L}--[a-z]]+$/v), ['A', 'a'], [1]],
    ['a bound that bounds nothing', z.number().min(-Infinity).max(Infinity), [1e300, -1], ['1']],
    ['a list without places', z.tuple([]), [[]], [[1]]],
    ['a choice without alternatives', z.union([] as unknown as [z.ZodString]), [], ['a', null]],
  ])('%s accepts what zod does', (_what, schema: z.ZodType, valid: unknown[], invalid: unknown[]) => {
    const input = inputJsonSchema(z.object({ a: schema }));
    const check = compileSchema(JSON.parse(JSON.stringify(input)));
    for (const a of valid) expect(check({ a }), JSON.stringify(a)).toEqual([]);
    for (const a of invalid) expect(check({ a }), JSON.stringify(a)).not.toEqual([]);
  });

  test.each([
    ['a date', z.object({ at: z.date() })],
    ['a bigint', z.bigint()],
    ['a map', z.map(z.string(), z.string())],
  ])('%s has no JSON form, which is CONFIGURATION when the tool is defined', (_what, schema) => {
    expect(() => inputJsonSchema(schema)).toThrow(PawlError);
  });

  test('a schema that is not valid is refused at once', () => {
    for (const schema of [{ type: 'objekt' }, { $id: {} }, { $id: 7, type: 'objekt' }])
      expect(() => compileSchema(schema)).toThrow('The schema is not valid JSON Schema 2020-12');
  });

  test('a schema that may have a fault is compiled at once, and one that zod made at its first use', async () => {
    expect(() => validatorOf({ type: 'objekt' })).toThrow('The schema is not valid JSON Schema 2020-12');
    expect(() => validatorOf(inputJsonSchema(z.object({ a: z.string().regex(/(?=a)b/) })))).toThrow('linear time');
    const validate = validatorOf(inputJsonSchema(z.object({ a: z.number(), pattern: z.string().regex(/^b/) })));
    expect(validate({ a: 1, pattern: 'b' })).toEqual([]);
    expect((await validate({ a: '1', pattern: 'c' })).map(({ path }) => path)).toEqual(['a', 'pattern']);
  });

  test('unknown formats restrict nothing, and no warning is printed', () => {
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

test.each([
  [undefined, 'got nothing'],
  ['text', 'got string'],
  [z3.object({ city: z3.string() }), 'this one is of zod 3'],
  [
    { city: z.string() },
    'got another object: z.object({ … }) makes one, and defineUntypedTool takes plain JSON Schema',
  ],
])('a value that is no schema of zod 4 is named: %#', (given, what) => {
  const make = () => inputJsonSchema(given as never);
  expect(make).toThrow(new PawlError('CONFIGURATION', `\`input\` must be a schema of zod 4; ${what}.`));
});

describe('a zod type that JSON does not have is named by its place, with what to use instead', () => {
  const fixed = (): never => {
    throw new Error('no constant');
  };
  const types: readonly (readonly [string, z.ZodType, RegExp])[] = [
    ['a date', z.date(), /Date .*z\.iso\.datetime\(\)/],
    ['a date that may be absent or null', z.date().nullable().optional().describe('When.'), /Date .*z\.iso/],
    ['a coerced date', z.coerce.date(), /Date .*z\.iso/],
    ['a bigint', z.bigint().default(1n), /BigInt.*z\.string\(\)/],
    ['a map', z.map(z.string(), z.string()), /Map .*z\.record\(\)/],
    ['a set', z.set(z.string()), /Set .*z\.array\(\)/],
    ['a transform without a schema before it', z.transform(String), /Transforms .*before the transform/],
    ['a type of its own', z.custom(() => true), /Custom .*\.refine\(\)/],
    ['an instance', z.instanceof(URL), /Custom /],
    ['nothing', z.undefined(), /Undefined .*\.optional\(\)/],
    ['no number', z.nan(), /NaN .*z\.number\(\)/],
    ['a constant bigint', z.literal(1n), /BigInt literals/],
    ['a fallback that is computed', z.string().catch(fixed), /catch/],
  ];
  const places: readonly (readonly [string, (part: z.ZodType) => z.ZodType])[] = [
    ['', (part) => part],
    ['.at', (part) => z.object({ id: z.string(), at: part })],
    ['.orders[].at', (part) => z.object({ orders: z.array(z.object({ at: part })) })],
    ['.union', (part) => z.object({ union: z.union([z.string(), part]) })],
    ['.pair[1]', (part) => z.object({ pair: z.tuple([z.string(), part]) })],
    ['.byName.*', (part) => z.object({ byName: z.record(z.string(), part) })],
    ['.first', (part) => z.object({ first: part, second: z.object({ third: part }) })],
  ];

  test.each(types)('%s', (_name, type, text) => {
    for (const [place, around] of places)
      for (const [io, convert] of [
        ['input', inputJsonSchema],
        ['output', outputJsonSchema],
      ] as const) {
        const message = errorOf(() => convert(around(type))).message;
        expect(message).toMatch(text);
        expect(message).toContain(`no JSON Schema form: ${io}${place}: `);
      }
  });

  test('each of several', () => {
    const several = z.object({ at: z.date(), list: z.array(z.bigint()) });
    expect(errorOf(() => inputJsonSchema(several)).message).toMatch(/input\.at: Date .*; input\.list\[\]: BigInt/);
  });
});

function errorOf(action: () => unknown): Error {
  try {
    action();
  } catch (error) {
    return error as Error;
  }
  throw new Error('nothing was thrown');
}

describe('schemas of another copy of zod', () => {
  const REGISTRY = '__zod_globalRegistry';

  /** Loads a second copy, with classes and a registry of its own, as versions before 4.2 have them. */
  function otherZod(): typeof z {
    const registry = Reflect.get(globalThis, REGISTRY);
    Reflect.deleteProperty(globalThis, REGISTRY);
    try {
      return createRequire(import.meta.url)('zod').z;
    } finally {
      Reflect.set(globalThis, REGISTRY, registry);
    }
  }
  const other = otherZod();

  test('have the descriptions, titles and examples that they were given', () => {
    expect(other.globalRegistry).not.toBe(z.globalRegistry);
    const parts = (from: typeof z) =>
      from
        .object({
          city: from.string().describe('City name'),
          days: from.array(from.number().meta({ title: 'Day', examples: [3] })).optional(),
          home: from.object({ street: from.string().describe('Street') }).describe('Home'),
        })
        .describe('A trip');
    expect(inputJsonSchema(parts(other))).toEqual(inputJsonSchema(parts(z)));
    expect(outputJsonSchema(parts(other))).toEqual(outputJsonSchema(parts(z)));
    expect(inputJsonSchema(parts(other))).toMatchObject({
      description: 'A trip',
      properties: { city: { description: 'City name' } },
    });
    expect(inputJsonSchema(other.object({ at: z.string().describe('Of this copy') }))).toMatchObject({
      properties: { at: { description: 'Of this copy' } },
    });
  });

  test('are at fault themselves where they are asynchronous, not the parameters', () => {
    for (const from of [z, other]) {
      const schema = from.object({ city: from.string().refine(async () => true) });
      expect(() => parseWith(schema, { city: 'Paris' })).toThrow(
        expect.objectContaining({ code: 'TOOL_FAILED', message: expect.stringContaining('asynchronous') }),
      );
    }
  });
});
