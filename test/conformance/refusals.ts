/** What is refused before anything runs. */
import { beforeAll, describe, expect, test } from 'vitest';
import type { Session } from '../../src/producer/sessions/session.ts';
import {
  type CallFront,
  disabled,
  elevated,
  held,
  look,
  type OpenedFront,
  shared,
  timesRun,
  work,
  writer,
} from './call-tools.ts';

export function describeRefusals(opened: () => OpenedFront): void {
  describe('refusals', () => {
    let session: Session;
    let front: CallFront;
    beforeAll(() => {
      ({ session, front } = opened());
    });

    test('TR-1: parameters that the schema refuses name the field, and nothing is recorded or run', async () => {
      const key = { idempotencyKey: 'invalid' };
      const result = await session.call('work', { label: 7, lable: 'x' }, key);
      expect(result).toMatchObject({ status: 'error', attempts: 0, error: { code: 'INVALID_PARAMS' } });
      expect(result.error?.issues?.map(({ path }) => path).sort()).toEqual(['label', 'lable']);
      expect(await session.call(work, { label: 'invalid' }, key)).toMatchObject({
        status: 'success',
        fromCache: false,
      });
    });

    test.each([
      ['an empty key', { idempotencyKey: '' }],
      ['a key above 1 KiB', { idempotencyKey: 'x'.repeat(1_025) }],
      ['a request ID that is none', { requestId: 'seven' }],
    ])('TR-1: %s is CONTRACT_INVALID', async (_name, options) => {
      expect(await session.call(work, { label: 'contract' }, options)).toMatchObject({
        status: 'error',
        attempts: 0,
        error: { code: 'CONTRACT_INVALID' },
      });
      expect(timesRun('contract')).toBe(0);
    });

    test('an unknown tool is answered with the nearest names', async () => {
      expect(await session.call('wrok', {})).toMatchObject({
        error: { code: 'UNKNOWN_TOOL', message: expect.stringContaining('work') },
      });
    });

    test('A9, A17: what tier, session kind or policy forbids is denied before anything runs', async () => {
      const reader = await front.openSession({ kind: 'worker', actorId: 'ada' });
      const denied = { status: 'error', attempts: 0, error: { code: 'PERMISSION_DENIED' } };
      expect(await reader.call(work, { label: 'denied' })).toMatchObject(denied);
      expect(await reader.call(look, { label: 'allowed' })).toMatchObject({ status: 'success' });
      expect(await session.call(disabled, { label: 'denied' })).toMatchObject(denied);
      expect(await session.call(elevated, { label: 'denied' })).toMatchObject(denied);
      const unmerged = await session.call(work, { label: 'denied' }, { dedupeMode: 'disabled' });
      expect(unmerged).toMatchObject({ status: 'error', attempts: 0, error: { code: 'DEDUPE_REQUIRED' } });
      expect(await session.call(writer, {})).toMatchObject(denied);
      expect(timesRun('denied')).toBe(0);
    });

    test('a closed session takes no calls, and what runs in it is cancelled', async () => {
      const closing = await front.openSession({ actorId: 'ada' });
      const { begun } = held('closing');
      const running = closing.call(work, { label: 'closing' });
      await begun;
      await closing.close();
      expect(await running).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
      expect(await closing.call(work, { label: 'closed' })).toMatchObject({ error: { code: 'SESSION_CLOSED' } });
    });

    test('R10: a call that all sessions share goes on when the one is closed that asked for it first', async () => {
      const closing = await front.openSession({ actorId: 'ada' });
      const { begun, open } = held('shared');
      const key = { idempotencyKey: 'shared' };
      const first = await closing.submit(shared, { label: 'shared' }, key);
      await begun;
      const joined = await session.submit(shared, { label: 'shared' }, key);
      await closing.close();
      open();
      expect(await joined.result).toMatchObject({ status: 'success', callId: first.callId });
    });
  });
}
