import { expect, test } from 'vitest';
import { GroupDriver } from '../../../src/producer/groups/group-driver.ts';
import type { ToolCallEnvelope } from '../../../src/shared/calls/envelope.ts';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { BatchProgress } from '../../../src/shared/groups/batch.ts';
import type { LeasedGroup } from '../../../src/shared/store/groups/groups.ts';

type Deps = ConstructorParameters<typeof GroupDriver>[0];

const envelope = { requestId: 'request', toolName: 'note' } as ToolCallEnvelope;
const entries = [{ envelope, callId: 'call' }];
const group: LeasedGroup = {
  head: { id: 'batch', kind: 'batch', createdAtMs: 0 },
  definition: { entries },
  fields: {},
  steps: 0,
  fence: 7,
};

/** A driver of a batch of one call, whose steps and submissions are logged. */
function drive(
  deps: { stepOf: Deps['records']['stepOf']; advance(): unknown; submit(): unknown },
  members = new Map<string, object>(),
  callOf: Parameters<GroupDriver['start']>[0] = async () => undefined,
  ends: unknown[] = [],
  read: () => Promise<unknown> = async () => undefined,
) {
  const log: unknown[] = [];
  const stopped = Promise.withResolvers<void>();
  const records: Deps['records'] = {
    stepOf: deps.stepOf,
    async advance(_, { step }) {
      log.push(`step ${step?.number}`);
      for (const change of step?.changes.values() ?? []) if ('end' in change) ends.push(change.end);
      const answer = deps.advance();
      await new Promise((resolve) => setImmediate(resolve));
      log.push('answer');
      return answer as 'lost';
    },
  };
  const calls = {
    check: async () => ({ identity: { callId: 'call' } }),
    async submit(_: unknown, options: { readonly step?: unknown }) {
      log.push(options.step ?? 'no step');
      return deps.submit();
    },
    read,
  } as unknown as Deps['calls'];
  const onError = (error: unknown) => log.push(error);
  const now = async () => 0;
  const driver = new GroupDriver(
    { records, calls, keptMs: 1, onStopped: () => stopped.resolve(), onError, now },
    group,
    new BatchProgress({ entries }, members),
  );
  driver.start(callOf);
  return { log, stopped: stopped.promise };
}

const answered = () => ({ kind: 'answered', callId: 'call', result: { status: 'success' } });
const stepOf: Deps['records']['stepOf'] = ({ fence }, number) => ({ record: 'key', fence, number });

test('calls are sent right behind the step that they name, and where they cannot name it, after its answer', async () => {
  const right = drive({ stepOf, advance: () => ({ nowMs: 1 }), submit: answered });
  await right.stopped;
  expect(right.log.slice(0, 3)).toEqual(['step 1', { record: 'key', fence: 7, number: 1 }, 'answer']);
  const later = drive({ stepOf: () => undefined, advance: () => ({ nowMs: 1 }), submit: answered });
  await later.stopped;
  expect(later.log.slice(0, 3)).toEqual(['step 1', 'answer', 'no step']);
  const lost = drive({ stepOf: () => undefined, advance: () => 'lost', submit: answered });
  await lost.stopped;
  expect(lost.log).toEqual(['step 1', 'answer']);
});

test('a call that cannot be submitted stops the driver, which reports it once and rejects nothing else', async () => {
  const error = new PawlError('BACKEND_UNAVAILABLE', 'Redis is away.');
  const { log, stopped } = drive({ stepOf, advance: () => ({ nowMs: 1 }), submit: () => Promise.reject(error) });
  await stopped;
  // Node reports an unhandled rejection after the tick's microtasks.
  await new Promise((resolve) => setImmediate(resolve));
  expect(log.filter((entry) => entry === error)).toHaveLength(1);
});

test.each([
  ['is not in its plan any more', async () => undefined, /There is no record of the call/],
  [
    'needs what is gone',
    () => Promise.reject(new PawlError('UNKNOWN_CALL', 'The other one is gone.')),
    /other one is gone/,
  ],
])('a call that has begun, has no record and %s ends as unknown', async (_, callOf, message) => {
  const ends: unknown[] = [];
  const advance = () => ({ nowMs: 1 });
  const { stopped, log } = drive(
    { stepOf, advance, submit: answered },
    new Map([['0', { callId: 'call' }]]),
    callOf,
    ends,
  );
  await stopped;
  expect(ends).toMatchObject([
    { code: 'OUTCOME_UNKNOWN', mayHaveHappened: true, message: expect.stringMatching(message) },
  ]);
  expect(log).toEqual(['step 1', 'answer']);
});

test('a call that has begun, and whose segment is lost, ends so, and does not stop the driver', async () => {
  const ends: unknown[] = [];
  const lost = new PawlError('RESULT_LOST', 'The segment is gone.');
  const { stopped, log } = drive(
    { stepOf, advance: () => ({ nowMs: 1 }), submit: answered },
    new Map([['0', { callId: 'call' }]]),
    undefined,
    ends,
    () => Promise.reject(lost),
  );
  await stopped;
  expect(ends).toMatchObject([{ status: 'error', code: 'RESULT_LOST', message: 'The segment is gone.' }]);
  expect(log).toEqual(['step 1', 'answer']);
});
