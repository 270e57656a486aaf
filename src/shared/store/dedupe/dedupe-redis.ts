/**
 * The dedupe store that several processes share. It uses one Lua script for each step, Redis' clock for all times, and Redis' own expiry:
 * an expired record is gone even if no process sweeps.
 */
import {
  checkKey,
  checkVersion,
  type DedupeClaim,
  type DedupeRecord,
  type DedupeStore,
  type DedupeStoreOptions,
  type DedupeSwap,
  storedRecord,
  storeIsFull,
} from '../../calls/dedupe-store.ts';
import { checkObject } from '../../schema/known-members.ts';
import { uuidv7 } from '../../util/time.ts';
import { type Redis, serverTimeMs } from '../redis/connection.ts';
import { DedupeKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

export interface RedisDedupeOptions extends DedupeStoreOptions {
  readonly redis: Redis;
  readonly prefix: string;
}

/** Each record has the token of its last writer: with `once`, each claim would leave a second key for a while. */
const putScript = new Script(new URL('./dedupe-put.lua', import.meta.url));
const getScript = new Script(new URL('./dedupe-get.lua', import.meta.url));
const dropScript = new Script(new URL('./dedupe-drop.lua', import.meta.url), [], 'once');
const sweepScript = new Script(new URL('./dedupe-sweep.lua', import.meta.url));

/** The number of records that one script sweeps at most, so that it does not hold up other clients. */
const BATCH = 500;

export class RedisDedupeStore implements DedupeStore {
  readonly #redis: Redis;
  readonly #keys: DedupeKeys;
  readonly #maxKeys: number;
  readonly #options: RedisDedupeOptions;

  constructor(options: RedisDedupeOptions) {
    checkObject('options', options);
    this.#options = options;
    this.#redis = options.redis;
    this.#keys = new DedupeKeys(options.prefix);
    this.#maxKeys = options.maxKeys ?? 0;
  }

  async setIfNotExists(record: DedupeRecord): Promise<DedupeClaim> {
    for (;;) {
      const [code, found] = await this.#put(record, 0);
      if (code === 'put') return { created: true };
      if (code === 'other') return { created: false, existing: parse(found) };
      if (found === null) {
        const size = await this.size();
        this.#options.onBackpressure?.({ size, maxKeys: this.#maxKeys });
        throw storeIsFull(size);
      }
      const evicted = await this.#drop(found, 'finished');
      if (evicted !== undefined) this.#options.onEvicted?.(evicted);
    }
  }

  async get(key: string): Promise<DedupeRecord | undefined> {
    checkKey(key);
    const keys = [this.#keys.record(key), this.#keys.finished];
    const [found] = await getScript.run(this.#redis, keys, [key, this.#maxKeys > 0 ? '1' : '0']);
    return typeof found === 'string' ? parse(found) : undefined;
  }

  async compareAndSet(key: string, expectedVersion: number, next: DedupeRecord): Promise<DedupeSwap> {
    checkVersion(expectedVersion);
    // Version 0 stands for a key without a record, and no record has it.
    if (!(expectedVersion >= 1)) return { swapped: false, existing: await this.get(key) };
    const [code, found] = await this.#put(next, expectedVersion, key);
    if (code === 'put') return { swapped: true, version: expectedVersion + 1 };
    return { swapped: false, existing: found === null ? undefined : parse(found) };
  }

  async delete(key: string): Promise<boolean> {
    checkKey(key);
    return (await this.#drop(key, 'any')) !== undefined;
  }

  async sweep(): Promise<number> {
    let swept = 0;
    for (;;) {
      const [count] = await sweepScript.run(this.#redis, [this.#keys.all, this.#keys.finished], [BATCH]);
      swept += Number(count);
      if (Number(count) < BATCH) return swept;
    }
  }

  async size(): Promise<number> {
    return this.#redis.zcount(this.#keys.all, await this.now(), '+inf');
  }

  now(): Promise<number> {
    return serverTimeMs(this.#redis);
  }

  async #put(
    record: DedupeRecord,
    expectedVersion: number,
    key = record.key,
  ): Promise<readonly ['put' | 'other' | 'full', string | null]> {
    const { state, expiresAtMs, json } = storedRecord(record, expectedVersion + 1, key);
    const { all, finished } = this.#keys;
    const [code, found] = await putScript.run(
      this.#redis,
      [this.#keys.record(key), all, finished],
      [key, expectedVersion, json, state, expiresAtMs, this.#maxKeys, uuidv7()],
    );
    return [code as 'put' | 'other' | 'full', typeof found === 'string' ? found : null];
  }

  async #drop(key: string, state: 'finished' | 'any'): Promise<DedupeRecord | undefined> {
    const keys = [this.#keys.record(key), this.#keys.all, this.#keys.finished];
    const [dropped] = await dropScript.run(this.#redis, keys, [key, state === 'finished' ? '1' : '0']);
    return typeof dropped === 'string' ? parse(dropped) : undefined;
  }
}

function parse(json: string | null): DedupeRecord {
  return JSON.parse(json ?? 'null') as DedupeRecord;
}
