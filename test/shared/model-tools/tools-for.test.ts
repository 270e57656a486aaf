/** The ten rules for exports of tools, checked with the providers' own packages. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { transformJSONSchema } from '@anthropic-ai/sdk/lib/transform-json-schema';
import type { Tool as AnthropicTool } from '@anthropic-ai/sdk/resources/messages';
import { type FunctionDeclaration, GoogleGenAI } from '@google/genai';
import { ToolSchema } from '@modelcontextprotocol/core';
import type { ValidateFunction } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { toStrictJsonSchema } from 'openai/lib/transform';
import type { Tool as OpenAiTool } from 'openai/resources/responses/responses';
import { describe, expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { PROVIDERS, type ToolReport } from '../../../src/shared/model-tools/export-types.ts';
import { exportedNames } from '../../../src/shared/model-tools/names.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { withoutNulls } from '../../../src/shared/schema/without-nulls.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { defineFreeformTool, defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { applyPatch } from '../../../src/workers/tools/apply-patch.ts';
import { baseTools } from '../../../src/workers/tools/index.ts';
import { ajv, unexplained, withNulls } from './judging.ts';
import { instanceOf, schemas } from './random-schemas.ts';

const base = { version: '1.0.0', description: 'Does it.', tier: 'system', run: () => ({ output: 1 }) } as const;
const tool = (name: string, inputSchema: JsonSchema) => defineUntypedTool({ ...base, name, inputSchema });
const object = (properties: object, more: object = {}): JsonSchema => ({
  type: 'object',
  properties,
  required: [],
  additionalProperties: false,
  ...more,
});

const rich = defineTool({
  ...base,
  name: 'book',
  title: 'Book a table',
  icon: { src: 'https://example.org/i.png' },
  examples: [{ params: { where: { city: 'Rome' }, either: { by: 'mail' } } }],
  annotations: { idempotentHint: true },
  input: z.object({
    where: z.object({ city: z.string().min(1), street: z.string().optional() }),
    seats: z.number().int().min(1).max(12).default(2),
    when: z.iso.datetime().optional().describe('When to come.'),
    kind: z.enum(['lunch', 'dinner']).optional(),
    notes: z.array(z.string()).max(3).optional(),
    nullable: z.string().nullable().optional(),
    either: z.union([
      z.object({ by: z.literal('mail') }),
      z.object({ by: z.literal('phone'), at: z.string().optional() }),
    ]),
  }),
  output: z.object({ id: z.string() }),
  run: () => ({ output: { id: 'x' } }),
});

describe('rule 2: names', () => {
  test('are mapped so that every provider takes them, and back', () => {
    const names = [
      { namespace: 'tools', name: 'read' },
      { namespace: 'git.hub', name: 'read' },
      { namespace: 'tools', name: 'x'.repeat(64) },
      { namespace: 'long'.repeat(20), name: 'read' },
    ];
    const exported = exportedNames(names);
    expect(exported.slice(0, 3)).toEqual(['read', 'git__hub__read', 'x'.repeat(64)]);
    for (const name of exported) expect(name).toMatch(/^[A-Za-z_][A-Za-z0-9_-]{0,63}$/);
  });

  test('that would collide stay apart, whatever they are exported with', () => {
    const two = exportedNames([
      { namespace: 'a.b', name: 'c' },
      { namespace: 'a__b', name: 'c' },
    ]);
    expect(new Set(two).size).toBe(2);
    fc.assert(
      fc.property(
        fc.uniqueArray(fc.tuple(fc.stringMatching(/^[a-z][a-z._]{0,70}$/), fc.stringMatching(/^[a-z][a-z_]{0,20}$/)), {
          selector: ([namespace, name]) => `${namespace}.${name}`,
          maxLength: 8,
        }),
        (pairs) => {
          const references = pairs.map(([namespace, name]) => ({ namespace, name }));
          expect(new Set(exportedNames(references)).size).toBe(references.length);
        },
      ),
    );
  });
});

test('an unknown provider is refused with a list of the known ones', () => {
  expect(() => toolsFor('mistral' as never, [rich])).toThrow(
    'Tools are exported for openai, anthropic, gemini, mcp; there is no form for "mistral".',
  );
});

describe('C5, rule 4: OpenAI', () => {
  test('strict is always said; what is optional becomes required and nullable', () => {
    const { tools, reports } = toolsFor('openai', [rich]);
    const [exported] = tools as unknown as OpenAiTool[];
    if (exported?.type !== 'function') throw new Error('not a function');
    expect(exported.strict).toBe(true);
    expect(reports[0]).toMatchObject({ outcome: 'lossless', strict: true, removedKeywords: [] });
    const parameters = exported.parameters as Record<string, { properties: Record<string, unknown> }>;
    expect(parameters['required']).toEqual(['where', 'seats', 'when', 'kind', 'notes', 'nullable', 'either']);
    expect(JSON.stringify(parameters['properties'])).toContain('"when":{"description":"When to come.","anyOf":[{');
    // The SDK's own check: what it would make of the schema is what we made.
    expect(toStrictJsonSchema(structuredClone(exported.parameters) as never)).toEqual(exported.parameters);
  });

  test('what has no strict form is exported as it is, with the reason', () => {
    const open = tool('open', { type: 'object', properties: {}, additionalProperties: { type: 'string' } });
    const any = tool('any', object({ value: {} }));
    const list = tool('list', object({ values: { type: 'array' } }));
    const deep = tool(
      'deep',
      Array.from({ length: 11 }).reduce<JsonSchema>((inner) => object({ a: inner }), object({})),
    );
    const { tools, reports } = toolsFor('openai', [open, any, list, deep]);
    expect(tools.map(({ strict }) => strict)).toEqual([false, false, false, false]);
    expect(reports.map(({ outcome, reason }) => [outcome, reason])).toEqual([
      ['refused-strict', 'properties.value accepts anything'],
      ['refused-strict', 'it has 12 levels; at most 10 are allowed'],
      ['refused-strict', 'the items of properties.values are not described'],
      ['refused-strict', 'the root takes any further properties'],
    ]);
    expect(tools[0]?.['parameters']).toEqual(any.inputSchema);
  });

  test('rule 3: keywords that are left out are reported, and named in the description', () => {
    const counted = tool(
      'counted',
      object({ a: { type: 'array', items: { type: 'string' }, uniqueItems: true } }, { minProperties: 1 }),
    );
    const { tools, reports } = toolsFor('openai', [counted]);
    expect(reports[0]).toMatchObject({
      outcome: 'lossy',
      removedKeywords: [
        { path: '', keyword: 'minProperties' },
        { path: 'properties.a', keyword: 'uniqueItems' },
      ],
    });
    expect(JSON.stringify(tools[0])).toContain('uniqueItems: true.');
  });

  test('what describes the rest goes with what is left out: alone it would refuse too much', () => {
    const rows = { type: 'array', prefixItems: [{ type: 'string' }], items: { type: 'integer' } };
    const labels = { type: 'object', patternProperties: { '^x-': { type: 'string' } }, additionalProperties: false };
    const schema = object({ rows, labels });
    expect(toolsFor('openai', [tool('t', schema)]).reports[0]).toMatchObject({
      strict: false,
      reason: 'properties.labels takes any further properties',
    });
    const exported = toolsFor('gemini', [tool('t', schema)]);
    expect(exported.reports[0]?.removedKeywords).toEqual([
      { path: 'properties.labels', keyword: 'patternProperties' },
      { path: 'properties.labels', keyword: 'additionalProperties' },
    ]);
    expect(ajv.validate(schemaOf(exported.tools[0]), { rows: ['x', 1], labels: { 'x-a': 'b' } })).toBe(true);
  });

  test('a list whose places differ is strict: its items may be whatever stands at one of them', () => {
    const pair = defineTool({ ...base, name: 'pair', input: z.object({ pair: z.tuple([z.string(), z.number()]) }) });
    const exported = toolsFor('openai', [pair]);
    expect(exported.reports[0]).toMatchObject({ outcome: 'lossy', strict: true });
    expect(schemaOf(exported.tools[0])).toMatchObject({
      properties: { pair: { items: { anyOf: [{ type: 'string' }, { type: 'number' }] }, minItems: 2, maxItems: 2 } },
    });
    expect(JSON.stringify(exported.tools[0])).not.toContain('"prefixItems":');
  });

  test.each([true, false])(
    'no list is without items, for which the whole request would be refused: strict %s',
    (strict) => {
      const any = { type: 'array' };
      const first = { type: 'array', prefixItems: [{ type: 'string' }] };
      const schema = object({ any, first, within: { anyOf: [any, { type: 'null' }] } });
      const [exported] = toolsFor('openai', [tool('lists', schema)], { strict }).tools;
      expect(schemaOf(exported)['properties']).toMatchObject({
        any: { type: 'array', items: {} },
        first: { type: 'array', items: {} },
        within: { anyOf: [{ type: 'array', items: {} }, { type: 'null' }] },
      });
      expect(ajv.validate(schemaOf(exported), { any: [1], first: ['a', 2] })).toBe(true);
    },
  );

  test('values without a type get theirs, which strict asks for', () => {
    const schema = object({ unit: { enum: ['c', 'f'] }, only: { const: 1 }, maybe: { enum: ['x', null] } });
    const required = { ...schema, required: ['unit', 'only', 'maybe'] };
    expect(schemaOf(toolsFor('openai', [tool('values', required)]).tools[0])['properties']).toEqual({
      unit: { type: 'string', enum: ['c', 'f'] },
      only: { type: 'number', const: 1 },
      maybe: { type: ['string', 'null'], enum: ['x', null] },
    });
  });

  test('many long values have no strict form; as many short ones, or a few long ones, do', () => {
    const values = (count: number, length: number) => {
      const every = Array.from({ length: count }, (_, index) => `${index}`.padStart(length, 'x'));
      return toolsFor('openai', [tool('values', object({ value: { type: 'string', enum: every } }))]).reports[0];
    };
    expect(values(300, 100)).toMatchObject({
      strict: false,
      reason: 'it has 30000 enumCharacters; at most 15000 are allowed',
    });
    expect([values(300, 40)?.strict, values(250, 100)?.strict]).toEqual([true, true]);
  });

  test('C4, C6: freeform and native tools', () => {
    const grammar = { type: 'grammar', syntax: 'lark', definition: 'start: "x"' } as const;
    const freeform = defineFreeformTool({ ...base, name: 'patch', format: grammar });
    const schema = object({ command: { type: 'array', items: { type: 'string' } } }, { required: ['command'] });
    const shell = defineUntypedTool({ ...base, name: 'shell', inputSchema: schema, variant: { type: 'local-shell' } });
    const search = defineUntypedTool({
      ...base,
      name: 'web_search',
      inputSchema: object({}),
      variant: { type: 'web-search', externalWebAccess: false },
    });
    const all = [freeform, shell, search];
    expect(toolsFor('openai', all, { native: true }).tools).toEqual([
      { type: 'custom', name: 'patch', description: 'Does it.', format: grammar },
      { type: 'local_shell' },
      { type: 'web_search', external_web_access: false },
    ]);
    expect(toolsFor('openai', all).tools.map(({ type }) => type)).toEqual(['custom', 'function', 'function']);
    expect(toolsFor('openai', all, { native: false }).tools[0]).toMatchObject({ type: 'function', name: 'patch' });
    expect(toolsFor('anthropic', [freeform]).tools[0]).toMatchObject({ input_schema: { required: ['input'] } });
  });

  test('C6: apply_patch is a function, and free text with a grammar where the provider’s own forms are asked for', () => {
    const [plain] = toolsFor('openai', [applyPatch]).tools;
    expect(plain).toMatchObject({ type: 'function', parameters: { required: ['patch'] } });
    const exported = toolsFor('openai', [applyPatch], { native: true });
    expect(exported.tools[0]).toMatchObject({
      type: 'custom',
      name: 'apply_patch',
      format: { type: 'grammar', syntax: 'lark', definition: expect.stringContaining('start: BEGIN file+ END') },
    });
    const call = { kind: 'custom', name: 'apply_patch', input: '*** Begin Patch' } as const;
    expect(decodeCall(exported, [applyPatch], call)).toMatchObject({ params: { patch: '*** Begin Patch' } });
  });

  test('C6: a tool whose text is not a parameter, or not the only one that it requires, is no freeform tool', () => {
    const variant = { type: 'freeform', parameter: 'text', format: { type: 'text' } } as const;
    const text = { type: 'string' };
    for (const inputSchema of [
      object({ input: text }),
      object({ text: { type: 'number' } }),
      object({ text, more: text }, { required: ['text', 'more'] }),
    ])
      expect(() => defineUntypedTool({ ...base, name: 'x', inputSchema, variant })).toThrow(
        /because variant is freeform/,
      );
  });
});

test.each(['openai', 'anthropic', 'gemini'] as const)(
  '%s: what is said beside a reference is kept, apart from it',
  (provider) => {
    const $defs = { Color: { enum: ['red', 'blue'] } };
    const color = { $ref: '#/$defs/Color' };
    const schema = object(
      {
        // As Pydantic writes them, and a reference alone.
        older: { allOf: [color], description: 'A color.', default: 'red' },
        newer: { ...color, description: 'A color.', default: 'red' },
        alone: color,
        typed: { type: 'string', allOf: [color] },
      },
      { required: ['older', 'newer', 'alone', 'typed'], $defs },
    );
    const { tools, reports } = toolsFor(provider, [tool('t', schema)], { strict: true });
    expect(reports[0]).toMatchObject({ strict: provider !== 'gemini', removedKeywords: [] });
    const said = { anyOf: [color], description: expect.stringMatching(/^A color\./) };
    expect(schemaOf(tools[0])['properties']).toMatchObject({
      older: said,
      newer: said,
      alone: color,
      typed: { type: 'string', anyOf: [color] },
    });
  },
);

describe('rule 5: Anthropic', () => {
  test('strict is off, and examples go along', () => {
    const [exported] = toolsFor('anthropic', [rich]).tools as unknown as AnthropicTool[];
    expect(exported).toMatchObject({
      name: 'book',
      input_examples: [{ where: { city: 'Rome' }, either: { by: 'mail' } }],
    });
    expect(exported).not.toHaveProperty('strict');
    expect(exported?.input_schema).toEqual(rich.inputSchema);
  });

  test('asked for, strict spends the request’s budget by priority', () => {
    const optional = (name: string) =>
      tool(name, object({ a: { type: 'string' }, b: { type: 'string' }, c: { type: 'string' } }));
    const many = Array.from({ length: 12 }, (_, index) => optional(`tool_${String.fromCharCode(97 + index)}`));
    const { reports } = toolsFor('anthropic', many, { strict: true, priority: ['tool_l'] });
    const strict = reports.filter((report) => report.strict).map(({ name }) => name);
    expect(strict).toHaveLength(8);
    expect(strict).toContain('tool_l');
    expect(reports.find(({ name }) => name === 'tool_k')).toMatchObject({
      outcome: 'refused-strict',
      reason: expect.stringContaining('budget'),
    });
  });

  test('names of parameters that the API refuses are shown as others, and lead back', () => {
    const text = { type: 'string' };
    const long = 'x'.repeat(65);
    const list = defineUntypedTool({
      ...base,
      name: 'list',
      inputSchema: object(
        { $filter: { ...text, description: 'OData.' }, 'a b': text, 'a-b': text, a_b: text, [long]: text },
        {
          required: ['$filter', 'a_b'],
        },
      ),
      examples: [{ params: { $filter: 'x', a_b: 'y' } }],
    });
    const exported = toolsFor('anthropic', [list]);
    const { properties, required } = schemaOf(exported.tools[0]) as { properties: object; required: string[] };
    const shown = Object.keys(properties);
    for (const name of shown) expect(name).toMatch(/^[a-zA-Z0-9_.-]{1,64}$/);
    expect(new Set(shown).size).toBe(5);
    expect(shown).toEqual(expect.arrayContaining(['_filter', 'a-b', 'a_b']));
    expect(required).toEqual(['_filter', 'a_b']);
    expect(properties).toMatchObject({ _filter: { description: 'OData. Stands for "$filter".' } });
    expect(exported.tools[0]).toMatchObject({ input_examples: [{ _filter: 'x', a_b: 'y' }] });
    expect(exported.reports[0]?.renamed).toMatchObject({ _filter: '$filter' });
    expect(toolsFor('anthropic', [rich]).reports[0]).not.toHaveProperty('renamed');
    const decode = (params: Record<string, unknown>) =>
      decodeCall(exported, [list], { kind: 'function', name: 'list', arguments: params }).params;
    const sent = Object.fromEntries(shown.map((name) => [name, name]));
    expect(Object.keys(decode(sent)).sort()).toEqual(['$filter', 'a b', 'a-b', 'a_b', long].sort());
    expect(decode(sent)).toMatchObject({ $filter: '_filter', a_b: 'a_b' });
    expect(decode({ $filter: 'own' })).toEqual({ $filter: 'own' });
  });

  test('the SDK’s own transform finds nothing left to change in a strict schema', () => {
    const { tools } = toolsFor('anthropic', [rich], { strict: true });
    const schema = tools[0]?.['input_schema'] as JsonSchema;
    expect(tools[0]).toMatchObject({ strict: true });
    expect(withoutText(transformJSONSchema(structuredClone(schema)))).toEqual(withoutText(schema));
  });
});

describe('a root that is a choice becomes one object', () => {
  const note = tool('note', object({ text: { type: 'string' } }));
  const task = defineTool({
    ...base,
    name: 'task',
    input: z.discriminatedUnion('op', [
      z.object({ op: z.literal('create'), title: z.string(), due: z.iso.date().optional(), mark: z.null().optional() }),
      z.object({ op: z.enum(['close', 'drop']), title: z.number(), why: z.string() }),
    ]),
  });

  test.each(PROVIDERS)('%s: whose request works, with the alternatives in words', (provider) => {
    const { tools, reports } = toolsFor(provider, [note, task], { strict: provider === 'openai' });
    const shown = schemaOf(tools.find(({ name }) => name === 'task'));
    expect(Object.keys(shown)).not.toContain('oneOf');
    expect(shown).toMatchObject({
      type: 'object',
      additionalProperties: false,
      description: 'Exactly one of: {op: "create", title, due?, mark?}; {op: "close"|"drop", title, why}.',
      properties: { op: { type: 'string', enum: ['create', 'close', 'drop'] } },
      required: provider === 'openai' ? ['op', 'title', 'due', 'mark', 'why'] : ['op', 'title'],
    });
    expect(JSON.stringify(shown['properties'])).toContain('"title":{"anyOf":[{"type":"string"},{"type":"number"}]}');
    expect(reports.map(({ outcome }) => outcome)).toEqual(['lossless', 'lossy']);
    expect(reports[1]?.removedKeywords[0]).toEqual({ path: '', keyword: 'oneOf' });
  });

  test('and a call of it is decoded to the alternative that was meant', () => {
    const exported = toolsFor('openai', [task]);
    const decoded = (sent: object) =>
      decodeCall(exported, [task], { kind: 'function', name: 'task', arguments: JSON.stringify(sent) }).params;
    const nulls = { due: null, mark: null, why: null };
    expect(decoded({ op: 'create', title: 'x', ...nulls })).toEqual({ op: 'create', title: 'x', mark: null });
    expect(decoded({ op: 'drop', title: 7, ...nulls, why: 'y' })).toEqual({ op: 'drop', title: 7, why: 'y' });
    // A null that is nobody's stays, and is told.
    expect(decoded({ op: 'create', title: 'x', titel: null })).toEqual({ op: 'create', title: 'x', titel: null });
  });

  test('named objects, choices of choices and what all of them ask for', () => {
    const Named = z
      .object({
        a: z.string(),
        get more() {
          return Named.optional();
        },
      })
      .meta({ id: 'Named' });
    const named = defineTool({ ...base, name: 'named', input: Named });
    expect(toolsFor('mcp', [named]).reports[0]).toMatchObject({ outcome: 'lossless' });
    expect(schemaOf(toolsFor('mcp', [named]).tools[0])).toMatchObject({ type: 'object', required: ['a'] });
    const nested = { anyOf: [{ $ref: '#/$defs/A' }, { oneOf: [object({ b: { const: 1 } }), { type: 'null' }] }] };
    const schema = { ...nested, $defs: { A: object({ b: { const: 2 } }, { required: ['b'] }) } };
    expect(schemaOf(toolsFor('anthropic', [tool('t', schema)]).tools[0])).toEqual({
      ...object({ b: { enum: [2, 1] } }),
      required: undefined,
      description: 'Any of: {b: 2}; {b?: 1}.',
      $defs: schema.$defs,
    });
    const either = object({ a: {}, b: {} }, { anyOf: [{ required: ['a'] }, { required: ['b'] }], not: { const: {} } });
    expect(schemaOf(toolsFor('anthropic', [tool('t', either)]).tools[0])).toEqual({
      ...object({ a: {}, b: {} }),
      required: undefined,
      description: 'Any of: {a}; {b}. not: {"const":{}}.',
    });
  });

  test('parts that describe one object together', () => {
    const parts = [
      { properties: { a: { type: 'string' } }, required: ['a'] },
      { properties: { b: { type: 'string' } } },
    ];
    const schema = { type: 'object', description: 'Two.', allOf: parts, unevaluatedProperties: false };
    const { tools, reports } = toolsFor('anthropic', [tool('t', schema)]);
    expect(reports[0]?.removedKeywords).toEqual([
      { path: '', keyword: 'allOf' },
      { path: '', keyword: 'unevaluatedProperties' },
    ]);
    expect(schemaOf(tools[0])).toEqual({
      type: 'object',
      description: `Two. allOf: ${JSON.stringify(parts)}. unevaluatedProperties: false.`,
      properties: { a: { type: 'string' }, b: { type: 'string' } },
      required: ['a'],
    });
  });

  const closed = schemas.filter(({ additionalProperties }) => additionalProperties === false);
  const choices = fc
    .tuple(fc.constantFrom('anyOf', 'oneOf'), fc.array(closed, { minLength: 1, maxLength: 3 }))
    .map(([keyword, branches]): JsonSchema => ({ [keyword]: branches }));

  test.each(PROVIDERS)('%s: accepts whatever the tool does, and decoding leads back to it', (provider) => {
    fc.assert(
      fc.property(choices, fc.infiniteStream(fc.jsonValue({ maxDepth: 2 })), fc.nat(), (schema, junk, seed) => {
        const exported = toolsFor(provider, [tool('t', schema)], { strict: true });
        const shown = schemaOf(exported.tools[0]);
        const [accepts, canonical] = [ajv.compile(shown), ajv.compile(schema)];
        for (let round = 0; round < 10; round += 1) {
          const instance = instanceOf(schema, seed + round, () => junk.next().value);
          if (!canonical(instance)) continue;
          const isStrict = exported.reports[0]?.strict && provider === 'openai';
          const sent = isStrict ? withNulls(shown, instance) : instance;
          expect({ shown, sent, errors: accepts(sent) ? null : accepts.errors }).toMatchObject({ errors: null });
          const meant = withoutNulls(schema, sent);
          expect({ schema, sent, meant, fits: canonical(meant) }).toMatchObject({ fits: true });
        }
      }),
      { numRuns: 50 },
    );
  });

  test('a definition that is nothing but itself ends', () => {
    const $defs = { Same: { anyOf: [{ $ref: '#/$defs/Same', title: 'x' }, { $ref: '#/$defs/Same' }] } };
    expect(schemaOf(toolsFor('mcp', [tool('t', { $ref: '#/$defs/Same', $defs })]).tools[0])).toMatchObject({
      type: 'object',
      properties: {},
    });
  });
});

describe('rules 6 and 7: Gemini and MCP', () => {
  test('Gemini gets JSON Schema, and the export names the setting of the request', () => {
    const exported = toolsFor('gemini', [rich]);
    const [declaration] = exported.tools as unknown as FunctionDeclaration[];
    expect(declaration).toMatchObject({ name: 'book', responseJsonSchema: { type: 'object' } });
    expect(exported.request).toContain('VALIDATED');
    expect(exported.reports[0]?.removedKeywords).toContainEqual({
      path: 'properties.where.properties.city',
      keyword: 'minLength',
    });
  });

  test('Gemini’s SDK takes the declarations of all base tools, and sends them as they are', async () => {
    const sent = Promise.withResolvers<{ readonly tools: readonly { readonly functionDeclarations: unknown }[] }>();
    const server = createServer((request, response) => {
      json(request).then((body) => sent.resolve(body as never), sent.reject);
      response.setHeader('content-type', 'application/json').end('{"candidates":[]}');
    }).listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const { tools } = toolsFor('gemini', [...baseTools, rich]);
    const functionDeclarations = tools as unknown as FunctionDeclaration[];
    const gemini = new GoogleGenAI({ apiKey: 'none', httpOptions: { baseUrl } });
    await gemini.models.generateContent({
      model: 'gemini',
      contents: 'x',
      config: { tools: [{ functionDeclarations }] },
    });
    expect((await sent.promise).tools).toEqual([{ functionDeclarations: tools }]);
  });

  test('A22: MCP gets everything, with annotations from tier and effects', () => {
    const { tools } = toolsFor('mcp', [rich]);
    expect(ToolSchema.parse(tools[0])).toEqual(tools[0]);
    expect(tools[0]).toMatchObject({
      name: 'book',
      title: 'Book a table',
      inputSchema: rich.inputSchema,
      outputSchema: { type: 'object' },
      annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: true },
      icons: [{ src: 'https://example.org/i.png' }],
    });
  });
});

describe.each(PROVIDERS)('%s', (provider) => {
  test('rule 8: the same tools in any order give the same bytes', () => {
    const forwards = JSON.stringify(toolsFor(provider, baseTools));
    expect(JSON.stringify(toolsFor(provider, [...baseTools].reverse()))).toBe(forwards);
  });

  test('rule 9: a description that some clients cut is warned of', () => {
    const long = defineUntypedTool({ ...base, name: 'long', description: 'x'.repeat(2_049), inputSchema: object({}) });
    expect(toolsFor(provider, [long]).reports[0]?.warnings).toEqual([expect.stringContaining('2048')]);
  });

  test('every base tool has an export, and its names lead back', () => {
    const { tools, names, reports } = toolsFor(provider, baseTools, { strict: true });
    expect(tools).toHaveLength(baseTools.length);
    expect(
      Object.values(names)
        .map(({ name }) => name)
        .sort(),
    ).toEqual(baseTools.map(({ name }) => name).sort());
    expect(reports.map(({ tool: name }) => name).sort()).toEqual(baseTools.map(({ name }) => `tools.${name}`).sort());
  });

  /** Checks ten instances, of the export or of the tool's own schema, for each of many random schemas. */
  const forInstances = (of: 'export' | 'tool', check: (made: Made) => void) =>
    fc.assert(
      fc.property(schemas, fc.infiniteStream(fc.jsonValue({ maxDepth: 2 })), fc.nat(), (schema, junk, seed) => {
        const exported = toolsFor(provider, [tool('t', schema)], { strict: true });
        const shown = schemaOf(exported.tools[0]);
        const [accepts, canonical] = [ajv.compile(shown), ajv.compile(schema)];
        for (let round = 0; round < 10; round += 1) {
          const instance = instanceOf(of === 'export' ? shown : schema, seed + round, () => junk.next().value);
          check({ instance, schema, shown, accepts, canonical, report: exported.reports[0] });
        }
      }),
      { numRuns: 50 },
    );

  test('rule 10: any instance valid under the export, normalised, is valid, or fails only on what the report lists', () => {
    forInstances('export', ({ instance, schema, accepts, canonical, report }) => {
      if (!accepts(instance) || canonical(withoutNulls(schema, instance))) return;
      expect(unexplained(canonical.errors ?? [], report?.removedKeywords ?? [])).toEqual([]);
    });
  });

  test('an export accepts whatever the tool does', () => {
    forInstances('tool', ({ instance, shown, accepts, canonical, report }) => {
      if (!canonical(instance)) return;
      const sent = report?.strict && provider === 'openai' ? withNulls(shown, instance) : instance;
      expect({ shown, sent, errors: accepts(sent) ? null : accepts.errors }).toMatchObject({ errors: null });
    });
  });
});

describe('C12 to C14: what a model sends', () => {
  const all: readonly AnyTool[] = [rich, defineFreeformTool({ ...base, name: 'patch', format: { type: 'text' } })];
  const exported = toolsFor('openai', all);
  const decode = (call: Parameters<typeof decodeCall>[2]) => decodeCall(exported, all, call);

  test('null becomes absent where the canonical schema has no null', () => {
    const sent = {
      where: { city: 'Rome', street: null },
      seats: null,
      when: null,
      kind: null,
      notes: null,
      nullable: null,
      either: { by: 'phone', at: null },
    };
    const params = { where: { city: 'Rome' }, nullable: null, either: { by: 'phone' } };
    expect(decode({ kind: 'function', name: 'book', arguments: JSON.stringify(sent) })).toEqual({
      namespace: 'tools',
      name: 'book',
      params,
    });
    expect(compileSchema(rich.inputSchema)(params)).toEqual([]);
  });

  test('a null that one of several alternatives allows is kept, though another would do without it', () => {
    const part = (type: unknown) => ({ type: 'object', properties: { name: { type } }, minProperties: 1 });
    const schema = { type: 'object', properties: { who: { anyOf: [part('string'), part(['string', 'null'])] } } };
    expect(withoutNulls(schema, { who: { name: null } })).toEqual({ who: { name: null } });
  });

  test('alternatives that nest are gone through once, whatever their depth', () => {
    const args = { type: 'array', items: { $ref: '#/$defs/Filter' } };
    const option = (op: string, properties: object) => ({ properties: { ...properties, op: { const: op } } });
    const leaf = { properties: { op: { const: 'eq' }, value: { type: 'string' } } };
    const $defs = {
      Filter: { type: 'object', oneOf: [...['and', 'or', 'nor'].map((op) => option(op, { args })), leaf] },
    };
    const nested = (inner: object) =>
      Array.from({ length: 20 }).reduce<object>((made) => ({ args: [made], op: 'nor' }), inner);
    const sent = nested({ op: 'eq', value: null });
    expect(withoutNulls({ $ref: '#/$defs/Filter', $defs }, sent)).toEqual(nested({ op: 'eq' }));
    const itself = {
      anyOf: [{ $ref: '#/$defs/Same' }, { $ref: '#/$defs/Same' }, { properties: { a: { type: 'string' } } }],
    };
    expect(withoutNulls({ $ref: '#/$defs/Same', $defs: { Same: itself } }, { a: null })).toEqual({});
  });

  test('a value without a null to remove is returned as it is', () => {
    const sent = { who: { name: 'Ada' } };
    const who = { type: 'object', properties: { name: { type: 'string' } } };
    expect(withoutNulls({ type: 'object', properties: { who } }, sent)).toBe(sent);
  });

  test('free text is the tool’s input', () => {
    expect(decode({ kind: 'custom', name: 'patch', input: '*** Begin' }).params).toEqual({ input: '*** Begin' });
  });

  test('C14: what is no JSON, no object, no tool or of another kind is answered so that the model can mend it', () => {
    const refused = (call: Parameters<typeof decodeCall>[2]) => {
      try {
        decode(call);
        return 'accepted';
      } catch (error) {
        return String((error as Error).message);
      }
    };
    expect(refused({ kind: 'function', name: 'book', arguments: '{' })).toMatch(/^The arguments of book are not JSON/);
    expect(refused({ kind: 'function', name: 'book', arguments: '[1]' })).toMatch(/must be a JSON object; got \[1\]/);
    expect(refused({ kind: 'custom', name: 'book', input: 'x' })).toMatch(/takes JSON arguments, not free text/);
    expect(refused({ kind: 'function', name: 'buk', arguments: '{}' })).toBe(
      'No tool "buk" was exported. Did you mean book?',
    );
    // One that was taken out of service since.
    const call = { kind: 'function', name: rich.name, arguments: '{}' } as const;
    expect(() => decodeCall(toolsFor('mcp', [rich]), [], call)).toThrow('is not offered any more');
  });
});

interface Made {
  readonly instance: unknown;
  readonly schema: JsonSchema;
  /** The schema as it was exported. */
  readonly shown: JsonSchema;
  readonly accepts: ValidateFunction;
  readonly canonical: ValidateFunction;
  readonly report: ToolReport | undefined;
}

function schemaOf(exported: Readonly<Record<string, unknown>> | undefined): JsonSchema {
  const { parameters, input_schema, parametersJsonSchema, inputSchema } = exported ?? {};
  return (parameters ?? input_schema ?? parametersJsonSchema ?? inputSchema) as JsonSchema;
}

/** Without what says nothing more: texts, and the type beside the very values. */
function withoutText(value: unknown): unknown {
  return JSON.parse(
    JSON.stringify(value, function (this: object, name, member) {
      const said = name === 'type' && ('const' in this || 'enum' in this);
      return said || name === 'description' || name === 'default' ? undefined : member;
    }),
  );
}
