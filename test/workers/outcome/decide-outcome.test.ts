import { expect, test, vi } from 'vitest';
import { failureOf, PawlError } from '../../../src/shared/errors/failure.ts';
import type { Attempt } from '../../../src/workers/attempt/attempt-state.ts';
import type { JobOutcome } from '../../../src/workers/attempt/job-outcome.ts';
import type { VoteResult } from '../../../src/workers/outcome/consensus.ts';
import { OutcomeResolver } from '../../../src/workers/outcome/decide-outcome.ts';
import type { SerializedSuccess } from '../../../src/workers/outcome/serialize-result.ts';

const DROPPED: JobOutcome = { kind: 'dropped' };
const success = { kind: 'value', result: { output: 1 }, outcomeJson: '{}' } as SerializedSuccess;

function attemptOf(tool: object, started: object = {}): Attempt {
  const full = { name: 'pay', effects: 'once', ...tool };
  return {
    tool: full,
    registered: { tool: full },
    started: { recovered: false, earlierAttempts: [], ...started },
    envelope: { payload: {} },
  } as unknown as Attempt;
}

function resolverFor(voted?: VoteResult) {
  const steps = {
    succeed: vi.fn(async () => DROPPED),
    fail: vi.fn(async () => DROPPED),
    resolve: vi.fn(async () => DROPPED),
    requeue: vi.fn(async () => DROPPED),
    release: vi.fn(async () => {}),
    pend: vi.fn(async () => DROPPED),
  };
  const consensus = {
    isNeededFor: () => voted !== undefined,
    vote: async () => voted ?? ({ kind: 'agreed' } as const),
  };
  const resolver = new OutcomeResolver({
    ender: steps,
    failed: steps,
    consensus,
    parking: steps,
    settler: steps,
    pending: steps,
  });
  return { resolver, steps };
}

test('a result that the workers agree on ends its call', async () => {
  const { resolver, steps } = resolverFor({ kind: 'agreed' });
  const attempt = attemptOf({});
  await resolver.resolve(attempt, success);
  expect(steps.succeed).toHaveBeenCalledWith(attempt, success);
});

test('an open vote ends the job as the consensus says', async () => {
  const end: JobOutcome = { kind: 'skipped', need: 'another', others: ['b'] };
  const { resolver, steps } = resolverFor({ kind: 'open', end });
  expect(await resolver.resolve(attemptOf({}), success)).toBe(end);
  expect(steps.succeed).not.toHaveBeenCalled();
});

test('split votes end the call without counting against its circuit, and an incomparable result is a failed attempt', async () => {
  const failure = failureOf('NO_CONSENSUS');
  const split = resolverFor({ kind: 'split', failure });
  await split.resolver.resolve(attemptOf({}), success);
  expect(split.steps.fail).toHaveBeenCalledWith(expect.anything(), failure, { status: 'error', ran: true });
  const incomparable = resolverFor({ kind: 'incomparable', failure });
  await incomparable.resolver.resolve(attemptOf({}), success);
  expect(incomparable.steps.resolve).toHaveBeenCalledWith(expect.anything(), failure);
});

test.each([
  ['not-run', 1],
  ['unknown', 0],
] as const)('a lost lease abandons the job; an attempt that is %s is released %i times', async (evidence, times) => {
  const { resolver, steps } = resolverFor();
  const ended = await resolver.aborted(attemptOf({}), new PawlError('LEASE_LOST'), evidence);
  expect(ended).toEqual({ kind: 'abandoned' });
  expect(steps.release).toHaveBeenCalledTimes(times);
});

test.each([
  ['once', 'not-run', 'requeue'],
  ['once', 'proven', 'requeue'],
  ['none', 'unknown', 'requeue'],
  ['once', 'unknown', 'fail'],
] as const)('a drained attempt of a `%s` tool that is %s: %s', async (effects, evidence, step) => {
  const { resolver, steps } = resolverFor();
  await resolver.aborted(attemptOf({ effects }), new PawlError('DRAINED'), evidence);
  expect(steps[step]).toHaveBeenCalledOnce();
  const unknown = { code: 'OUTCOME_UNKNOWN', message: 'The worker that ran the call was shut down.' };
  if (step === 'fail') expect(steps.fail.mock.calls[0]).toContainEqual(expect.objectContaining(unknown));
});

test('a drained attempt whose tool can be probed is left to the next worker', async () => {
  const { resolver } = resolverFor();
  const attempt = attemptOf({ effects: 'probe', probe: () => {} });
  const ended = await resolver.aborted(attempt, new PawlError('DRAINED'), 'unknown');
  expect(ended).toEqual({ kind: 'abandoned' });
});

test.each([
  ['not-run', 'cancelled'],
  ['unknown', 'unsettled'],
] as const)('a cancelled attempt of a `once` tool that is %s ends as %s', async (evidence, settlement) => {
  const { resolver, steps } = resolverFor();
  await resolver.aborted(attemptOf({}), new PawlError('CANCELLED'), evidence);
  const details = { status: 'error', ran: evidence !== 'not-run', settlement };
  expect(steps.fail).toHaveBeenCalledWith(expect.anything(), expect.objectContaining({ code: 'CANCELLED' }), details);
});
