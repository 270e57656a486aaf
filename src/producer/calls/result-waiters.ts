/**
 * Who waits for which call. An event is only a wake-up: whoever waits also reads the record after a gap and now and then,
 * so that no answer depends on an event alone.
 */

import type { Outcome } from '../../shared/calls/outcome.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { InboxEvent, SettledEvent } from '../../shared/store/queues/result-inbox.ts';

export type ProgressEvent = Exclude<InboxEvent, SettledEvent>;

interface Waiter {
  settle: (outcome: Outcome) => void;
  abandon: (error: PawlError) => void;
  progress: ((event: ProgressEvent) => void) | undefined;
  /** Redis has acknowledged the call: there must be a record of it. */
  claimed: boolean;
  readonly sinceMs: number;
  checkedMs: number;
}

export interface Waiting {
  readonly outcome: Promise<Outcome>;
  stop(): void;
  claimed(): void;
}

interface FinishedCall {
  readonly callId: string;
  /** What was told of it, if anything. */
  readonly event: SettledEvent | undefined;
}

/** Calls that settled before somebody waited: a merged call's ID is known only from the claim's answer. */
const MAX_EARLY = 5_000;
/** Calls whose end is remembered, at least. */
const MAX_ENDED = 10_000;
/** Of large outcomes: whoever has the first waits for the last. */
const FETCHED_TOGETHER = 8;
const CHECK_INTERVAL_MS = 15_000;
/** Looked up in one interval. With more calls waiting than that, each has its turn the more seldom. */
const CHECKED_AT_MOST = 2_000;

/**
 * Cuts a waiter off from its call. A map that lives long keeps what was deleted from it in dead tables of V8's old space, where
 * only a full collection looks: whatever a waiter still held would be copied by every collection until then.
 */
function release(waiter: Waiter): void {
  waiter.settle = ignore;
  waiter.abandon = ignore;
  waiter.progress = undefined;
}

function ignore(): void {}

/** Who came later to a call that others wait for makes it no younger. */
function lastChecked(waiters: ReadonlySet<Waiter>): number {
  const [first] = waiters;
  return first?.checkedMs ?? Number.NEGATIVE_INFINITY;
}

function forgotten(callId: string): PawlError {
  return new PawlError('BACKEND_UNAVAILABLE', `Redis has lost call ${callId}: ask again with the same key.`);
}

export class Results {
  readonly #ledger: CallLedger;
  readonly #inboxId: string;
  readonly #onError: (error: Error) => void;
  readonly #waiters = new Map<string, Set<Waiter>>();
  readonly #early = new Set<string>();
  /** Calls that ended, the latest and those before: what is asked for again is most likely among them. */
  #ended = new Set<string>();
  #endedBefore: ReadonlySet<string> = new Set();
  readonly #toFetch: FinishedCall[] = [];
  readonly #timer: NodeJS.Timeout;
  #closed: PawlError | undefined;
  /** How often all calls were asked for since looking at them began. */
  #checks = 0;

  constructor(ledger: CallLedger, inboxId: string, onError: (error: Error) => void) {
    this.#ledger = ledger;
    this.#inboxId = inboxId;
    this.#onError = onError;
    this.#timer = setInterval(() => this.check(CHECK_INTERVAL_MS, CHECKED_AT_MOST), CHECK_INTERVAL_MS);
    this.#timer.unref();
  }

  /**
   * Waits for a call's outcome; `stop` ends the waiting without an answer. Who knows the call's ID only from a claim's answer
   * waits with `sinceClaim`: the call may have settled in between. All others must not be told of an end that was before, and say
   * that it is `claimed` when they have the answer.
   */
  wait(callId: string, onProgress?: (event: ProgressEvent) => void, sinceClaim = false): Waiting {
    let waiter: Waiter | undefined;
    const outcome = new Promise<Outcome>((settle, abandon) => {
      if (this.#closed !== undefined) return abandon(this.#closed);
      const sinceMs = performance.now();
      waiter = { settle, abandon, progress: onProgress, claimed: sinceClaim, sinceMs, checkedMs: sinceMs };
      const waiters = this.#waiters.get(callId);
      if (waiters === undefined) this.#waiters.set(callId, new Set([waiter]));
      else waiters.add(waiter);
    });
    // Nobody may be waiting any more when the client is closed.
    outcome.catch(() => {});
    if (this.#early.delete(callId) && sinceClaim) this.#fetch(callId);
    return {
      outcome,
      stop: () => waiter !== undefined && this.#forget(callId, waiter),
      claimed: () => {
        if (waiter !== undefined) waiter.claimed = true;
      },
    };
  }

  #forget(callId: string, waiter: Waiter): void {
    const waiters = this.#waiters.get(callId);
    waiters?.delete(waiter);
    release(waiter);
    if (waiters?.size === 0) this.#waiters.delete(callId);
  }

  deliver(event: InboxEvent): void {
    const waiters = this.#waiters.get(event.callId);
    if (event.type !== 'settled') {
      if (waiters !== undefined) for (const waiter of waiters) waiter.progress?.(event);
      return;
    }
    this.markFinished(event.callId);
    if (waiters === undefined) {
      this.#early.add(event.callId);
      const [oldest] = this.#early;
      if (this.#early.size > MAX_EARLY && oldest !== undefined) this.#early.delete(oldest);
      return;
    }
    if (event.outcome === undefined) this.#fetch(event.callId, event);
    else this.#settle(event.callId, event.outcome as Outcome);
  }

  #settle(callId: string, outcome: Outcome): void {
    const waiters = this.#waiters.get(callId);
    this.#waiters.delete(callId);
    if (waiters === undefined) return;
    let isFirst = true;
    for (const waiter of waiters) {
      // What one caller makes of its result is not the others' result.
      waiter.settle(isFirst ? outcome : structuredClone(outcome));
      release(waiter);
      isFirst = false;
    }
  }

  /** Whether this process has been told of a call's end, as far as it remembers. The record may be gone since, or run anew. */
  hasFinished(callId: string): boolean {
    return this.#ended.has(callId) || this.#endedBefore.has(callId);
  }

  markFinished(callId: string): void {
    this.#ended.add(callId);
    if (this.#ended.size < MAX_ENDED) return;
    this.#endedBefore = this.#ended;
    this.#ended = new Set();
  }

  #abandon(callId: string, error: PawlError): void {
    const waiters = this.#waiters.get(callId);
    this.#waiters.delete(callId);
    for (const waiter of waiters ?? []) waiter.abandon(error);
  }

  /** A result whose record is there, and it is not, will not come; all else is read again. */
  #unread(callId: string, error: Error): void {
    this.#onError(error);
    if (error instanceof PawlError && error.code === 'UNKNOWN_CALL') this.#abandon(callId, error);
  }

  /** Those that are told of together are answered together: what their callers do next goes to Redis as one step, too. */
  #fetch(callId: string, event?: SettledEvent): void {
    this.#toFetch.push({ callId, event });
    if (this.#toFetch.length === 1) process.nextTick(() => this.#fetchAll());
  }

  #fetchAll(): void {
    while (this.#toFetch.length > 0) {
      const together = this.#toFetch.splice(0, FETCHED_TOGETHER);
      const outcomes = together.map(({ callId, event }) => this.#ledger.outcome(callId, event));
      void Promise.allSettled(outcomes).then((fetched) => {
        fetched.forEach((answer, index) => {
          const callId = together[index]?.callId as string;
          if (answer.status === 'rejected') this.#unread(callId, answer.reason as Error);
          else if (answer.value !== undefined) this.#settle(callId, answer.value);
        });
      });
    }
  }

  /** Looks at all calls: what they ended with may not have been heard. Asked for meanwhile, it begins once more. */
  async checkAll(): Promise<void> {
    this.#checks += 1;
    if (this.#checks > 1) return;
    for (let begun = 0; begun < this.#checks && this.#closed === undefined; ) {
      begun = this.#checks;
      const all = [...this.#waiters.keys()];
      // After a failover new calls want to be handed in, too.
      for (let first = 0; first < all.length; first += CHECKED_AT_MOST)
        await Promise.all(all.slice(first, first + CHECKED_AT_MOST).map((callId) => this.#look(callId)));
    }
    this.#checks = 0;
  }

  /** Reads the records of calls that nobody has looked at for `olderThanMs`, the longest first, and asks to be told again. */
  check(olderThanMs: number, most = Number.POSITIVE_INFINITY): void {
    const now = performance.now();
    const due: string[] = [];
    // Whoever was looked at stands behind all others.
    for (const [callId, waiters] of this.#waiters) {
      if (due.length >= most || now - lastChecked(waiters) < olderThanMs) break;
      due.push(callId);
    }
    for (const callId of due) void this.#look(callId);
  }

  async #look(callId: string): Promise<void> {
    const now = performance.now();
    const waiters = this.#waiters.get(callId);
    if (waiters === undefined) return;
    this.#waiters.delete(callId);
    this.#waiters.set(callId, waiters);
    for (const waiter of waiters) waiter.checkedMs = now;
    const oldest = Math.min(...[...waiters].map((waiter) => waiter.sinceMs));
    const claimed = [...waiters].some((waiter) => waiter.claimed);
    await this.#ledger.read(callId, this.#inboxId).then(
      (record) => {
        if (record?.outcome !== undefined && record.state !== 'inflight') this.#settle(callId, record.outcome);
        // What Redis acknowledged has a record, or was forgotten; for all else, it is given some time.
        else if (record === undefined && (claimed || now - oldest >= CHECK_INTERVAL_MS))
          this.#abandon(callId, forgotten(callId));
      },
      (error: Error) => this.#unread(callId, error),
    );
  }

  /** How many calls are waited for. */
  get size(): number {
    return this.#waiters.size;
  }

  /** Ends all waiting with `BACKEND_UNAVAILABLE`; the calls themselves go on. */
  close(): void {
    clearInterval(this.#timer);
    const closed = new PawlError('BACKEND_UNAVAILABLE', 'The client was closed while it waited; the call goes on.');
    this.#closed = closed;
    for (const waiters of this.#waiters.values()) for (const waiter of waiters) waiter.abandon(closed);
    this.#waiters.clear();
    this.#early.clear();
  }
}
