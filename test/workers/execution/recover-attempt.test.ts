import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Effects, ProbeAnswer } from '../../../src/index.ts';
import type { Hook } from '../../../src/shared/calls/define-hook.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import { contentOf, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually, signal } from '../../helpers/signal.ts';
import { scripted } from '../../helpers/tools.ts';

describe('an attempt that began and left no record (DESIGN, decision 5)', () => {
  const lose = async (effects: Effects, times: number, probe?: { readonly answer: ProbeAnswer<string> }) => {
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), {
      effects,
      tier: effects === 'none' ? 'read-only' : 'workspace',
      ...(probe === undefined ? {} : { probe: () => probe.answer }),
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' }));
    const record = await fleet.pawl.read(submission.callId);
    const job = { callId: submission.callId, generation: record?.generation ?? '', session: fleet.session.key };
    for (let index = 0; index < times; index += 1)
      await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: `dead ${index}` });
    await fleet.startWorker();
    return { result: await submission.result, runs: contexts.length };
  };

  test.each<[Effects, number, string, number]>([
    ['none', 1, 'success', 1],
    ['idempotent', 1, 'success', 1],
    ['keyed', 1, 'success', 1],
    ['once', 1, 'OUTCOME_UNKNOWN', 0],
    ['none', 9, 'success', 1],
    ['idempotent', 2, 'success', 1],
    ['once', 9, 'OUTCOME_UNKNOWN', 0],
  ])('%s, lost %i times: %s', async (effects, times, end, runs) => {
    const lost = await lose(effects, times);
    expect(lost.result.error?.code ?? lost.result.status).toBe(end);
    expect(lost.runs).toBe(runs);
    const reasons = lost.result.retriedBy?.map(({ reasonCode }) => reasonCode);
    if (end === 'success') expect(reasons).toEqual(Array(times).fill('LEASE_LOST'));
  });

  test.each<[string, ProbeAnswer<string>, string, number]>([
    ['done', { state: 'done', result: { output: 'was done' } }, 'was done', 0],
    ['not done', { state: 'not-done' }, 'ran', 1],
    ['unknown', { state: 'unknown' }, 'OUTCOME_UNKNOWN', 0],
    ['nothing', undefined as never, 'OUTCOME_UNKNOWN', 0],
    ['something else', { state: 'maybe' } as never, 'OUTCOME_UNKNOWN', 0],
    ['done without a result', { state: 'done' } as never, 'OUTCOME_UNKNOWN', 0],
  ])('a probe that says %s', async (_answer, probe, end, runs) => {
    const lost = await lose('probe', 1, { answer: probe });
    expect(lost.result.error?.code ?? lost.result.output?.content).toBe(end);
    expect(lost.runs).toBe(runs);
    const isAnswer = ['done', 'not done', 'unknown'].includes(_answer);
    if (!isAnswer) expect(lost.result.error?.message).toContain('probe of work must return');
  });

  test.each<[string, ProbeAnswer<string>['state']]>([
    ['found done', 'done'],
    ['run again', 'not-done'],
  ])(
    'a probe is asked about the parameters that the hooks let run, and each hook runs once: %s',
    async (_end, state) => {
      const seen: unknown[] = [];
      const note = (what: string, { room }: Record<string, unknown>) => void seen.push(`${what} ${String(room)}`);
      const { tool } = scripted(
        'book',
        ({ values }, params) => {
          note(`run with ${String(values.get('house'))}`, params);
          return { output: null };
        },
        {
          effects: 'probe',
          probe: (params) => {
            note('asked', params as Record<string, unknown>);
            return (state === 'done' ? { state, result: { output: null } } : { state }) as ProbeAnswer<string>;
          },
        },
      );
      const hook: Hook = {
        name: 'rooms',
        beforeAttempt: ({ params, values }) => {
          note('hook', params);
          values.set('house', 'east');
          return { params: { room: `${String(params['room'])}-east` } };
        },
      };
      const fleet = await startFleet({ tools: [tool], workers: 0, hooks: [hook] });
      const { callId, result } = pending(await fleet.session.submit(tool, { room: 'a' }, { idempotencyKey: 'k' }));
      const generation = (await fleet.pawl.read(callId))?.generation ?? '';
      const job = { callId, generation, session: fleet.session.key };
      await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
      await fleet.startWorker();
      expect(await result).toMatchObject({ status: 'success' });
      const ran = state === 'done' ? [] : ['run with east a-east'];
      expect(seen).toEqual(['hook a', 'asked a-east', ...ran]);
    },
  );

  test.each([
    ['hides a part of it', 'success', 'card ****'],
    ['fails', 'error', 'HOOK_FAILED'],
  ])('a result that a probe found goes through the hook behind attempts, which %s', async (does, status, end) => {
    const { tool } = scripted('pay', () => ({ output: null }), {
      effects: 'probe',
      probe: () => ({ state: 'done', result: { output: 'card 4711' } }),
    });
    const hook: Hook = {
      name: 'cards',
      onFailure: 'closed',
      afterAttempt: ({ ending }) => {
        if (does === 'fails' || ending.kind !== 'value') throw new Error('no');
        return { result: { output: String(ending.result.output).replaceAll(/\d/g, '*') } };
      },
    };
    const fleet = await startFleet({ tools: [tool], workers: 0, hooks: [hook] });
    const { callId, result } = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' }));
    const generation = (await fleet.pawl.read(callId))?.generation ?? '';
    const job = { callId, generation, session: fleet.session.key };
    await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    await fleet.startWorker();
    const ended = await result;
    expect(ended.status).toBe(status);
    expect(ended.error?.code ?? ended.output?.content).toBe(end);
  });

  test('a probe that can be asked no more, because the deadline has passed, leaves the outcome unknown', async () => {
    const probed: unknown[] = [];
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), {
      effects: 'probe',
      probe: (params) => {
        probed.push(params);
        return { state: 'not-done' };
      },
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const { ledger } = fleet.pawl.backend;
    const deadlineAtMs = (await ledger.now()) + 500;
    const { callId } = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k', deadlineAtMs }));
    const generation = (await ledger.read(callId))?.generation ?? '';
    const job = { callId, generation, session: fleet.session.key };
    await ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    await eventually(async () => (await ledger.now()) > deadlineAtMs, { what: 'the deadline' });
    await fleet.startWorker();
    const ended = await eventually(
      async () => {
        const record = await ledger.read(callId);
        return record?.state === 'failed' && record;
      },
      { what: 'the end of the call' },
    );
    expect(ended.outcome?.error?.code).toBe('OUTCOME_UNKNOWN');
    expect([probed.length, contexts.length]).toEqual([0, 0]);
  });
});

describe('a tool that is being asked what became of an attempt', () => {
  const asked = async (atEnd: ProbeAnswer<string> = { state: 'unknown' }) => {
    const held = signal();
    const answers: ((ended: AbortSignal) => ProbeAnswer<string> | Promise<ProbeAnswer<string>>)[] = [
      (ended) => {
        if (atEnd.state === 'done') ended.addEventListener('abort', () => held.fire(), { once: true });
        return held.promise.then(() => atEnd);
      },
      () => ({ state: 'done', result: { output: 'was done' } }),
    ];
    const probed: number[] = [];
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), {
      effects: 'probe',
      probe: (_params, ctx) => answers[probed.push(ctx.fence) - 1]?.(ctx.signal) ?? { state: 'unknown' },
    });
    const fleet = await startFleet({ tools: [tool], workers: 0 });
    const submission = pending(await fleet.session.submit(tool, {}, { idempotencyKey: 'k' }));
    const { callId } = submission;
    const generation = (await fleet.pawl.read(callId))?.generation ?? '';
    const job = { callId, generation, session: fleet.session.key };
    await fleet.pawl.backend.ledger.begin(job, { workerId: 'dead', leaseMs: 1, token: 'dead' });
    const worker = await fleet.startWorker();
    await eventually(() => probed.length === 1, { what: 'the question' });
    onTestFinished(() => held.fire());
    return { ...fleet, submission, worker, runs: () => contexts.length };
  };

  test('is asked again by the next worker, when the one that asks is drained', async () => {
    const { submission, worker, startWorker, runs } = await asked();
    await worker.close(0);
    await startWorker();
    expect(await submission.result).toMatchObject({ status: 'success', output: { content: 'was done' } });
    expect(runs()).toBe(0);
  });

  test('leaves its call unsettled when that is cancelled meanwhile', async () => {
    const { submission, pawl, runs } = await asked();
    expect(await pawl.cancel(submission.callId)).toMatchObject({ settlement: 'unsettled' });
    expect(runs()).toBe(0);
  });

  test('counts when it comes as its call is cancelled', async () => {
    const { submission, pawl } = await asked({ state: 'done', result: { output: 'was done' } });
    expect(await pawl.cancel(submission.callId)).toMatchObject({
      settlement: 'too-late',
      result: { status: 'success', output: { content: 'was done' } },
    });
  });
});

describe('a `probe` tool whose attempt failed in the middle', () => {
  const failing = (answer: ProbeAnswer<string>, failure: () => Error) => {
    const probed: number[] = [];
    const { tool, contexts } = scripted(
      'charge',
      ({ attempt }) => {
        if (attempt === 1) throw failure();
        return { output: 'ran' };
      },
      {
        effects: 'probe',
        probe: (_params, { attempt }) => {
          probed.push(attempt);
          return answer;
        },
      },
    );
    return { tool, contexts, probed };
  };
  const reset = () => Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
  const refused = () => Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });

  test.each<[string, ProbeAnswer<string>, string, number]>([
    ['done', { state: 'done', result: { output: 'was done' } }, 'was done', 1],
    ['not done', { state: 'not-done' }, 'ran', 2],
    ['unknown', { state: 'unknown' }, 'OUTCOME_UNKNOWN', 1],
  ])('is asked before it runs again, and says %s', async (_answer, answer, end, runs) => {
    const { tool, contexts, probed } = failing(answer, reset);
    const { session } = await startFleet({ tools: [tool] });
    const result = await session.call(tool, {});
    expect(result.error?.code ?? result.output?.content).toBe(end);
    expect(result.retriedBy).toMatchObject([{ attempt: 1, reasonCode: 'CONNECTION_RESET' }]);
    expect([contexts.length, probed]).toEqual([runs, [2]]);
  });

  test.each([
    ['leaves the outcome unknown when its circuit opened meanwhile', reset, 'OUTCOME_UNKNOWN'],
    ['is refused by a circuit that opened meanwhile where nothing happened', refused, 'CIRCUIT_OPEN'],
  ])('%s', async (_does, failure, code) => {
    const { tool, contexts, probed } = failing({ state: 'not-done' }, failure);
    const hook: Hook = {
      name: 'operator',
      onRetry: async () => void (await fleet.pawl.circuits.set('force_open', { tool: 'charge' })),
    };
    const fleet = await startFleet({ tools: [tool], hooks: [hook] });
    const result = await fleet.session.call(tool, {});
    expect(result).toMatchObject({ attempts: 1, error: { code, breakerState: 'FORCED_OPEN' } });
    expect([contexts.length, probed]).toEqual([1, []]);
  });

  test('runs again unasked where the failure proves that nothing happened', async () => {
    const { tool, probed } = failing({ state: 'unknown' }, refused);
    const { session } = await startFleet({ tools: [tool] });
    expect(contentOf(await session.call(tool, {}))).toBe('ran');
    expect(probed).toEqual([]);
  });

  test('runs again unasked when a person resolved it so', async () => {
    const { tool, probed } = failing({ state: 'unknown' }, reset);
    const { session, pawl } = await startFleet({ tools: [tool] });
    const { callId = '', error } = await session.call(tool, {});
    expect(error?.code).toBe('OUTCOME_UNKNOWN');
    await pawl.resolve(callId, { as: 'retry' });
    expect(await pawl.result(callId)).toMatchObject({ status: 'success', output: { content: 'ran' } });
    expect(probed).toEqual([2]);
  });
});

describe('a process that stood still', () => {
  /** Blocks this process as one that is stopped, or short of memory, stands still: no timer runs before what comes next. */
  const standStill = (ms: number) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

  test.each<[Effects, string, readonly number[]]>([
    ['idempotent', 'success', [2]],
    // It never came to the tool's code, and says so.
    ['once', 'success', [2]],
  ])('runs no tool under a lease that is over: %s', async (effects, end, fences) => {
    const { tool, contexts } = scripted('work', () => ({ output: 'ran' }), { effects });
    const settings = { lockDurationMs: 600, stalledIntervalMs: 200 };
    const slow: Hook = {
      name: 'slow',
      beforeAttempt: ({ fence }) => (fence === 1 ? standStill(settings.lockDurationMs) : undefined),
    };
    const warn = vi.fn();
    const fleet = await startFleet({ tools: [tool], settings, hooks: [slow], log: { ...silentLogger, warn } });
    const result = await fleet.session.call(tool, {});
    expect(result.error?.code ?? result.status).toBe(end);
    expect(contexts.map(({ fence }) => fence)).toEqual(fences);
    expect(warn.mock.calls.filter(([{ event }]) => event === 'lease_lost')).toMatchObject([
      [{ toolName: 'work', fence: 1, reason: expect.stringContaining('could not be renewed') }, expect.anything()],
    ]);
  });
});
