import { expect, test } from 'vitest';
import type { ToolResultEnvelope } from '../../src/index.ts';
import type { EffectLine } from './fixtures/effect-log.ts';
import { breaches, type ObservedCall } from './invariants.ts';

const callId = 'w0.call';
const line = (phase: EffectLine['phase'], fence = 1, more: Partial<EffectLine> = {}): EffectLine => ({
  ...{ callId, key: 'k', attempt: fence, fence, phase, pid: 1, mono: fence },
  ...more,
});
const success: ToolResultEnvelope = {
  ...{ requestId: 'r', callId, status: 'success', fromCache: false, toolName: 't', durationMs: 1, attempts: 1 },
  output: { content: 1 },
};
const failure = (code: string): ToolResultEnvelope => ({
  ...{ requestId: 'r', callId, status: 'error', fromCache: false, toolName: 't', durationMs: 1, attempts: 1 },
  error: { code, message: code, retriable: false, terminal: true },
});
const attempt = (number: number, status: 'success' | 'lost') => ({
  ...{ attempt: number, fence: number, worker: 'w', startedAtMs: 1, finishedAtMs: 2, status, retriable: false },
});
const once = (told: readonly ToolResultEnvelope[], lost = 0): ObservedCall => ({
  callId,
  effects: 'once',
  told,
  record: {
    state: told[0]?.status === 'success' ? 'done' : 'failed',
    attempts: Array.from({ length: lost }, (_, index) => attempt(index + 1, 'lost')),
  },
});

test('a sound history has no breach', () => {
  expect(
    breaches([once([success, { ...success, requestId: 'other', fromCache: true }])], [line('begin'), line('effect')]),
  ).toEqual([]);
  expect(breaches([once([failure('OUTCOME_UNKNOWN')], 1)], [line('begin')])).toEqual([]);
  expect(
    breaches([{ ...once([success], 1), effects: 'keyed' }], [line('begin'), line('begin', 2), line('effect', 2)]),
  ).toEqual([]);
});

test.each([
  ['a call that nobody was told of', once([]), [], 'nobody was told how it ended'],
  ['two truths', once([success, failure('TOOL_FAILED')]), [line('begin'), line('effect')], 'two readers differ'],
  [
    'an endless call',
    { ...once([success]), record: { state: 'inflight' as const, attempts: [] } },
    [],
    'is still in flight',
  ],
  ['a second run of a once call', once([success]), [line('begin'), line('begin', 2), line('effect')], 'began 2 times'],
  ['two effects', once([success]), [line('begin'), line('effect'), line('effect')], 'had 2 effects'],
  [
    'a shared fence',
    { ...once([success]), effects: 'none' as const },
    [line('begin'), line('begin'), line('effect')],
    'one fence',
  ],
  [
    'a late begin',
    { ...once([success]), effects: 'none' as const },
    [line('begin', 2), line('begin'), line('effect', 2)],
    'after a newer',
  ],
  [
    'another key',
    { ...once([success]), effects: 'keyed' as const },
    [line('begin'), line('effect', 1, { key: 'z' })],
    'different keys',
  ],
  ['an effect from nowhere', once([success]), [line('effect')], 'has no begin'],
  ['a success without effect', once([success]), [line('begin')], 'without an effect'],
  [
    'a failure with an effect',
    once([failure('TOOL_FAILED')]),
    [line('begin'), line('effect')],
    'although it had its effect',
  ],
  [
    'needless doubt',
    { ...once([failure('OUTCOME_UNKNOWN')]), effects: 'keyed' as const },
    [line('begin')],
    'is unknown although',
  ],
  [
    'a hasty verdict',
    { ...once([failure('POISONED')], 1), effects: 'keyed' as const },
    [line('begin')],
    'after 1 lost attempts',
  ],
  [
    'a stranger',
    once([success]),
    [line('begin'), line('effect'), line('effect', 1, { callId: 'w0.x' })],
    'never called',
  ],
] as const)('the checker notices %s', (_, call, log, breach) => {
  expect(breaches([call], log).join('\n')).toContain(breach);
});
