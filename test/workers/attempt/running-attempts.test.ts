import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { processPause, RunningAttempts } from '../../../src/workers/attempt/running-attempts.ts';

const LEASE_MS = 30_000;

function open() {
  let nowMs = 0;
  const cutOff: number[] = [];
  const clock = { now: () => 0, monotonic: () => nowMs };
  const attempts = new RunningAttempts(clock, LEASE_MS, 'worker', ({ fence }) => cutOff.push(fence));
  onTestFinished(() => attempts.close());
  const pass = (ms: number) => {
    nowMs += ms;
    attempts.fenceUnrenewed();
  };
  return { attempts, cutOff, pass, now: () => nowMs };
}

describe('DESIGN, decision 4: attempts that run here', () => {
  test('a lease that could not be renewed for two thirds of its time ends the attempt by itself', () => {
    const { attempts, pass } = open();
    const attempt = attempts.add('call', 'job');
    pass(20_000);
    expect(attempt.signal.aborted).toBe(false);
    pass(1);
    expect(attempt.signal.reason).toMatchObject({ code: 'LEASE_LOST', message: expect.stringContaining('20001 ms') });
    expect(attempt.leaseLost).toBe(true);
  });

  test.each([
    ['that has not answered for a while', { askedMs: 12_000, lateMs: 0 }, true],
    ['that was asked after the process was blocked', { askedMs: 21_000, lateMs: 0 }, false],
    ['that was not asked', { askedMs: undefined, lateMs: 0 }, false],
    ['that did not answer a process which then stood still past its lease', { askedMs: 12_000, lateMs: 9_001 }, false],
  ])('an attempt is cut off by a Redis %s: %o', (_what, { askedMs, lateMs }, isCutOff) => {
    const { attempts, pass } = open();
    const attempt = attempts.add('call', 'job');
    attempt.unansweredSinceMs = askedMs;
    pass(21_000 + lateMs);
    expect([attempt.leaseLost, attempt.isCutOff]).toEqual([true, isCutOff]);
  });

  test.each([true, false])('an attempt is excused at once if its whole process stood still: %s', (stoodStill) => {
    const pause = vi.spyOn(processPause, 'stoodStill').mockReturnValue(stoodStill);
    onTestFinished(() => pause.mockRestore());
    const { attempts, cutOff, pass } = open();
    attempts.add('call', 'job').began(7);
    attempts.add('not begun', 'other job');
    pass(31_000);
    expect(cutOff).toEqual(stoodStill ? [7] : []);
  });

  test('the outcome of code that has ended outlives its lease, but not its worker', () => {
    const { attempts, cutOff, pass } = open();
    const attempt = attempts.add('call', 'job');
    attempt.began(7);
    attempt.codeEnded();
    attempt.unansweredSinceMs = 0;
    for (let times = 0; times < 9; times += 1) pass(7_000);
    attempt.abort(new PawlError('LEASE_LOST'));
    expect([attempt.leaseLost, attempt.isGivenUp]).toEqual([false, false]);
    expect(cutOff).toEqual([7]);
    attempts.close();
    expect(attempt.isGivenUp).toBe(true);
  });

  test('an attempt that was started when its job was taken has its lease since then: an answer that comes late starts nothing', () => {
    const { attempts, pass, now } = open();
    const askedAtMs = now();
    pass(20_000);
    expect(attempts.add('in time', 'job 1', { token: 'a', requestedAtMs: askedAtMs }).signal.aborted).toBe(false);
    pass(1);
    expect(attempts.add('late', 'job 2', { token: 'b', requestedAtMs: askedAtMs }).leaseLost).toBe(true);
  });

  test('a renewal restarts the time of its own attempt alone', () => {
    const { attempts, pass, now } = open();
    const [kept, lost] = [attempts.add('a', 'job a'), attempts.add('b', 'job b')];
    pass(15_000);
    kept.renewed(now());
    pass(15_000);
    expect([kept.signal.aborted, lost.signal.aborted]).toEqual([false, true]);
  });

  test('the first reason stays', () => {
    const attempt = open().attempts.add('call', 'job');
    attempt.abort(new PawlError('CANCELLED'));
    attempt.abort(new PawlError('DRAINED'));
    expect(attempt.signal.reason).toMatchObject({ code: 'CANCELLED' });
    expect(attempt.leaseLost).toBe(false);
  });

  test('every delivery has a token of its own, also of the same job; no fence until it has begun', () => {
    const { attempts } = open();
    const [first, second] = [attempts.add('call', 'job'), attempts.add('call', 'job')];
    expect(first.token).not.toBe(second.token);
    expect(first.token).toContain('worker');
    expect(first.fence).toBe(0);
    attempts.remove(first);
    expect(attempts.ofJob('job')).toBe(second);
  });

  test('attempts are found by job and by call until they end', () => {
    const { attempts } = open();
    const attempt = attempts.add('call', 'job');
    expect([attempts.ofJob('job'), attempts.ofCall('call'), attempts.size]).toEqual([attempt, attempt, 1]);
    expect([...attempts.all()]).toEqual([attempt]);
    attempts.remove(attempt);
    expect([attempts.ofJob('job'), attempts.ofCall('call'), attempts.size]).toEqual([undefined, undefined, 0]);
  });

  test('a drain ends all', () => {
    const { attempts } = open();
    const both = [attempts.add('a', 'job a'), attempts.add('b', 'job b')];
    attempts.abortAll(new PawlError('DRAINED'));
    expect(both.map(({ signal }) => (signal.reason as PawlError).code)).toEqual(['DRAINED', 'DRAINED']);
  });

  test('an error thrown out of band reaches its listener, if there is one', () => {
    const attempt = open().attempts.add('call', 'job');
    attempt.uncaught('too early');
    const heard: unknown[] = [];
    attempt.onUncaught((error) => heard.push(error));
    attempt.uncaught('caught');
    expect(heard).toEqual(['caught']);
  });
});
