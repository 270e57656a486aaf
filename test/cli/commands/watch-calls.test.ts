import { describe, expect, test } from 'vitest';
import { CallChanges } from '../../../src/cli/commands/watch-calls.ts';
import type { CallRecord } from '../../../src/shared/store/calls/call-record.ts';

/** What a fleet knows of its calls, the newest last. */
function fleet() {
  const calls: CallRecord[] = [];
  const asked: number[] = [];
  const set = (callId: string, state: string, version: number) => {
    const call = { callId, state, version } as CallRecord;
    const at = calls.findIndex((each) => each.callId === callId);
    if (at < 0) calls.push(call);
    else calls[at] = call;
  };
  const newest = async (limit: number) => {
    asked.push(limit);
    return calls.toReversed().slice(0, limit);
  };
  const changes = new CallChanges(newest, async (callId) => calls.find((each) => each.callId === callId), 2);
  const look = async () => (await changes.read()).map(({ callId, state }) => `${callId} ${state}`);
  return { set, look, asked };
}

describe('pawl calls watch', () => {
  test('begins with the newest calls, and reports each change once, the oldest first', async () => {
    const { set, look } = fleet();
    for (const callId of ['a', 'b', 'c']) set(callId, 'inflight', 1);
    expect(await look()).toEqual(['b inflight', 'c inflight']);
    expect(await look()).toEqual([]);
    set('b', 'done', 2);
    set('d', 'inflight', 1);
    expect(await look()).toEqual(['b done', 'd inflight']);
    expect(await look()).toEqual([]);
  });

  test('reports the end of a call after many newer ones, and every newer call', async () => {
    const { set, look, asked } = fleet();
    set('a', 'inflight', 1);
    expect(await look()).toEqual(['a inflight']);
    const many = Array.from({ length: 20 }, (_, index) => `n${index}`);
    for (const callId of many) set(callId, 'done', 1);
    expect(await look()).toEqual(many.map((callId) => `${callId} done`));
    expect(asked).toEqual([2, 2, 8, 32]);
    set('a', 'done', 2);
    for (const callId of ['x', 'y', 'z']) set(callId, 'done', 1);
    expect(await look()).toEqual(['a done', 'x done', 'y done', 'z done']);
    expect(await look()).toEqual([]);
  });
});
