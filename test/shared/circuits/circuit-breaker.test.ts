import { describe, expect, test } from 'vitest';
import {
  admit,
  afterProbe,
  afterWindow,
  type Circuit,
  CLOSED_CIRCUIT,
  forcedOpen,
  reset,
  type Sample,
  sampleFor,
  tripReason,
} from '../../../src/shared/circuits/circuit-breaker.ts';
import { circuitKey } from '../../../src/shared/circuits/circuit-key.ts';
import { circuitPolicy } from '../../../src/shared/circuits/circuit-policy.ts';

const NOW = 1_000_000;
const policy = circuitPolicy(false);

/** A window, the newest outcome first. One character per outcome: x failure, X one after two successes, o success, all just now. */
function outcomes(text: string, atMs = NOW): Sample[] {
  return [...text].map((outcome) => ({
    atMs,
    ok: outcome === 'o',
    ...(outcome === 'X' ? { successesBefore: 2 } : {}),
  }));
}

const open: Circuit = {
  state: 'OPEN',
  epoch: 3,
  openedAtMs: NOW,
  cooldownMs: 30_000,
  failures: 5,
  reason: '5 failures in a row',
};
const probing: Circuit = {
  state: 'HALF_OPEN',
  epoch: 4,
  openedAtMs: NOW,
  cooldownMs: 30_000,
  successes: 0,
  probe: { holder: 'first', untilMs: NOW + 90_000 },
};
const between: Circuit = { state: 'HALF_OPEN', epoch: 5, openedAtMs: NOW, cooldownMs: 30_000, successes: 1 };
const forced: Circuit = { state: 'FORCED_OPEN', epoch: 9, openedAtMs: NOW, reason: 'maintenance' };

describe('the default thresholds (R22 to R24)', () => {
  test('120 s, 5 in a row, half of the last 20 with at least 10, 30 s, two successes', () => {
    expect(policy).toEqual({
      windowMs: 120_000,
      consecutiveFailures: 5,
      failureRate: 0.5,
      rateSamples: 20,
      rateMinimum: 10,
      cooldownMs: 30_000,
      probeLeaseMs: 60_000,
      successesToClose: 2,
      whenOpen: 'refuse',
    });
  });

  test('read-only tools may fail 8 times and rest 20 s; the tool’s own settings count more, the operator’s most', () => {
    expect(circuitPolicy(true)).toMatchObject({ consecutiveFailures: 8, cooldownMs: 20_000 });
    expect(circuitPolicy(true, { cooldownMs: 7, consecutiveFailures: 3 }, { cooldownMs: 1 })).toMatchObject({
      consecutiveFailures: 3,
      cooldownMs: 1,
    });
  });

  test.for([
    [true, {}, 8, 20_000],
    [false, {}, 5, 30_000],
    [true, { consecutiveFailures: 4 }, 4, 20_000],
    [true, { readOnly: { consecutiveFailures: 12 }, mutating: { cooldownMs: 1 } }, 12, 20_000],
    [false, { readOnly: { consecutiveFailures: 12 }, mutating: { cooldownMs: 10_000 } }, 5, 10_000],
    [false, { consecutiveFailures: 9, cooldownMs: 9, mutating: { consecutiveFailures: 3 } }, 3, 9],
  ] as const)(
    'of a tool that only reads (%s), with the defaults %j: %d failures, %d ms',
    ([readOnly, defaults, consecutiveFailures, cooldownMs]) => {
      expect(circuitPolicy(readOnly, {}, {}, defaults)).toMatchObject({ consecutiveFailures, cooldownMs });
      expect(circuitPolicy(readOnly, { cooldownMs: 7 }, { consecutiveFailures: 2 }, defaults)).toMatchObject({
        consecutiveFailures: 2,
        cooldownMs: 7,
      });
      expect(circuitPolicy(readOnly, {}, {}, defaults)).not.toHaveProperty('mutating');
    },
  );

  test.each([
    [{}, 20, 10],
    [{ rateMinimum: 50 }, 50, 50],
    [{ rateSamples: 4 }, 4, 4],
    [{ rateSamples: 100 }, 100, 10],
    [{ rateSamples: 4, rateMinimum: 10 }, 4, 4],
  ])('with %j, the rate is of the last %d outcomes, of which %d must exist', (overrides, rateSamples, rateMinimum) => {
    const rated = circuitPolicy(false, overrides);
    expect(rated).toMatchObject({ rateSamples, rateMinimum });
    expect(circuitPolicy(false, {}, {}, { mutating: overrides })).toEqual(rated);
    const trip = tripReason(outcomes('xo'.repeat(rateSamples / 2)), rated, NOW);
    expect(trip).toContain(`of the last ${rateSamples} calls failed`);
  });

  test('a window holds as many outcomes as its policy reads', () => {
    expect(sampleFor('tool:a', CLOSED_CIRCUIT, policy).windowSize).toBe(20);
    expect(sampleFor('tool:a', CLOSED_CIRCUIT, { ...policy, consecutiveFailures: 50 }).windowSize).toBe(50);
  });
});

describe('TR-8: a closed circuit opens', () => {
  test.each([
    ['', undefined],
    ['xxxx', undefined],
    ['xxxxx', '5 failures in a row'],
    ['xxxxX', '5 failures in a row'],
    ['xxxXx', undefined],
    ['XXXXXX', undefined],
    ['XXXXXXXXXX', undefined],
    ['oXoXoXoXox', '5 of the last 10 calls failed'],
    ['xxxxoxxxx', undefined],
    ['oxxxxx', undefined],
    ['xoxoxoxox', undefined],
    ['oxoxoxoxox', '5 of the last 10 calls failed'],
    ['ooxoxoxoxox', undefined],
    ['oooooooooo' + 'xxxx' + 'o' + 'xxxxx', undefined],
    ['oooooooooo' + 'xxxxxxxxxx', '10 of the last 20 calls failed'],
    ['ooooooooooo' + 'xxxxxxxxxx', undefined],
  ])('window %j: %s', (window, reason) => {
    expect(tripReason(outcomes(window), policy, NOW)).toBe(reason);
  });

  test('outcomes older than the window do not count', () => {
    const stale = [...outcomes('xx'), ...outcomes('xxx', NOW - 120_000)];
    const young = [...outcomes('xx'), ...outcomes('xxx', NOW - 119_999)];
    expect(tripReason(stale, policy, NOW)).toBeUndefined();
    expect(tripReason(young, policy, NOW)).toBe('5 failures in a row');
  });

  test('the new state has its time, its cooldown and its reason, in a new epoch', () => {
    expect(afterWindow({ state: 'CLOSED', epoch: 7 }, outcomes('xxxxx'), policy, NOW)).toEqual({
      state: 'OPEN',
      epoch: 8,
      openedAtMs: NOW,
      cooldownMs: 30_000,
      failures: 5,
      reason: '5 failures in a row',
    });
    expect(afterWindow(CLOSED_CIRCUIT, outcomes('xxxx'), policy, NOW)).toBeUndefined();
  });

  test.each([open, probing, between, forced])(
    'a late answer changes nothing while the circuit is $state',
    (circuit) => {
      expect(afterWindow(circuit, outcomes('xxxxxxxxxx'), policy, NOW)).toBeUndefined();
    },
  );
});

describe('which calls may start', () => {
  const at = (circuit: Circuit, nowMs: number) => admit(circuit, policy, 'second', nowMs);

  test('every call may while the circuit is closed', () => {
    expect(at(CLOSED_CIRCUIT, NOW)).toEqual({ kind: 'pass' });
  });

  test('TR-8: no call may until the cooldown has passed, and the refusal says when to try again', () => {
    expect(at(open, NOW)).toEqual({ kind: 'refuse', retryAfterMs: 30_000 });
    expect(at(open, NOW + 29_999)).toEqual({ kind: 'refuse', retryAfterMs: 1 });
  });

  test('a time that is too far ahead, as Redis’ clock was set back, keeps no call away', () => {
    const HOUR_MS = 3_600_000;
    expect(at(open, NOW - 500)).toMatchObject({ kind: 'refuse' });
    expect(at(open, NOW - HOUR_MS)).toMatchObject({ kind: 'probe' });
    expect(at(probing, NOW + 30_000 - HOUR_MS)).toMatchObject({ kind: 'probe' });
    expect(tripReason([...outcomes('xx'), ...outcomes('xxx', NOW + HOUR_MS)], policy, NOW)).toBeUndefined();
  });

  test('TR-9: the first call after the cooldown may, as a probe with a lease', () => {
    expect(at(open, NOW + 30_000)).toEqual({
      kind: 'probe',
      next: {
        state: 'HALF_OPEN',
        epoch: 4,
        openedAtMs: NOW,
        cooldownMs: 30_000,
        successes: 0,
        probe: { holder: 'second', untilMs: NOW + 90_000 },
      },
    });
  });

  test('R23: one probe runs at a time', () => {
    expect(at(probing, NOW + 30_000)).toEqual({ kind: 'refuse', retryAfterMs: 1_000 });
    expect(at(probing, NOW + 89_700)).toEqual({ kind: 'refuse', retryAfterMs: 300 });
  });

  test('a probe without an answer blocks no other once its lease has expired', () => {
    const admission = at(probing, NOW + 90_000);
    expect(admission).toMatchObject({ kind: 'probe', next: { epoch: 5, probe: { holder: 'second' } } });
  });

  test('after one success the next probe keeps the count', () => {
    expect(at(between, NOW)).toMatchObject({ kind: 'probe', next: { epoch: 6, successes: 1 } });
  });

  test('R25: no call may while an operator holds the circuit open, however long that is', () => {
    expect(at(forced, NOW + 10 ** 12).kind).toBe('refuse');
  });
});

describe('a probe’s answer', () => {
  const answer = (circuit: Circuit, holder: string, ok: boolean | undefined) =>
    afterProbe(circuit, policy, { holder, ok, nowMs: NOW + 40_000 });

  test('TR-9: two successes close the circuit', () => {
    const once = answer(probing, 'first', true);
    expect(once).toEqual({ state: 'HALF_OPEN', epoch: 5, openedAtMs: NOW, cooldownMs: 30_000, successes: 1 });
    const admission = admit(once ?? CLOSED_CIRCUIT, policy, 'second', NOW + 40_000);
    const second = admission.kind === 'probe' ? admission.next : CLOSED_CIRCUIT;
    expect(answer(second, 'second', true)).toEqual({ state: 'CLOSED', epoch: 7 });
  });

  test('TR-10: one failure opens the circuit again, for the whole cooldown, even after a success', () => {
    const again = {
      state: 'OPEN',
      openedAtMs: NOW + 40_000,
      cooldownMs: 30_000,
      failures: 1,
      reason: 'a probe failed',
    };
    expect(answer(probing, 'first', false)).toEqual({ ...again, epoch: 5 });
    const second: Circuit = { ...between, probe: { holder: 'second', untilMs: NOW + 90_000 } };
    expect(answer(second, 'second', false)).toEqual({ ...again, epoch: 6 });
  });

  test('an outcome that shows nothing about the service releases the lease and keeps the count', () => {
    const given = answer({ ...between, probe: { holder: 'second', untilMs: NOW + 90_000 } }, 'second', undefined);
    expect(given).toEqual({ state: 'HALF_OPEN', epoch: 6, openedAtMs: NOW, cooldownMs: 30_000, successes: 1 });
  });

  test.each([
    ['of a probe whose lease went to another', probing, 'somebody'],
    ['when no probe is out', between, 'first'],
    ['when the circuit is closed', CLOSED_CIRCUIT, 'first'],
    ['when it is open', open, 'first'],
    ['when it is held open', forced, 'first'],
  ] as const)('a late answer %s changes nothing', (_when, circuit, holder) => {
    for (const ok of [true, false, undefined]) expect(answer(circuit, holder, ok)).toBeUndefined();
  });

  test('a policy of one success closes at once', () => {
    expect(
      afterProbe(probing, { ...policy, successesToClose: 1 }, { holder: 'first', ok: true, nowMs: NOW }),
    ).toMatchObject({
      state: 'CLOSED',
    });
  });
});

describe('R25: an operator', () => {
  test.each([CLOSED_CIRCUIT, open, probing, between, forced])('forces a circuit open that is $state', (circuit) => {
    expect(forcedOpen(circuit, 'why', NOW)).toEqual({
      state: 'FORCED_OPEN',
      epoch: circuit.epoch + 1,
      openedAtMs: NOW,
      reason: 'why',
    });
  });

  test.each([CLOSED_CIRCUIT, open, probing, between, forced])('resets a circuit that is $state', (circuit) => {
    expect(reset(circuit)).toEqual({ state: 'CLOSED', epoch: circuit.epoch + 1 });
  });
});

test('every change of state raises the epoch', () => {
  const steps: Circuit[] = [CLOSED_CIRCUIT];
  const follow = (next: Circuit | undefined) => void steps.push(next ?? CLOSED_CIRCUIT);
  follow(afterWindow(CLOSED_CIRCUIT, outcomes('xxxxx'), policy, NOW));
  for (const holder of ['first', 'second']) {
    const admission = admit(steps.at(-1) ?? open, policy, holder, NOW + 30_000);
    follow(admission.kind === 'probe' ? admission.next : undefined);
    follow(afterProbe(steps.at(-1) ?? open, policy, { holder, ok: true, nowMs: NOW + 30_000 }));
  }
  follow(forcedOpen(steps.at(-1) ?? open, 'why', NOW));
  follow(reset(steps.at(-1) ?? open));
  expect(steps.map(({ state, epoch }) => `${state} ${epoch}`)).toEqual([
    'CLOSED 0',
    'OPEN 1',
    'HALF_OPEN 2',
    'HALF_OPEN 3',
    'HALF_OPEN 4',
    'CLOSED 5',
    'FORCED_OPEN 6',
    'CLOSED 7',
  ]);
});

test.each([
  [{ hint: 'tool', tool: 'tools.read' }, 'tool:tools.read'],
  [{ hint: 'tool', tool: 'tools.read', tenantId: 'acme' }, 'tool:tools.read@acme'],
  [{ hint: 'dependency', tool: 'tools.read', dependency: 'crm' }, 'dependency:crm'],
  [{ hint: 'dependency', tool: 'tools.read' }, 'tool:tools.read'],
  [{ hint: 'global', tool: 'tools.read', tenantId: 'acme' }, 'global@acme'],
] as const)('R4: circuitBreakerHint %j names the circuit %s', (scope, key) => {
  expect(circuitKey(scope)).toBe(key);
});
