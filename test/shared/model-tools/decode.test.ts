import { describe, expect, test } from 'vitest';
import { decodeCall } from '../../../src/shared/model-tools/decode.ts';
import { toolsFor } from '../../../src/shared/model-tools/tools-for.ts';
import { compileSchema } from '../../../src/shared/schema/schema.ts';
import { withoutNulls } from '../../../src/shared/schema/without-nulls.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import { defineFreeformTool } from '../../../src/shared/tools/tool-forms.ts';
import { base, rich } from './exported-tools.ts';

describe('C12 to C14: what a model sends', () => {
  const all: readonly AnyTool[] = [rich, defineFreeformTool({ ...base, name: 'patch', format: { type: 'text' } })];
  const exported = toolsFor('openai', all);
  const decode = (call: Parameters<typeof decodeCall>[2]) => decodeCall(exported, all, call);

  test.each([
    ['Anthropic', { type: 'tool_use', id: 'c1', name: 'book', input: { seats: 2 } }],
    ['Gemini', { name: 'book', args: { seats: 2 } }],
    ['Chat Completions', { id: 'c1', type: 'function', function: { name: 'book', arguments: '{"seats":2}' } }],
  ])('a block of %s as it came is refused, because its arguments would be lost', (_provider, block) => {
    expect(() => decode(block as never)).toThrow(
      expect.objectContaining({ code: 'CONTRACT_INVALID', issues: [expect.objectContaining({ path: 'call.kind' })] }),
    );
  });

  test('arguments count without a kind, and a call of a kind may have none', () => {
    const target = { namespace: 'tools', name: 'book' };
    expect(decode({ name: 'book', arguments: '{"seats":2}' } as never)).toEqual({ ...target, params: { seats: 2 } });
    expect(decode({ kind: 'function', name: 'book' } as never)).toEqual({ ...target, params: {} });
  });

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

  test.each([
    [{ type: 'array', items: { type: 'string' }, minItems: 2 }, []],
    [{ type: 'array', items: { type: 'string' }, maxItems: 1 }, ['x', 'y']],
    [{ type: 'array', items: { type: 'string' }, uniqueItems: true }, ['x', 'x']],
    [{ type: 'array', prefixItems: [{ type: 'string' }], items: { type: 'string' } }, [1]],
    [{ type: 'string', minLength: 3 }, '👍👍'],
    [{ type: 'string', maxLength: 1 }, 'xy'],
    [{ type: 'number', minimum: 3 }, 2],
    [{ type: 'number', exclusiveMinimum: 3 }, 3],
    [{ type: 'number', maximum: 3 }, 4],
    [{ type: 'number', exclusiveMaximum: 3 }, 3],
    [{ type: 'object', minProperties: 1 }, {}],
    [{ type: 'object', maxProperties: 0 }, { x: 1 }],
  ])('a null stays for no alternative that refuses what stands beside it: %j %j', (refusing, value) => {
    const branch = (properties: object) => ({ type: 'object', properties, additionalProperties: false });
    const schema = { anyOf: [branch({ a: { const: null }, b: refusing }), branch({ b: {} })] };
    expect(withoutNulls(schema, { a: null, b: value })).toEqual({ b: value });
  });

  test('a null is removed for the one alternative that it can be meant for, although its bounds refuse the rest', () => {
    const part = {
      type: 'object',
      properties: { a: { type: 'string' } },
      additionalProperties: false,
      minProperties: 1,
    };
    const schema = { type: 'object', properties: { a: { anyOf: [part] } } };
    expect(withoutNulls(schema, { a: { a: null } })).toEqual({ a: {} });
  });

  test('a null stays for an alternative whose list begins with members of their own', () => {
    const list = { type: 'array', prefixItems: [{ type: 'string' }], items: { type: 'number' } };
    const branch = (properties: object) => ({ type: 'object', properties, additionalProperties: false });
    const schema = { anyOf: [branch({ a: { const: null }, b: list }), branch({ b: {} })] };
    const sent = { a: null, b: ['x', 1, 2] };
    expect(withoutNulls(schema, sent)).toEqual(sent);
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
