import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { mayVote, tally } from '../../../src/shared/calls/consensus.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import type { AnyTool } from '../../../src/shared/tools/tool.ts';
import type { Attempt } from '../../../src/workers/attempt/attempt-state.ts';
import { countVote } from '../../../src/workers/outcome/consensus.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';

const vote = (worker: string, digest: string) => ({ worker, digest });

describe('the rule (I11)', () => {
  test('each worker answers once, and the last one ends the call only if it agrees', () => {
    expect(tally([], vote('a', 'x'), 3)).toEqual({ kind: 'open' });
    expect(tally([vote('a', 'x')], vote('b', 'x'), 3)).toEqual({ kind: 'open' });
    expect(tally([vote('a', 'x'), vote('b', 'y')], vote('c', 'x'), 3)).toEqual({ kind: 'agreed' });
    expect(tally([vote('a', 'x'), vote('b', 'x')], vote('c', 'y'), 3)).toEqual({ kind: 'open' });
    expect(tally([vote('a', 'x'), vote('b', 'y')], vote('c', 'z'), 3)).toEqual({ kind: 'split' });
    const dissent = [vote('a', 'x'), vote('b', 'x'), vote('c', 'y')];
    expect(['a', 'b', 'c', 'd'].map((worker) => mayVote(dissent, worker, 3))).toEqual([true, true, false, false]);
    expect(['a', 'b'].map((worker) => mayVote([vote('a', 'x')], worker, 3))).toEqual([false, true]);
    // A worker that finds something else the second time takes its first word back.
    expect(tally(dissent, vote('a', 'z'), 3)).toEqual({ kind: 'split' });
  });

  test('is for the read-only tier, and an odd number of workers', () => {
    const tool = {
      name: 'rate',
      version: '1.0.0',
      description: 'A rate.',
      input: z.object({}),
      run: () => ({ output: 1 }),
    };
    const trustClass = 'ConsensusRequired';
    expect(() => defineTool({ ...tool, tier: 'system', trustClass })).toThrow(/trustClass/);
    expect(() => defineTool({ ...tool, tier: 'read-only', trustClass, voters: 4 })).toThrow(/voters/);
  });
});

/** Each worker has a tool of its own that finds what it is given. */
async function voters(found: readonly unknown[], options: Partial<Parameters<typeof defineTool>[0]> = {}) {
  const ran: number[] = [];
  const tools = found.map(
    (output, worker): AnyTool =>
      defineTool({
        name: 'rate',
        version: '1.0.0',
        description: 'An exchange rate.',
        tier: 'read-only',
        trustClass: 'ConsensusRequired',
        input: z.looseObject({}),
        run: () => {
          ran.push(worker);
          return { output };
        },
        ...(options as object),
      }),
  );
  const fleet = await startFleet({ tools: [tools[0] as AnyTool], workers: 0 });
  for (const tool of tools) await fleet.startWorker({ tools: [tool] });
  return { ...fleet, ran };
}

describe('a call that needs a consensus', () => {
  test('runs on three different workers and answers with what they agree on', async () => {
    const { session, ran, audited } = await voters([5, 5, 5]);
    expect(await session.call('rate', {})).toMatchObject({ status: 'success', output: { content: 5 }, attempts: 3 });
    expect([...ran].sort()).toEqual([0, 1, 2]);
    // I11: the trail says what each attempt was run for.
    const classes = audited.flatMap((event) => (event.type === 'attempt' ? [event.trustClass] : []));
    expect(classes).toEqual(Array(3).fill('ConsensusRequired'));
  });

  test('finds its next voter at once where many such calls run, and is given to hardly anybody who has voted', async () => {
    const { pawl, session } = await voters([5, 5, 5]);
    const submissions = await Promise.all(Array.from({ length: 60 }, (_, index) => session.submit('rate', { index })));
    let begun = 0;
    for (const { callId, result } of submissions.map(pending)) {
      expect(await result).toMatchObject({ status: 'success', attempts: 3 });
      begun += (await pawl.read(callId))?.fence ?? 0;
    }
    expect(begun / submissions.length).toBeLessThan(4);
  });

  test('answers with the majority, whichever worker comes last', async () => {
    const { session, ran } = await voters([5, 6, 5]);
    const result = await session.call('rate', {});
    expect(result).toMatchObject({ status: 'success', output: { content: 5 } });
    expect(result.attempts).toBe(ran.length);
    expect(new Set(ran).size).toBe(3);
  });

  test('compares what `normalise` leaves', async () => {
    const normalise = (output: unknown) => (output as { rate: number }).rate;
    const { session } = await voters(
      [
        { rate: 5, at: 1 },
        { rate: 5, at: 2 },
        { rate: 5, at: 3 },
      ],
      { normalise } as object,
    );
    expect(await session.call('rate', {})).toMatchObject({ status: 'success', output: { content: { rate: 5 } } });
  });

  test.each([
    ['nothing', () => undefined],
    ['Set', (output: unknown) => new Set([output])],
    ['Invalid Date', () => new Date(Number.NaN)],
    ['function', (output: unknown) => () => output],
  ])('takes no values of `normalise` for the same that JSON cannot tell apart: %s', async (kind, normalise) => {
    const { session } = await voters([1, 2, 3], { normalise } as object);
    const { error } = await session.call('rate', {});
    const message = expect.stringMatching(`normalise of rate must return .*${kind}`);
    expect(error).toMatchObject({ code: 'RESULT_INVALID', message });
  });

  test('does not wait for a `normalise` that never ends', async () => {
    const run = () => ({ output: 1 });
    const shape = { name: 'rate', version: '1.0.0', description: 'A rate.', tier: 'read-only', run } as const;
    const tool = defineTool({ ...shape, input: z.object({}), normalise: () => new Promise(() => {}) });
    const attempt = { tool, started: { earlierAttempts: [] }, workerId: 'a' } as unknown as Attempt;
    const atOnce = (fire: () => void) => {
      queueMicrotask(fire);
      return () => {};
    };
    await expect(countVote(attempt, run(), atOnce)).rejects.toThrow('normalise of rate did not end within 5 s');
  });

  test('compares whether the answer is "no" as well', async () => {
    const successes = [true, true, false];
    const run = () => ({ output: 5, success: successes.shift() ?? true });
    const { session } = await voters([5, 5, 5], { run });
    const { output, attempts } = await session.call('rate', {});
    expect(output?.metadata?.['success']).not.toBe(false);
    expect(attempts).toBe(4);
  });

  test('ends with NO_CONSENSUS and the digests where they do not agree', async () => {
    const { session, ran } = await voters([1, 2, 3]);
    const result = await session.call('rate', {});
    expect(result).toMatchObject({ status: 'error', error: { code: 'NO_CONSENSUS' }, attempts: 3 });
    expect(new Set(result.error?.issues?.map(({ message }) => message)).size).toBe(3);
    expect(ran).toHaveLength(3);
  });
});
