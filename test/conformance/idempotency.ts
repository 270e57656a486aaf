/** A key names a call: who asks again gets its outcome, and nothing runs twice. */
import { beforeAll, describe, expect, test } from 'vitest';
import type { Session } from '../../src/producer/sessions/session.ts';
import { eventually } from '../helpers/signal.ts';
import {
  always,
  type CallFront,
  held,
  http,
  independent,
  look,
  type OpenedFront,
  once,
  runs,
  scripts,
  shared,
  timesRun,
  work,
} from './call-tools.ts';

export function describeIdempotency(opened: () => OpenedFront): void {
  describe('idempotency', () => {
    let session: Session;
    let front: CallFront;
    beforeAll(() => {
      ({ session, front } = opened());
    });

    test('TR-2: who asks while the call is in flight waits for the same outcome, and nothing runs twice', async () => {
      const { begun, open } = held('attach');
      const key = { idempotencyKey: 'attach' };
      const first = session.call(once, { label: 'attach' }, key);
      await begun;
      const others = [1, 2, 3].map(() => session.submit(once, { label: 'attach' }, key));
      for (const submission of await Promise.all(others)) expect(submission.kind).toBe('pending');
      open();
      const [led, ...joined] = await Promise.all([
        first,
        ...others.map(async (submission) => (await submission).result),
      ]);
      expect(led).toMatchObject({ status: 'success', fromCache: false, attempts: 1 });
      for (const result of joined)
        expect(result).toMatchObject({
          status: 'success',
          fromCache: true,
          callId: led?.callId,
          output: led?.output,
          cache: { matchedOn: 'inflight', keyFingerprint: led?.callId },
        });
      expect(timesRun('attach')).toBe(1);
    });

    test('TR-2: of 200 calls with one key at once one runs, and all get its output', async () => {
      const results = await Promise.all(
        Array.from({ length: 200 }, () => session.call(once, { label: 'crowd' }, { idempotencyKey: 'crowd' })),
      );
      expect(timesRun('crowd')).toBe(1);
      expect(new Set(results.map((result) => JSON.stringify(result.output)))).toEqual(
        new Set([JSON.stringify({ content: { run: 1 } })]),
      );
      expect(results.filter(({ fromCache }) => !fromCache)).toHaveLength(1);
    });

    test('TR-2: a bestEffort caller gets the answer that the call is in flight, and a disabled one runs by itself', async () => {
      const { begun, open } = held('busy');
      const key = { idempotencyKey: 'busy' };
      const first = session.call(look, { label: 'busy' }, key);
      await begun;
      expect(await session.call(look, { label: 'busy' }, { ...key, dedupeMode: 'bestEffort' })).toMatchObject({
        status: 'error',
        error: { code: 'IN_FLIGHT', retriable: true, terminal: false },
      });
      const own = session.call(look, { label: 'busy' }, { ...key, dedupeMode: 'disabled' });
      await eventually(() => timesRun('busy') === 2);
      open();
      expect((await own).callId).not.toBe((await first).callId);
      expect(await own).toMatchObject({ status: 'success', fromCache: false });
    });

    test('TR-3: asked again, a finished call answers from its record, byte for byte', async () => {
      const key = { idempotencyKey: 'replay' };
      scripts.set('replay', () => ({ zebra: 1, apple: [null, { deep: 'ü' }], '10': 'ten' }));
      const first = await session.call(work, { label: 'replay' }, key);
      const again = await session.call(work, { label: 'replay' }, key);
      expect(again).toEqual({
        ...first,
        requestId: again.requestId,
        fromCache: true,
        cache: { matchedOn: 'completed', ageMs: expect.any(Number), keyFingerprint: first.callId },
      });
      expect(JSON.stringify(again.output)).toBe(JSON.stringify(first.output));
      expect(again.requestId).not.toBe(first.requestId);
      expect(timesRun('replay')).toBe(1);
    });

    test('R10: a key is its session’s and its actor’s own; a tool with global scope shares its reads', async () => {
      const other = await front.openSession({ actorId: 'ada' });
      const key = { idempotencyKey: 'scope' };
      await session.call(work, { label: 'scope' }, key);
      expect(await other.call(work, { label: 'scope' }, key)).toMatchObject({ fromCache: false });
      await session.call(shared, { label: 'global' }, key);
      expect(await other.call(shared, { label: 'global' }, key)).toMatchObject({ fromCache: true });
      expect([timesRun('scope'), timesRun('global')]).toEqual([2, 1]);
    });

    test('TR-4: a key that comes with other parameters is a conflict, in flight and after the end, and nothing runs', async () => {
      const { begun, open } = held('conflict');
      const key = { idempotencyKey: 'conflict' };
      const first = session.call(work, { label: 'conflict' }, key);
      await begun;
      const conflict = { status: 'error', attempts: 0, error: { code: 'IDEMPOTENCY_CONFLICT', terminal: true } };
      expect(await session.call(work, { label: 'conflict', number: 2 }, key)).toMatchObject(conflict);
      open();
      await first;
      expect(await session.call(work, { label: 'conflict', number: 2 }, key)).toMatchObject(conflict);
      expect(await session.call(work, { label: 'conflict' }, key)).toMatchObject({ fromCache: true });
      expect(timesRun('conflict')).toBe(1);
    });

    test('TR-4: with the policy independent such a key names a call of its own', async () => {
      const key = { idempotencyKey: 'independent' };
      const call = (number: number) => session.call(independent, { label: 'independent', number }, key);
      const results = [await call(1), await call(2), await call(1), await call(2)];
      expect(results.map(({ fromCache }) => fromCache)).toEqual([false, false, true, true]);
      expect(timesRun('independent')).toBe(2);
    });

    test('R12: a failure is replayed too, unless it may pass and the caller asks with bestEffort', async () => {
      const key = { idempotencyKey: 'failed', retryBudget: { maxAttempts: 1 } };
      scripts.set('failed', (_ctx, run) => {
        if (run < 2) throw http(503);
      });
      const first = await session.call(work, { label: 'failed' }, key);
      expect(first).toMatchObject({ status: 'retry_exhausted', error: { code: 'HTTP_503', retriable: true } });
      expect(await session.call(work, { label: 'failed' }, key)).toMatchObject({
        status: 'retry_exhausted',
        fromCache: true,
        error: first.error,
      });
      expect(await session.call(work, { label: 'failed' }, { ...key, dedupeMode: 'bestEffort' })).toMatchObject({
        status: 'success',
        fromCache: false,
        callId: first.callId,
      });
      expect(await session.call(work, { label: 'failed' }, key)).toMatchObject({
        status: 'success',
        fromCache: true,
      });
      const fences = runs.get('failed')?.map(({ fence }) => fence) ?? [];
      expect(fences[1]).toBeGreaterThan(fences[0] ?? Number.NaN);

      const terminal = { idempotencyKey: 'terminal', dedupeMode: 'bestEffort' } as const;
      scripts.set(
        'terminal',
        always(() => http(400)),
      );
      await session.call(work, { label: 'terminal' }, terminal);
      expect(await session.call(work, { label: 'terminal' }, terminal)).toMatchObject({ fromCache: true });
      expect(timesRun('terminal')).toBe(1);
    });

    test('ruling 3: calls without a key merge in flight, and run again afterwards unless their request comes again', async () => {
      const { begun, open } = held('derived');
      const request = { toolCallId: 'call-7' };
      const first = session.call(work, { label: 'derived' }, request);
      await begun;
      const joined = session.submit(work, { label: 'derived' }, { toolCallId: 'call-8' });
      expect((await joined).kind).toBe('pending');
      open();
      const led = await first;
      expect(await (await joined).result).toMatchObject({ callId: led.callId, cache: { matchedOn: 'inflight' } });
      // The one that led, and the one that was merged into it, stay what they were.
      for (const toolCallId of ['call-7', 'call-8'])
        expect(await session.call(work, { label: 'derived' }, { toolCallId })).toMatchObject({
          callId: led.callId,
          cache: { matchedOn: 'completed' },
        });
      expect(timesRun('derived')).toBe(1);
      expect(await session.call(work, { label: 'derived' })).toMatchObject({ fromCache: false });
      expect(timesRun('derived')).toBe(2);
    });

    test('the key and the fence reach the tool, and the fence grows with every attempt', async () => {
      scripts.set('fenced', (_ctx, run) => {
        if (run < 3) throw http(503);
      });
      await session.call(work, { label: 'fenced' }, { idempotencyKey: 'fenced' });
      const contexts = runs.get('fenced') ?? [];
      expect(contexts.map(({ attempt }) => attempt)).toEqual([1, 2, 3]);
      expect(contexts.map(({ idempotencyKey }) => idempotencyKey)).toEqual(['fenced', 'fenced', 'fenced']);
      const fences = contexts.map(({ fence }) => fence);
      expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    });
  });
}
