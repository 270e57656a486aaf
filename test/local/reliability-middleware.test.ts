import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import * as pawl from '../../src/index.ts';
import { defineTool } from '../../src/shared/tools/define-tool.ts';
import * as testing from '../../src/testing.ts';
import { ToolReliabilityMiddleware, toolCallErrorClassifier } from '../../src/testing.ts';

const unavailable = () => Object.assign(new Error('down'), { status: 503 });

function counting(fail: (run: number) => boolean) {
  let runs = 0;
  const tool = defineTool({
    name: 'send',
    version: '1.0.0',
    description: 'Sends something.',
    tier: 'workspace',
    effects: 'idempotent',
    input: z.object({ to: z.string() }),
    run: ({ to }) => {
      runs += 1;
      if (fail(runs)) throw unavailable();
      return { output: { to, run: runs } };
    },
  });
  return { tool, runs: () => runs };
}

describe('the seed’s names (R38)', () => {
  test('are exported by the package and by its testing entry', () => {
    for (const entry of [pawl, testing])
      expect(entry).toMatchObject({ ToolReliabilityMiddleware, toolCallErrorClassifier });
  });

  test('ToolReliabilityMiddleware runs a call once, replays it, retries, and refuses behind an open circuit', async () => {
    const sleep = async () => {};
    await using middleware = new ToolReliabilityMiddleware({ sleep });
    const steady = counting(() => false);
    const send = middleware.wrap(steady.tool);
    const both = await Promise.all([1, 2].map(() => send({ to: 'ada' }, { idempotencyKey: 'k' })));
    expect(both.map(({ output }) => output?.content)).toEqual([
      { to: 'ada', run: 1 },
      { to: 'ada', run: 1 },
    ]);
    expect(await send({ to: 'ada' }, { idempotencyKey: 'k' })).toMatchObject({ fromCache: true });
    expect(steady.runs()).toBe(1);
    expect(await send({ to: 5 } as never)).toMatchObject({ error: { code: 'INVALID_PARAMS' } });

    const shaky = counting((run) => run < 3);
    expect(await middleware.wrap(shaky.tool)({ to: 'bob' })).toMatchObject({ status: 'success', attempts: 3 });

    const broken = counting(() => true);
    const failing = middleware.wrap(broken.tool);
    const statuses: string[] = [];
    for (const to of ['a', 'b', 'c']) statuses.push((await failing({ to })).status);
    expect(statuses.at(-1)).toBe('circuit_open');
    expect(broken.runs()).toBe(5);
  });

  test('ToolReliabilityMiddleware leaves parameters and results as they are when the layer is off (R33)', async () => {
    await using middleware = new ToolReliabilityMiddleware({ settings: { reliability: { enabled: false } } });
    const { tool, runs } = counting(() => false);
    const send = middleware.wrap(tool);
    for (const run of [1, 2])
      expect((await send({ to: 'ada' }, { idempotencyKey: 'k' })).output?.content).toEqual({ to: 'ada', run });
    expect(runs()).toBe(2);
  });

  test('ToolReliabilityMiddleware names what is no tool, and closes all the same', async () => {
    for (const options of [null, 5, 'x', []])
      expect(() => new ToolReliabilityMiddleware(options as never)).toThrow('options: must be an object');
    const middleware = new ToolReliabilityMiddleware();
    for (const value of [undefined, null, {}, { name: 'send' }]) {
      const run = middleware.wrap(value as never) as (params: object) => Promise<unknown>;
      await expect(run({})).rejects.toMatchObject({ code: 'CONFIGURATION' });
    }
    const { tool, runs } = counting(() => false);
    expect(await middleware.wrap(tool)({ to: 'ada' })).toMatchObject({ status: 'success' });
    await middleware.close();
    expect(runs()).toBe(1);
  });

  test.for([null, 5, { retriableCodes: 'TOOL_FAILED' }, { terminalCodes: new Set() }, { retriableCode: [] }])(
    'toolCallErrorClassifier names what is no list of codes: %o',
    (lists) => {
      const classified = () => toolCallErrorClassifier(new Error('x'), lists as never);
      expect(classified).toThrow(expect.objectContaining({ code: 'CONTRACT_INVALID' }));
    },
  );

  test.for([
    [unavailable(), {}, 'HTTP_503', true],
    [Object.assign(new Error('no'), { status: 404 }), {}, 'HTTP_404', false],
    [Object.assign(new Error('no'), { code: 'ECONNRESET' }), {}, 'CONNECTION_RESET', true],
    [
      Object.assign(new Error('no'), { code: 'ECONNRESET' }),
      { terminalCodes: ['CONNECTION_RESET'] },
      'CONNECTION_RESET',
      false,
    ],
    ['a text', {}, 'TOOL_FAILED', false],
  ] as const)('toolCallErrorClassifier says what %s is', ([thrown, lists, code, retriable]) => {
    expect(toolCallErrorClassifier(thrown, lists)).toMatchObject({ code, retriable });
  });
});
