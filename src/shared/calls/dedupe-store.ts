/**
 * The dedupe store: one record for each idempotency key, claimed by one caller, finished once, kept for a while. A fleet keeps its
 * calls in the ledger; runs without a fleet keep theirs in one of these stores.
 *
 * - All times of a record are the store's own (`now`): Redis' clock where several machines share it.
 * - A record exists while `now <= expiresAtMs`. After that it does not, whether or not a sweep has removed it.
 * - `lockUntilMs` is a lease and frees nothing. An in-flight record past its lease belongs to a run that left no trace; a caller must
 *   decide what became of that run before it takes the record over with `compareAndSet`.
 * - Every write raises `version` by one.
 */
import { isNativeError } from 'node:util/types';
import { PawlError, reasonOf } from '../errors/failure.ts';
import { checkObject } from '../schema/known-members.ts';
import { orUndefined } from '../util/or-undefined.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { backgroundSchedule } from '../util/time.ts';
import { withinMs } from '../util/wait.ts';
import type { AttemptRecord, CallState } from './call-state.ts';
import { contractInvalid, MAX_KEY_BYTES } from './envelope.ts';

/** The record of a key. All of it is JSON-serializable. */
export interface DedupeRecord {
  readonly key: string;
  readonly tool: string;
  readonly idempotencyKey: string;
  readonly state: CallState;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly expiresAtMs: number;
  /** The span from the last change of state to `expiresAtMs`. */
  readonly ttlMs: number;
  readonly request: {
    readonly sessionKey: string;
    readonly actorId: string;
    readonly requestId: string;
    readonly toolCallId?: string;
    readonly paramsDigest: string;
  };
  readonly execution?: {
    /** The number of attempts that began. Where fewer are listed, the last one left no record. */
    readonly attemptCount: number;
    readonly attempts: readonly DedupeAttempt[];
  };
  readonly payload?: unknown;
  readonly error?: {
    readonly code: string;
    readonly message: string;
    readonly terminal: boolean;
    readonly shouldRetriable: boolean;
  };
  /** The end of the lease of the run in flight. */
  readonly lockUntilMs?: number;
  /** The number of writes, for optimistic concurrency. The store keeps it; a claim writes 1. */
  readonly version: number;
}

export interface DedupeAttempt
  extends Pick<AttemptRecord, 'startedAtMs' | 'finishedAtMs' | 'retriable' | 'errorCode' | 'inDoubt'> {
  readonly status: 'success' | 'error';
}

/** `lockMs` is a lease, which is renewed while the run lives. */
export const DEDUPE_DEFAULTS = {
  maxKeys: 25_000,
  doneMs: 24 * 3_600_000,
  failedMs: 5 * 60_000,
  lockMs: 2 * 60_000,
} as const;

export type DedupeClaim = { readonly created: true } | { readonly created: false; readonly existing: DedupeRecord };

export type DedupeSwap =
  | { readonly swapped: true; readonly version: number }
  | { readonly swapped: false; readonly existing: DedupeRecord | undefined };

export interface DedupeStoreOptions {
  /** Default: 25,000 in memory; as many as Redis takes. All processes that share a store must agree. */
  readonly maxKeys?: number;
  /** Called with a finished record that was evicted for a new one: submitted again, its call would run again. */
  readonly onEvicted?: (record: DedupeRecord) => void;
  /** Called when a claim was refused because all records are in flight. */
  readonly onBackpressure?: (pressure: { readonly size: number; readonly maxKeys: number }) => void;
}

/**
 * Every method rejects with `CONTRACT_INVALID` for a key that is empty, longer than 1 KiB or not well-formed Unicode, and with
 * `BACKEND_UNAVAILABLE` when the store cannot take the request now.
 */
export interface DedupeStore {
  /** Claims a key. Of any number of concurrent callers, one creates the record. */
  setIfNotExists(record: DedupeRecord): Promise<DedupeClaim>;
  get(key: string): Promise<DedupeRecord | undefined>;
  /** Replaces the record if it still has the version; otherwise returns the record that is there. */
  compareAndSet(key: string, expectedVersion: number, next: DedupeRecord): Promise<DedupeSwap>;
  /** Returns whether there was a record. */
  delete(key: string): Promise<boolean>;
  /** Removes expired records from memory. Returns their number. */
  sweep(): Promise<number>;
  /** The number of existing records. */
  size(): Promise<number>;
  /** The clock of the records' times, milliseconds since the epoch. */
  now(): Promise<number>;
}

/** A store of a program has this long for each answer. */
const STORE_ANSWER_MS = 5_000;

/**
 * A store of a program, whose answers may be anything: an odd answer, none, and a failure that is no error of Pawl, name the method. A
 * call waits for a store that fails, but not for one whose answers are wrong: `CONFIGURATION`.
 */
export function checkedStore(store: DedupeStore, answerMs = STORE_ANSWER_MS): DedupeStore {
  const check = async <T>(method: keyof DedupeStore, answer: () => Promise<T>, isValid: (answer: T) => boolean) => {
    const fault = (what: string) => `\`${method}\` of the dedupe store ${what}`;
    let value: { readonly answer: T } | undefined;
    try {
      value = await withinMs((async () => ({ answer: await answer() }))(), answerMs, backgroundSchedule);
    } catch (error) {
      // The thrown value may be a revoked proxy, on which `instanceof` throws.
      if (isNativeError(error) && error instanceof PawlError) throw error;
      throw new PawlError('BACKEND_UNAVAILABLE', fault(`failed: ${reasonOf(error)}`));
    }
    if (value === undefined) throw new PawlError('BACKEND_UNAVAILABLE', fault(`did not answer within ${answerMs} ms.`));
    // Reading the answer may throw: it may be null, or have a getter that throws.
    if (orUndefined(() => isValid(value.answer)) === true) return value.answer;
    throw new PawlError('CONFIGURATION', fault('answered what is no answer of its own.'));
  };
  return {
    setIfNotExists: (record) =>
      check(
        'setIfNotExists',
        () => store.setIfNotExists(record),
        (claim) => claim.created === true || (claim.created === false && isRecord(claim.existing)),
      ),
    get: (key) =>
      check(
        'get',
        () => store.get(key),
        (record) => record === undefined || isRecord(record),
      ),
    compareAndSet: (key, expectedVersion, next) =>
      check(
        'compareAndSet',
        () => store.compareAndSet(key, expectedVersion, next),
        (swap) =>
          swap.swapped === true
            ? Number.isSafeInteger(swap.version)
            : swap.swapped === false && (swap.existing === undefined || isRecord(swap.existing)),
      ),
    now: () => check('now', () => store.now(), Number.isFinite),
    delete: (key) => store.delete(key),
    sweep: () => store.sweep(),
    size: () => store.size(),
  };
}

function isRecord(value: DedupeRecord): boolean {
  return typeof value.state === 'string' && Number.isSafeInteger(value.version) && typeof value.request === 'object';
}

/** A record as stores keep it: as text, beside the fields that they read. */
export interface StoredRecord extends Pick<DedupeRecord, 'key' | 'state' | 'expiresAtMs' | 'version'> {
  readonly json: string;
}

/** Checks a record before it is stored; throws `CONTRACT_INVALID`. */
export function storedRecord(input: DedupeRecord, version: number, ofKey?: string): StoredRecord {
  checkObject('record', input);
  const key = ofKey ?? input.key;
  const record = { ...input, key, version };
  const { state, expiresAtMs } = record;
  checkKey(key);
  if (!Number.isSafeInteger(expiresAtMs))
    throw contractInvalid([
      { path: 'expiresAtMs', message: `must be whole milliseconds; got ${quoteValue(expiresAtMs)}` },
    ]);
  return { key, state, expiresAtMs, version, json: serialize(record) };
}

function serialize(record: DedupeRecord): string {
  try {
    return JSON.stringify(record);
  } catch (error) {
    const message = `is not JSON-serializable: ${reasonOf(error)}`;
    throw contractInvalid([{ path: 'record', message }]);
  }
}

export function checkKey(key: string): void {
  if (typeof key !== 'string')
    throw contractInvalid([{ path: 'key', message: `must be a text; got ${quoteValue(key)}` }]);
  // Keys without a UTF-8 form of their own would share one record.
  if (!key.isWellFormed()) throw contractInvalid([{ path: 'key', message: 'must be well-formed Unicode' }]);
  if (key === '') throw contractInvalid([{ path: 'key', message: 'must not be empty' }]);
  if (Buffer.byteLength(key) > MAX_KEY_BYTES)
    throw contractInvalid([{ path: 'key', message: `must be at most ${MAX_KEY_BYTES} bytes of UTF-8` }]);
}

export function checkVersion(version: number): void {
  if (typeof version !== 'number')
    throw contractInvalid([{ path: 'expectedVersion', message: `must be a number; got ${quoteValue(version)}` }]);
}

export function exists(record: Pick<DedupeRecord, 'expiresAtMs'>, nowMs: number): boolean {
  return nowMs <= record.expiresAtMs;
}

/** The error of a full store whose records are all in flight: it may forget none, so it can claim none. */
export function storeIsFull(size: number): PawlError {
  return new PawlError(
    'BACKEND_UNAVAILABLE',
    `The dedupe store is full: all of its ${size} records are in flight. Try again when calls have ended.`,
    { details: { size } },
  );
}
