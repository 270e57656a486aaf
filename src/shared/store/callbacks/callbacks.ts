/**
 * The callbacks of ended calls. The script that ends a call also stores its callback, in the same partition, so that none is lost. A sender
 * leases callbacks that are due.
 */
import type { CallbackAddress, CallbackTarget } from '../../callbacks/callback.ts';
import type { CallbackState } from '../../callbacks/callback-state.ts';
import { partitionFor } from '../../calls/call-id.ts';
import { PawlError } from '../../errors/failure.ts';
import type { Signatures } from '../../signing/signatures.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import { defined } from '../../util/json/omit-undefined.ts';
import { orUndefined } from '../../util/or-undefined.ts';
import { quoteValue } from '../../util/text/quote-value.ts';
import { broadcastChannel } from '../redis/broadcasts.ts';
import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import type { FleetKeys, Partition } from '../redis/keys.ts';
import { fieldsOf, luaConstants, luaFunction, Script } from '../redis/script.ts';

/** Callbacks are listed, and can be replayed, for this long after their call's end. */
const CALLBACK_TTL_MS = 3 * 24 * 3_600_000;
/** Callbacks that are sent to one host at the same time. */
const SLOTS_OF_HOST = 8;

const CONSTANTS = luaConstants({ CALLBACK_KEPT_MS: CALLBACK_TTL_MS, SLOTS_OF_HOST });
const HOST_LUA = [CONSTANTS, luaFunction(new URL('./schedule-host.lua', import.meta.url))];

/** For scripts that end calls. They also need the names of a partition's keys. */
export const CALLBACK_LUA: readonly string[] = [CONSTANTS, luaFunction(new URL('./add-callback.lua', import.meta.url))];

const takeScript = new Script(new URL('./take-callbacks.lua', import.meta.url), HOST_LUA, 'once');
const finishScript = new Script(new URL('./finish-callback.lua', import.meta.url), HOST_LUA, 'once');
const replayScript = new Script(new URL('./replay-callback.lua', import.meta.url), HOST_LUA);

interface SentCallback {
  readonly status?: number;
  readonly error?: string;
}

export interface CallbackRecord {
  readonly id: string;
  readonly callId: string;
  /** Undefined when its signature is wrong. */
  readonly target: CallbackTarget | undefined;
  readonly state: CallbackState;
  readonly callState: string;
  /** JSON; '' for an outcome that is too large. */
  readonly outcome: string;
  /** The reference to the parts of an outcome that is too large; '' for any other. */
  readonly parts: string;
  readonly signature: string;
  readonly settledAtMs: number;
  /** The start of the day during which it is retried. */
  readonly sinceMs: number;
  readonly attempts: number;
  readonly dueAtMs?: number;
  readonly last?: SentCallback;
  readonly lastAtMs?: number;
}

/** A callback that this sender holds. */
export interface LeasedCallback extends CallbackRecord {
  readonly token: string;
}

export interface CallbackEnd {
  readonly state: Exclude<CallbackState, 'pending'>;
  readonly delayMs?: number;
  readonly last: SentCallback;
  /** Whether the host accepted it; undefined when a failure is not the host's. */
  readonly answered?: boolean;
}

export interface TakenCallbacks {
  readonly callbacks: readonly LeasedCallback[];
  /** Until the next one is due; undefined when none waits. */
  readonly nextInMs?: number;
}

/** The callback as it is stored in a request: its signature, a line break and the target. */
export function signedCallback(
  { redis, fleet, signatures }: { readonly redis: Redis; readonly fleet: FleetKeys; readonly signatures: Signatures },
  callId: string,
  address: CallbackAddress,
): string {
  const target: CallbackTarget = { ...address, news: broadcastChannel(redis, fleet.prefix) };
  const text = JSON.stringify(target);
  return `${signatures.sign('callback', callId, text)}\n${text}`;
}

const ID = /^msg_([a-z]+\d+)_(.+)_(\d+)$/;
/** Callbacks that are read in one step. */
const CHUNK = 100;

export class CallbackRecords extends FleetRecords {
  async take(partition: Partition, token: string, leaseMs: number, maxCallbacks: number): Promise<TakenCallbacks> {
    const answer = await takeScript.run(this.redis, [this.#base(partition)], [token, leaseMs, maxCallbacks]);
    const [nextInMs, ...leased] = answer as [number, ...string[][]];
    return {
      callbacks: leased.map(([id = '', ...fields]) => ({ ...this.#record(id, fieldsOf(fields)), token })),
      ...(nextInMs < 0 ? {} : { nextInMs }),
    };
  }

  /** False when another sender has leased it meanwhile. */
  async finish({ id, token }: LeasedCallback, { state, delayMs = 0, last, answered }: CallbackEnd): Promise<boolean> {
    const blame = answered === undefined ? '' : answered ? '0' : '1';
    const args = [id, token, state, delayMs, JSON.stringify(last), blame];
    const [code] = await finishScript.run(this.redis, [this.#baseOf(id)], args);
    return code === 'written';
  }

  /** Sends a callback again. Throws `NOT_FOUND`. */
  async replay(id: string): Promise<void> {
    const [code] = await replayScript.run(this.redis, [this.#baseOf(id)], [id, this.channel]);
    if (code !== 'queued') throw unknownCallback(id);
  }

  /** Throws `NOT_FOUND`. */
  async read(id: string): Promise<CallbackRecord> {
    const fields = await this.redis.hgetall(`${this.#baseOf(id)}:callback:${id}`);
    if (fields['callId'] === undefined) throw unknownCallback(id);
    return this.#record(id, fields);
  }

  /** The callbacks of a partition, the newest first; those that fail have an index of their own. */
  async *list(partition: Partition, state?: CallbackState): AsyncGenerator<CallbackRecord> {
    const base = this.#base(partition);
    const isFailing = state === 'failing' || state === 'failed';
    const index = isFailing ? `${base}:callbacks:failing` : `${base}:callbacks`;
    for (let from = 0; ; from += CHUNK) {
      const ids = await this.redis.zrevrange(index, from, from + CHUNK - 1);
      const records = await Promise.all(ids.map((id) => this.redis.hgetall(`${base}:callback:${id}`)));
      for (const [position, fields] of records.entries()) {
        if (fields['callId'] === undefined || (state !== undefined && fields['state'] !== state)) continue;
        yield this.#record(ids[position] ?? '', fields);
      }
      if (ids.length < CHUNK) return;
    }
  }

  /** Counts the callbacks that failed, including those that are not retried. */
  async countFailing(partitions: readonly Partition[]): Promise<number> {
    const counts = await Promise.all(partitions.map((one) => this.redis.zcard(`${this.#base(one)}:callbacks:failing`)));
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** The secret of a fleet without signing keys and configured secrets. The first caller's secret is stored. */
  async ownSecret(newSecret: string): Promise<string> {
    const key = `${this.keys.prefix}:{fleet}:callback-secret`;
    await this.redis.set(key, newSecret, 'NX');
    return (await this.redis.get(key)) ?? newSecret;
  }

  #base(partition: Partition): string {
    return this.partitionKeys(partition).base;
  }

  /** Throws `NOT_FOUND` for a text that is no callback's ID. */
  #baseOf(id: string): string {
    const [, partitionName, rest] = ID.exec(id) ?? [];
    const partition = orUndefined(() => partitionFor(`${partitionName}.${rest}`));
    if (partitionName === undefined || partition === undefined) throw unknownCallback(id);
    return this.#base(partition);
  }

  #record(id: string, fields: Readonly<Record<string, string>>): CallbackRecord {
    const { callId = '', target: stored = '', callState = '', outcome = '', parts = '', signature = '' } = fields;
    const { state, settledAtMs, sinceMs, attempts = 0, dueAtMs, last, lastAtMs } = fields;
    const end = stored.indexOf('\n');
    const text = stored.slice(end + 1);
    const isSigned = this.signatures.verify('callback', callId, text, stored.slice(0, end));
    const target = parseJson(text);
    return {
      id,
      callId,
      target: isSigned && isObject(target) ? (target as unknown as CallbackTarget) : undefined,
      state: state as CallbackState,
      callState,
      outcome,
      parts,
      signature,
      settledAtMs: Number(settledAtMs),
      sinceMs: Number(sinceMs),
      attempts: Number(attempts),
      ...(dueAtMs !== undefined && { dueAtMs: Number(dueAtMs) }),
      ...(lastAtMs !== undefined && { lastAtMs: Number(lastAtMs) }),
      ...(last !== undefined && defined({ last: parseJson(last) as SentCallback | undefined })),
    };
  }
}

function unknownCallback(id: string): PawlError {
  return new PawlError('NOT_FOUND', `There is no callback ${quoteValue(id)}, or its record has expired.`);
}
