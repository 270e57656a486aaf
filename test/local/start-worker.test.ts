import { expect, test } from 'vitest';
import { type ConnectOptions, connect, type StartWorkerOptions, startWorker } from '../../src/main.ts';
import { defineHook } from '../../src/shared/calls/define-hook.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { echo } from '../helpers/tools.ts';

const CONCURRENCY = '`concurrency` must be a whole number from 1 to 10000';
/** A guard that is not asked lets all calls pass. */
const guard = defineHook({ name: 'guard', beforeCall: () => ({ deny: 'no' }) });
const TOOLS = 'startWorker needs `tools`';

test.each<[string, unknown, string]>([
  ['no options', undefined, TOOLS],
  ['no tools', {}, TOOLS],
  ['tools that are no list', { tools: echo }, TOOLS],
  ['a tool that is none', { tools: [null] }, 'Every entry of `tools` must come from defineTool'],
  ['concurrency 0', { tools: [echo], concurrency: 0 }, `${CONCURRENCY}; got 0.`],
  ['concurrency -1', { tools: [echo], concurrency: -1 }, `${CONCURRENCY}; got -1.`],
  ['concurrency 100000', { tools: [echo], concurrency: 100_000 }, `${CONCURRENCY}; got 100000.`],
  ['concurrency 1.5', { tools: [echo], concurrency: 1.5 }, `${CONCURRENCY}; got 1.5.`],
  ['concurrency as a text', { tools: [echo], concurrency: '3' }, `${CONCURRENCY}; got "3".`],
  ['a misspelled option', { tools: [echo], concurency: 3 }, 'no option concurency; did you mean concurrency?'],
  ['concurrency NaN', { tools: [echo], concurrency: Number.NaN }, `${CONCURRENCY}; got NaN.`],
  ['an unknown tier', { tools: [echo], tiers: ['read-only', 'writes'] }, 'There is no tier "writes"; tiers are '],
  ['a log that is none', { tools: [echo], log: 'info' }, '`log` must have the methods debug, info, warn and error'],
  ['a hook in place of a list', { tools: [echo], hooks: guard }, '`hooks` must be a list of what defineHook returns'],
  [
    'hooks that have nothing to ask',
    { tools: [echo], hooks: [() => ({ deny: 'no' })] },
    '`hooks[0]` must be what defineHook returns; got () => ({ deny: ',
  ],
  [
    'tiers that are no list',
    { tools: [echo], tiers: 'read-only' },
    '`tiers` must be a list of tiers; got "read-only".',
  ],
  ['settings of tools that are none', { tools: [echo], toolSettings: 5 }, '`toolSettings` must be an object'],
  ['a listener that is none', { tools: [echo], onEvent: 'log' }, '`onEvent` must be a function; got "log".'],
  ['a drain that is none', { tools: [echo], onDrainAsked: {} }, '`onDrainAsked` must be a function; got {}.'],
])('a worker with %s is refused before anything is started', async (_what, options, message) => {
  // Nothing listens there: whoever asks Redis first says something else.
  const partition = { redisUrl: 'redis://127.0.0.1:1', log: silentLogger };
  const given = options === undefined ? undefined : { ...partition, ...options };
  await expect(startWorker(given as StartWorkerOptions)).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message: expect.stringContaining(message),
  });
});

test.each<[string, unknown, string]>([
  ['an address alone', 'redis://127.0.0.1:1', 'connect takes an object of settings, such as { redisUrl'],
  ['null', null, 'got null'],
  ['a hook in place of a list', { hooks: guard }, '`hooks` must be a list of what defineHook returns; got {"name":'],
  ['hooks without a name', { hooks: [{ beforeCall: () => {} }] }, 'Hook undefined: name must be a text'],
  ['a misspelled option', { hoks: [] }, 'connect has no option hoks; did you mean hooks?'],
  ['a misspelled setting', { redisURL: 'x' }, 'redisURL: is not a setting (did you mean redisUrl'],
  ['a hook that is none', { hooks: [guard, null] }, '`hooks[1]` must be what defineHook returns; got null.'],
  ['toolsets that are no list', { toolsets: 5 }, '`toolsets` must be a list of what toolset() returns; got 5.'],
  ['a toolset that is none', { toolsets: [echo] }, '`toolsets` must be a list of what toolset() returns'],
  ['a listener that is none', { onEvent: 5 }, '`onEvent` must be a function; got 5.'],
  ['an operator without a name', { operator: '' }, '`operator` must be a text that is not empty; got "".'],
  ['schedules as a text', { schedules: 'true' }, '`schedules` must be true or false; got "true".'],
  ['a log that is none', { log: 'info' }, '`log` must have the methods debug, info, warn and error'],
])('a producer with %s is refused before anything is started', async (_what, options, message) => {
  await expect(connect(options as ConnectOptions)).rejects.toMatchObject({
    code: 'CONFIGURATION',
    message: expect.stringContaining(message),
  });
});
