/**
 * What a caller sees of its calls, whatever carries them out: TR-2 to TR-11 and the rulings on them. Tools run in the test's own
 * process, so that a test can say what they do, and see what they did.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Session } from '../../src/producer/sessions/session.ts';
import { eventually } from '../helpers/signal.ts';
import {
  type CallFront,
  type FrontOptions,
  held,
  look,
  runs,
  SETTINGS,
  scripts,
  sequential,
  TOOLS,
  timesRun,
  work,
} from './call-tools.ts';
import { describeCircuits } from './circuits.ts';
import { describeIdempotency } from './idempotency.ts';
import { describeRefusals } from './refusals.ts';
import { describeRetries } from './retries.ts';

export function describeCalls(name: string, openFront: (options: FrontOptions) => Promise<CallFront>): void {
  describe(`calls through ${name}`, () => {
    let front: CallFront;
    let session: Session;
    beforeAll(async () => {
      scripts.clear();
      runs.clear();
      front = await openFront({ tools: TOOLS, settings: SETTINGS });
      session = await front.openSession({ actorId: 'ada' });
    });
    afterAll(() => front.close());
    const opened = () => ({ front, session });

    test('C3: calls of a tool that is not parallel take turns within their session, and no attempt is spent on waiting', async () => {
      const other = await front.openSession({ actorId: 'bob' });
      const { begun, open } = held('turn 0');
      const first = session.call(sequential, { label: 'turn 0' });
      await begun;
      expect((await other.call(sequential, { label: 'of another session' })).status).toBe('success');
      let running = 0;
      const labels = Array.from({ length: 6 }, (_, number) => `turn ${number + 1}`);
      for (const label of labels)
        scripts.set(label, async () => {
          running += 1;
          await new Promise(setImmediate);
          running -= 1;
          return running;
        });
      const others = labels.map((label) => session.call(sequential, { label }));
      const waiting = await session.submit(sequential, { label: 'given up' });
      await session.cancel(waiting.callId ?? '');
      open();
      for (const result of await Promise.all([first, ...others]))
        expect(result).toMatchObject({ status: 'success', attempts: 1 });
      expect((await Promise.all(others)).map(({ output }) => output?.content)).toEqual(labels.map(() => 0));
      expect(timesRun('given up')).toBe(0);
    });

    describeIdempotency(opened);
    describeRetries(opened);
    describeCircuits(opened);
    describeRefusals(opened);

    describe('while it runs', () => {
      test('progress reaches the session, and the last report is never lost', async () => {
        scripts.set('progress', async (ctx) => {
          for (let step = 1; step <= 5; step += 1) ctx.progress({ progress: step, total: 5 });
        });
        const heard: number[] = [];
        const listen = ({ progress }: { progress: number }) => heard.push(progress);
        session.events.on('progress', listen);
        await session.call(work, { label: 'progress' });
        await eventually(() => heard.at(-1) === 5);
        session.events.off('progress', listen);
        expect(heard[0]).toBe(1);
      });

      test('a running call is cancelled, and its key stays cancelled', async () => {
        const { begun } = held('cancelled');
        const submission = await session.submit(work, { label: 'cancelled' }, { idempotencyKey: 'cancelled' });
        await begun;
        expect(await session.cancel(submission.callId ?? '')).toMatchObject({
          settlement: 'unsettled',
          result: { error: { code: 'CANCELLED' } },
        });
        expect(await submission.result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
        expect(
          await session.call(work, { label: 'cancelled' }, { idempotencyKey: 'cancelled', dedupeMode: 'bestEffort' }),
        ).toMatchObject({ fromCache: true, error: { code: 'CANCELLED' } });
        expect(await session.cancel(submission.callId ?? '')).toMatchObject({ settlement: 'too-late' });
        await expect(session.cancel('w0.unknown')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
      });

      test('a caller’s signal cancels its call', async () => {
        const { begun } = held('signalled');
        const stop = new AbortController();
        const result = session.call(look, { label: 'signalled' }, { signal: stop.signal });
        await begun;
        stop.abort();
        expect(await result).toMatchObject({ status: 'error', error: { code: 'CANCELLED' } });
      });

      test('the signal of a caller that joined another’s call ends its own waiting alone', async () => {
        const { begun, open } = held('joined');
        const first = session.call(look, { label: 'joined' });
        await begun;
        const stop = new AbortController();
        const joined = await session.submit(look, { label: 'joined' }, { signal: stop.signal });
        expect(joined).toMatchObject({ kind: 'pending', merged: true });
        stop.abort();
        expect(await joined.result).toMatchObject({
          status: 'error',
          callId: joined.callId,
          error: { code: 'CANCELLED', message: 'The call goes on for those who asked before; this caller left.' },
        });
        open();
        expect(await first).toMatchObject({ status: 'success' });
      });
    });
  });
}
