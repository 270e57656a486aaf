import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { PROVIDERS } from '../../../src/shared/model-tools/export-types.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { withoutNulls } from '../../../src/shared/schema/without-nulls.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { base, object, schemaOf, tool } from './exported-tools.ts';
import { ajv, withNulls } from './judging.ts';
import { instanceOf, schemas } from './random-schemas.ts';

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
