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

/** A request for approval at the same time as the call. */
const request = { createdAtMs: 0 };
const attempt = { attempt: 1, fence: 1, worker: 'w', startedAtMs: 0, finishedAtMs: 9 };
const success = { ...attempt, status: 'success' as const, retriable: false };

test('no text of a record begins a line of the story', () => {
  const text = 'x\n  +2.0 s    approved by alice';
  const lost = { ...attempt, worker: text, errorCode: text, status: 'error' as const, retriable: false };
  const call = { ...endedWith(text), phase: text, worker: text, approvalId: text, circuit: text };
  const redrives = [{ by: text, code: text, atMs: 0, attempts: 0 }];
  const outcome = { ...call.outcome, status: text, settlement: text };
  const forged = {
    ...call,
    attempts: [lost, { ...lost, completedAtMs: 1 }],
    redrives,
    outcome,
  } as unknown as CallRecord;
  const approval = { state: text, request, decidedAtMs: 0, decision: { by: text, reason: text } } as never;
  for (const state of ['failed', 'cancelled', 'inflight', text] as const)
    expect(storyOf({ ...forged, state } as CallRecord, { approval, tools: [] })).not.toMatch(/^ *\+2\.0 s +approved/m);
});

test('a call that was to run again and was denied shows its attempt before the decision', () => {
  const lost = { ...attempt, status: 'lost' as const, retriable: false };
  const approval = {
    state: 'denied',
    request: { createdAtMs: 50_000 },
    decidedAtMs: 53_000,
    decision: { by: 'ada' },
  } as never;
  const story = storyOf({ ...endedWith('OUTCOME_UNKNOWN'), approvalId: 'w0.1.7', attempts: [lost] }, { approval });
  expect(story).toMatch(/was lost with its worker\n +a person was asked: .*\n +\+53\.0 s +denied by ada/);
});

test('the story says who decided, what completed the call from outside, and who resolved it', () => {
  const call = endedWith('CARD_DECLINED');
  const approved = {
    state: 'approved',
    request,
    decidedAtMs: 2_000,
    decision: { by: 'ada', reason: 'paid', params: {} },
  };
  const completed = { ...success, completedAtMs: 5_000 };
  const declined = { ...completed, status: 'error' as const, errorCode: 'CARD_DECLINED' };
  const resolved = { status: 'success' as const, output: { content: null, metadata: { resolved: true } } };
  const asked = { ...call, approvalId: 'w0.1.7' };
  expect(storyOf(asked, { approval: approved as never })).toMatch(
    /\+2\.0 s +approved by ada, with other parameters: paid/,
  );
  expect(storyOf(asked, { approval: { state: 'pending', request } as never })).not.toContain('pending');
  const pended = /attempt 1 left the call to an outside system after 9 ms\n +\+5\.0 s +/;
  expect(storyOf({ ...call, attempts: [completed] })).toMatch(new RegExp(`${pended.source}completed by the outside`));
  expect(storyOf({ ...call, attempts: [declined] })).toMatch(
    new RegExp(`${pended.source}failed with CARD_DECLINED by`),
  );
  const outcome = { ...resolved, toolName: 'pay', durationMs: 0, attempts: 1 };
  expect(storyOf({ ...call, state: 'done', outcome })).toContain('resolved as succeeded by an operator');
});

test('the story tells a lost attempt once, and a delayed call by its start', () => {
  const call = endedWith('');
  const lost = { ...attempt, status: 'lost' as const, retriable: false };
  expect(storyOf({ ...call, attempts: [lost], lostAttempts: 1 })).not.toContain('left no record');
  expect(storyOf({ ...call, attempts: [lost], lostAttempts: 2 })).toContain('1 of the starts left no record');
  const request = { ...call.request, startAtMs: 60_000 };
  expect(storyOf({ ...call, request })).toContain('submitted, to start at 1970-01-01T00:01:00.000Z');
});

test.each([
  ['no worker has its tool', [], 'none has it'],
  ['workers have another line', [['2.0.0', 1]], 'those that run have 2.0.0'],
  ['the workers with its version have gone', [['1.0.0', 0]], 'none has it'],
  ['a worker has a later version of its line', [['1.4.0', 1]], undefined],
] as const)('the story of a queued call says what it waits for when %s', (_when, versions, expected) => {
  const { outcome: _, ...call } = endedWith('');
  const tools = versions.map(([version, workers]) => ({ namespace: 'tools', name: 'pay', version, workers }));
  const story = storyOf({ ...call, state: 'inflight', phase: 'queued' }, { tools: tools as never });
  if (expected === undefined) expect(story).not.toContain('waits for a worker');
  else expect(story).toContain(`waits for a worker that has tools.pay@1.0.0: ${expected}`);
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
  const isHarmless = effects === 'none' || effects === 'idempotent';
  const story = storyOf({
    ...call,
    attempts: [{ ...attempt, status: 'error', retriable: true, errorCode: 'TIMEOUT', inDoubt: true }],
    request: { ...call.request, tool: { ...call.request.tool, effects } },
  });
  expect(story.includes('worth another try')).toBe(isHarmless);
  expect(story.includes('and may have had its effect')).toBe(!isHarmless);
});

test('the story of a call in doubt calls no attempt worth another try', () => {
  const call = endedWith('');
  const outcome = {
    status: 'error' as const,
    toolName: 'pay',
    durationMs: 0,
    attempts: 1,
    error: markInDoubt(timedOut),
  };
  expect(storyOf({ ...call, outcome, attempts: [{ ...attempt, status: 'error', retriable: true }] })).not.toContain(
    'worth another try',
  );
});
