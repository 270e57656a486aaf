/** What a call costs in memory when its record has moved to a segment, and how long it takes to find it there. */
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { FileBlobs } from '../../src/shared/store/blobs/file-blobs.ts';
import { Ledger } from '../../src/shared/store/calls/ledger.ts';
import { openConnection } from '../../src/shared/store/redis/connection.ts';
import { SegmentMover } from '../../src/shared/store/segments/segment-mover.ts';
import { Fleet } from '../fleet.ts';
import { quantile } from '../statistics.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT } from '../workloads.ts';

const RESULT_BYTES = 200;
const KEPT_MS = 24 * 3_600_000;
/** Fills the audit trail in Redis, of which the newest 50,000 records are kept, two for each call. */
const FILLING_CALLS = 30_000;
const CALLS = 200_000;
const LOOKUPS = 500;
const CHAINED_MS = 3_000;
/** A day of 100 calls a second, of which those of the last ten minutes are in memory. */
const DAY_CALLS = 8_640_000;
const YOUNG_CALLS = 60_000;

export interface SegmentsResult {
  readonly date: string;
  readonly calls: number;
  readonly resultBytes: number;
  /** Redis' memory for each call, before and after the move. */
  readonly keptBytes: number;
  readonly movedBytes: number;
  /** In the blob store, for each call. */
  readonly fileBytes: number;
  readonly movedPerSecond: number;
  readonly lookupP50Ms: number;
  readonly lookupP99Ms: number;
  readonly longestLookupMs: number;
  /** A PING between the look-ups: what the machine takes for any round trip. */
  readonly pingP99Ms: number;
  /** Computed: the memory for a day of 100 calls a second. */
  readonly dayBytes: number;
}

export async function measureSegments(quick: boolean, say: (line: string) => void): Promise<SegmentsResult> {
  const calls = quick ? CALLS / 10 : CALLS;
  const folder = await mkdtemp(join(tmpdir(), 'pawl-bench-segments-'));
  const figures = await withStore(startServer(), (server) =>
    Fleet.with({ sides: new Map([['pawl', server]]), producers: 1, ttlMs: KEPT_MS }, async (fleet) => {
      const make = (number: number) =>
        fleet.run('pawl', 1, {
          pace: { inFlight: IN_FLIGHT, until: { calls: number } },
          resultBytes: RESULT_BYTES,
          keys: 'fresh',
        });
      say('filling what is bounded anyway');
      await make(FILLING_CALLS);
      await sleep(CHAINED_MS);
      const before = await server.usedMemoryBytes();
      await make(calls);
      await sleep(CHAINED_MS);
      const keptBytes = ((await server.usedMemoryBytes()) - before) / calls;
      say('moving');
      const moved = await moveAndLookUp(server.url, folder);
      // Those that filled were moved, too.
      const all = calls + FILLING_CALLS;
      const freed = before + keptBytes * calls - (await server.usedMemoryBytes());
      const movedBytes = keptBytes - freed / all;
      return { keptBytes, movedBytes, fileBytes: (await sizeOf(folder)) / all, ...moved };
    }),
  ).finally(() => rm(folder, { recursive: true, force: true }));
  const dayBytes = figures.movedBytes * DAY_CALLS + (figures.keptBytes - figures.movedBytes) * YOUNG_CALLS;
  return { date: new Date().toISOString().slice(0, 10), calls, resultBytes: RESULT_BYTES, ...figures, dayBytes };
}

async function moveAndLookUp(url: string, folder: string) {
  const redis = openConnection({ url, name: 'bench', mode: 'patient' });
  try {
    const { access, index } = new Ledger(redis, 'bench-pawl', KEPT_MS);
    access.blobs.keepIn(new FileBlobs(folder));
    const place = { tier: 'read-only', shard: 0 } as const;
    const { blobs, segments } = access;
    const mover = new SegmentMover({ redis, blobs, segments, afterMs: 0 });
    const startedAtMs = performance.now();
    const { calls } = await mover.run(access.keys(place), Date.now());
    const movedPerSecond = (1_000 * calls) / (performance.now() - startedAtMs);
    const lookups: number[] = [];
    const pings: number[] = [];
    for (let lookup = 0; lookup < LOOKUPS; lookup += 1) {
      const offset = Math.floor((calls * lookup * 7_919) / LOOKUPS) % calls;
      const [callId = ''] = await index.list(place, { limit: 1, offset });
      const pingedAtMs = performance.now();
      await redis.ping();
      const from = performance.now();
      pings.push(from - pingedAtMs);
      if ((await segments.restore(callId)) !== 'restored') throw new Error(`${callId} was not moved`);
      lookups.push(performance.now() - from);
      await redis.unlink(access.keys(place).record(callId));
    }
    return {
      movedPerSecond,
      lookupP50Ms: quantile(lookups, 0.5),
      lookupP99Ms: quantile(lookups, 0.99),
      longestLookupMs: Math.max(...lookups),
      pingP99Ms: quantile(pings, 0.99),
    };
  } finally {
    redis.disconnect();
  }
}

async function sizeOf(folder: string): Promise<number> {
  const files = await readdir(folder, { recursive: true, withFileTypes: true });
  const sizes = await Promise.all(
    files.filter((file) => file.isFile()).map(async (file) => (await stat(join(file.parentPath, file.name))).size),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
