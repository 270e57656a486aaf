/** Redis servers that are torn, doubled or set up wrongly. */
import { copyFile, readdir, readFile, stat, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '../../helpers/signal.ts';
import { type Server, startServer } from '../server.ts';
import { inTheMiddle, load, mixedAsks, passes, type Row } from './row.ts';

/** The part of the append-only file that is written to. */
async function appendedFile({ folder }: Server): Promise<string> {
  const parts = join(folder, 'appendonlydir');
  const part = (await readdir(parts)).find((name) => name.endsWith('.incr.aof'));
  if (part === undefined) throw new Error(`no append-only file in ${parts}`);
  return join(parts, part);
}

/** Over the beginning of a command: Redis cannot tell what is wrong inside of a value. */
async function corruptMiddle(file: string): Promise<void> {
  const bytes = await readFile(file);
  const command = bytes.indexOf('\r\n*', Math.floor(bytes.length / 2));
  bytes.fill(0xff, command, command + 64);
  await writeFile(file, bytes);
}

const tornFile: Row = {
  number: 15,
  fault: 'append-only file with a torn tail, then with a corrupt middle',
  stated: 'a begin in the torn tail is forgotten, as with fault 13',
  async run(rig) {
    const [producer] = await Promise.all([rig.producer(), rig.worker()]);
    const asks = mixedAsks(rig, 40);
    await load(rig, producer, asks, 8);
    const gate = rig.gate('effects');
    const late = mixedAsks(rig, 6, () => ({ gate: gate.path })).map((ask) => ({ ...ask, key: `late-${ask.key}` }));
    const pending = await inTheMiddle(rig, producer, late);
    await rig.server.kill();
    const file = await appendedFile(rig.server);
    await truncate(file, (await stat(file)).size - rig.random.between(1, 12));
    await rig.server.start();
    await load(rig, producer, asks, 8);

    await rig.server.kill();
    await copyFile(file, `${file}.good`);
    await corruptMiddle(file);
    const silent = await rig.server.start().then(
      () => 1,
      () => 0,
    );
    rig.bound('I8', 'servers that start from a corrupt file and say nothing', silent, 0);
    await rig.server.kill();
    await copyFile(`${file}.good`, file);
    await rig.server.start();
    gate.open();
    rig.healed();
    await load(rig, producer, asks, 8);
    await rig.settle(pending);
  },
};

const splitBrain: Row = {
  number: 18,
  fault: 'split brain: one worker stays with the old master, all others are with the new one',
  stated: 'with two masters, what waited in the queue can start under both',
  async run(rig) {
    await using replica = await startServer(join(rig.folder, 'replica'), [
      '--replicaof',
      '127.0.0.1',
      String(rig.server.port),
    ]);
    await eventually(async () => /master_link_status:up/.test(await replica.admin.info('replication')), {
      what: 'the replica',
    });
    const wire = await rig.wire();
    const [producer] = await Promise.all([rig.producer({ REDIS_URL: wire.url }), rig.worker({ CONCURRENCY: '4' })]);
    const gate = rig.gate('effects');
    const asks = mixedAsks(rig, 8, () => ({ gate: gate.path }));
    const running = await inTheMiddle(rig, producer, asks.slice(0, 4));
    const waiting = asks.slice(4).map((ask) => rig.persist(producer, ask));
    await passes(500);
    await replica.admin.replicaof('NO', 'ONE');
    wire.leadTo(replica.url);
    rig.moveTo(wire.url);
    await rig.worker();
    gate.open();
    await Promise.all(waiting);
    await replica.admin.ping();
    await rig.server.admin.replicaof('127.0.0.1', String(replica.port));
    rig.healed();
    await rig.settle([...running, ...waiting]);
  },
};

const MEMORY = '6mb';
const BALLAST_KEYS = 400;

const evicting: Row = {
  number: 20,
  fault: 'a Redis that evicts (allkeys-lru), its memory filled',
  redisOptions: ['--maxmemory', MEMORY, '--maxmemory-policy', 'allkeys-lru'],
  async run(rig) {
    const refused = await rig.worker().then(
      () => undefined,
      (error: Error) => error.message,
    );
    if (refused !== undefined) {
      rig.notes.push(/maxmemory-policy/.test(refused) ? 'refuses to start' : refused.slice(0, 200));
      rig.bound('I8', 'refusals that do not name the setting', /maxmemory-policy/.test(refused) ? 0 : 1, 0);
      return;
    }
    const producer = await rig.producer();
    const asks = mixedAsks(rig, 30);
    await load(rig, producer, asks, 8);
    for (let key = 0; key < BALLAST_KEYS; key += 1) await rig.server.admin.set(`ballast:${key}`, 'x'.repeat(32_768));
    rig.healed();
    await load(rig, producer, asks, 8);
    await rig.settle();
  },
};

export const serverRows: readonly Row[] = [tornFile, splitBrain, evicting];
