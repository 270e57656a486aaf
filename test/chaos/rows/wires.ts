/** The wire between processes and Redis: cut, silent, paused, reset. */
import type { Wire } from '../../helpers/proxy.ts';
import type { Child } from '../child.ts';
import type { Ask } from '../protocol.ts';
import { LEASE_MS, type Rig, SETTLE_MS } from '../rig.ts';
import { firstCall, inTheMiddle, load, mixedAsks, passes, type Row } from './row.ts';

/** As the matrix has it: 12 s for locks of 3 s. */
const OUTAGE_MS = 4 * LEASE_MS;
const CALLS = 8;
const LONG_MS = 2 * LEASE_MS;
/** A worker runs calls that lost an attempt one after the other. */
const ONE_BY_ONE_MS = SETTLE_MS + CALLS * LONG_MS;

/** Half of them do not hear when they are told to stop. */
function longAsks(rig: Rig): Ask[] {
  return mixedAsks(rig, CALLS, (number) => ({ beforeMs: LONG_MS, deaf: number % 2 === 1 }));
}

/** I4: a worker that cannot renew gives its attempts up before the lease is over: those that listen have no effect then. */
function boundZombie(rig: Rig, zombie: Child, faultMs: number): void {
  const late = rig
    .effects()
    .filter(({ phase, pid, mono }) => phase === 'effect' && pid === zombie.pid && mono > faultMs + LEASE_MS)
    .filter(({ key }) => Number(key.slice('call-'.length)) % 2 === 0);
  rig.bound('I4', 'effects of attempts that should have heard that their lease was lost', late.length, 0);
}

/** One worker behind a wire, in the middle of calls that outlast its lease; another takes over. */
async function behindWire(rig: Rig, fault: (wire: Wire) => void, heal: (wire: Wire) => void): Promise<void> {
  const wire = await rig.wire();
  const [producer, zombie] = await Promise.all([rig.producer(), rig.worker({ REDIS_URL: wire.url })]);
  await firstCall(rig, producer);
  const pending = await inTheMiddle(rig, producer, longAsks(rig));
  const faultMs = Number(process.hrtime.bigint()) / 1e6;
  fault(wire);
  await rig.worker();
  await passes(OUTAGE_MS);
  boundZombie(rig, zombie, faultMs);
  heal(wire);
  rig.healed();
  await rig.settle(pending, rig.history.calls, ONE_BY_ONE_MS);
}

const cut: Row = {
  number: 7,
  fault: 'TCP reset between one worker and Redis for four leases',
  run: (rig) =>
    behindWire(
      rig,
      (wire) => wire.cut(),
      (wire) => wire.heal(),
    ),
};

const silent: Row = {
  number: 8,
  fault: 'half-open TCP between one worker and Redis: nothing comes, no side notices',
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
  fault: 'CLIENT PAUSE for four leases',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const pending = await inTheMiddle(rig, producer, longAsks(rig));
    await rig.server.admin.client('PAUSE', OUTAGE_MS, 'ALL');
    await passes(OUTAGE_MS);
    rig.healed();
    await rig.settle(pending, rig.history.calls, ONE_BY_ONE_MS);
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
