/**
 * What the ledger's parts share: the connection, the keys of every place, the seals and the retention.
 */
import { PawlError } from '../failure.ts';
import { placeFor } from '../fingerprint.ts';
import type { Seals } from '../seals.ts';
import { FleetKeys, type Place, PlaceKeys } from './keys.ts';
import type { Redis } from './redis.ts';

/** What every part of the ledger works with. */
export class LedgerAccess {
  readonly redis: Redis;
  readonly fleet: FleetKeys;
  readonly seals: Seals;
  /** How long ended calls are kept in the indices. */
  readonly retentionMs: number;
  readonly #prefix: string;
  readonly #keys = new Map<string, PlaceKeys>();

  constructor(redis: Redis, prefix: string, retentionMs: number, seals: Seals) {
    this.redis = redis;
    this.#prefix = prefix;
    this.fleet = new FleetKeys(prefix);
    this.retentionMs = retentionMs;
    this.seals = seals;
  }

  keys(place: Place): PlaceKeys {
    const name = `${place.tier}.${place.shard}`;
    let keys = this.#keys.get(name);
    if (keys === undefined) {
      keys = new PlaceKeys(this.#prefix, place);
      this.#keys.set(name, keys);
    }
    return keys;
  }

  /** The keys of the place that a call ID names. Throws `UNKNOWN_CALL` for what is no call ID. */
  placed(callId: string): PlaceKeys {
    return this.keys(placeFor(callId));
  }

  /** An outcome that was too large for its record. Throws `UNKNOWN_CALL` when it has expired. */
  async largeOutcome(keys: PlaceKeys, callId: string): Promise<string> {
    const outcome = await this.redis.get(keys.outcome(callId));
    if (outcome === null) throw new PawlError('UNKNOWN_CALL', `The result of ${callId} has expired.`);
    return outcome;
  }

  /** Redis' clock, milliseconds. */
  async now(): Promise<number> {
    const [seconds, microseconds] = await this.redis.time();
    return Number(seconds) * 1_000 + Math.floor(Number(microseconds) / 1_000);
  }
}
