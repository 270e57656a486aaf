import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { EFFECTS, type Effects } from '../../../src/shared/retries/effects.ts';
import { defaultEffects, defineTool } from '../../../src/shared/tools/define-tool.ts';
import { isTool, qualifiedName, TIERS, type Tier } from '../../../src/shared/tools/tool.ts';

const spec = {
  name: 'get_weather',
  version: '1.0.0',
  description: 'Current weather of a city.',
  tier: 'read-only' as Tier,
  input: z.object({ city: z.string(), units: z.enum(['celsius', 'fahrenheit']).default('celsius') }),
  run: () => ({ output: 1 }),
};

describe('A1: a tool', () => {
  test('has defaults for all absent options', () => {
    expect(defineTool(spec)).toMatchObject({
      name: 'get_weather',
      namespace: 'tools',
      effects: 'none',
      annotations: {},
      needs: [],
      timeoutMs: 30_000,
      maxResultBytes: 16 * 1_024 * 1_024,
      retry: {},
      circuit: {},
    });
  });

  test('publishes the schema that callers need, and applies its own defaults', () => {
    const tool = defineTool(spec);
    expect(tool.inputSchema).toMatchObject({ required: ['city'], additionalProperties: false });
    expect(tool.parse({ city: 'Paris' })).toEqual({ city: 'Paris', units: 'celsius' });
  });

  test('is recognised as a tool, and no other value is', () => {
    expect(isTool(defineTool(spec))).toBe(true);
    for (const other of [spec, null, undefined, 'read', () => {}]) expect(isTool(other)).toBe(false);
  });

  test('may need a handle of the context, which stands for its capabilities, or for the read-only ones', () => {
    const needs = ['workspace', 'memory', 'fetch', 'memory:search'] as const;
    const every = ['workspace:read', 'workspace:write', 'memory:search', 'memory:store', 'network'];
    expect(defineTool({ ...spec, tier: 'workspace', needs }).needs).toEqual(every);
    expect(defineTool({ ...spec, needs }).needs).toEqual(['workspace:read', 'memory:search', 'network']);
  });

  test('has a qualified name', () => {
    expect(qualifiedName(defineTool({ ...spec, namespace: 'weather.eu' }))).toBe('weather.eu.get_weather');
  });
});

describe('the effects of a tool that does not state them', () => {
  const expected: Readonly<Record<Tier, readonly [plain: Effects, idempotent: Effects]>> = {
    'read-only': ['none', 'none'],
    workspace: ['once', 'idempotent'],
    system: ['once', 'idempotent'],
    elevated: ['once', 'idempotent'],
  };
  test.each(TIERS)('%s', (tier) => {
    expect([defaultEffects(tier, {}), defaultEffects(tier, { idempotentHint: true })]).toEqual(expected[tier]);
  });
});

describe('an unusable definition is refused with the field, the expected value and the given one', () => {
  test.each([
    ['name', { name: '9lives' }, '"9lives"'],
    ['name', { name: 'a'.repeat(65) }, 'up to 63'],
    ['name', { name: 'a b' }, '"a b"'],
    ['name', { name: undefined as never }, 'got undefined'],
    ['description', { description: undefined as never }, 'got undefined'],
    ['namespace', { namespace: '' }, '""'],
    ['version', { version: '1.0' }, 'such as 1.0.0'],
    ['tier', { tier: 'root' as Tier }, 'read-only, workspace'],
    ['effects', { effects: 'some' as Effects }, EFFECTS.join(', ')],
    ['effects', { tier: 'read-only', effects: 'once' }, "'none' in the read-only tier"],
    ['probe', { tier: 'system', effects: 'probe' }, "because effects is 'probe'"],
    ['needs', { needs: ['root'] as never }, 'workspace:read'],
    ['timeoutMs', { timeoutMs: 0 }, 'above 0'],
    ['timeoutMs', { timeoutMs: Number.NaN }, 'above 0'],
    ['maxResultBytes', { maxResultBytes: -1 }, 'above 0'],
    ['maxResultBytes', { maxResultBytes: Number.POSITIVE_INFINITY }, 'whole number'],
    ['maxOutputBytes', { maxOutputBytes: 1.5 }, 'whole number'],
    ['budget.costUnits', { budget: { costUnits: Number.POSITIVE_INFINITY } }, 'finite'],
    ['budget.maxCallsPerSession', { budget: { maxCallsPerSession: Number.NaN } }, 'whole number'],
    ['timeoutMs', { timeoutMs: '5000' as never }, 'got "5000"'],
    ['probe', { probe: true as never }, 'a function'],
    ['parallel', { parallel: 'no' as never }, 'true or false'],
    ['budget.maxCallsPerTurn', { budget: { maxCallsPerTurn: -1 } }, 'from 0 on'],
    ['run', { run: 'x' as never }, 'a function'],
    ['input', { schema: { type: 'string' } }, 'got {"type":"string"}'],
    ['`input`', { schema: { type: 'object' }, input: undefined as never }, 'a schema of zod 4; got nothing'],
    ['`input`', { schema: { type: 'object' }, input: { type: 'object' } as never }, 'defineUntypedTool'],
  ] as const)('%s: %j', (field, change, text) => {
    const define = () => defineTool({ ...spec, ...change });
    expect(define).toThrow(PawlError);
    expect(define).toThrow(`${field} must be`);
    expect(define).toThrow(text);
  });

  test('all fields at once', () => {
    const define = (change: object) => () => defineTool({ ...spec, ...change });
    expect(define({ version: undefined, tier: 'read', effects: 'reads' })).toThrow(
      /^Tool "\w+": version must be [^.]+ such as 1\.0\.0; got undefined\. tier must be one of [^.]+; got "read"\. effects must be one of [^.]+; got "reads"\.$/,
    );
    expect(define({ timeoutMs: '5', parallel: 'no', parralel: true })).toThrow(
      /: parallel must be .+ got "no"\. timeoutMs must be .+ got "5"\. parralel is not an option/,
    );
  });

  test('an object of options is what a tool is made of', () => {
    expect(() => defineTool(undefined as never)).toThrow('A tool is defined by an object of options; got undefined.');
  });

  test.each([
    [{ timeout: 5_000 }, 'timeout is not an option; did you mean timeoutMs?'],
    [
      { parameters: {} },
      'parameters is not an option; these are: name, input, schema, variant, version, description, tier,',
    ],
    [{ retry: { attempts: 3 } }, 'retry.attempts is not an option (did you mean maxAttempts?)'],
    [{ retry: { maxAttempts: 'three' } }, 'retry.maxAttempts must be a number; got "three"'],
    [{ circuit: { whenOpen: 'wait' } }, 'circuit.whenOpen must be one of "refuse", "park"; got "wait"'],
  ])('which otherwise only types would refuse: %j', (change, text) => {
    expect(() => defineTool({ ...spec, ...(change as object) })).toThrow(`Tool "get_weather": ${text}`);
  });

  test.each([
    ['input', { input: z.object({ at: z.date() }) }, 'This zod schema has no JSON Schema form'],
    ['output', { output: z.bigint() }, 'This zod schema has no JSON Schema form'],
    [
      'examples',
      { schema: { type: 'object', properties: { city: { type: 'objekt' } } }, examples: [{ params: {} }] },
      'The schema is not valid JSON Schema',
    ],
  ])('whose %s has no JSON Schema is named', (_, change, text) => {
    expect(() => defineTool({ ...spec, ...(change as object) })).toThrow(`Tool "get_weather": ${text}`);
  });

  test('a tool may be spread into the definition of another', () => {
    const tool = defineTool({ ...spec, ...(defineTool(spec) as object), name: 'get_climate' });
    expect(tool).toMatchObject({ name: 'get_climate', version: '1.0.0', tier: 'read-only' });
  });

  test('a tool with effects `probe` and a probe is valid', () => {
    const tool = defineTool({ ...spec, tier: 'system', effects: 'probe', probe: () => ({ state: 'unknown' }) });
    expect(tool.effects).toBe('probe');
  });
});

describe('a setting that names a parameter', () => {
  const flat = z.object({ url: z.string(), count: z.int().optional() });
  const either = z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('a'), url: z.string() }),
    z.object({ kind: z.literal('b'), host: z.string() }),
  ]);
  const settings = [
    ['circuit.targetParameter', (name: string) => ({ circuit: { targetParameter: name } })],
    ['budget.costs[0].when', (name: string) => ({ budget: { costs: [{ when: { [name]: 1 }, costUnits: 2 }] } })],
  ] as const;
  const define = (input: z.ZodObject, change: object) => defineTool({ ...spec, input: input as never, ...change });

  test.each(settings)('%s is refused where no parameter has the name, which the message tells', (field, named) => {
    expect(() => define(flat, named('uri'))).toThrow(
      expect.objectContaining({
        code: 'CONFIGURATION',
        message: expect.stringMatching(/one of the parameters: url, count; got "uri"/),
      }),
    );
    expect(() => define(flat, named('uri'))).toThrow(field);
    expect(() => define(z.object({}), named('url'))).toThrow('a parameter, and the tool has none; got "url"');
  });

  test('a parameter of one of several forms is known, and any name where the tool takes further members', () => {
    for (const name of ['url', 'host']) define(either as never, { circuit: { targetParameter: name } });
    expect(() => define(either as never, { circuit: { targetParameter: 'uri' } })).toThrow('kind, url, host');
    for (const [, named] of settings) define(z.looseObject({ url: z.string() }), named('uri'));
  });
});

test.each([
  ['timeoutMs', { timeoutMs: Number.POSITIVE_INFINITY }],
  ['timeoutMs', { timeoutMs: Number.NaN }],
  ['timeoutMs', { timeoutMs: 0 }],
  ['timeoutMs', { timeoutMs: 1.5 }],
  ['timeoutMs', { timeoutMs: 2 ** 31 }],
  ['timeoutMs', { timeoutMs: '30s' as never }],
  ['retry.baseMs', { retry: { baseMs: Number.POSITIVE_INFINITY } }],
  ['retry.maxDelayMs', { retry: { maxDelayMs: 2 ** 40 } }],
  ['retry.maxElapsedMs', { retry: { maxElapsedMs: -1 } }],
  ['circuit.cooldownMs', { circuit: { cooldownMs: Number.POSITIVE_INFINITY } }],
  ['circuit.windowMs', { circuit: { windowMs: Number.NaN } }],
])('a time that no timer can wait is refused by its name: %s %j', (name, times) => {
  const define = () =>
    defineTool({
      name: 'slow',
      version: '1.0.0',
      description: 'Waits.',
      tier: 'read-only',
      input: z.object({}),
      run: () => ({ output: null }),
      ...times,
    });
  expect(define).toThrow(
    expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining(`"slow": ${name}`) }),
  );
  // JSON writes null for NaN and Infinity.
  expect(define).not.toThrow('got null');
});
