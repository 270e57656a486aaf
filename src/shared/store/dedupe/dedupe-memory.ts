/**
 * The dedupe store of one process. It is bounded: the least recently used finished records are evicted first, and records in flight never.
 * Records are kept as text, so that no caller can change one.
 */
import {
  checkKey,
  checkVersion,
  DEDUPE_DEFAULTS,
  type DedupeClaim,
  type DedupeRecord,
  type DedupeStore,
  type DedupeStoreOptions,
  type DedupeSwap,
  exists,
  type StoredRecord,
  storedRecord,
  storeIsFull,
} from '../../calls/dedupe-store.ts';
import { PawlError } from '../../errors/failure.ts';
import { checkObject } from '../../schema/known-members.ts';
import { type Clock, systemClock } from '../../util/time.ts';

export interface InMemoryDedupeOptions extends DedupeStoreOptions {
  readonly clock?: Pick<Clock, 'now'>;
}

/** A full store looks for expired records at most this often, unless it would have to refuse a claim. */
const SWEEP_AGAIN_MS = 1_000;

export class InMemoryDedupeStore implements DedupeStore {
  readonly #maxKeys: number;
  readonly #clock: Pick<Clock, 'now'>;
  readonly #onEvicted: NonNullable<InMemoryDedupeOptions['onEvicted']>;
  readonly #onBackpressure: NonNullable<InMemoryDedupeOptions['onBackpressure']>;
  readonly #inflight = new Map<string, StoredRecord>();
  /** The least recently used first. */
  readonly #finished = new Map<string, StoredRecord>();
  #sweptAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: InMemoryDedupeOptions = {}) {
    checkObject('options', options);
    this.#maxKeys = options.maxKeys ?? DEDUPE_DEFAULTS.maxKeys;
    if (!(this.#maxKeys >= 1))
      throw new PawlError('CONFIGURATION', `maxKeys must be a number of at least 1; got ${this.#maxKeys}.`);
    this.#clock = options.clock ?? systemClock;
    this.#onEvicted = options.onEvicted ?? (() => {});
    this.#onBackpressure = options.onBackpressure ?? (() => {});
  }

  async setIfNotExists(record: DedupeRecord): Promise<DedupeClaim> {
    const stored = storedRecord(record, 1);
    const existing = this.#use(record.key);
    if (existing !== undefined) return { created: false, existing: parse(existing) };
    this.#drop(record.key);
    this.#makeRoom();
    this.#put(stored);
    return { created: true };
  }

  async get(key: string): Promise<DedupeRecord | undefined> {
    checkKey(key);
    const stored = this.#use(key);
    return stored === undefined ? undefined : parse(stored);
  }

  async compareAndSet(key: string, expectedVersion: number, next: DedupeRecord): Promise<DedupeSwap> {
    checkVersion(expectedVersion);
    const stored = storedRecord(next, expectedVersion + 1, key);
    const existing = this.#use(key);
    if (existing?.version !== expectedVersion)
      return { swapped: false, existing: existing === undefined ? undefined : parse(existing) };
    this.#drop(key);
    this.#put(stored);
    return { swapped: true, version: expectedVersion + 1 };
  }

  async delete(key: string): Promise<boolean> {
    checkKey(key);
    const present = this.#use(key) !== undefined;
    this.#drop(key);
    return present;
  }

  async sweep(): Promise<number> {
    return this.#sweep();
  }

  #sweep(): number {
    const nowMs = this.#clock.now();
    this.#sweptAtMs = nowMs;
    const expired = [...this.#all()].filter((stored) => !exists(stored, nowMs));
    for (const { key } of expired) this.#drop(key);
    return expired.length;
  }

  async size(): Promise<number> {
    const nowMs = this.#clock.now();
    let size = 0;
    for (const stored of this.#all()) if (exists(stored, nowMs)) size += 1;
    return size;
  }

  async now(): Promise<number> {
    return this.#clock.now();
  }

  /** The record of a key, if it exists; a finished one is the most recently used from now on. */
  #use(key: string): StoredRecord | undefined {
    const stored = this.#inflight.get(key) ?? this.#finished.get(key);
    if (stored === undefined || !exists(stored, this.#clock.now())) return undefined;
    if (this.#finished.delete(key)) this.#finished.set(key, stored);
    return stored;
  }

  #put(stored: StoredRecord): void {
    const { key, state } = stored;
    (state === 'inflight' ? this.#inflight : this.#finished).set(key, stored);
  }

  #drop(key: string): void {
    this.#inflight.delete(key);
    this.#finished.delete(key);
  }

  /** Throws `BACKEND_UNAVAILABLE` when all that is held is in flight. */
  #makeRoom(): void {
    if (this.#held() < this.#maxKeys) return;
    const mayRefuse = this.#finished.size === 0;
    if (mayRefuse || this.#clock.now() - this.#sweptAtMs >= SWEEP_AGAIN_MS) this.#sweep();
    if (this.#held() < this.#maxKeys) return;
    const [oldest] = this.#finished.values();
    if (oldest === undefined) {
      this.#onBackpressure({ size: this.#held(), maxKeys: this.#maxKeys });
      throw storeIsFull(this.#held());
    }
    this.#drop(oldest.key);
    this.#onEvicted(parse(oldest));
  }

  /** Records that take room, expired ones included. */
  #held(): number {
    return this.#inflight.size + this.#finished.size;
  }

  *#all(): Generator<StoredRecord> {
    yield* this.#inflight.values();
    yield* this.#finished.values();
  }
}

function parse({ json }: StoredRecord): DedupeRecord {
  return JSON.parse(json) as DedupeRecord;
}
