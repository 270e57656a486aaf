import { expect, test } from 'vitest';
import { howToResolve, storyOf } from '../../src/cli/call-story.ts';
import { UNKNOWN_CODES } from '../../src/shared/call.ts';
import type { CallRecord } from '../../src/shared/store/call-record.ts';

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

test('a call that waits for a person says where its approval is; one that waited, which it was', () => {
  const { outcome: _, ...call } = endedWith('TIMEOUT');
  const asked = { ...call, approvalId: 'w0.1.7' };
  const waits = storyOf({ ...asked, state: 'inflight', phase: 'awaiting-approval' });
  expect(waits).toContain('waits for a person: pawl approvals show w0.1');
  expect(waits).not.toContain('queued');
  expect(storyOf({ ...asked, state: 'done' })).toContain('a person was asked: pawl approvals show w0.1.7');
  expect(storyOf({ ...call, state: 'inflight', phase: 'queued' })).toContain('handed in and queued');
});

test.each(UNKNOWN_CODES)('a call that ended in %s is shown with how to resolve it', (code) => {
  expect(storyOf(endedWith(code))).toContain('pawl calls resolve w0.1 --as succeeded|failed|retry');
  expect(howToResolve(code, 'w0.1')).toHaveLength(1);
});

test('a call of which it is known what happened is not', () => {
  expect(storyOf(endedWith('TIMEOUT'))).not.toContain('resolve');
  expect(howToResolve('TIMEOUT', 'w0.1')).toEqual([]);
});
