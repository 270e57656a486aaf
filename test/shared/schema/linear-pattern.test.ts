import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { linearPattern } from '../../../src/shared/schema/linear-pattern.ts';
import { compileSchema, inputJsonSchema } from '../../../src/shared/schema/schema.ts';
import { cpuMsOf } from '../../helpers/cpu.ts';

describe('patterns are matched in linear time (A15)', () => {
  test.each([
    ['^[a-z]+$', 'abc', true],
    ['^[a-z]+$', 'abc1', false],
    ['\\d{3}', 'x123', true],
    ['^\\u0061$', 'a', true],
    ['^\\p{Lu}', 'É', true],
    ['^.$', '😀', true],
  ])('%s on %s', (pattern, text, matches) => expect(linearPattern(pattern).test(text)).toBe(matches));

  test('a text that takes a backtracking engine hours takes no time', async () => {
    const validate = compileSchema({ type: 'string', pattern: '^(a+)+$' });
    const spentMs = await cpuMsOf(() => expect(validate(`${'a'.repeat(50_000)}!`)).toHaveLength(1));
    expect(spentMs).toBeLessThan(2_000);
  });

  test('several patterns of one schema are kept separate', () => {
    const validate = compileSchema({ properties: { a: { pattern: '^a$' }, b: { pattern: '^b$' } } });
    expect(validate({ a: 'a', b: 'b' })).toEqual([]);
    expect(validate({ a: 'b', b: 'a' })).toHaveLength(2);
  });

  test.each(['(?=a)b', '(a)\\1', '(?<!x)y'])('%s has no linear form and is refused before any call', (pattern) => {
    expect(() => compileSchema({ type: 'string', pattern })).toThrow(
      expect.objectContaining({ code: 'CONFIGURATION', message: expect.stringContaining('linear time') }),
    );
  });

  test('the formats of zod that need look-around stay formats', () => {
    const schema = inputJsonSchema(z.object({ wait: z.iso.duration(), host: z.hostname() }));
    expect(schema['properties']).toEqual({
      wait: { type: 'string', format: 'duration' },
      host: { type: 'string', format: 'hostname' },
    });
    expect(compileSchema(schema)({ wait: 'P1D', host: 'a.b' })).toEqual([]);
    expect(compileSchema(schema)({ wait: 'a day', host: 'a.b' })).toHaveLength(1);
  });
});
