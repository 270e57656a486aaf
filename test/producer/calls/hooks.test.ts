/** TR-12, on real Redis and workers: hooks run once per attempt, and once on a short circuit. */
import { describe, expect, test } from 'vitest';
import { defineHook, type Hook } from '../../../src/shared/calls/define-hook.ts';
import { HOOK_KINDS } from '../../../src/shared/calls/hook-events.ts';
import { defineTool } from '../../../src/shared/tools/define-tool.ts';
import { defined } from '../../../src/shared/util/json/omit-undefined.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { signal } from '../../helpers/signal.ts';

import { OTHER, scripted } from './hooked-tool.ts';

/** Writes down every hook that runs, in order. */
function recorder(): { readonly hook: Hook; ran(): readonly string[] } {
  let ran: string[] = [];
  const record = (kind: string) => (about: { readonly attempt?: number; readonly reason?: unknown }) => {
    ran.push([kind, about.attempt, about.reason].filter((part) => part !== undefined).join(' '));
  };
  const hook = { name: 'recorder', ...Object.fromEntries(HOOK_KINDS.map((kind) => [kind, record(kind)])) } as Hook;
  return {
    hook,
    ran: () => {
      const before = ran;
      ran = [];
      return before;
    },
  };
}

const busy = () => Object.assign(new Error('busy'), { status: 503 });

describe('TR-12: hooks fire exactly once per attempt, and once on a short circuit', () => {
  test('a call with retries', async () => {
    const { hook, ran } = recorder();
    const tool = scripted((_params, _ctx, run) => {
      if (run < 3) throw busy();
      return run;
    });
    const { session } = await startFleet({ tools: [tool], hooks: [hook] });
    expect(await session.call(tool, { text: 'x' }, { idempotencyKey: 'k' })).toMatchObject({ attempts: 3 });
    expect(ran()).toEqual([
      'beforeCall',
      ...['beforeAttempt 1', 'afterAttempt 1', 'onRetry 1'],
      ...['beforeAttempt 2', 'afterAttempt 2', 'onRetry 2'],
      ...['beforeAttempt 3', 'afterAttempt 3'],
      'afterCall',
    ]);
    // The same key again: answered from the record.
    expect(await session.call(tool, { text: 'x' }, { idempotencyKey: 'k' })).toMatchObject({ fromCache: true });
    expect(ran()).toEqual(['beforeCall', 'onShortCircuit replayed', 'afterCall']);
    // Parameters that the schema refuses.
    expect((await session.call('note', { text: 7 })).error?.code).toBe('INVALID_PARAMS');
    expect(ran()).toEqual(['beforeCall', 'onShortCircuit refused', 'afterCall']);
  });

  test('two callers of one call, and an open circuit', async () => {
    const { hook, ran } = recorder();
    const [began, release] = [signal(), signal()];
    const tool = scripted(async () => {
      began.fire();
      await release.promise;
      return 1;
    });
    const { session, pawl } = await startFleet({ tools: [tool], hooks: [hook] });
    const first = session.call(tool, { text: 'x' }, { idempotencyKey: 'k' });
    await began.promise;
    const second = await session.submit(tool, { text: 'x' }, { idempotencyKey: 'k' });
    expect(ran()).toEqual(['beforeCall', 'beforeAttempt 1', 'beforeCall', 'onShortCircuit merged']);
    release.fire();
    await Promise.all([first, second.result]);
    expect(ran()).toEqual(['afterAttempt 1', 'afterCall', 'afterCall']);
    await pawl.circuits.set('force_open', { tool: 'note' });
    expect((await session.call(tool, { text: 'y' })).status).toBe('circuit_open');
    expect(ran()).toEqual(['beforeCall', 'onShortCircuit circuit-open', 'afterCall']);
  });
});

describe('onShortCircuit runs for a call that ends without an attempt, and for no other', () => {
  test('one that waits is cancelled or denied, its deadline passes, or its worker refuses it', async () => {
    const { hook, ran } = recorder();
    const { afterCall, onShortCircuit } = hook;
    const hooks = [defineHook({ name: 'recorder', ...defined({ afterCall, onShortCircuit }) })];
    const [began, release] = [signal(), signal()];
    const tool = scripted(async ({ text }) => {
      if (text !== 'first') return text;
      began.fire();
      await release.promise;
      return text;
    });
    const settings = { policy: { global: { tools: { asked: 'ask' as const } } } };
    const asked = defineTool({ ...OTHER, name: 'asked', run: () => ({ output: null }) });
    const { session, pawl } = await startFleet({ tools: [tool, asked], hooks, settings, concurrency: 1 });
    const operated = await pawl.openSession({ actorId: 'ada', channel: { kind: 'operator' } });
    const first = session.call(tool, { text: 'first' });
    await began.promise;

    const cancelled = pending(await session.submit(tool, { text: 'cancelled' }));
    await session.cancel(cancelled.callId);
    await cancelled.result;
    expect(ran()).toEqual(['onShortCircuit cancelled', 'afterCall']);

    expect((await session.call(tool, { text: 'late' }, { timeoutMs: 1 })).error?.code).toBe('DEADLINE_EXCEEDED');
    expect(ran()).toEqual(['onShortCircuit too-late', 'afterCall']);

    const { callId, result } = pending(await operated.submit(asked, {}));
    const { digest } = await pawl.approvals.show(callId);
    await pawl.approvals.decide(callId, { decision: 'deny', digest, by: 'grace' });
    release.fire();
    expect((await result).error?.code).toBe('PERMISSION_DENIED');
    await first;
    expect([...ran()].sort()).toEqual(['afterCall', 'afterCall', 'onShortCircuit refused']);
  });

  test('a call whose own failures opened the circuit is none', async () => {
    const { hook, ran } = recorder();
    const { onShortCircuit } = hook;
    const hooks = [defineHook({ name: 'recorder', ...defined({ onShortCircuit }) })];
    const down = defineTool({
      ...OTHER,
      name: 'down',
      circuit: { consecutiveFailures: 2 },
      run: () => Promise.reject(busy()),
    });
    const { session } = await startFleet({ tools: [down], hooks });
    expect(await session.call(down, {})).toMatchObject({ status: 'retriable_error', attempts: 2 });
    expect(ran()).toEqual([]);
    expect(await session.call(down, {})).toMatchObject({ status: 'circuit_open', attempts: 0 });
    expect(ran()).toEqual(['onShortCircuit circuit-open']);
  });
});
