/** Redis over a network: the same workloads, with a way to Redis and back that takes its time. */
import { Redis } from 'ioredis';
import { type Compared, compare, type Effort } from '../comparison.ts';
import { Fleet } from '../fleet.ts';
import { median } from '../statistics.ts';
import { distant } from '../stores/distant.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { WORKLOADS } from '../workloads.ts';

export interface NetworkResult {
  readonly distances: readonly Distance[];
}

export interface Distance {
  /** Of a PING, while nothing else goes on. */
  readonly roundTripMs: number;
  readonly compared: readonly Compared[];
}

/** Each way: another rack or zone, and another region. */
const DELAYS_MS = [1, 5];
const MEASURED = ['small-1', 'one-at-a-time', 'large-1', 'workers-4', 'small-16', 'large-16'];
const PINGS = 51;

export async function measureNetwork(effort: Effort, say: (line: string) => void): Promise<NetworkResult> {
  const distances: Distance[] = [];
  // One call at a time takes tens of milliseconds: fewer rounds, and longer ones.
  const rounds = { ...effort, rounds: Math.ceil(effort.rounds / 3), roundMs: 3 * effort.roundMs };
  for (const delayMs of DELAYS_MS) distances.push(await atDistance(delayMs, rounds, say));
  return { distances };
}

async function atDistance(delayMs: number, effort: Effort, say: (line: string) => void): Promise<Distance> {
  const compared: Compared[] = [];
  let roundTripMs = 0;
  for (const { beside: _alone, ...workload } of WORKLOADS.filter(({ name }) => MEASURED.includes(name)))
    await withStore(farServer(delayMs), async (server) => {
      roundTripMs = await roundTrip(server.url);
      say(`Redis ${roundTripMs.toFixed(1)} ms away: ${workload.title}`);
      const sides = new Map([
        ['bullmq', server],
        ['pawl', server],
      ] as const);
      const { producers, workers } = workload;
      await Fleet.with({ sides, producers, workers }, async (fleet) => {
        compared.push(await compare(fleet, workload, effort, 'bullmq'));
      });
    });
  return { roundTripMs, compared };
}

async function farServer(delayMs: number) {
  return distant(await startServer(), delayMs);
}

async function roundTrip(url: string): Promise<number> {
  const redis = new Redis(url);
  const tookMs: number[] = [];
  for (let number = 0; number < PINGS; number += 1) {
    const startedMs = performance.now();
    await redis.ping();
    tookMs.push(performance.now() - startedMs);
  }
  await redis.quit();
  return median(tookMs);
}
