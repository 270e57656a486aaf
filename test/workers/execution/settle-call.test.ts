import { expect, test } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { type Logger, silentLogger } from '../../../src/shared/telemetry/log.ts';
import { retryUntilLeaseLost } from '../../../src/workers/attempt/retry-write.ts';
import { RunningAttempt } from '../../../src/workers/attempt/running-attempts.ts';

test('what cannot be written while Redis is away is told once, with its call, however often it is tried', async () => {
  const told: unknown[] = [];
  const log: Logger = { ...silentLogger, warn: (fields: object) => void told.push(fields) };
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
  expect(await retryUntilLeaseLost(write, running, log, at)).toBe('written');
  expect(told).toEqual([{ callId: 'call', error: 'away 1' }]);
});
