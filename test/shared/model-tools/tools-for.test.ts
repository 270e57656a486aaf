/** The ten rules for exports of tools, checked with the providers' own packages. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { type FunctionDeclaration, GoogleGenAI } from '@google/genai';
import { ToolSchema } from '@modelcontextprotocol/core';
import type { ValidateFunction } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PROVIDERS, type ToolReport } from '../../../src/shared/model-tools/export-types.ts';
import { exportedNames } from '../../../src/shared/model-tools/names.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../../src/shared/schema/json-schema.ts';
import { withoutNulls } from '../../../src/shared/schema/without-nulls.ts';
import { defineUntypedTool } from '../../../src/shared/tools/tool-forms.ts';
import { baseTools } from '../../../src/workers/tools/index.ts';
import { base, object, rich, schemaOf, tool } from './exported-tools.ts';
import { ajv, unexplained, withNulls } from './judging.ts';
import { instanceOf, schemas } from './random-schemas.ts';

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

test('a misspelt option is refused by its name', () => {
  expect(() => toolsFor('openai', [rich], { stict: true } as never)).toThrow(
    'options: has no member "stict" (did you mean strict?)',
  );
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

interface Made {
  readonly instance: unknown;
  readonly schema: JsonSchema;
  /** The schema as it was exported. */
  readonly shown: JsonSchema;
  readonly accepts: ValidateFunction;
  readonly canonical: ValidateFunction;
  readonly report: ToolReport | undefined;
}
