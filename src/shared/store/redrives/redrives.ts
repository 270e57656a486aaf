/**
 * Redrives: jobs that run many dead letters again at a rate. A redrive names its calls when it begins. Any process may carry it on: one
 * at a time, which holds a lease, and whose fence is checked before progress is written.
 */
import type { Signatures } from '../../signing/signatures.ts';
import { isObject, parseJson } from '../../util/json/json-types.ts';
import type { DeadLetterFilter } from '../dead-letters/dead-letter-index.ts';
import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

const callsScript = new Script(new URL('./redrive-calls.lua', import.meta.url));
const beginScript = new Script(new URL('./redrive-begin.lua', import.meta.url));
const takeScript = new Script(new URL('./redrive-take.lua', import.meta.url), [], 'once');
const advanceScript = new Script(new URL('./redrive-advance.lua', import.meta.url));
const stopScript = new Script(new URL('./redrive-stop.lua', import.meta.url));

/** A redrive can be read for this long. */
const KEPT_MS = 7 * 24 * 3_600_000;
/** Calls that are written before their redrive has begun. */
const UNBEGUN_MS = 600_000;
const PUSH_BATCH = 100;

export interface RedrivenCall {
  readonly callId: string;
  /** When it failed; 0 for a call that was no dead letter. Another time tells that it has failed again since. */
  readonly failedAtMs: number;
}

export interface SkippedCall {
  readonly callId: string;
  readonly code: string;
}

/** The order of an operator. It is signed: any writer to Redis could make an operator of itself. */
export interface RedriveOrder {
  readonly by: string;
  /** The tenant of the operator, who sees nothing of the others. */
  readonly tenantId?: string | undefined;
  readonly reason?: string | undefined;
  /** Absent where calls were named. */
  readonly filter?: DeadLetterFilter | undefined;
  readonly perSecond: number;
  readonly matched: number;
}

type RedriveState = 'running' | 'done' | 'stopped';

export interface RedriveRecord extends RedriveOrder {
  readonly redriveId: string;
  readonly state: RedriveState;
  readonly started: number;
  readonly skipped: number;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

export interface HeldRedrive {
  readonly redriveId: string;
  readonly fence: number;
  readonly position: number;
}

export interface BatchResult {
  readonly started: number;
  readonly skipped: readonly SkippedCall[];
}

export class Redrives extends FleetRecords {
  readonly leaseMs: number;
  /** One hash tag: a step writes a redrive and the indexes together. */
  readonly #base = `${this.keys.prefix}:{redrives}`;
  readonly #all = `${this.#base}:all`;
  readonly #running = `${this.#base}:running`;

  constructor(redis: Redis, prefix: string, signatures: Signatures, leaseMs: number) {
    super(redis, prefix, signatures);
    this.leaseMs = leaseMs;
  }

  async begin(redriveId: string, order: RedriveOrder, batches: readonly (readonly RedrivenCall[])[]): Promise<void> {
    const calls = this.#calls(redriveId);
    const texts = batches.map((batch, position) =>
      signedText(this.signatures, 'redrive-calls', [redriveId, `${position}`], { batch }),
    );
    for (let start = 0; start < texts.length; start += PUSH_BATCH)
      await callsScript.run(this.redis, [calls], [start, UNBEGUN_MS, ...texts.slice(start, start + PUSH_BATCH)]);
    const signed = signedText(this.signatures, 'redrive', redriveId, order);
    const [code] = await beginScript.run(
      this.redis,
      [this.#record(redriveId), calls, this.#running, this.#all],
      [redriveId, signed, batches.length, KEPT_MS],
    );
    if (code !== 'begun') throw new Error(`the calls of redrive ${redriveId} are not as they were written`);
  }

  /** Undefined when there is none, or when no key of this fleet signed it. */
  async read(redriveId: string): Promise<RedriveRecord | undefined> {
    const fields = await this.redis.hgetall(this.#record(redriveId));
    const order = verifiedText<RedriveOrder>(this.signatures, 'redrive', redriveId, fields['order'] ?? '');
    if (order === undefined) return undefined;
    return {
      ...order,
      redriveId,
      state: fields['state'] as RedriveState,
      started: Number(fields['started']),
      skipped: Number(fields['skipped']),
      createdAtMs: Number(fields['createdAtMs']),
      updatedAtMs: Number(fields['updatedAtMs']),
    };
  }

  /** IDs, the newest first. */
  list(limit: number): Promise<string[]> {
    return this.redis.zrevrange(this.#all, 0, limit - 1);
  }

  /** IDs of those that run, the oldest first. */
  running(): Promise<string[]> {
    return this.redis.zrangebyscore(this.#running, '-inf', '+inf');
  }

  async skipped(redriveId: string, limit: number): Promise<SkippedCall[]> {
    const texts = await this.redis.lrange(this.#skipped(redriveId), 0, limit - 1);
    return texts.map(parseJson).filter(isObject) as unknown as SkippedCall[];
  }

  /** Takes a redrive that no other process holds; the milliseconds until another one's lease ends; undefined when it has ended. */
  async take(redriveId: string): Promise<HeldRedrive | { readonly heldMs: number } | undefined> {
    const [code, , first, position] = await takeScript.run(this.redis, [this.#record(redriveId)], [this.leaseMs]);
    if (code === 'held') return { heldMs: Number(first) };
    return code === 'taken' ? { redriveId, fence: Number(first), position: Number(position) } : undefined;
  }

  /** The calls of a batch; undefined when there are none, or when no key of this fleet signed them. */
  async batch({ redriveId, position }: HeldRedrive): Promise<readonly RedrivenCall[] | undefined> {
    const text = await this.redis.lindex(this.#calls(redriveId), position);
    const id = [redriveId, `${position}`];
    return verifiedText<{ readonly batch: RedrivenCall[] }>(this.signatures, 'redrive-calls', id, text ?? '')?.batch;
  }

  /** Writes what became of a batch; its lease begins again. */
  async advance(held: HeldRedrive, { started, skipped }: BatchResult): Promise<RedriveState | 'fenced'> {
    const { redriveId, fence, position } = held;
    const [code] = await advanceScript.run(
      this.redis,
      [this.#record(redriveId), this.#calls(redriveId), this.#running, this.#skipped(redriveId)],
      [redriveId, fence, position, started, this.leaseMs, KEPT_MS, ...skipped.map((call) => JSON.stringify(call))],
    );
    return code as RedriveState | 'fenced';
  }

  /** Undefined when there is none. */
  async stop(redriveId: string): Promise<RedriveState | undefined> {
    const [state] = await stopScript.run(this.redis, [this.#record(redriveId), this.#running], [redriveId]);
    return state === '' ? undefined : (state as RedriveState);
  }

  #record(redriveId: string): string {
    return `${this.#base}:redrive:${redriveId}`;
  }

  #calls(redriveId: string): string {
    return `${this.#record(redriveId)}:calls`;
  }

  #skipped(redriveId: string): string {
    return `${this.#record(redriveId)}:skipped`;
  }
}
