/** Keys that many ask for at once, and producers that die in between. */

import type { Ask } from '../protocol.ts';
import type { Rig } from '../rig.ts';
import { inTheMiddle, mixedAsks, passes, type Row } from './row.ts';

const ASKERS = 1_000;

async function atOnce(rig: Rig, asks: readonly Ask[]): Promise<void> {
  const [one, other] = await Promise.all([rig.producer(), rig.producer(), rig.worker(), rig.worker()]);
  rig.healed();
  await Promise.all(asks.map((ask, index) => rig.persist(index % 2 === 0 ? one : other, ask)));
  await rig.settle();
}

const sameParams: Row = {
  number: 24,
  fault: '1,000 at once with the same key and the same parameters',
  run: (rig) =>
    atOnce(
      rig,
      Array.from({ length: ASKERS }, () => ({ tool: 'record_once', key: 'one', params: { label: 'one' } })),
    ),
};

const otherParams: Row = {
  number: 25,
  fault: '1,000 at once with the same key and parameters of their own',
  run: (rig) =>
    atOnce(
      rig,
      Array.from({ length: ASKERS }, (_, number) => ({
        tool: 'record_once',
        key: 'one',
        params: { label: `label-${number}` },
      })),
    ),
};

const SCOPES = ['one', 'other', 'third'] as const;
const SAME_KEY_TOOLS = ['record_once', 'record_idempotent', 'record_none'] as const;

const otherScopes: Row = {
  number: 26,
  fault: 'the same key in other sessions, for other tools and in other tiers',
  run: (rig) =>
    atOnce(
      rig,
      SCOPES.flatMap((session) =>
        SAME_KEY_TOOLS.flatMap((tool) => {
          const name = `${session} ${tool}`;
          const ask = { tool, key: 'same', session, name, params: { label: name } };
          return Array.from({ length: 4 }, () => ask);
        }),
      ),
    ),
};

const producerKilled: Row = {
  number: 27,
  fault: 'kill -9 of producers in the middle of submitting; another asks for the same keys',
  async run(rig) {
    const [first, second] = await Promise.all([rig.producer(), rig.producer(), rig.worker()]);
    const asks = mixedAsks(rig, 200, () => ({ beforeMs: rig.random.between(0, 20) }));
    const lost = asks.map((ask) => first.call(ask));
    await rig.reached('call-0', 'effect');
    await passes(rig.random.between(0, 30));
    await first.kill();
    rig.healed();
    await Promise.all(lost);
    await Promise.all(asks.map((ask) => rig.persist(second, ask)));
    await rig.settle();
  },
};

const producerRestarted: Row = {
  number: 28,
  fault: 'a producer that is gone while its calls end, event streams trimmed to nothing',
  // No lease runs out in it, however busy the machine is.
  env: { PAWL_LOCK_DURATION_MS: '30000' },
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    const gate = rig.gate('effects');
    const asks = mixedAsks(rig, 8, () => ({ gate: gate.path }));
    const lost = await inTheMiddle(rig, producer, asks);
    await producer.kill();
    gate.open();
    await Promise.all(asks.map(({ key }) => rig.reached(key, 'effect')));
    const { admin } = rig.server;
    for (const stream of await admin.keys('*:events')) await admin.xtrim(stream, 'MAXLEN', 0);
    const next = await rig.producer();
    rig.healed();
    await Promise.all(asks.map((ask) => rig.persist(next, ask)));
    await rig.settle(lost);
  },
};

export const keyRows: readonly Row[] = [sameParams, otherParams, otherScopes, producerKilled, producerRestarted];
