import { expect, test } from 'vitest';
import { Hooks } from '../../../src/shared/calls/hooks.ts';
import { answerFault, checkedProgress } from '../../../src/shared/tools/tool-answers.ts';

/** Return values of functions that no compiler checked. */
const NONSENSE: readonly [unknown, string][] = [
  [undefined, 'nothing'],
  [null, 'null'],
  ['a text', 'a text'],
  [7, '7'],
  [true, 'true'],
  [[1], 'a list'],
  [{}, 'an object without members'],
  [{ done: true, by: {} }, '{ done: true, by }'],
  [Promise.resolve(1), 'a promise'],
];

test.each(['preview', 'probe', 'ready'] as const)(
  'nothing but an answer of %s is one, and what came is named',
  (of) => {
    for (const [value, words] of NONSENSE) {
      const fault = answerFault(of, 't', value) ?? '';
      expect([fault.startsWith(`${of} of t must return `), fault.split('; it returned ')[1]]).toEqual([
        true,
        `${words}.`,
      ]);
    }
  },
);

test.each([
  ['preview', { summary: 'x' }],
  ['preview', { summary: 'x', details: 'y' }],
  ['probe', { state: 'done', result: { output: 1 } }],
  ['probe', { state: 'not-done' }],
  ['probe', { state: 'unknown' }],
  ['ready', { ready: true }],
  ['ready', { ready: false, againInMs: 0 }],
  ['compensate', undefined],
  ['compensate', [1]],
  ['isMutating', undefined],
  ['isMutating', false],
] as const)('an answer of %s: %j', (of, value) => expect(answerFault(of, 't', value)).toBeUndefined());

test.each([
  ['preview', { summary: 7 }, '{ summary: 7 }'],
  ['preview', { summary: 'x', details: 7 }, '{ summary: a text, details: 7 }'],
  ['probe', { state: 'done' }, '{ state: a text }'],
  ['probe', { state: 'DONE', result: { output: 1 } }, '{ state: a text, result }'],
  ['ready', { ready: false, againInMs: Number.POSITIVE_INFINITY }, '{ ready: false, againInMs: Infinity }'],
  ['compensate', false, 'false'],
  ['compensate', { success: false }, '{ success: false }'],
  ['isMutating', 'no', 'a text'],
  ['isMutating', Promise.resolve(false), 'a promise'],
] as const)('no answer of %s: %j', (of, value, words) =>
  expect(answerFault(of, 't', value)).toContain(`it returned ${words}`),
);

test('a report of progress is kept as it is, and an invalid one is named with the expected form', () => {
  const report = { progress: 1, total: 3, message: 'step' };
  expect(checkedProgress('t', report)).toEqual(report);
  expect(checkedProgress('t', { progress: 0, message: undefined })).toEqual({ progress: 0 });
  const wrong = [
    1,
    { progress: '1' },
    { progress: 0 / 0 },
    { progress: 1, total: 1 / 0 },
    { progress: 1, message: {} },
    { total: 3 },
  ];
  for (const value of [...NONSENSE.map(([each]) => each), ...wrong])
    expect(() => checkedProgress('t', value)).toThrow(
      expect.objectContaining({
        code: 'RESULT_INVALID',
        message: expect.stringMatching(/progress\(\{ progress: 1,.+it got /),
      }),
    );
});

test('a misspelt member of a preview or of a report is named', () => {
  const unknown = 't has no member "totl" (did you mean total?).';
  expect(() => checkedProgress('t', { progress: 1, totl: 3 })).toThrow(
    expect.objectContaining({ code: 'RESULT_INVALID', message: `progress of ${unknown}` }),
  );
  expect(answerFault('preview', 't', { summary: 'x', detail: 'y' })).toBe(
    'preview of t has no member "detail" (did you mean details?).',
  );
});

test.each([
  ['beforeCall', { deny: {} }, 'deny must be a text'],
  ['beforeCall', { deny: false }, 'it answered false'],
  ['beforeCall', { params: 'x' }, 'params must be an object; it answered a text'],
  ['beforeCall', { params: [1] }, 'it answered a list'],
  ['beforeCall', { idempotencyKey: 7 }, 'idempotencyKey must be a text; it answered 7'],
  ['beforeCall', { hints: 'x' }, 'hints must be an object'],
  ['beforeCall', { carry: 'x' }, 'carry must be an object of texts'],
  ['beforeAttempt', { params: null }, 'it answered null'],
  ['afterAttempt', { result: 'done' }, 'result must be a result with output; it answered a text'],
  ['afterCall', { content: { mean: 0 / 0 } }, 'it answered NaN in content.mean'],
  ['afterCall', { content: new Map() }, 'it answered Map in content'],
  ['afterCall', { metadata: 'x' }, 'metadata must be a JSON-serializable object'],
] as const)('a hook that answers %s with %j is named, and its answer is not taken', async (kind, answer, message) => {
  const failures: string[] = [];
  const hooks = new Hooks([{ name: 'h', onFailure: 'open', [kind]: () => answer } as never], {
    schedule: () => () => {},
    onFailure: (_hook, _kind, fault) => void failures.push(fault),
  });
  const tool = {
    name: 'pay',
    namespace: 'bank',
    version: '1.0.0',
    tier: 'system',
    effects: 'once',
    annotations: {},
  } as const;
  const event = {
    tool,
    params: { amount: 1 },
    requestId: 'r',
    callId: 'c',
    sessionKey: 's',
    actorId: 'a',
    values: new Map(),
  };
  const ending = { kind: 'value', result: { output: 1 } } as const;
  const result = {
    requestId: 'r',
    status: 'success',
    output: { content: 1 },
    toolName: 'pay',
    durationMs: 0,
    attempts: 1,
    fromCache: false,
  } as const;
  const run = {
    beforeCall: () => hooks.beforeCall(event),
    beforeAttempt: () => hooks.beforeAttempt({ ...event, attempt: 1, fence: 1 }),
    afterAttempt: () => hooks.afterAttempt({ ...event, attempt: 1, fence: 1, ending }),
    afterCall: () => hooks.afterCall({ ...event, result }),
  };
  const kept = { beforeCall: {}, beforeAttempt: event.params, afterAttempt: ending, afterCall: result };
  expect(await run[kind]()).toEqual(kept[kind]);
  expect(failures).toEqual([expect.stringContaining(message)]);
});
