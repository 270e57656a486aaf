/** When a circuit opens, what it refuses, and how it closes. */
import { beforeAll, describe, expect, test } from 'vitest';
import type { Session } from '../../src/producer/sessions/session.ts';
import type { AnyTool } from '../../src/shared/tools/tool.ts';
import { eventually } from '../helpers/signal.ts';
import {
  always,
  type CallFront,
  COOLDOWN_MS,
  forced,
  http,
  mixed,
  type OpenedFront,
  opening,
  recovering,
  relapsing,
  scripts,
  storming,
  timesRun,
} from './call-tools.ts';

export function describeCircuits(opened: () => OpenedFront): void {
  describe('circuits', () => {
    let session: Session;
    let front: CallFront;
    beforeAll(() => {
      ({ session, front } = opened());
    });

    const fail = async (tool: AnyTool, label: string, times: number) => {
      scripts.set(
        label,
        always(() => http(503)),
      );
      for (let index = 0; index < times; index += 1)
        await session.call(tool.name, { label }, { retryBudget: { maxAttempts: 1 } });
    };
    const cooledDown = async (tool: AnyTool) => {
      await eventually(async () => (await front.circuit(tool.name))?.state === 'OPEN', { what: 'an open circuit' });
      const openedAt = performance.now();
      await eventually(() => performance.now() - openedAt > COOLDOWN_MS + 20, { what: 'the end of the cooldown' });
    };
    /** The producer may learn of an open circuit a moment later than the worker. */
    const refused = (tool: AnyTool, label: string) =>
      eventually(async () => {
        const ran = timesRun(label);
        const result = await session.call(tool.name, { label });
        return result.status === 'circuit_open' && result.attempts === 0 && timesRun(label) === ran && result;
      });

    test('TR-8: failures in a row open the circuit; then calls are refused and the tool is left alone', async () => {
      await fail(opening, 'opening', 3);
      const ran = timesRun('opening');
      expect(ran).toBe(3);
      expect(await refused(opening, 'opening')).toMatchObject({
        status: 'circuit_open',
        attempts: 0,
        error: { code: 'CIRCUIT_OPEN', breakerState: 'OPEN', retriable: true },
      });
      expect(timesRun('opening')).toBe(3);
    });

    test('R22: a success between failures starts the count again', async () => {
      for (let round = 0; round < 3; round += 1) {
        await fail(mixed, 'mixed', 2);
        scripts.delete('mixed');
        expect(await session.call(mixed, { label: 'mixed' })).toMatchObject({ status: 'success' });
      }
      expect(timesRun('mixed')).toBe(9);
      expect((await front.circuit(mixed.name))?.state ?? 'CLOSED').toBe('CLOSED');
    });

    test('TR-9: after the cooldown one probe at a time, and two successes close the circuit', async () => {
      await fail(recovering, 'recovering', 3);
      await cooledDown(recovering);
      scripts.delete('recovering');
      expect(await session.call(recovering, { label: 'recovering' })).toMatchObject({ status: 'success' });
      expect((await front.circuit(recovering.name))?.state).toBe('HALF_OPEN');
      expect(await session.call(recovering, { label: 'recovering' })).toMatchObject({ status: 'success' });
      expect((await front.circuit(recovering.name))?.state).toBe('CLOSED');
    });

    test('TR-10: a probe that fails opens the circuit again, with a new cooldown', async () => {
      await fail(relapsing, 'relapsing', 3);
      await cooledDown(relapsing);
      const probe = await session.call(relapsing, { label: 'relapsing' });
      expect(probe).toMatchObject({ status: 'retriable_error', attempts: 1, error: { code: 'HTTP_503' } });
      expect(await front.circuit(relapsing.name)).toMatchObject({ state: 'OPEN', reason: 'a probe failed' });
      expect(timesRun('relapsing')).toBe(4);
      await refused(relapsing, 'relapsing');
    });

    test('TR-11: no retry against an open circuit: an outage costs no storm', async () => {
      scripts.set(
        'storm',
        always(() => http(503)),
      );
      const results = await Promise.all(
        Array.from({ length: 10 }, (_, number) => session.call(storming, { label: 'storm', number })),
      );
      for (const { status, attempts } of results)
        expect(status).toMatch(attempts === 0 ? /^circuit_open$/ : /^(retriable_error|circuit_open)$/);
      // Those that open it, and those that were on their way.
      expect(timesRun('storm')).toBeLessThanOrEqual(3 + 10);
      expect(results.reduce((sum, { attempts }) => sum + attempts, 0)).toBe(timesRun('storm'));
    });

    test('R25: a circuit that is forced open says why, and refuses until it is reset', async () => {
      await front.setCircuit('force_open', forced.name);
      const message = `${forced.name} takes no calls for now (a test).`;
      expect(await refused(forced, 'forced')).toMatchObject({ error: { breakerState: 'FORCED_OPEN', message } });
      await front.setCircuit('reset', forced.name);
      await eventually(async () => (await session.call(forced, { label: 'forced' })).status === 'success');
    });
  });
}
