import { expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { silentLogger } from '../../../src/shared/telemetry/log.ts';
import type { Schedule } from '../../../src/shared/util/time.ts';
import { AttemptWrites } from '../../../src/workers/attempt/retry-write.ts';
import { RunningAttempt } from '../../../src/workers/attempt/running-attempts.ts';

/** A write that fails `failures` times; `onTry` is called before each. */
async function retry(
  error: unknown,
  failures: number,
  onTry: (running: RunningAttempt, number: number) => void = () => {},
) {
  const running = new RunningAttempt('call', 'job', 'token', 0);
  const atOnce: Schedule = (run) => {
    queueMicrotask(run);
    return () => {};
  };
  const writes = new AttemptWrites(silentLogger, atOnce);
  let tries = 0;
  const write = async () => {
    tries += 1;
    onTry(running, tries);
    if (tries <= failures) throw error;
    return 'written';
  };
  const answer = await writes.retry(running, write);
  return { answer, tries };
}

const UNAVAILABLE = new PawlError('BACKEND_UNAVAILABLE');

test('a write is repeated until Redis takes it', async () => {
  expect(await retry(UNAVAILABLE, 100)).toEqual({ answer: 'written', tries: 101 });
});

test('other errors are not repeated', async () => {
  await expect(retry(new PawlError('CONTRACT_INVALID'), 1)).rejects.toMatchObject({ code: 'CONTRACT_INVALID' });
});

test('a write is given up with its attempt: its lease is lost, or its worker closed', async () => {
  const ends: ((running: RunningAttempt) => void)[] = [
    (running) => running.abort(new PawlError('LEASE_LOST')),
    (running) => running.giveUp(),
  ];
  for (const end of ends) {
    const given = await retry(UNAVAILABLE, 1_000, (running, number) => number === 3 && end(running));
    expect(given).toEqual({ answer: undefined, tries: 3 });
  }
});

test('a lease that is lost after the code has ended gives up no write', async () => {
  const given = await retry(UNAVAILABLE, 10, (running, number) => {
    running.codeEnded();
    if (number === 3) running.abort(new PawlError('LEASE_LOST'));
  });
  expect(given).toEqual({ answer: 'written', tries: 11 });
});
