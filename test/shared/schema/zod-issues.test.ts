import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { WITH_RECEIVED, WITHOUT_RECEIVED, zodIssues } from '../../../src/shared/schema/zod-issues.ts';

const schema = z.strictObject({
  tool: z.string().min(3),
  count: z.number().int().min(1).optional(),
  mode: z.enum(['on', 'off']).optional(),
  items: z
    .array(z.strictObject({ name: z.string() }))
    .min(1)
    .max(2)
    .optional(),
  when: z
    .union([z.array(z.string()), z.strictObject({ node: z.string(), is: z.enum(['success', 'error']) })])
    .optional(),
  every: z.union([z.string(), z.number()]).optional(),
  as: z.discriminatedUnion('kind', [z.object({ kind: z.literal('a') }), z.object({ kind: z.literal('b') })]).optional(),
  own: z.string('must be a name of its own').optional(),
  url: z.url().optional(),
});

function faults(value: unknown, how = WITH_RECEIVED): readonly string[] {
  const { error } = schema.safeParse(value, how);
  return error === undefined ? [] : zodIssues(error).map(({ path, message }) => `${path}: ${message}`);
}

describe('a fault of a value that Pawl’s own schemas check', () => {
  test.each([
    [{ tool: 7 }, 'tool: must be a text; got 7'],
    [{ tool: 'a' }, 'tool: must have at least 3 characters; got "a"'],
    [{ count: 1.5 }, 'count: must be a whole number; got 1.5'],
    [{ count: 0 }, 'count: must be at least 1; got 0'],
    [{ mode: 'maybe' }, 'mode: must be one of "on", "off"; got "maybe"'],
    [{ items: [] }, 'items: must have at least 1 item; got a list of 0'],
    [{ items: [{ name: 1 }] }, 'items.0.name: must be a text; got 1'],
    [{ when: { node: 'a', is: 'won' } }, 'when.is: must be one of "success", "error"; got "won"'],
    [{ when: 5 }, 'when: must be a list, or an object; got 5'],
    [{ every: true }, 'every: must be a text, or a number; got true'],
    [{ as: { kind: 'c' } }, 'as.kind: must be one of "a", "b"; got "c"'],
    [{ as: {} }, 'as.kind: is required and missing; it is one of "a", "b"'],
    [{ url: 'nowhere' }, 'url: must be a URL; got "nowhere"'],
    [{ own: 5 }, 'own: must be a name of its own; got 5'],
    [{ cuont: 5 }, ': has no member "cuont" (did you mean count?)'],
    [
      { x1: 5, y2: 5 },
      ': has no member "x1", "y2"; these are known: tool, count, mode, items, when, every, as, own, url',
    ],
    [{ items: [{ name: 'a', x1: 1 }] }, 'items.0: has no member "x1"; these are known: name'],
  ])('says what was expected, what came, and where: %j', (change, text) => {
    expect(faults({ tool: 'read', ...change })).toStrictEqual([text]);
  });

  test('says that a member is missing', () => {
    expect(faults({})).toStrictEqual(['tool: is required and missing']);
  });

  test('does not repeat a value that may be secret', () => {
    expect(faults({ tool: 'read', mode: 'secret', url: 'secret' }, WITHOUT_RECEIVED)).toStrictEqual([
      'mode: must be one of "on", "off"',
      'url: must be a URL',
    ]);
  });
});

test('the faults of a value of any size are a short text', async () => {
  const many = <Item>(count: number, item: (index: number) => Item) =>
    Array.from({ length: count }, (_, index) => item(index));
  const odd: readonly unknown[] = [
    Object.fromEntries(many(20_000, (index) => [`k${index}`, 1])),
    { tool: 'tool', items: many(20_000, () => 1) },
    { tool: 'tool', items: many(20_000, () => ({ ['n'.repeat(40)]: 1 })) },
    { tool: 'tool', ['x'.repeat(1_000_000)]: 1 },
    { tool: 'tool', mode: 'x'.repeat(1_000_000), every: many(20_000, (index) => ({ index })) },
    {
      tool: many(20_000, (index) => ({ index })),
      count: Object.fromEntries(many(20_000, (index) => [`k${index}`, 1])),
    },
    { tool: 'tool', named: Object.fromEntries(many(20_000, (index) => [`k${index}`, 1])) },
    { tool: 'tool', zone: 'x'.repeat(1_000_000) },
  ];
  const quoting = schema.extend({
    items: z.array(z.strictObject({ name: z.string() })).optional(),
    named: z.record(z.string().max(2), z.string()).optional(),
    zone: z
      .string()
      .superRefine((zone, context) => context.addIssue({ code: 'custom', message: `got ${zone}` }))
      .optional(),
  });
  for (const value of odd) {
    const { error } = quoting.safeParse(value, WITH_RECEIVED);
    const issues = zodIssues(error ?? new z.ZodError([]));
    expect(issues.length).toBeGreaterThan(0);
    expect(JSON.stringify(issues).length).toBeLessThan(20_000);
  }
  expect(faults({ tool: 'tool', ...Object.fromEntries(many(12, (index) => [`k${index}`, 1])) })).toEqual([
    expect.stringMatching(/^: has no member "k0", .*"k9" and 2 more; these are known: tool, /),
  ]);
});
