/** What a kept call costs: bytes of Redis' memory by kind of key, and bytes of the append-only file by command and kind of key. */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { Fleet, type Measured } from '../fleet.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT } from '../workloads.ts';

const RESULT_BYTES = 200;
const KEPT_MS = 24 * 3_600_000;
/** Fills the audit trail in Redis, of which the newest 50,000 records are kept, two for each call. */
const FILLING_CALLS = 30_000;
/** Enough that it counts little when a table of Redis doubles. */
const CALLS = 30_000;
const SAMPLED_KEYS = 50;
/** The audit trail is chained within this time. */
const CHAINED_MS = 3_000;

/** Bytes of one kind, for each call. */
export interface Share {
  readonly of: string;
  readonly bytes: number;
}

export interface BytesResult {
  readonly date: string;
  readonly calls: number;
  readonly resultBytes: number;
  readonly memoryBytes: number;
  /** The greatest first. */
  readonly memory: readonly Share[];
  readonly fileBytes: number;
  readonly file: readonly Share[];
}

export async function measureBytes(quick: boolean, say: (line: string) => void): Promise<BytesResult> {
  const less = quick ? 5 : 1;
  const calls = CALLS / less;
  const figures = await withStore(startServer(), (server) =>
    Fleet.with({ sides: new Map([['pawl', server]]), producers: 1, ttlMs: KEPT_MS }, async (fleet) => {
      const redis = new Redis(server.url);
      try {
        say('filling what is bounded anyway');
        await make(fleet, FILLING_CALLS / less);
        await sleep(CHAINED_MS);
        const before = await server.usedMemoryBytes();
        await make(fleet, calls);
        await sleep(CHAINED_MS);
        const memoryBytes = ((await server.usedMemoryBytes()) - before) / calls;
        const file = await fileShares(redis, calls);
        const fileBytes = file.reduce((sum, { bytes }) => sum + bytes, 0);
        return { memoryBytes, memory: await memoryShares(redis), fileBytes, file };
      } finally {
        redis.disconnect();
      }
    }),
  );
  return { date: new Date().toISOString().slice(0, 10), calls, resultBytes: RESULT_BYTES, ...figures };
}

function make(fleet: Fleet, calls: number): Promise<Measured> {
  const pace = { inFlight: IN_FLIGHT, until: { calls } };
  return fleet.run('pawl', 1, { pace, resultBytes: RESULT_BYTES, keys: 'fresh' });
}

/** A key's name behind the prefix, without the names of calls, sessions, workers and times. */
function kindOf(key: string): string {
  return key
    .replace(/^[^{]*/, '')
    .replaceAll(/[rwse]\d+\.[\w-]{22,}(\.\d+)?/g, '*')
    .replaceAll(/[\w-]{18,}/g, '*')
    .replaceAll(/\d{4,}/g, '*');
}

/** As `MEMORY USAGE` says, for each call that has a record. */
async function memoryShares(redis: Redis): Promise<readonly Share[]> {
  const kinds = new Map<string, string[]>();
  for await (const keys of redis.scanStream({ count: 1_000 }) as AsyncIterable<string[]>)
    for (const key of keys) {
      const kind = kindOf(key);
      const known = kinds.get(kind);
      if (known === undefined) kinds.set(kind, [key]);
      else known.push(key);
    }
  const calls = Math.max(...[...kinds.values()].map((keys) => keys.length));
  const shares: Share[] = [];
  for (const [of, keys] of kinds) {
    const sampled = keys.slice(-SAMPLED_KEYS);
    const sizes = await Promise.all(sampled.map((key) => redis.memory('USAGE', key, 'SAMPLES', 0)));
    const bytes = (sizes.reduce<number>((sum, size) => sum + Number(size), 0) * keys.length) / sampled.length / calls;
    shares.push({ of, bytes });
  }
  return greatestFirst(shares);
}

/** The newest part of the append-only file: it was begun before the calls were made. */
async function fileShares(redis: Redis, calls: number): Promise<readonly Share[]> {
  const [, folder = ''] = (await redis.config('GET', 'dir')) as string[];
  const parts = join(folder, 'appendonlydir');
  const newest = (await readdir(parts)).filter((name) => name.endsWith('.incr.aof')).toSorted(byNumber);
  const bytes = new Map<string, number>();
  for (const { command, key, size } of commandsIn(await readFile(join(parts, newest.at(-1) ?? '')))) {
    const of = `${command.toUpperCase()} ${kindOf(key)}`;
    bytes.set(of, (bytes.get(of) ?? 0) + size);
  }
  return greatestFirst([...bytes].map(([of, sum]) => ({ of, bytes: sum / calls })));
}

function byNumber(one: string, other: string): number {
  return one.localeCompare(other, 'en', { numeric: true });
}

interface Command {
  readonly command: string;
  readonly key: string;
  readonly size: number;
}

/** The commands of a file as Redis writes it: each a count, and as many texts behind their lengths. Lines with # are times. */
function* commandsIn(data: Buffer): Generator<Command, void, undefined> {
  let at = 0;
  const line = () => {
    const end = data.indexOf('\r\n', at);
    const text = data.toString('latin1', at, end);
    at = end + 2;
    return text;
  };
  while (at < data.length) {
    const from = at;
    const head = line();
    if (!head.startsWith('*')) continue;
    const texts: string[] = [];
    for (let part = 0; part < Number(head.slice(1)); part += 1) {
      const length = Number(line().slice(1));
      if (part < 2) texts.push(data.toString('latin1', at, at + length));
      at += length + 2;
    }
    yield { command: texts[0] ?? '', key: texts[1] ?? '', size: at - from };
  }
}

function greatestFirst(shares: readonly Share[]): readonly Share[] {
  return shares.filter(({ bytes }) => bytes >= 0.5).toSorted((one, other) => other.bytes - one.bytes);
}
