import { describe, expect, test } from 'vitest';
import { partitionOf } from '../../../src/shared/calls/call-id.ts';
import { pending, startFleet } from '../../helpers/fleet.ts';
import { echo, gated } from '../../helpers/tools.ts';

describe('a call by its ID', () => {
  test('its result can be waited for as long as it takes', async () => {
    const gate = gated();
    const { pawl, session } = await startFleet({ tools: [gate.tool] });
    const { callId } = pending(await session.submit(gate.tool, {}));
    const result = pawl.result(callId, { waitMs: Number.POSITIVE_INFINITY });
    await gate.arrived();
    gate.open();
    expect(await result).toMatchObject({ status: 'success' });
  });

  test('its result can be read later and elsewhere; waiting can run out', async () => {
    const gate = gated();
    const { session, pawl, openProducer } = await startFleet({ tools: [gate.tool] });
    const { callId, stop } = pending(await session.submit(gate.tool, {}));
    stop();
    const other = await openProducer();
    expect(partitionOf(callId)).toBeDefined();
    expect(await other.result(callId, { waitMs: 10 })).toBeUndefined();
    const later = other.result(callId);
    gate.open();
    expect((await later)?.status).toBe('success');
    expect((await pawl.result(callId))?.status).toBe('success');
    await expect(pawl.result('nonsense')).rejects.toMatchObject({ code: 'UNKNOWN_CALL' });
  });

  test('calls are listed, the newest first, and by session', async () => {
    const { session, pawl } = await startFleet({ tools: [echo] });
    const other = await pawl.openSession();
    const first = await session.call(echo, { text: 'a' });
    await other.call(echo, { text: 'b' });
    expect(await pawl.calls.list()).toHaveLength(2);
    expect((await pawl.calls.list({ sessionKey: session.key })).map(({ callId }) => callId)).toEqual([first.callId]);
    expect(await pawl.calls.list({ limit: 1 })).toHaveLength(1);
  });
});
