import { describe, expect, test } from 'vitest';
import { toolResultEnvelopeSchema } from '../../../src/shared/calls/envelope.ts';
import { envelopeOf, type Outcome, outcomeState, refusal, resultError } from '../../../src/shared/calls/outcome.ts';
import { failureOf, PawlError } from '../../../src/shared/errors/failure.ts';
import { FAILURES, type FailureCode } from '../../../src/shared/errors/failure-codes.ts';
import { RESULT_STATUSES, type ResultStatus } from '../../../src/shared/errors/result-status.ts';
import { FORGED_OUTCOME } from '../../../src/shared/store/calls/records/signed-records.ts';

const success: Extract<Outcome, { status: 'success' }> = {
  status: 'success',
  toolName: 'read',
  durationMs: 12,
  attempts: 2,
  output: { content: { text: 'a' }, metadata: { display: 'a.txt' } },
  retriedBy: [{ attempt: 1, delayMs: 100, reasonCode: 'HTTP_503', latencyMs: 5 }],
};

test.each(['', 'The call was not completed in time.', 'no answer of the bank'])(
  'an unknown outcome says what to do before the next call, whatever the reason: %j',
  (reason) => {
    const failure = reason === '' ? failureOf('OUTCOME_UNKNOWN') : failureOf('OUTCOME_UNKNOWN', reason);
    const { message, ...error } = resultError(failure, 'error');
    expect(message).toMatch(/\. It may have had its effect: find out before you call it again\.$/);
    expect(message).toContain(reason);
    expect(error).toEqual({ code: 'OUTCOME_UNKNOWN', retriable: false, terminal: true, mayHaveHappened: true });
  },
);

describe('R7: a caller’s envelope', () => {
  test('the first caller gets the outcome as it is', () => {
    expect(envelopeOf(success, { requestId: 'r1', toolName: 'read', callId: 'c' })).toEqual({
      requestId: 'r1',
      callId: 'c',
      fromCache: false,
      ...success,
    });
  });

  test.each(['inflight', 'completed'] as const)('TR-3: a later caller learns its origin: %s', (matchedOn) => {
    const envelope = envelopeOf(success, {
      requestId: 'r2',
      toolName: 'read',
      callId: 'c',
      cache: { matchedOn, ageMs: 50 },
    });
    expect(envelope).toMatchObject({
      requestId: 'r2',
      fromCache: true,
      cache: { matchedOn, ageMs: 50, keyFingerprint: 'c' },
    });
    expect(JSON.stringify(envelope.output)).toBe(JSON.stringify(success.output));
  });

  test('an outcome that replaces an unverified one gets the name of the call’s tool', () => {
    expect(envelopeOf(FORGED_OUTCOME, { requestId: 'r', toolName: 'read', callId: 'c' })).toMatchObject({
      toolName: 'read',
      error: { code: 'SIGNATURE_INVALID' },
    });
  });

  test('the cancellation returns how it ended; the envelope does not', () => {
    const cancelled: Outcome = {
      status: 'error',
      toolName: 'read',
      durationMs: 1,
      attempts: 0,
      error: resultError(failureOf('CANCELLED'), 'error'),
      settlement: 'cancelled',
    };
    expect(envelopeOf(cancelled, { requestId: 'r', toolName: 'read', callId: 'c' })).not.toHaveProperty('settlement');
  });

  test('a success has an output and no error, everything else an error and no output', () => {
    for (const status of RESULT_STATUSES) {
      const outcome = { status, toolName: 't', durationMs: 0, attempts: 1 } as Outcome;
      const envelope = envelopeOf(outcome, { requestId: 'r', toolName: 't', callId: 'c' });
      expect(toolResultEnvelopeSchema.safeParse(envelope).success).toBe(true);
      expect('output' in envelope).toBe(status === 'success');
      expect('error' in envelope).toBe(status !== 'success');
    }
  });
});

describe('the error part', () => {
  const statuses: readonly (readonly [Exclude<ResultStatus, 'success'>, boolean, boolean])[] = [
    ['error', true, false],
    ['retriable_error', false, false],
    ['retry_exhausted', true, false],
    ['circuit_open', false, true],
    ['timeout', false, false],
  ];
  test.each(statuses)('%s: terminal %s, retriable for any code %s', (status, terminal, retriable) => {
    expect(resultError(failureOf('HTTP_4XX'), status)).toMatchObject({ terminal, retriable, code: 'HTTP_4XX' });
  });

  test('no code is retriable and terminal at once, unless Pawl has used up the attempts', () => {
    const both = (Object.keys(FAILURES) as FailureCode[]).flatMap((code) =>
      statuses.flatMap(([status]) => {
        const { retriable, terminal } = resultError(failureOf(code), status);
        return retriable && terminal ? [status] : [];
      }),
    );
    expect(new Set(both)).toEqual(new Set(['retry_exhausted']));
  });

  test('carries the breaker’s state, the issues and the time of the next try, and nothing else', () => {
    const failure = failureOf('INVALID_PARAMS', 'no', { issues: [{ path: 'a', message: 'b' }], retryAfterMs: 7 });
    expect(resultError(failure, 'error', 'OPEN')).toEqual({
      code: 'INVALID_PARAMS',
      message: 'no',
      retriable: false,
      terminal: true,
      breakerState: 'OPEN',
      issues: [{ path: 'a', message: 'b' }],
      retryAfterMs: 7,
    });
    expect(Object.keys(resultError(failureOf('TIMEOUT'), 'timeout')).sort()).toEqual([
      'code',
      'message',
      'retriable',
      'terminal',
    ]);
  });
});

test('R11: the record’s end state follows from the outcome', () => {
  const base = { toolName: 't', durationMs: 0, attempts: 1 };
  expect(outcomeState({ ...base, status: 'success', output: { content: null } })).toBe('done');
  expect(outcomeState({ ...base, status: 'timeout' })).toBe('failed');
  expect(outcomeState({ ...base, status: 'error', settlement: 'unsettled' })).toBe('cancelled');
});

test('a refusal before a call exists has no attempts and has its reason', () => {
  const error = new PawlError('CIRCUIT_OPEN', 'later', { details: { retryAfterMs: 900 } });
  expect(refusal(error, { requestId: 'r', toolName: 't' }, 'circuit_open', 'OPEN')).toEqual({
    requestId: 'r',
    status: 'circuit_open',
    fromCache: false,
    toolName: 't',
    durationMs: 0,
    attempts: 0,
    error: {
      code: 'CIRCUIT_OPEN',
      message: 'later',
      retriable: true,
      terminal: false,
      breakerState: 'OPEN',
      retryAfterMs: 900,
    },
  });
});
