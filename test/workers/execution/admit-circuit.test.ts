import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { PawlError } from '../../../src/shared/errors/failure.ts';
import { Breakers } from '../../../src/shared/store/circuits/circuits.ts';
import { contentOf, type Fleet, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { httpError, scripted } from '../../helpers/tools.ts';

const circuitOf = async ({ pawl }: Fleet) => (await pawl.circuits.list())[0]?.circuit;

const states = ({ events }: Fleet) =>
  events.flatMap((event) => (event.type === 'tool_call_circuit_state' ? [`${event.from} ${event.to}`] : []));

describe('TR-8 to TR-11: the fleet’s circuit', () => {
  /** Cooldown and probes as short as they may be; `down` decides what the service does. */
  const start = async (
    change: { readonly cooldownMs?: number; readonly whenOpen?: 'refuse' | 'park' } = {},
    settings = {},
  ) => {
    const service = { down: true };
    const { tool, contexts } = scripted(
      'ask',
      () => {
        if (service.down) throw httpError(503);
        return { output: 'up' };
      },
      { retry: { maxAttempts: 1 }, circuit: { consecutiveFailures: 3, cooldownMs: 60_000, ...change } },
    );
    const fleet = await startFleet({ tools: [tool], settings });
    const ask = () => fleet.session.call(tool, {});
    return { service, tool, contexts, fleet, ask };
  };

  test('TR-8: opens at the threshold, and refuses from then on without running the tool', async () => {
    const { fleet, contexts, ask } = await start();
    for (let index = 0; index < 3; index += 1) expect((await ask()).status).toBe('retry_exhausted');
    expect(contexts).toHaveLength(3);
    expect(await circuitOf(fleet)).toMatchObject({ state: 'OPEN', reason: '3 failures in a row' });
    expect(await ask()).toMatchObject({
      status: 'circuit_open',
      attempts: 0,
      error: { code: 'CIRCUIT_OPEN', breakerState: 'OPEN' },
    });
    expect(contexts).toHaveLength(3);
    expect(states(fleet)).toEqual(['CLOSED OPEN']);
  });

  test('TR-9: after the cooldown two successful probes close it', async () => {
    const { fleet, ask, service } = await start({ cooldownMs: 50 });
    for (let index = 0; index < 3; index += 1) await ask();
    service.down = false;
    await eventually(async () => (await ask()).status === 'success');
    expect((await circuitOf(fleet))?.state).toBe('HALF_OPEN');
    expect((await ask()).status).toBe('success');
    expect((await circuitOf(fleet))?.state).toBe('CLOSED');
    expect(states(fleet)).toEqual(['CLOSED OPEN', 'OPEN HALF_OPEN', 'HALF_OPEN CLOSED']);
  });

  test('TR-10: a probe that fails opens it again', async () => {
    const { fleet, ask, contexts } = await start({ cooldownMs: 50 });
    for (let index = 0; index < 3; index += 1) await ask();
    await eventually(async () => {
      await ask();
      return contexts.length > 3;
    });
    expect(await circuitOf(fleet)).toMatchObject({ state: 'OPEN', reason: 'a probe failed' });
    expect(states(fleet).slice(0, 3)).toEqual(['CLOSED OPEN', 'OPEN HALF_OPEN', 'HALF_OPEN OPEN']);
  });

  test('TR-11: a call whose own failure opens the circuit is not retried, and ends with that failure', async () => {
    const { tool } = scripted(
      'ask',
      () => {
        throw httpError(503);
      },
      { circuit: { consecutiveFailures: 2 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    expect(await fleet.session.call(tool, {})).toMatchObject({
      status: 'retriable_error',
      attempts: 2,
      error: { code: 'HTTP_503', breakerState: 'OPEN', retriable: true, terminal: false },
    });
  });

  test('R35: an operator’s policy for all tools counts less than what a tool says of its own', async () => {
    const down = () => {
      throw httpError(503);
    };
    const { tool } = scripted('ask', down);
    const { tool: firm } = scripted('firm', down, { circuit: { consecutiveFailures: 3 } });
    const settings = { defaults: { circuit: { consecutiveFailures: 2 } } };
    const { session } = await startFleet({ tools: [tool, firm], settings });
    expect(await session.call(tool, {})).toMatchObject({ status: 'retriable_error', attempts: 2 });
    expect(await session.call(firm, {})).toMatchObject({ status: 'retriable_error', attempts: 3 });
  });

  test('ruling 13: with `park` a queued call waits for the circuit, without spending an attempt', async () => {
    const { ask, service } = await start({ cooldownMs: 300, whenOpen: 'park' });
    for (let index = 0; index < 3; index += 1) await ask();
    service.down = false;
    expect(await ask()).toMatchObject({ status: 'success', attempts: 1 });
  });

  test('and calls that failed as it opened wait as retries, so that all succeed when the service is back', async () => {
    const service = { down: true };
    const { tool } = scripted('ask', () => (service.down ? Promise.reject(httpError(503)) : { output: 'up' }), {
      retry: { baseMs: 1 },
      circuit: { consecutiveFailures: 5, cooldownMs: 300, whenOpen: 'park' },
    });
    const { session, pawl } = await startFleet({ tools: [tool], concurrency: 40 });
    const calls = Array.from({ length: 40 }, (_, number) => session.call(tool, { number }));
    await eventually(async () => (await pawl.circuits.list())[0]?.circuit.state === 'OPEN', {
      what: 'the open circuit',
    });
    service.down = false;
    expect((await Promise.all(calls)).map(({ status }) => status)).toEqual(calls.map(() => 'success'));
  });

  test('ruling 12: what is the caller’s fault does not open it', async () => {
    const { tool } = scripted(
      'ask',
      () => {
        throw httpError(404);
      },
      { circuit: { consecutiveFailures: 2 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    for (let index = 0; index < 4; index += 1) expect((await fleet.session.call(tool, {})).status).toBe('error');
    expect(await fleet.pawl.circuits.list()).toEqual([]);
  });

  test('a probe that ends as the caller’s fault gives its lease back', async () => {
    const answers = [503, 503, 404, 0];
    const { tool } = scripted(
      'ask',
      () => {
        const status = answers.shift();
        if (status !== undefined && status > 0) throw httpError(status);
        return { output: 'up' };
      },
      { retry: { maxAttempts: 1 }, circuit: { consecutiveFailures: 2, cooldownMs: 20, successesToClose: 1 } },
    );
    const fleet = await startFleet({ tools: [tool] });
    const ask = () => fleet.session.call(tool, {});
    for (let index = 0; index < 2; index += 1) await ask();
    await eventually(async () => (await ask()).status === 'error');
    expect((await ask()).status).toBe('success');
    expect((await circuitOf(fleet))?.state).toBe('CLOSED');
  });

  test('R33: with TOOL_RELIABILITY_OPEN_MODE=off it observes and never refuses, retries included', async () => {
    const { tool, contexts } = scripted(
      'ask',
      ({ attempt }) => {
        if (attempt < 4) throw httpError(503);
        return { output: 'up' };
      },
      { circuit: { consecutiveFailures: 2 } },
    );
    const fleet = await startFleet({ tools: [tool], settings: { reliability: { openMode: 'off' } } });
    expect(await fleet.session.call(tool, {})).toMatchObject({ status: 'success', attempts: 4 });
    expect(contexts).toHaveLength(4);
    expect((await circuitOf(fleet))?.state).toBe('OPEN');
  });
});

describe('what a tool came to is not lost when Redis cannot take a word on its circuit', () => {
  const away = () => new PawlError('BACKEND_UNAVAILABLE', 'OOM command not allowed');

  test('a failure', async () => {
    const { tool } = scripted('charge', () => Promise.reject(new Error('no funds')), { effects: 'once' });
    const fleet = await startFleet({ tools: [tool] });
    const failing = vi.spyOn(Breakers.prototype, 'addFailure').mockRejectedValueOnce(away());
    onTestFinished(() => failing.mockRestore());
    expect(await fleet.session.call(tool, {})).toMatchObject({ attempts: 1, error: { code: 'TOOL_FAILED' } });
    expect(failing).toHaveBeenCalledTimes(2);
  });

  test('the success of a probe of the circuit', async () => {
    const { tool, contexts } = scripted(
      'charge',
      (_ctx, { fails }) => (fails === true ? Promise.reject(new Error('no')) : { output: 'charged' }),
      { effects: 'once', circuit: { consecutiveFailures: 1, cooldownMs: 1, whenOpen: 'park' } },
    );
    const fleet = await startFleet({ tools: [tool] });
    await fleet.session.call(tool, { fails: true });
    const change = Breakers.prototype.change;
    let refused = 0;
    const failing = vi.spyOn(Breakers.prototype, 'change').mockImplementation(function (this: Breakers, ...args) {
      if (contexts.length < 2 || refused > 0) return change.apply(this, args);
      refused += 1;
      return Promise.reject(away());
    });
    onTestFinished(() => failing.mockRestore());
    expect(contentOf(await fleet.session.call(tool, {}))).toBe('charged');
    expect([contexts.length, refused]).toEqual([2, 1]);
  });
});
