/** The wire between processes and Redis: cut, silent, paused, reset. */
import type { Wire } from '../../helpers/proxy.ts';
import { LEASE_MS, type Rig } from '../rig.ts';
import { inTheMiddle, load, mixedAsks, passes, type Row } from './row.ts';

/** One worker behind a wire, in the middle of calls that outlast its lease; another takes over. */
async function behindWire(rig: Rig, fault: (wire: Wire) => void, heal: (wire: Wire) => void): Promise<void> {
  const wire = await rig.wire();
  const [producer] = await Promise.all([rig.producer(), rig.worker({ REDIS_URL: wire.url })]);
  const asks = mixedAsks(rig, 4, (number) => ({ beforeMs: LEASE_MS * 2, deaf: number % 2 === 1 }));
  const pending = await inTheMiddle(rig, producer, asks);
  fault(wire);
  await rig.worker();
  await passes(LEASE_MS * 2.5);
  heal(wire);
  rig.healed();
  await rig.settle(pending);
}

const cut: Row = {
  number: 7,
  fault: 'TCP reset between one worker and Redis for 2.5 leases',
  run: (rig) =>
    behindWire(
      rig,
      (wire) => wire.cut(),
      (wire) => wire.heal(),
    ),
};

const silent: Row = {
  number: 8,
  fault: 'half-open TCP between one worker and Redis: nothing comes, nobody says so',
  run: (rig) =>
    behindWire(
      rig,
      (wire) => void wire.silence(),
      (wire) => wire.heal(),
    ),
};

const producerCut: Row = {
  number: 9,
  fault: 'producers cut off from Redis in the middle of submitting, three times',
  async run(rig) {
    const wire = await rig.wire();
    const [producer] = await Promise.all([rig.producer({ REDIS_URL: wire.url }), rig.worker()]);
    const all = load(rig, producer, mixedAsks(rig, 300), 16);
    for (let time = 0; time < 3; time += 1) {
      await passes(rig.random.between(50, 300));
      wire.cut();
      await passes(500);
      wire.heal();
    }
    rig.healed();
    await all;
    await rig.settle();
  },
};

const paused: Row = {
  number: 10,
  fault: 'CLIENT PAUSE for two and a half leases',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const asks = mixedAsks(rig, 4, (number) => ({ beforeMs: LEASE_MS * 2, deaf: number % 2 === 1 }));
    const pending = await inTheMiddle(rig, producer, asks);
    await rig.server.admin.client('PAUSE', LEASE_MS * 2.5, 'ALL');
    await passes(LEASE_MS * 2.5);
    rig.healed();
    await rig.settle(pending);
  },
};

const killStorm: Row = {
  number: 11,
  fault: 'CLIENT KILL of every connection, ten times, under load',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const all = load(
      rig,
      producer,
      mixedAsks(rig, 1_000, () => ({ beforeMs: rig.random.between(0, 20) })),
      32,
    );
    for (let time = 0; time < 10; time += 1) {
      await passes(rig.random.between(100, 300));
      await rig.server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    }
    rig.healed();
    await all;
    await rig.settle();
  },
};

export const wireRows: readonly Row[] = [cut, silent, producerCut, paused, killStorm];
