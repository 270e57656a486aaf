/** Redis itself: killed, without power, full, replaced. */
import { open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { isAtLeast } from '../../../src/shared/config/durability.ts';
import { eventually } from '../../helpers/signal.ts';
import type { Ask } from '../protocol.ts';
import { type Producer, type Rig, SETTLE_MS } from '../rig.ts';
import { followDisk, forgetSince, type Server, serverVersion, startServer } from '../server.ts';
import { inTheMiddle, load, mixedAsks, passes, type Row } from './row.ts';

const killedUnderLoad: Row = {
  number: 12,
  fault: 'kill -9 of Redis under load, started again on its files (AOF everysec)',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const all = load(
      rig,
      producer,
      mixedAsks(rig, 500, () => ({ beforeMs: rig.random.between(0, 30) })),
      16,
    );
    await passes(rig.random.between(300, 700));
    await rig.server.kill();
    await passes(1_000);
    await rig.server.start();
    rig.healed();
    await all;
    await rig.settle();
  },
};

const AWAY_MS = 20_000;

const awayForLong: Row = {
  number: 41,
  fault: `Redis is away for ${AWAY_MS / 1_000} s under load`,
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const asks = mixedAsks(rig, 300, () => ({ beforeMs: rig.random.between(0, 30) }));
    const persist = (ask: Ask) => rig.persist(producer, ask, AWAY_MS + SETTLE_MS);
    const taken = Promise.all(asks.slice(0, 200).map(persist));
    await passes(rig.random.between(300, 500));
    await rig.server.kill();
    const killedAtMs = performance.now();
    // These are refused, again and again, each within the producer's limit.
    const refused = Promise.all(asks.slice(200).map(persist));
    const refusedMs = await timeOfRefusal(producer, 'meanwhile');
    rig.bound('I7', 'ms until a producer hears that Redis is away', refusedMs, 12_000);
    rig.notes.push(`refused after ${(refusedMs / 1_000).toFixed(1)} s`);
    await passes(killedAtMs + AWAY_MS - performance.now());
    await rig.server.start();
    rig.healed();
    await Promise.all([taken, refused]);
    await rig.settle();
  },
};

/** The machine loses power under load; what Redis had not written is gone. Clients then ask for everything again. */
async function losePower(rig: Rig, cut: () => Promise<void>): Promise<void> {
  const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
  const asks = mixedAsks(rig, 400, () => ({ beforeMs: rig.random.between(40, 80) }));
  const all = load(rig, producer, asks, 8);
  await passes(rig.random.between(2_200, 2_600));
  await cut();
  await rig.server.start();
  rig.healed();
  await all;
  await load(rig, producer, asks, 8);
  await rig.settle();
  rig.bound('I8', 'callers who wait for ever for a call that Redis forgot', rig.silences, 0);
  noteRepeats(rig);
}

function noteRepeats(rig: Rig): void {
  const effects = rig.effects().filter(({ phase }) => phase === 'effect');
  const repeated = effects.length - new Set(effects.map(({ key }) => key)).size;
  if (repeated > 0) rig.notes.push(`${repeated} effects repeated, of all classes`);
}

const powerLoss: Row = {
  number: 13,
  fault: 'power loss, AOF everysec: the last one to two seconds are gone',
  redisOptions: ['--aof-timestamp-enabled', 'yes'],
  stated: 'everysec says that it may forget the last two seconds',
  run: (rig) => losePower(rig, () => forgetSince(rig.server, Math.floor(Date.now() / 1_000) - 1)),
};

/** `PAWL_REDIS_SERVER` names another Redis than the one that is here. */
const powerLossBegins: Row = {
  number: 42,
  fault: 'power loss, AOF everysec, where `once` calls begin on disk (durability `waitaof`)',
  env: { DURABILITY: 'waitaof' },
  stated: 'no second effects of `once` calls; reported outcomes may be forgotten',
  needs: async () => (isAtLeast(await serverVersion(), [7, 2]) ? undefined : 'needs Redis 7.2, which has WAITAOF'),
  async run(rig) {
    await losePower(rig, followDisk(rig.server));
    const onces = rig.effects().filter(({ key, phase }) => phase === 'effect' && rig.history.isOnce(key));
    rig.bound('I5', 'second effects of `once` calls', onces.length - new Set(onces.map(({ key }) => key)).size, 0);
    rig.notes.push(`Redis ${await serverVersion()}`);
  },
};

const powerLossAlways: Row = {
  number: 14,
  fault: 'power loss, AOF always: nothing that was acknowledged is gone',
  redisOptions: ['--appendfsync', 'always'],
  run: (rig) => losePower(rig, () => rig.server.kill()),
};

const DISK_BYTES = 6 * 1_024 * 1_024;

const diskFull: Row = {
  number: 16,
  fault: 'disk full under the append-only file, then space again',
  diskBytes: DISK_BYTES,
  async run(rig) {
    const { admin, folder } = rig.server;
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    await load(rig, producer, mixedAsks(rig, 20), 8);
    const ballast = join(folder, 'ballast');
    await fillDisk(ballast);
    // Redis notices with the next write.
    await eventually(async () => /aof_last_write_status:err/.test(await admin.info('persistence')), {
      what: 'a full disk',
      everyMs: 100,
    }).catch(() => rig.notes.push('the disk did not fill up'));
    const refusedMs = await timeOfRefusal(producer, 'meanwhile');
    rig.bound('I7', 'ms until a producer hears that Redis takes nothing', refusedMs, 12_000);
    const all = load(
      rig,
      producer,
      mixedAsks(rig, 40).map((ask) => ({ ...ask, key: `full-${ask.key}` })),
      8,
    );
    await passes(500);
    await rm(ballast);
    rig.healed();
    await all;
    await rig.settle();
  },
};

async function fillDisk(file: string): Promise<void> {
  const handle = await open(file, 'w');
  const block = Buffer.alloc(64 * 1_024, 1);
  try {
    for (;;) await handle.write(block);
  } catch {
    for (let size = block.length; size >= 1; size = Math.floor(size / 2))
      await handle.write(block, 0, size).catch(() => {});
  } finally {
    await handle.close();
  }
}

async function timeOfRefusal(producer: Producer, key: string): Promise<number> {
  const atMs = performance.now();
  await producer.call({ tool: 'record_once', key, params: { label: key } });
  return performance.now() - atMs;
}

const failover: Row = {
  number: 17,
  fault: 'failover to a replica that lagged behind',
  stated: 'asynchronous replication forgets what the replica had not got',
  async run(rig) {
    await using replica = await startServer(join(rig.folder, 'replica'), [
      '--replicaof',
      '127.0.0.1',
      String(rig.server.port),
    ]);
    await eventually(async () => /master_link_status:up/.test(await replica.admin.info('replication')), {
      what: 'the replica',
    });
    const [producer] = await Promise.all([rig.producer(), rig.worker(), rig.worker()]);
    const before = mixedAsks(rig, 60);
    await load(rig, producer, before, 8);
    await caughtUp(rig.server, replica);
    replica.signal('SIGSTOP');
    const during = mixedAsks(rig, 60).map((ask) => ({ ...ask, key: `late-${ask.key}` }));
    await load(rig, producer, during, 8);
    await rig.server.kill();
    replica.signal('SIGCONT');
    await replica.admin.replicaof('NO', 'ONE');
    // It takes over the address that everybody knows.
    await replica.admin.config('SET', 'port', String(rig.server.port));
    rig.healed();
    await load(rig, producer, [...before, ...during], 8);
    await rig.settle();
  },
};

async function caughtUp(master: Server, replica: Server): Promise<void> {
  const offset = async (server: Server, name: string) =>
    Number(new RegExp(`${name}:(\\d+)`).exec(await server.admin.info('replication'))?.[1]);
  const target = await offset(master, 'master_repl_offset');
  await eventually(async () => (await offset(replica, 'slave_repl_offset')) >= target, {
    what: 'a replica that caught up',
  });
}

const outOfMemory: Row = {
  number: 19,
  fault: 'Redis out of memory (noeviction) in the middle of calls, then memory again',
  async run(rig) {
    const { admin } = rig.server;
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    const gate = rig.gate('effects');
    const pending = await inTheMiddle(
      rig,
      producer,
      mixedAsks(rig, 6, () => ({ gate: gate.path })),
    );
    await admin.config('SET', 'maxmemory', '1mb');
    gate.open();
    const refusedMs = await timeOfRefusal(producer, 'meanwhile');
    rig.bound('I7', 'ms until a producer hears that Redis takes nothing', refusedMs, 12_000);
    await passes(2_500);
    await admin.config('SET', 'maxmemory', '0');
    rig.healed();
    await rig.settle(pending);
  },
};

export const redisRows: readonly Row[] = [
  killedUnderLoad,
  awayForLong,
  powerLoss,
  powerLossBegins,
  powerLossAlways,
  diskFull,
  failover,
  outOfMemory,
];
