/**
 * The audit trail's writer in one process: it appends records to those that wait to be chained.
 *
 * The script that claims or ends a call also writes the call's records, so that they cost no command of their own (`Claim.auditRecord`,
 * `takeBatch`). If no such script runs soon, the waiting records are sent in a command of their own.
 */
import { randomBytes } from 'node:crypto';
import { type AuditEvent, isHumanAction, mustBeWritten, type SubmittedCall } from '../../audit/audit-event.ts';
import { AuditFormatter } from '../../audit/audit-record.ts';
import type { Settings } from '../../config/config.ts';
import { PawlError, reasonOf } from '../../errors/failure.ts';
import type { Clock } from '../../util/time.ts';
import { withinMs } from '../../util/wait.ts';
import type { Redis } from '../redis/connection.ts';
import { AuditKeys } from '../redis/keys.ts';

const MAX_BATCH = 256;
/** The number of records that a process keeps while Redis cannot take them. Beyond it, the oldest batch is dropped and reported as lost. */
const MAX_WAITING = 20_000;
/** How long a record waits for a script that writes it. */
const BATCH_DELAY_MS = 5;
const RETRY_MS = 250;
/** The limit of waiting batches in Redis, reached when no worker and no API process chains them. */
export const MAX_UNSEALED = 100_000;
/** How long a closing process waits for the write of its last records. */
const CLOSE_LIMIT_MS = 2_000;

interface AuditWriterDeps {
  readonly redis: Redis;
  readonly prefix: string;
  readonly clock: Pick<Clock, 'now'>;
  /** `off` leaves out the calls of tools that only read, and their attempts. */
  readonly reads: Settings['audit']['reads'];
  /** Values that must never be written. */
  readonly secrets: readonly string[];
  readonly onLost: (records: number) => void;
}

interface RecordBatch {
  /** One on each line. */
  readonly texts: string;
  /** Must be called once. Records that were not written are sent again. */
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
  /** The last write failed. */
  #isUnavailable = false;
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
    if (this.#isOmitted(event)) return undefined;
    const text = this.#texts.format(event, this.#deps.clock.now(), this.#nextId());
    if (mustBeWritten(event)) return this.#writeNow(text);
    this.add(text);
    return isHumanAction(event) ? this.written() : undefined;
  }

  #isOmitted(event: AuditEvent | SubmittedCall): boolean {
    return this.#deps.reads === 'off' && 'tier' in event && event.tier === 'read-only';
  }

  /** Formats the record of a submitted call. Undefined when it is not to be recorded. */
  formatSubmitted(call: SubmittedCall): string | undefined {
    if (this.#isOmitted(call)) return undefined;
    return this.#texts.startCall(call, this.#deps.clock.now(), this.#nextId());
  }

  add(text: string): void {
    this.#waiting.push(text);
    if (this.#waiting.length > MAX_WAITING) {
      this.#lost += this.#waiting.splice(0, MAX_BATCH).length;
    }
    if (this.#closed) this.send();
    else this.#sendIn(BATCH_DELAY_MS);
  }

  #nextId(): string {
    this.#number += 1;
    return `${this.#name}.${this.#number}`;
  }

  async #writeNow(text: string): Promise<void> {
    try {
      await this.#append([text]);
    } catch (error) {
      const message = `The audit record cannot be written: ${reasonOf(error)}`;
      throw new PawlError('AUDIT_UNAVAILABLE', message, { cause: error });
    }
  }

  async #append(texts: readonly string[]): Promise<void> {
    await this.#deps.redis.xadd(this.#pending, 'MAXLEN', '~', MAX_UNSEALED, '*', 'records', texts.join('\n'));
  }

  /** Takes the waiting records for a script that is sent now. */
  takeBatch(): RecordBatch | undefined {
    if (this.#waiting.length === 0 || this.#isUnavailable) return undefined;
    const batch = this.#takeWaiting();
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

  /** Sends the waiting records, before the next command on this connection. */
  send(): void {
    if (this.#sending || this.#isUnavailable || this.#waiting.length === 0) return;
    const batch = this.#takeWaiting();
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

  #takeWaiting(): string[] {
    const batch = this.#waiting.splice(0, MAX_BATCH);
    if (this.#waiting.length === 0) this.#stopTimer();
    return batch;
  }

  #settled(batch: readonly string[], written: boolean): void {
    if (written) {
      this.#reportLost();
      return;
    }
    const capacity = Math.max(0, MAX_WAITING - this.#waiting.length);
    this.#lost += Math.max(0, batch.length - capacity);
    this.#waiting.unshift(...batch.slice(batch.length - capacity));
    this.#isUnavailable = true;
    this.#stopTimer();
    if (!this.#closed) this.#sendIn(RETRY_MS);
  }

  #reportLost(): void {
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
    this.#isUnavailable = false;
    this.send();
  }

  /** Resolves when all records until now are in Redis, or a write has failed. */
  async written(): Promise<void> {
    do {
      this.#sendNow();
      await Promise.all(this.#inProgress);
    } while (this.#waiting.length > 0 && !this.#isUnavailable);
  }

  async close(): Promise<void> {
    this.#closed = true;
    await withinMs(this.written(), CLOSE_LIMIT_MS);
  }
}
