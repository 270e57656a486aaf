import { expect, test } from 'vitest';
import { findCalls } from '../../../src/producer/calls/find-calls.ts';
import { partitionFor } from '../../../src/shared/calls/call-id.ts';
import type { CallRecord } from '../../../src/shared/store/calls/call-record.ts';
import { type Fleet, pending, startFleet } from '../../helpers/fleet.ts';
import { eventually } from '../../helpers/signal.ts';
import { echo, gated, scripted } from '../../helpers/tools.ts';

const idsOf = (records: readonly CallRecord[]) => records.map(({ callId }) => callId);

/** The ledger of a fleet, and the calls that are looked at. */
function watchedLedger({ pawl }: Fleet) {
  const { ledger } = pawl.backend;
  const looked: string[] = [];
  const list = ledger.index.list.bind(ledger.index);
  const readBrief = (callId: string) => {
    looked.push(callId);
    return ledger.readBrief(callId);
  };
  return { looked, ledger: { index: { list }, readBrief } };
}

test.each(['running', 'awaiting-approval'] as const)(
  'those that are %s are found without a look at all that wait',
  async (state) => {
    const gate = gated();
    const deploy = scripted('deploy', () => ({ output: 'deployed' }), { tier: 'elevated' });
    const fleet = await startFleet({ tools: [gate.tool, deploy.tool], concurrency: 1 });
    const { pawl } = fleet;
    const [ada, bob] = await Promise.all(
      ['ada', 'bob'].map((actorId) =>
        pawl.openSession({ sessionKey: actorId, actorId, channel: { kind: 'operator' } }),
      ),
    );
    if (ada === undefined || bob === undefined) throw new Error('there are two sessions');
    const running = pending(await ada.submit(gate.tool, { number: 0 })).callId;
    await gate.arrived();
    const parked = pending(await ada.submit(deploy.tool, {})).callId;
    const { redis, ledger: records } = pawl.backend;
    const delayed = records.keys(partitionFor(parked)).job('delayed');
    await eventually(async () => (await redis.zcard(delayed)) === 1, {
      what: 'the worker to let go of what is parked',
    });
    for (let number = 1; number <= 20; number += 1) await bob.submit(gate.tool, { number });

    const { looked, ledger } = watchedLedger(fleet);
    const search = { state, limit: 50, isVisible: () => true };
    const found = await findCalls(pawl.backend.shards.partitions(), ledger, search);
    const wanted = [state === 'running' ? running : parked];
    expect({ ids: idsOf(found.records), looked, complete: found.complete }).toEqual({
      ids: wanted,
      looked: wanted,
      complete: true,
    });
    const ofBob = await findCalls(pawl.backend.shards.partitions(), ledger, { ...search, sessionKey: 'bob' });
    expect(ofBob).toEqual({ records: [], complete: true });
    gate.open();
  },
);

test('a call that is submitted during a search makes none appear twice', async () => {
  const fleet = await startFleet({ tools: [echo] });
  const { pawl, session } = fleet;
  const PAGE = 200;
  await Promise.all(Array.from({ length: PAGE + 1 }, (_, number) => session.call(echo, { text: `${number}` })));
  const { ledger } = watchedLedger(fleet);
  const list: typeof ledger.index.list = async (partition, options) => {
    const callIds = await ledger.index.list(partition, options);
    if (callIds.length === PAGE) await session.call(echo, { text: 'between two pages' });
    return callIds;
  };
  const search = { state: 'done', limit: 1_000, isVisible: () => true } as const;
  const { records } = await findCalls(pawl.backend.shards.partitions(), { ...ledger, index: { list } }, search);
  expect(new Set(idsOf(records)).size).toBe(records.length);
  expect(records.length).toBe(PAGE + 1);
});
