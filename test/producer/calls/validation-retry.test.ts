import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { createLocalRunner } from '../../../src/local/run-tool.ts';
import type { Reask } from '../../../src/producer/calls/validation-retry.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { repairParams } from '../../../src/shared/model-tools/repair-params.ts';
import { inputJsonSchema } from '../../../src/shared/schema/schema.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';

let runs = 0;
const book = defineTool({
  name: 'book',
  version: '1.0.0',
  description: 'x',
  tier: 'workspace',
  input: z.object({ city: z.enum(['Rome', 'Paris']), seats: z.number().int().max(4) }),
  run: ({ city }) => {
    runs += 1;
    if (city === 'Paris')
      throw new PawlError('INVALID_PARAMS', 'Paris is full.', { issues: [{ path: 'city', message: 'is full' }] });
    return { output: city };
  },
});

async function open() {
  const runner = createLocalRunner({ tools: [book] });
  const session = await runner.openSession({ kind: 'main' });
  return { runner, session };
}

describe('A15: a model whose arguments are refused is asked again', () => {
  test('with the field, what came, what is allowed and the schema, and nothing has run', async () => {
    const { runner, session } = await open();
    const asked: Reask[] = [];
    runs = 0;
    const result = await session.callWithReask(
      book,
      { city: 'Rom', seats: 9 },
      {
        idempotencyKey: 'k',
        ask: (problem) => {
          asked.push(problem);
          return { ...problem.params, ...(problem.reask === 1 ? { city: 'Rome' } : { seats: 4 }) };
        },
      },
    );
    expect(result).toMatchObject({ status: 'success', output: { content: 'Rome' } });
    expect(runs).toBe(1);
    expect(asked.map(({ issues }) => issues.map(({ path }) => path))).toEqual([['city', 'seats'], ['seats']]);
    expect(asked[0]?.message).toContain(
      '- city: must be one of "Rome", "Paris"; got "Rom"; schema: {"type":"string","enum":["Rome","Paris"]}',
    );
    expect(asked[0]?.message).toContain('The whole schema: {');
    await runner.close();
  });

  test('at most twice: three attempts in all; then the parent session hears of it', async () => {
    const { runner, session } = await open();
    const branch = await session.branch();
    const heard: unknown[] = [];
    session.events.on('invalid-params', (event) => heard.push(event));
    let asked = 0;
    const result = await branch.callWithReask(
      book,
      { city: 'Oslo', seats: 1 },
      {
        ask: ({ params }) => {
          asked += 1;
          return params;
        },
      },
    );
    expect([asked, result.error?.code]).toEqual([2, 'INVALID_PARAMS']);
    expect(heard).toEqual([{ sessionKey: branch.key, toolName: 'book', reasks: 2, result }]);
    await runner.close();
  });

  test('A14: a tool’s own validation error is asked about too, under a key of its own; other errors are not', async () => {
    const { runner, session } = await open();
    const result = await session.callWithReask(
      book,
      { city: 'Paris', seats: 1 },
      {
        idempotencyKey: 'k',
        ask: ({ params }) => ({ ...params, city: 'Rome' }),
      },
    );
    expect(result.status).toBe('success');
    const unknown = await session.callWithReask('buk', {}, { ask: () => ({}) });
    expect(unknown.error?.code).toBe('UNKNOWN_TOOL');
    const tired = await session.callWithReask(book, { city: 'Oslo', seats: 1 }, { ask: () => undefined });
    expect(tired.error?.code).toBe('INVALID_PARAMS');
    await runner.close();
  });

  test('slips with one meaning are mended without asking; a hook of one’s own can mend more', async () => {
    const { runner, session } = await open();
    const ask = () => {
      throw new Error('nobody is asked');
    };
    expect((await session.callWithReask(book, { city: 'Rome', seats: '3' }, { ask })).status).toBe('success');
    const repair = () => ({ city: 'Rome', seats: 2 });
    expect((await session.callWithReask(book, { city: 'Roma', seats: 2 }, { ask, repair })).status).toBe('success');
    await expect(session.callWithReask(book, { city: 'Rome', seats: '3' }, { ask, repair: false })).rejects.toThrow(
      'nobody',
    );
    await runner.close();
  });
});

test.each<[string, unknown, unknown]>([
  ['numbers and booleans as text', { n: '7', b: 'true' }, { n: 7, b: true }],
  ['a list and an object as text', { l: '["a"]', o: '{"x":"1"}' }, { l: ['a'], o: { x: 1 } }],
  ['one item for a list, and a number for a text', { l: 'a', s: 7 }, { l: ['a'], s: '7' }],
  ['null for what is optional', { n: null, s: null }, {}],
  ['what has no one meaning stays', { n: '7 or 8', b: 'yes', o: 'x' }, { n: '7 or 8', b: 'yes', o: 'x' }],
])('repair (A15): %s', (_name, came, mended) => {
  const schema = inputJsonSchema(
    z
      .object({ n: z.number(), b: z.boolean(), l: z.array(z.string()), s: z.string(), o: z.object({ x: z.number() }) })
      .partial(),
  );
  expect(repairParams(schema, came as Record<string, unknown>)).toEqual(mended);
});
