import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { circuitPolicy } from '../../../src/shared/circuits/circuit-policy.ts';
import { NodeCircuits } from '../../../src/workers/circuits/node-circuit.ts';

const TOOL = 'tools.note';
const KEY = `tool:${TOOL}`;
const policy = circuitPolicy(false);
const FAILED = { value: undefined, failed: true };

function open() {
  const circuits = new NodeCircuits();
  onTestFinished(() => circuits.close());
  const run = (failed: boolean, tool = TOOL) => circuits.run(tool, policy, async () => ({ value: failed, failed }));
  const fail = async (times: number) => {
    for (let index = 0; index < times; index += 1) await run(true);
  };
  return { circuits, run, fail };
}

describe('DESIGN, decision 8: the node’s own circuit', () => {
  test('an ending is passed on whatever it is', async () => {
    const { run } = open();
    expect([await run(false), await run(true)]).toEqual([false, true]);
  });

  test('opens before one bad node could open the fleet’s circuit, and not at the first failures', async () => {
    const { circuits, fail } = open();
    await fail(2);
    expect(circuits.isOpen(TOOL)).toBe(false);
    await fail(policy.consecutiveFailures - 1 - 2);
    expect(circuits.isOpen(TOOL)).toBe(true);
    expect(circuits.isOpen('tools.other')).toBe(false);
  });

  test('stays closed while the tool also succeeds here', async () => {
    const { circuits, run } = open();
    for (let index = 0; index < 20; index += 1) await run(index % 2 === 0);
    expect(circuits.isOpen(TOOL)).toBe(false);
  });

  test('counts again once it is known that the fleet’s circuit has closed, also where that was not heard', async () => {
    const { circuits, fail } = open();
    circuits.relearn(new Map([[KEY, { state: 'OPEN' }]]));
    await fail(policy.consecutiveFailures);
    expect(circuits.isOpen(TOOL)).toBe(false);
    circuits.relearn(new Map());
    await fail(policy.consecutiveFailures);
    expect(circuits.isOpen(TOOL)).toBe(true);
    circuits.relearn(new Map([[KEY, { state: 'CLOSED' }]]));
    expect(circuits.isOpen(TOOL)).toBe(true);
  });

  test('opens as soon when many jobs run at a time: those that have not ended yet are no successes', async () => {
    const { circuits } = open();
    const gates = Array.from({ length: 64 }, () => Promise.withResolvers<void>());
    const ended = gates.map(({ promise }) => circuits.run(TOOL, policy, () => promise.then(() => FAILED)));
    const fail = async (from: number, to: number) => {
      for (const { resolve } of gates.slice(from, to)) resolve();
      await Promise.all(ended.slice(from, to));
    };
    await fail(0, 3);
    expect(circuits.isOpen(TOOL)).toBe(false);
    await fail(3, 4);
    expect(circuits.isOpen(TOOL)).toBe(true);
    await fail(4, 64);
  });

  test('opens on a node that turned bad, whatever went well before', async () => {
    const { circuits, run, fail } = open();
    for (let index = 0; index < 200; index += 1) await run(false);
    await fail(2 * policy.consecutiveFailures - 1);
    expect(circuits.isOpen(TOOL)).toBe(false);
    await fail(1);
    expect(circuits.isOpen(TOOL)).toBe(true);
  });

  test('leaves one job at a time to try whether the tool works again, and no other before that has had its time', async () => {
    vi.useFakeTimers();
    onTestFinished(() => void vi.useRealTimers());
    const { circuits, fail, run } = open();
    await fail(4);
    expect(circuits.mayTry(TOOL, 0)).toBe(false);
    vi.advanceTimersByTime(10_000);
    expect(circuits.isOpen(TOOL)).toBe(true);
    expect([0, 1, 9_999, 10_000].map((nowMs) => circuits.mayTry(TOOL, nowMs))).toEqual([true, false, false, true]);
    await run(false);
    expect(circuits.isOpen(TOOL)).toBe(false);
  });

  test('what fails here more often in a row than half of what opens the fleet’s circuit is not the fleet’s affair', async () => {
    const { circuits, run, fail } = open();
    await fail(Math.ceil(policy.consecutiveFailures / 2));
    expect(circuits.failsInARow(TOOL, policy)).toBe(false);
    await fail(1);
    expect(circuits.failsInARow(TOOL, policy)).toBe(true);
    expect(circuits.failsInARow('tools.other', policy)).toBe(false);
    await run(false);
    expect(circuits.failsInARow(TOOL, policy)).toBe(false);
  });

  test('runs a job all the same while it is open: some worker has to', async () => {
    const { circuits, fail, run } = open();
    await fail(6);
    expect(circuits.isOpen(TOOL)).toBe(true);
    expect(await run(false)).toBe(false);
  });

  test('a job runs once, however it ends', async () => {
    const { circuits } = open();
    let runs = 0;
    for (let index = 0; index < 8; index += 1)
      await circuits.run(TOOL, policy, async () => {
        runs += 1;
        return { value: undefined, failed: true };
      });
    expect(runs).toBe(8);
  });

  test('a defect of ours is not swallowed', async () => {
    const { circuits } = open();
    const defect = new Error('ours');
    await expect(circuits.run(TOOL, policy, () => Promise.reject(defect))).rejects.toBe(defect);
  });

  test('has nothing to add while the fleet’s circuit is not closed, and starts afresh when it closes', async () => {
    const { circuits, fail } = open();
    await fail(4);
    circuits.learn(KEY, 'OPEN');
    expect(circuits.isOpen(TOOL)).toBe(false);
    circuits.learn(KEY, 'CLOSED');
    expect(circuits.isOpen(TOOL)).toBe(false);
    await fail(1);
    expect(circuits.isOpen(TOOL)).toBe(false);
  });

  test('a circuit of another tool says nothing about this one', async () => {
    const { circuits, fail } = open();
    await fail(4);
    circuits.learn('tool:tools.other', 'OPEN');
    expect(circuits.isOpen(TOOL)).toBe(true);
  });
});
