import { expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { type Logger, silentLogger } from '../../../src/shared/telemetry/log.ts';
import { AttemptWrites } from '../../../src/workers/attempt/retry-write.ts';
import { RunningAttempt } from '../../../src/workers/attempt/running-attempts.ts';

test('a write that fails while Redis is away is logged once, with its call, however often it is tried', async () => {
  const logged: unknown[] = [];
  const log: Logger = { ...silentLogger, warn: (fields: object) => void logged.push(fields) };
  const running = new RunningAttempt('call', 'job', 'token', 0);
  let tries = 0;
  const write = async () => {
    tries += 1;
    if (tries < 5) throw new PawlError('BACKEND_UNAVAILABLE', `away ${tries}`);
    return 'written';
  };
  const at = (task: () => void) => {
    queueMicrotask(task);
    return () => {};
  };
  expect(await new AttemptWrites(log, at).retry(running, write)).toBe('written');
  expect(logged).toEqual([{ callId: 'call', error: 'away 1' }]);
});
