import { expect, test } from 'vitest';
import { resolutionSteps, storyOf } from '../../../src/cli/commands/call-story.ts';
import { markInDoubt, resultError } from '../../../src/shared/calls/outcome.ts';
import { failureOf } from '../../../src/shared/errors/failure.ts';
import { EFFECTS } from '../../../src/shared/retries/effects.ts';
import type { CallRecord } from '../../../src/shared/store/calls/call-record.ts';

/** A call that ended with that code. */
function endedWith(code: string): CallRecord {
  const envelope = {
    toolNamespace: 'tools',
    toolName: 'pay',
    requestId: 'request',
    target: { sessionKey: 'trip', actorId: 'ada' },
    payload: { params: {} },
    control: {},
  };
  const error = { class: 'runtime', code, message: 'It ended.', retriable: false };
  return {
    callId: 'w0.1',
    state: 'failed',
    circuit: 'tool:tools.pay',
    createdAtMs: 0,
    updatedAtMs: 0,
    readAtMs: 0,
    attempts: [],
    lostAttempts: 0,
    cancelRequested: false,
    request: { envelope, tool: { version: '1.0.0' } },
    outcome: { status: 'error', toolName: 'pay', durationMs: 0, attempts: 0, error },
  } as unknown as CallRecord;
}

test('the story of a call names its approval, pending or decided', () => {
  const { outcome: _, ...call } = endedWith('TIMEOUT');
  const asked = { ...call, approvalId: 'w0.1.7' };
  const waits = storyOf({ ...asked, state: 'inflight', phase: 'awaiting-approval' });
  expect(waits).toContain('waits for a person: pawl approvals show w0.1');
  expect(waits).not.toContain('queued');
  expect(storyOf({ ...asked, state: 'done' })).toContain('a person was asked: pawl approvals show w0.1.7');
  expect(storyOf({ ...call, state: 'inflight', phase: 'queued' })).toContain('submitted and queued');
});

const RESOLVE = 'pawl calls resolve w0.1 --as succeeded|failed|retry';
const timedOut = resultError(failureOf('TIMEOUT'), 'timeout');

test.each([
  ['an unknown outcome', resultError(failureOf('OUTCOME_UNKNOWN'), 'error')],
  ['a quarantine', resultError(failureOf('POISONED'), 'error')],
  ['a time limit, in doubt', markInDoubt(timedOut)],
  ['a cancellation, in doubt', markInDoubt(resultError(failureOf('CANCELLED'), 'error'))],
])('a call that ended in %s is shown with how to resolve it', (_what, error) => {
  const call = endedWith('');
  expect(
    storyOf({ ...call, outcome: { status: 'error', toolName: 'pay', durationMs: 0, attempts: 1, error } }),
  ).toContain(RESOLVE);
  expect(resolutionSteps(error, 'w0.1')).toHaveLength(1);
});

test('a call with a known outcome is not', () => {
  expect(storyOf(endedWith('TIMEOUT'))).not.toContain('resolve');
  expect(resolutionSteps(timedOut, 'w0.1')).toEqual([]);
});

test.each(EFFECTS)('the story of a call with effects %s explains what may follow an attempt in doubt', (effects) => {
  const call = endedWith('TIMEOUT');
  const attempt = { attempt: 1, fence: 1, worker: 'w', startedAtMs: 0, finishedAtMs: 9, status: 'error' as const };
  const isHarmless = effects === 'none' || effects === 'idempotent';
  const story = storyOf({
    ...call,
    attempts: [{ ...attempt, retriable: true, errorCode: 'TIMEOUT', inDoubt: true }],
    request: { ...call.request, tool: { ...call.request.tool, effects } },
  });
  expect(story.includes('worth another try')).toBe(isHarmless);
  expect(story.includes('and may have had its effect')).toBe(!isHarmless);
});

test('the story of a call in doubt calls no attempt worth another try', () => {
  const call = endedWith('');
  const attempt = { attempt: 1, fence: 1, worker: 'w', startedAtMs: 0, finishedAtMs: 9, status: 'error' as const };
  const outcome = {
    status: 'error' as const,
    toolName: 'pay',
    durationMs: 0,
    attempts: 1,
    error: markInDoubt(timedOut),
  };
  expect(storyOf({ ...call, outcome, attempts: [{ ...attempt, retriable: true }] })).not.toContain('worth another try');
});
