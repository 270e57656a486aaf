/**
 * The audit trail's writer in one process: it appends records to those that wait to be chained.
 *
 * The script that claims or ends a call also writes the call's records, so that they cost no command of their own (`Claim.record`,
 * `carry`). A record that finds no such script soon is sent by itself, together with all that came in the meantime.
 */
import { randomBytes } from 'node:crypto';
import { type AuditEvent, isHumanAction, mustBeWritten, type SubmittedCall } from '../../audit/audit-event.ts';
import { AuditFormatter } from '../../audit/audit-record.ts';
import type { Settings } from '../../config/config.ts';
import { PawlError } from '../../errors/failure.ts';
import type { Clock } from '../../util/time.ts';
import type { Redis } from '../redis/connection.ts';
import { AuditKeys } from '../redis/keys.ts';
import { shortNames } from './stored-records.ts';

const MAX_BATCH = 256;
/** The number of records that a process keeps while Redis cannot take them. Beyond it, the oldest batch is dropped and reported as lost. */
const MAX_WAITING = 20_000;
/** How long a record waits for a script that takes it along. */
const GATHER_MS = 5;
const AGAIN_MS = 250;
/** About this many batches wait when no worker and no API process runs that could chain them. */
export const MAX_UNSEALED = 100_000;
/** How long a closing process waits for its last records to be taken. */
const CLOSE_LIMIT_MS = 2_000;

export interface AuditWriterDeps {
  readonly redis: Redis;
  readonly prefix: string;
  readonly clock: Pick<Clock, 'now'>;
  /** `off` leaves out the calls of tools that only read, and their attempts. */
  readonly reads: Settings['audit']['reads'];
  /** Values that must never be written. */
  readonly secrets: readonly string[];
  readonly onLost: (records: number) => void;
}

/** Records that a script takes along. */
export interface Carried {
  /** One on each line. */
  readonly texts: string;
  /** To be said once; what was not written is sent again. */
  settled(written: boolean): void;
}

export class AuditWriter {
  readonly #deps: AuditWriterDeps;
  readonly #pending: string;
  readonly #texts: AuditFormatter;
  readonly #name = randomBytes(6).toString('base64url');
  #number = 0;
  #waiting: string[] = [];
  #sending = false;
  /** Batches that are being sent, by the writer itself or with a script. */
  readonly #inProgress = new Set<Promise<void>>();
  #lost = 0;
  /** Redis could not take the last ones. */
  #away = false;
  #closed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: AuditWriterDeps) {
    this.#deps = deps;
    this.#texts = new AuditFormatter(deps.secrets);
    this.#pending = new AuditKeys(deps.prefix).pending;
  }

  /**
   * Records an event. Returns a promise for an event that must be written before the call may go on, which rejects with
   * `AUDIT_UNAVAILABLE`, and for a person's decision.
   */
  record(event: AuditEvent): void | Promise<void> {
    if (this.#isLeftOut(event)) return undefined;
    const text = shortNames(this.#texts.format(event, this.#deps.clock.now(), this.#nextId()));
    if (mustBeWritten(event)) return this.#writeNow(text);
    this.add(text);
    return isHumanAction(event) ? this.written() : undefined;
  }

  #isLeftOut(event: AuditEvent | SubmittedCall): boolean {
    return this.#deps.reads === 'off' && 'tier' in event && event.tier === 'read-only';
  }

  /** The record of a submitted call, as far as it is known. Undefined when no record is written of it. */
  asked(call: SubmittedCall): string | undefined {
    if (this.#isLeftOut(call)) return undefined;
    return shortNames(this.#texts.startCall(call, this.#deps.clock.now(), this.#nextId()));
  }

  add(text: string): void {
    this.#waiting.push(text);
    if (this.#waiting.length > MAX_WAITING) {
      this.#lost += this.#waiting.splice(0, MAX_BATCH).length;
    }
    if (this.#closed) this.send();
    else this.#sendIn(GATHER_MS);
  }

  #nextId(): string {
    this.#number += 1;
    return `${this.#name}.${this.#number}`;
  }

  async #writeNow(text: string): Promise<void> {
    try {
      await this.#append([text]);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      throw new PawlError('AUDIT_UNAVAILABLE', `The audit record cannot be written: ${message}`, { cause: error });
    }
  }

  async #append(texts: readonly string[]): Promise<void> {
    await this.#deps.redis.xadd(this.#pending, 'MAXLEN', '~', MAX_UNSEALED, '*', 'records', texts.join('\n'));
  }

  /** Hands what waits to a script that is sent now. */
  carry(): Carried | undefined {
    if (this.#waiting.length === 0 || this.#away) return undefined;
    const batch = this.#take();
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#inProgress.add(promise);
    return {
      texts: batch.join('\n'),
      settled: (written) => {
        this.#inProgress.delete(promise);
        this.#settled(batch, written);
        resolve();
      },
    };
  }

  /** Sends what waits by itself, before whatever is sent next on this connection. */
  send(): void {
    if (this.#sending || this.#away || this.#waiting.length === 0) return;
    const batch = this.#take();
    this.#sending = true;
    const sent: Promise<void> = this.#append(batch)
      .then(
        () => true,
        () => false,
      )
      .then((written) => {
        this.#sending = false;
        this.#inProgress.delete(sent);
        this.#settled(batch, written);
        this.send();
      });
    this.#inProgress.add(sent);
  }

  #take(): string[] {
    const batch = this.#waiting.splice(0, MAX_BATCH);
    if (this.#waiting.length === 0) this.#stopTimer();
    return batch;
  }

  #settled(batch: readonly string[], written: boolean): void {
    if (written) {
      this.#tellLost();
      return;
    }
    const room = Math.max(0, MAX_WAITING - this.#waiting.length);
    this.#lost += Math.max(0, batch.length - room);
    this.#waiting.unshift(...batch.slice(batch.length - room));
    this.#away = true;
    this.#stopTimer();
    if (!this.#closed) this.#sendIn(AGAIN_MS);
  }

  #tellLost(): void {
    if (this.#lost === 0) return;
    const records = this.#lost;
    this.#lost = 0;
    this.#deps.onLost(records);
  }

  #sendIn(ms: number): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.#sendNow(), ms);
    this.#timer.unref();
  }

  #stopTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #sendNow(): void {
    this.#stopTimer();
    this.#away = false;
    this.send();
  }

  /** Resolves when all that was recorded until now is in Redis, or could not be written there for now. */
  async written(): Promise<void> {
    do {
      this.#sendNow();
      await Promise.all(this.#inProgress);
    } while (this.#waiting.length > 0 && !this.#away);
  }

  async close(): Promise<void> {
    this.#closed = true;
    let limit: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      limit = setTimeout(resolve, CLOSE_LIMIT_MS);
    });
    await Promise.race([this.written(), late]);
    clearTimeout(limit);
  }
}
