import { expect, test } from 'vitest';
import { cached, decodeCall, filtered, prefixed, renamed } from '../src/index.ts';
import {
  createLocalRunner,
  InMemoryDedupeStore,
  RedisDedupeStore,
  runTool,
  runWithToolIdempotency,
  testContext,
} from '../src/testing.ts';
import { echo } from './helpers/tools.ts';

/** Each function with the argument that must be an object. */
const FUNCTIONS: Readonly<Record<string, (wrong: never) => unknown>> = {
  createLocalRunner: (wrong) => createLocalRunner(wrong),
  InMemoryDedupeStore: (wrong) => new InMemoryDedupeStore(wrong),
  RedisDedupeStore: (wrong) => new RedisDedupeStore(wrong),
  runTool: (wrong) => runTool(echo, { text: '' }, wrong),
  runWithToolIdempotency: (wrong) => runWithToolIdempotency(new InMemoryDedupeStore(), wrong, () => 1),
  testContext: (wrong) => testContext(wrong),
  decodeCall: (wrong) => decodeCall({ names: {}, tools: [] } as never, [], wrong),
  filtered: (wrong) => filtered(wrong, () => true),
  prefixed: (wrong) => prefixed(wrong, 'a_'),
  renamed: (wrong) => renamed(wrong, {}),
  cached: (wrong) => cached(wrong, 1),
};

test.each(Object.entries(FUNCTIONS))('%s names an argument that is no object', async (_name, call) => {
  for (const wrong of [null, 7.5, 'x', Symbol('x'), [], 10n])
    await expect((async () => call(wrong as never))()).rejects.toMatchObject({
      code: 'CONTRACT_INVALID',
      message: expect.stringContaining('must be an object'),
    });
});
