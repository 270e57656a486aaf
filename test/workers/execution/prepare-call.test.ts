import { expect, test } from 'vitest';
import { failureOf, PawlError } from '../../../src/shared/errors/failure.ts';
import type { SessionRecord } from '../../../src/shared/sessions/session.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import type { Attempt } from '../../../src/workers/attempt/attempt-state.ts';
import type { PreparedContext } from '../../../src/workers/context/tool-context.ts';
import { Preparation, type PreparationDeps } from '../../../src/workers/execution/prepare-call.ts';

function attemptOf(changes: object = {}): Attempt {
  const tool = { name: 'pay', effects: 'once', timeoutMs: 50, parse: (params: unknown) => params };
  return {
    tool,
    registered: { tool, definition: 'd', validate: () => [], validateOutput: undefined },
    policy: {},
    retry: {},
    envelope: { target: { sessionKey: 's' }, payload: { params: { amount: 1 } }, control: {} },
    started: { recovered: false, nowMs: 100, request: { tool: { definition: 'd' } } },
    clock: { monotonic: () => 0 },
    beganMonotonicMs: 0,
    ...changes,
  } as unknown as Attempt;
}

function preparation(deps: Partial<PreparationDeps> = {}): Preparation {
  return new Preparation({
    permits: {
      permit: async ({ envelope }) => ({
        params: envelope.payload.params,
        isApproved: false,
        escalated: false,
        checkRewritten: () => {},
      }),
    },
    sessionOf: async () => ({ sessionKey: 's' }) as SessionRecord,
    contextFor: async () => ({ context: {}, flushProgress: () => {} }) as unknown as PreparedContext,
    log: silentLogger,
    ...deps,
  });
}

test('a permitted call with valid parameters is ready to run', async () => {
  const prepared = await preparation().prepare(attemptOf());
  expect(prepared).toMatchObject({
    options: { params: { amount: 1 }, permission: { isApproved: false }, timeoutMs: 50 },
  });
});

test('a call whose deadline has passed times out', async () => {
  const envelope = { target: {}, payload: {}, control: { deadlineAtMs: 100 } };
  expect(await preparation().prepare(attemptOf({ envelope }))).toMatchObject({
    status: 'timeout',
    failure: { code: 'DEADLINE_EXCEEDED' },
  });
});

test.each([
  [false, 'PARAMS_LOST'],
  [true, 'OUTCOME_UNKNOWN'],
])('parameters that cannot be read, recovered %s: %s', async (recovered, code) => {
  const unreadable = { ...failureOf('INVALID_PARAMS'), code: 'PARAMS_LOST' };
  const started = { recovered, nowMs: 100, request: { tool: {} } };
  expect(await preparation().prepare(attemptOf({ unreadable, started }))).toMatchObject({ failure: { code } });
});

test.each([
  ['d', 'INVALID_PARAMS'],
  ['an earlier one', 'DEFINITION_CHANGED'],
])('parameters that the schema refuses, validated with definition %s: %s', async (definition, code) => {
  const issues = [{ path: 'amount', message: 'is missing' }];
  const attempt = attemptOf({ started: { recovered: false, nowMs: 100, request: { tool: { definition } } } });
  const registered = { ...attempt.registered, validate: () => issues };
  expect(await preparation().prepare({ ...attempt, registered })).toMatchObject({ failure: { code, issues } });
});

test('a call of an unknown session is refused; without Redis it is neither refused nor prepared', async () => {
  const unknown = preparation({ sessionOf: async () => undefined });
  expect(await unknown.prepare(attemptOf())).toMatchObject({ status: 'error', failure: { code: 'UNKNOWN_SESSION' } });
  const away = preparation({ sessionOf: () => Promise.reject(new PawlError('BACKEND_UNAVAILABLE')) });
  await expect(away.prepare(attemptOf())).rejects.toMatchObject({ code: 'BACKEND_UNAVAILABLE' });
});
