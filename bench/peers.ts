/**
 * Pawl against other systems that run work on other processes: the same calls, each with an idempotency key and waited for, in
 * paired rounds of the same run. Each system's programs, manifest and lock stand in `peers/`; it is installed there when it is
 * wanted, and left out, with the reason, where that does not work.
 */
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { promisify } from 'node:util';
import { attempt } from './attempt.ts';
import { type Compared, compare, compareCold, type Effort, type StartSide } from './comparison.ts';
import { Fleet } from './fleet.ts';
import { folderOf } from './processes.ts';
import { BUNQUEUE_DURABILITY, startBunqueue } from './stores/bunqueue.ts';
import { findPostgresql, POSTGRESQL_DURABILITY, startPostgresql } from './stores/postgresql.ts';
import { REDIS_DURABILITY, startServer } from './stores/redis.ts';
import { RESTATE_DURABILITY, startRestate } from './stores/restate.ts';
import { type Durability, type Store, withStore } from './stores/store.ts';
import { PEER_WORKLOADS, PEERS, type Peer, WORKLOADS, type Workload } from './workloads.ts';

export type PeerResult = { readonly peer: Peer } & (
  | { readonly leftOut: string }
  | { readonly title: string; readonly store: string; readonly comparisons: readonly PeerComparison[] }
);

export interface PeerComparison {
  readonly durability: Durability;
  /** What Pawl's Redis and the peer's store were told. */
  readonly settings: string;
  readonly compared: readonly Compared[];
}

const NO_POSTGRESQL = 'there is no PostgreSQL on the PATH or under /usr/lib/postgresql';

interface PeerKind {
  /** The package that is the peer. */
  readonly package: string;
  /** What it keeps its calls in. */
  readonly store: string;
  /** What its store is told for each durability that it can have. */
  readonly settings: Readonly<Partial<Record<Durability, string>>>;
  readonly startStore: (folder: string, durability: Durability) => Promise<Store>;
}

const onPostgresql = (name: string): PeerKind => ({
  package: name,
  store: 'PostgreSQL',
  settings: POSTGRESQL_DURABILITY,
  startStore: async (_folder, durability) => {
    const postgresql = await findPostgresql();
    if (postgresql === undefined) throw new Error(NO_POSTGRESQL);
    return startPostgresql(postgresql, durability);
  },
});

const onRestate = (partitions?: number): PeerKind => ({
  package: '@restatedev/restate-server',
  store: partitions === undefined ? 'Restate' : `Restate, ${partitions} partitions`,
  settings: RESTATE_DURABILITY,
  startStore: (folder, durability) => startRestate(folder, durability, partitions),
});

const KINDS: Readonly<Record<Peer, PeerKind>> = {
  'pg-boss': onPostgresql('pg-boss'),
  'graphile-worker': onPostgresql('graphile-worker'),
  dbos: onPostgresql('@dbos-inc/dbos-sdk'),
  bunqueue: {
    package: 'bunqueue',
    store: 'SQLite',
    settings: { 'each second': BUNQUEUE_DURABILITY },
    startStore: startBunqueue,
  },
  restate: onRestate(),
  'restate-tuned': onRestate(availableParallelism()),
};
const INSTALL_TIMEOUT_MS = 300_000;
/** Other systems have many rows, and so many times fewer rounds for each. */
const ROUNDS_SHARE_OF_PEERS = 3;

export async function comparePeers(
  wanted: ReadonlySet<string>,
  effort: Effort,
  say: (line: string) => void,
): Promise<readonly PeerResult[]> {
  const results: PeerResult[] = [];
  const rounds = Math.ceil(effort.rounds / ROUNDS_SHARE_OF_PEERS);
  for (const peer of PEERS.filter((name) => wanted.has(name))) {
    const found = await prepare(peer, say);
    if ('leftOut' in found) {
      say(`${peer}: left out: ${found.leftOut}`);
      results.push({ peer, leftOut: found.leftOut });
      continue;
    }
    const result = await attempt(peer, () => compareWith(peer, found, { ...effort, rounds }, say));
    results.push(result ?? { peer, leftOut: 'it failed in this run' });
  }
  return results;
}

async function compareWith(
  peer: Peer,
  found: Prepared,
  effort: Effort,
  say: (line: string) => void,
): Promise<PeerResult> {
  const comparisons: PeerComparison[] = [];
  let store = '';
  for (const durability of durabilitiesOf(peer)) {
    const compared: Compared[] = [];
    for (const producers of new Set(peerWorkloads().map((workload) => workload.producers))) {
      const { title, rows } = await onStores(peer, found, durability, producers, effort, say);
      store = title;
      compared.push(...rows);
    }
    comparisons.push({ durability, settings: settingsOf(peer, durability), compared });
  }
  return { peer, title: found.title, store, comparisons };
}

function peerWorkloads() {
  return WORKLOADS.filter(({ name }) => PEER_WORKLOADS.includes(name));
}

interface Prepared {
  /** Name and version. */
  readonly title: string;
  readonly startStore: (durability: Durability) => Promise<Store>;
}

async function prepare(peer: Peer, say: (line: string) => void): Promise<Prepared | { readonly leftOut: string }> {
  if (process.platform !== 'linux')
    return { leftOut: 'the CPU time of its store is read from /proc, which only Linux has' };
  const folder = folderOf(peer);
  const kind = KINDS[peer];
  if (kind.store === 'PostgreSQL' && (await findPostgresql()) === undefined) return { leftOut: NO_POSTGRESQL };
  const manifest = JSON.parse(await readFile(`${folder}package.json`, 'utf8')) as {
    readonly dependencies: Readonly<Record<string, string>>;
  };
  try {
    await install(folder, manifest.dependencies, say);
  } catch (error) {
    return { leftOut: `it does not install: ${reasonOf(error)}` };
  }
  return {
    title: `${peer} ${manifest.dependencies[kind.package]}`,
    startStore: (durability) => kind.startStore(folder, durability),
  };
}

/** Exactly what the lock says; no package's scripts run. */
async function install(
  folder: string,
  wanted: Readonly<Record<string, string>>,
  say: (line: string) => void,
): Promise<void> {
  const installed = await Promise.all(
    Object.entries(wanted).map(async ([name, version]) => {
      const file = `${folder}node_modules/${name}/package.json`;
      return existsSync(file) && (JSON.parse(await readFile(file, 'utf8')) as { version: string }).version === version;
    }),
  );
  if (installed.every(Boolean)) return;
  say(`installing into ${folder}`);
  await promisify(execFile)('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel', 'error'], {
    cwd: folder,
    timeout: INSTALL_TIMEOUT_MS,
  });
}

/** The first line that says something. */
function reasonOf(error: unknown): string {
  const { stderr = '', message = String(error) } = error as { stderr?: string; message?: string };
  const lines = stderr.split('\n').filter((line) => line.includes('error') && !line.includes('A complete log'));
  return (lines.find((line) => !/npm error code/.test(line)) ?? message.split('\n')[0] ?? '').replace(
    /^npm error /,
    '',
  );
}

function durabilitiesOf(peer: Peer): readonly Durability[] {
  return Object.keys(KINDS[peer].settings) as Durability[];
}

function settingsOf(peer: Peer, durability: Durability): string {
  const { store, settings } = KINDS[peer];
  return `Redis: ${REDIS_DURABILITY[durability]}; ${store}: ${settings[durability]}`;
}

async function onStores(
  peer: Peer,
  { title: name, startStore }: Prepared,
  durability: Durability,
  producers: number,
  effort: Effort,
  say: (line: string) => void,
): Promise<{ readonly title: string; readonly rows: readonly Compared[] }> {
  const workloads = peerWorkloads().filter((one) => one.producers === producers);
  const inTurn = async (compareOne: (workload: Workload) => Promise<Compared>) => {
    const rows: Compared[] = [];
    for (const { beside: _, ...workload } of workloads) {
      say(`${name}, ${durability}: ${workload.title}`);
      rows.push(await compareOne(workload));
    }
    return rows;
  };
  if (effort.cold) {
    let title = '';
    const startSide: StartSide = (side, use) =>
      withStore(side === 'pawl' ? startServer(durability) : startStore(durability), (store) => {
        if (side !== 'pawl') title = store.title;
        return Fleet.with({ sides: new Map([[side, store]]), producers }, use);
      });
    const rows = await inTurn((workload) => compareCold(startSide, workload, effort, peer));
    return { title, rows };
  }
  return withStore(startServer(durability), (redis) =>
    withStore(startStore(durability), (store) => {
      const sides = new Map([
        [peer, store],
        ['pawl', redis],
      ] as const);
      return Fleet.with({ sides, producers }, async (fleet) => ({
        title: store.title,
        rows: await inTurn((workload) => compare(fleet, workload, effort, peer)),
      }));
    }),
  );
}
