/** Calls that fail until a test mends their tool. */
import { expect } from 'vitest';
import type { SettingsInput } from '../../../src/shared/config/config.ts';
import type { Fleet } from '../../helpers/fleet.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

export const ONE_TRY = { retryBudget: { maxAttempts: 1 } };

/** A tool that fails until the test mends it. It notes the key of each run that succeeded. */
export function payments(change: Parameters<typeof scripted>[2] = {}, failure: () => Error = () => httpError(400)) {
  const paid: string[] = [];
  let broken = true;
  const { tool, contexts } = scripted(
    'pay',
    ({ idempotencyKey }) => {
      if (broken) throw failure();
      paid.push(idempotencyKey);
      return { output: { paid: idempotencyKey } };
    },
    change,
  );
  return {
    tool,
    contexts,
    paid,
    mend: () => {
      broken = false;
    },
  };
}

export async function failed(fleet: Fleet, count: number, tool = 'pay'): Promise<string[]> {
  const results = await Promise.all(
    Array.from({ length: count }, (_, number) =>
      fleet.session.call(tool, { number }, { idempotencyKey: `${tool}-${number}`, ...ONE_TRY }),
    ),
  );
  expect(results.map(({ status }) => status)).not.toContain('success');
  return results.map(({ callId = '' }) => callId);
}

export const NO_CIRCUIT: Partial<SettingsInput> = { reliability: { openMode: 'off' } };
