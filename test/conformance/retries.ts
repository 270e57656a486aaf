/** What is tried again, and what is not. */
import { beforeAll, describe, expect, test } from 'vitest';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { ToolResultEnvelope } from '../../src/shared/calls/envelope.ts';
import { ToolError } from '../../src/shared/errors/failure.ts';
import {
  always,
  budgeted,
  type CallFront,
  held,
  http,
  type OpenedFront,
  once,
  ordinary,
  parcels,
  refusedConnection,
  scripts,
  small,
  timesRun,
  work,
} from './call-tools.ts';

export function describeRetries(opened: () => OpenedFront): void {
  describe('retries', () => {
    let session: Session;
    let front: CallFront;
    beforeAll(() => {
      ({ session, front } = opened());
    });

    test('TR-5: fails twice and succeeds third: 3 attempts, and what they died of', async () => {
      scripts.set('twice', (_ctx, run) => {
        if (run < 3) throw Object.assign(new Error('reset'), { code: 'ECONNRESET' });
      });
      const retrying: number[] = [];
      const listen = ({ attempt }: { attempt: number }) => retrying.push(attempt);
      session.events.on('retrying', listen);
      const result = await session.call(work, { label: 'twice' });
      session.events.off('retrying', listen);
      expect(result).toMatchObject({
        status: 'success',
        attempts: 3,
        retriedBy: [
          { attempt: 1, reasonCode: 'CONNECTION_RESET' },
          { attempt: 2, reasonCode: 'CONNECTION_RESET' },
        ],
      });
      for (const { delayMs } of result.retriedBy ?? []) expect(delayMs).toBeLessThan(4);
      expect(retrying).toEqual([1, 2]);
    });

    test('TR-6: a 400 ends the call at its first attempt', async () => {
      scripts.set(
        'bad',
        always(() => http(400)),
      );
      expect(await session.call(work, { label: 'bad' })).toMatchObject({
        status: 'error',
        attempts: 1,
        error: { code: 'HTTP_400', retriable: false, terminal: true },
      });
    });

    test('TR-7: a service that stays away uses up the attempts, by default 4 and never more than the caller allows', async () => {
      scripts.set(
        'away',
        always(() => http(503)),
      );
      expect(await session.call(work, { label: 'away' })).toMatchObject({
        status: 'retry_exhausted',
        attempts: 4,
        error: { code: 'HTTP_503', terminal: true },
      });
      expect(timesRun('away')).toBe(4);
      expect(await session.call(work, { label: 'away' }, { retryBudget: { maxAttempts: 2 } })).toMatchObject({
        status: 'retry_exhausted',
        attempts: 2,
      });
    });

    test('R26: a call that a session makes again and again is refused the 20th time, unless it has keys of its own', async () => {
      const repeat = async (count: number, options?: () => { idempotencyKey: string }) => {
        const results: ToolResultEnvelope[] = [];
        while (results.length < count) results.push(await session.call(work, { label: 'again' }, options?.()));
        return results;
      };
      const results = await repeat(21);
      expect(results.map(({ status }) => status)).toEqual([...Array(19).fill('success'), 'error', 'error']);
      expect(results.at(-1)).toMatchObject({
        attempts: 0,
        error: { code: 'LOOP_DETECTED', message: expect.stringContaining('21 times'), retriable: false },
      });
      let number = 0;
      const keyed = await repeat(25, () => ({ idempotencyKey: `again-${number++}` }));
      expect(new Set(keyed.map(({ status }) => status))).toEqual(new Set(['success']));
      const other = await front.openSession({ actorId: 'ada' });
      expect((await other.call(work, { label: 'again' })).status).toBe('success');
    });

    test('I17: calls that are made at the same time take no more from a budget than it has', async () => {
      const spending = await front.openSession({ actorId: 'ada', budget: { calls: 2 } });
      const made = ['a', 'b', 'c', 'd'].map((label) => spending.call(work, { label: `spent ${label}` }));
      const ends = (await Promise.all(made)).map(({ status, error }) => error?.code ?? status);
      expect(ends.sort()).toEqual(['BUDGET_EXHAUSTED', 'BUDGET_EXHAUSTED', 'success', 'success']);
    });

    test('R20: ordinary trouble does not use up the budget: 40 calls whose service answers 503 twice to each all succeed', async () => {
      const labels = Array.from({ length: 40 }, (_, call) => `trouble ${call}`);
      for (const label of labels)
        scripts.set(label, (_ctx, run) => {
          if (run <= 2) throw http(503);
        });
      const results = await Promise.all(labels.map((label) => session.call(ordinary, { label })));
      expect(new Set(results.map(({ status, attempts }) => `${status} ${attempts}`))).toEqual(new Set(['success 3']));
    });

    test('R20: all calls of a tool have a budget of retries together, which successes refill; without one a call ends with its last failure', async () => {
      const away = async (label: string) => {
        scripts.set(
          label,
          always(() => http(503)),
        );
        return session.call(budgeted, { label });
      };
      expect(await away('first')).toMatchObject({ status: 'retry_exhausted', attempts: 4 });
      expect(await away('second')).toMatchObject({
        status: 'retry_exhausted',
        attempts: 1,
        error: { code: 'HTTP_503', message: expect.stringContaining('retry budget exhausted') },
      });
      for (let call = 0; call < 5; call += 1)
        expect((await session.call(budgeted, { label: `well ${call}` })).status).toBe('success');
      expect(await away('third')).toMatchObject({ status: 'retry_exhausted', attempts: 2 });
    });

    test('a once tool is not run again after a 503, but is where nothing happened or the caller vouches for it', async () => {
      scripts.set('maybe', (_ctx, run) => {
        if (run === 1) throw http(503);
      });
      expect(await session.call(once, { label: 'maybe' })).toMatchObject({
        status: 'retriable_error',
        attempts: 1,
        error: { code: 'HTTP_503', retriable: false, terminal: false, mayHaveHappened: true },
      });
      scripts.set('nothing', (_ctx, run) => {
        if (run === 1) throw refusedConnection();
      });
      expect(await session.call(once, { label: 'nothing' })).toMatchObject({ status: 'success', attempts: 2 });
      scripts.set('vouched', (_ctx, run) => {
        if (run === 1) throw http(503);
      });
      expect(await session.call(once, { label: 'vouched' }, { expectedRetrySafe: true })).toMatchObject({
        status: 'success',
        attempts: 2,
      });
    });

    test('ruling 11: a time-out of a once tool is final, and a deadline ends the rest', async () => {
      held('slow');
      expect(await session.call(once, { label: 'slow' }, { timeoutMs: 500 })).toMatchObject({
        status: 'timeout',
        attempts: 1,
      });
      held('late');
      const late = await session.call(work, { label: 'late' }, { deadlineAtMs: Date.now() + 60 });
      expect(late.status).toBe('timeout');
    });

    test.each([
      ['a string', () => 'just text', 'TOOL_FAILED'],
      ['undefined', () => undefined, 'TOOL_FAILED'],
      ['null', () => null, 'TOOL_FAILED'],
      ['an error', () => new Error('broken'), 'TOOL_FAILED'],
      ['an error of its own', () => new ToolError('no such parcel', { code: 'NO_PARCEL' }), 'NO_PARCEL'],
    ])('D12: a tool that throws %s fails its call, and nobody sees a stack', async (what, thrown, code) => {
      scripts.set(what, always(thrown));
      const result = await session.call(work, { label: what });
      expect(result).toMatchObject({ status: 'error', attempts: 1, error: { code } });
      expect(JSON.stringify(result)).not.toContain('.ts:');
    });

    test('a result that is too large, or not what the tool’s schema says, is a failure', async () => {
      scripts.set('large', () => 'x'.repeat(300));
      expect(await session.call(small, { label: 'large' })).toMatchObject({ error: { code: 'RESULT_TOO_LARGE' } });
      scripts.set('parcels', () => ({ parcels: 'three' }));
      expect(await session.call(parcels, { label: 'parcels' })).toMatchObject({ error: { code: 'RESULT_INVALID' } });
    });
  });
}
