/**
 * A fleet on a Redis Cluster of any size, computed: what each step costs is measured here, and the simulation is checked against a cluster
 * of three nodes on this machine.
 */
import { Redis } from 'ioredis';
import { connect } from '../../src/index.ts';
import { middle } from '../comparison.ts';
import { Fleet, type Measured } from '../fleet.ts';
import { type ScaleCosts, type ScaleFigures, type ScaleSize, type StepCost, simulate } from '../scale-model.ts';
import { sum } from '../statistics.ts';
import { type Cluster, startCluster } from '../stores/cluster.ts';
import { type BenchServer, startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';

export interface ScaleResult {
  readonly costs: ScaleCosts;
  readonly checks: readonly Check[];
  readonly computed: readonly Computed[];
}

/** The same fleet, measured and computed. */
export interface Check {
  readonly title: string;
  readonly measured: number;
  readonly computed: number;
}

export interface Computed extends ScaleFigures {
  readonly size: ScaleSize;
}

const ROUNDS = 5;
const ROUND_MS = 1_500;
const WARM_UP_MS = 4_000;
const DEEP = 64;
const SLOTS = 64;
const LOOPBACK_US = 30;
/** Within a data center. */
const NETWORK_US = 250;
const MANY = 6;
/** Pairs of a script for claims and one for ends. */
const GROUPS_OF_ONE = 2;

/** A call that a tool takes 50 ms for, and one that it answers at once. */
const TOOLS_US = [50_000, 0];
const SIZES = [
  { shards: 1, workers: 1 },
  { shards: 1, workers: 10 },
  { shards: 1, workers: 100 },
  { shards: 4, workers: 100 },
  { shards: 16, workers: 100 },
  { shards: 16, workers: 1_000 },
  { shards: 64, workers: 1_000 },
];
const PRODUCERS = 10_000;

export async function measureScale(quick: boolean, say: (line: string) => void): Promise<ScaleResult> {
  const rounds = quick ? 2 : ROUNDS;
  say('scale: what a step costs');
  const { costs, checks } = await withStore(startServer(), (server) => calibrate(server, rounds));
  say('scale: a cluster of three nodes');
  const cluster = await withStore(startCluster(), (started) => onCluster(started, costs, rounds));
  const computed: Computed[] = [];
  for (const toolUs of TOOLS_US)
    for (const size of SIZES) {
      say(`scale: ${size.shards} shards, ${size.workers} workers, computed`);
      computed.push(compute(costs, { ...size, toolUs }));
    }
  return { costs, checks: [...checks, cluster], computed };
}

function compute(costs: ScaleCosts, { shards, workers, toolUs }: Pick<ScaleSize, 'shards' | 'workers' | 'toolUs'>) {
  const size = { shards, workers, toolUs, slots: SLOTS, producers: PRODUCERS, inFlight: 1, networkUs: NETWORK_US };
  return { size, ...simulate(costs, size, 2_000, 1_000) };
}

/** Two loads whose groups differ tell what a group costs and what a call. */
async function calibrate(server: BenchServer, rounds: number) {
  const audit = await auditCost(server);
  return Fleet.with({ sides: new Map([['pawl', server]]), producers: MANY }, async (fleet) => {
    const alone = await load(fleet, server, 1, 1, rounds);
    const deep = await load(fleet, server, 1, DEEP, rounds);
    const shared = await load(fleet, server, MANY, DEEP, rounds);
    const groups = (GROUPS_OF_ONE * deep.reads) / alone.reads;
    const costs: ScaleCosts = {
      producer: stepCost(alone.cpu.callers, deep.cpu.callers, groups / GROUPS_OF_ONE, 1),
      worker: stepCost(alone.cpu.worker, deep.cpu.worker, groups / GROUPS_OF_ONE, 1),
      redis: stepCost(alone.cpu.store, deep.cpu.store, groups, GROUPS_OF_ONE),
      audit,
    };
    const size = { shards: 1, workers: 1, slots: SLOTS, toolUs: 0, networkUs: LOOPBACK_US, cores: 2 };
    const check = (title: string, producers: number, { callsPerSecond }: Measured): Check => ({
      title,
      measured: callsPerSecond,
      computed: simulate(costs, { ...size, producers, inFlight: DEEP / producers }, 500, 1_000).callsPerSecond,
    });
    return {
      costs,
      checks: [
        check(`1 Redis, 1 worker, 1 producer with ${DEEP} calls in flight`, 1, deep),
        check(`1 Redis, 1 worker, ${MANY} producers with ${DEEP} calls in flight`, MANY, shared),
      ],
    };
  });
}

/**
 * @param aloneMs CPU milliseconds of 1,000 calls in groups of one, which are the CPU microseconds of a call
 * @param groups that a call takes part in, as a share of a whole group, under the other load
 * @param scripts that a call goes through
 */
function stepCost(aloneMs: number, deepMs: number, groups: number, scripts: number): StepCost {
  const perGroup = Math.max(0, (aloneMs - deepMs) / (scripts - groups));
  return { perGroup, perCall: Math.max(0, aloneMs - scripts * perGroup) / scripts };
}

type Loaded = Measured & { readonly reads: number };

async function load(
  fleet: Fleet,
  server: BenchServer,
  producers: number,
  inFlight: number,
  rounds: number,
): Promise<Loaded> {
  await run(fleet, producers, DEEP, WARM_UP_MS);
  const measured: Measured[] = [];
  const before = await server.reads();
  for (let round = 0; round < rounds; round += 1) measured.push(await run(fleet, producers, inFlight, ROUND_MS));
  const reads = (await server.reads()) - before;
  return { ...middle(measured), reads: reads / sum(measured.map(({ runs }) => runs)) };
}

function run(fleet: Fleet, producers: number, inFlight: number, durationMs: number): Promise<Measured> {
  return fleet.run('pawl', producers, { pace: { inFlight, until: { durationMs } }, resultBytes: 200, keys: 'fresh' });
}

const RECORD = 'r'.repeat(400);
const RECORDS = 30;
const AUDIT_GROUPS = 5_000;

/** Appends lists of records by themselves, small ones and large ones. */
async function auditCost(server: BenchServer): Promise<StepCost> {
  const redis = new Redis(server.url);
  const cpuOf = async (records: number) => {
    const before = await server.cpuMs();
    for (let sent = 0; sent < AUDIT_GROUPS; sent += 1) await redis.rpush('bench-records', RECORD.repeat(records));
    await redis.del('bench-records');
    return ((await server.cpuMs()) - before) / (AUDIT_GROUPS / 1_000);
  };
  await cpuOf(1);
  const [small, large] = [await cpuOf(1), await cpuOf(RECORDS)];
  redis.disconnect();
  const perCall = Math.max(0, large - small) / (RECORDS - 1);
  return { perGroup: small - perCall, perCall };
}

async function onCluster(cluster: Cluster, costs: ScaleCosts, rounds: number): Promise<Check> {
  const pawl = await connect({ redisUrl: cluster.url, prefix: 'bench-pawl' });
  try {
    await pawl.shards.set('read-only', cluster.nodes);
  } finally {
    await pawl.close();
  }
  return Fleet.with({ sides: new Map([['pawl', cluster]]), producers: MANY, workers: 2 }, async (fleet) => {
    await run(fleet, MANY, DEEP, WARM_UP_MS);
    const measured: Measured[] = [];
    for (let round = 0; round < rounds; round += 1) measured.push(await run(fleet, MANY, DEEP, ROUND_MS));
    const size = { shards: cluster.nodes, workers: 2, slots: SLOTS, toolUs: 0, networkUs: LOOPBACK_US, cores: 2 };
    return {
      title: `${cluster.nodes} nodes with a shard each, 2 workers, ${MANY} producers with ${DEEP} calls in flight`,
      measured: middle(measured).callsPerSecond,
      computed: simulate(costs, { ...size, producers: MANY, inFlight: Math.floor(DEEP / MANY) }, 500, 1_000)
        .callsPerSecond,
    };
  });
}
