import { describe, expect, test } from 'vitest';
import { CircuitView } from '../../../src/producer/circuits/circuit-cache.ts';
import type { Circuit } from '../../../src/shared/circuits/circuit-breaker.ts';
import { startFleet } from '../../helpers/fleet.ts';
import { scripted } from '../../helpers/tools.ts';

const PLACE = { tier: 'workspace', shard: 0 } as const;
const KEY = 'tool:tools.note';

function view() {
  let nowMs = 1_000;
  const circuits = new CircuitView({ now: () => 0, monotonic: () => nowMs });
  return {
    circuits,
    pass: (ms: number) => {
      nowMs += ms;
    },
    learn: (circuit: Circuit, retryAfterMs = 0) =>
      circuits.learn({ partition: PLACE, key: KEY, circuit, retryAfterMs }),
    refusal: () => circuits.refusal(PLACE, KEY),
  };
}

const open = (epoch: number): Circuit => ({
  state: 'OPEN',
  epoch,
  openedAtMs: 0,
  cooldownMs: 900,
  failures: 5,
  reason: 'why',
});

describe('a producer’s copy of the fleet’s circuits (R22)', () => {
  test('nothing known lets a call through', () => {
    expect(view().refusal()).toBeUndefined();
  });

  test('an open circuit refuses for as long as its broadcast says, on this process’s own clock', () => {
    const { learn, refusal, pass } = view();
    learn(open(1), 900);
    expect(refusal()).toEqual({ state: 'OPEN', retryAfterMs: 900 });
    pass(899.5);
    expect(refusal()).toEqual({ state: 'OPEN', retryAfterMs: 1 });
    pass(0.5);
    expect(refusal()).toBeUndefined();
  });

  test('a circuit that is forced open refuses until it is reset', () => {
    const { learn, refusal, pass } = view();
    learn({ state: 'FORCED_OPEN', epoch: 1, openedAtMs: 0, reason: 'why' });
    pass(10 ** 9);
    expect(refusal()).toMatchObject({ state: 'FORCED_OPEN', reason: 'why' });
    learn({ state: 'CLOSED', epoch: 2 });
    expect(refusal()).toBeUndefined();
  });

  test('a half-open circuit lets calls through: the worker decides which one is the probe', () => {
    const { learn, refusal } = view();
    learn({ state: 'HALF_OPEN', epoch: 1, openedAtMs: 0, cooldownMs: 900, successes: 0 });
    expect(refusal()).toBeUndefined();
  });

  test('news that come late change nothing: the higher epoch is the later one', () => {
    const { learn, refusal } = view();
    learn(open(3), 900);
    learn({ state: 'HALF_OPEN', epoch: 2, openedAtMs: 0, cooldownMs: 900, successes: 0 });
    expect(refusal()?.state).toBe('OPEN');
  });

  test('other places and keys are other circuits, and a gap forgets all', () => {
    const { learn, circuits, refusal } = view();
    learn(open(1), 900);
    expect(circuits.refusal(PLACE, `${KEY}@acme`)).toBeUndefined();
    expect(circuits.refusal({ tier: 'system', shard: 0 }, KEY)).toBeUndefined();
    circuits.clear();
    expect(refusal()).toBeUndefined();
  });
});

describe('circuits by class (R24)', () => {
  const failing = (name: string, tier: 'read-only' | 'workspace') =>
    scripted(
      name,
      () => {
        throw Object.assign(new Error('the service is down'), { status: 503 });
      },
      { tier, effects: tier === 'read-only' ? 'none' : 'idempotent' },
    );
  const retry = { maxAttempts: 1 };

  test('tools that change something open after fewer failures than those that read', async () => {
    const [read, write] = [failing('read_it', 'read-only'), failing('write_it', 'workspace')];
    const circuit = { readOnly: { consecutiveFailures: 4 }, mutating: { consecutiveFailures: 2 } };
    const { session } = await startFleet({
      tools: [read.tool, write.tool],
      settings: { defaults: { retry, circuit } },
    });
    for (const { tool, contexts, most } of [
      { ...read, most: 4 },
      { ...write, most: 2 },
    ]) {
      const statuses: string[] = [];
      while (statuses.at(-1) !== 'circuit_open' && statuses.length < 10)
        statuses.push((await session.call(tool.name, { number: statuses.length })).status);
      expect(statuses.at(-1)).toBe('circuit_open');
      expect(contexts).toHaveLength(most);
    }
  });

  test('what the defaults say of an open circuit holds at the front door, too', async () => {
    const { tool, contexts } = failing('read_it', 'read-only');
    const circuit = { readOnly: { consecutiveFailures: 1, cooldownMs: 300, whenOpen: 'park' } } as const;
    const { session } = await startFleet({ tools: [tool], settings: { defaults: { retry, circuit } } });
    // A call that meets the open circuit waits until it may be the probe.
    for (const number of [1, 2]) expect((await session.call('read_it', { number })).attempts).toBe(1);
    expect(contexts).toHaveLength(2);
  });
});
