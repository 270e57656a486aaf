/**
 * The callers that wait for results. An event delivers a result early. Waiters also read the record after a gap in the events and
 * periodically, so no result depends on an event.
 */
import { decodeOutcome, type Outcome } from '../../shared/calls/outcome.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { ClaimAnswer } from '../../shared/store/calls/claim/claim.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { InboxEvent, SettledEvent } from '../../shared/store/queues/result-inbox.ts';

export type ProgressEvent = Exclude<InboxEvent, SettledEvent>;

interface Waiter {
  settle: (outcome: Outcome) => void;
  abandon: (error: PawlError) => void;
  progress: ((event: ProgressEvent) => void) | undefined;
  /** Redis has acknowledged the call, so a record of it must exist. */
  claimed: boolean;
  /** The claim of the waiter's call, until it is answered. */
  claim: ClaimUnderWay | undefined;
  readonly sinceMs: number;
  checkedMs: number;
}

export interface ResultWait {
  readonly outcome: Promise<Outcome>;
  stop(): void;
  claiming(claim: ClaimUnderWay): void;
  claimed(): void;
}

/** A claim that is on its way to Redis. */
export interface ClaimUnderWay {
  readonly paramsDigest: string;
  /** Undefined when the claim failed. */
  readonly answer: Promise<ClaimAnswer | undefined>;
}

interface WaitOptions {
  /** The call was claimed before the waiting began. */
  readonly sinceClaim?: boolean;
  /** The delay of the call's start. Its record is not read before. */
  readonly startsAfterMs?: number | undefined;
}

/** A call that has ended, whose outcome is to be read. */
interface OutcomeToFetch {
  readonly callId: string;
  /** The event that reported the end, if there was one. */
  readonly event: SettledEvent | undefined;
}

/** At least this many finished calls are remembered. */
const MAX_FINISHED = 10_000;
/** Large outcomes are fetched in groups of this size: the first of a group waits for the last. */
const FETCH_BATCH = 8;
const CHECK_INTERVAL_MS = 15_000;
/** At most this many calls are checked in one interval. With more waiting calls, each is checked less often. */
const MAX_CHECKED = 2_000;

/**
 * Drops a waiter's references to its call. A long-lived map keeps deleted entries in dead tables of V8's old space, which only a full
 * collection frees. Until then, every collection would copy whatever the waiter still references.
 */
function release(waiter: Waiter): void {
  waiter.settle = ignore;
  waiter.abandon = ignore;
  waiter.progress = undefined;
  waiter.claim = undefined;
}

function ignore(): void {}

/** The time of the call's last check. A waiter that joins later does not delay it. */
function lastChecked(waiters: ReadonlySet<Waiter>): number {
  const [first] = waiters;
  return first?.checkedMs ?? Number.NEGATIVE_INFINITY;
}

function lostCall(callId: string): PawlError {
  return new PawlError('BACKEND_UNAVAILABLE', `Redis has lost call ${callId}: ask again with the same key.`);
}

export class ResultWaiters {
  readonly #ledger: CallLedger;
  readonly #inboxId: string;
  readonly #onError: (error: Error) => void;
  readonly #waiters = new Map<string, Set<Waiter>>();
  /** The IDs of recently finished calls, in two generations: a repeated call is most likely among them. */
  #finished = new Set<string>();
  #previouslyFinished: ReadonlySet<string> = new Set();
  readonly #toFetch: OutcomeToFetch[] = [];
  readonly #timer: NodeJS.Timeout;
  #closed: PawlError | undefined;
  /** How many times a check of all calls was requested since the running one began. */
  #checks = 0;

  constructor(ledger: CallLedger, inboxId: string, onError: (error: Error) => void) {
    this.#ledger = ledger;
    this.#inboxId = inboxId;
    this.#onError = onError;
    this.#timer = setInterval(() => this.check(CHECK_INTERVAL_MS, MAX_CHECKED), CHECK_INTERVAL_MS).unref();
  }

  /**
   * Waits for a call's outcome; `stop` ends the waiting without a result. A caller that learns the ID only from a claim's answer waits with
   * `sinceClaim`: the call may have settled in between. Other callers must not receive an older outcome, and mark the waiter `claimed` when
   * they have the answer.
   */
  wait(
    callId: string,
    onProgress?: (event: ProgressEvent) => void,
    { sinceClaim = false, startsAfterMs = 0 }: WaitOptions = {},
  ): ResultWait {
    let waiter: Waiter | undefined;
    const outcome = new Promise<Outcome>((settle, abandon) => {
      if (this.#closed !== undefined) return abandon(this.#closed);
      const sinceMs = performance.now();
      const checkedMs = sinceMs + startsAfterMs;
      waiter = { settle, abandon, progress: onProgress, claimed: sinceClaim, claim: undefined, sinceMs, checkedMs };
      const waiters = this.#waiters.get(callId);
      if (waiters === undefined) this.#waiters.set(callId, new Set([waiter]));
      else waiters.add(waiter);
    });
    // The outcome may have no caller when the client is closed.
    outcome.catch(() => {});
    // The event of a merged call may come before the claim's answer, and go to the first caller alone.
    if (sinceClaim && this.hasFinished(callId)) this.#fetch(callId);
    return {
      outcome,
      stop: () => waiter !== undefined && this.#forget(callId, waiter),
      claiming: (claim) => {
        if (waiter !== undefined) waiter.claim = claim;
      },
      claimed: () => {
        if (waiter === undefined) return;
        waiter.claimed = true;
        waiter.claim = undefined;
      },
    };
  }

  /** The claim of the call that this process is making at the moment. */
  claimUnderWay(callId: string): ClaimUnderWay | undefined {
    const [first] = this.#waiters.get(callId) ?? [];
    return first?.claim;
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
    if (waiters === undefined) return;
    if (event.outcome === undefined) this.#fetch(event.callId, event);
    else this.#settle(event.callId, decodeOutcome(event.outcome));
  }

  #settle(callId: string, outcome: Outcome): void {
    const waiters = this.#waiters.get(callId);
    this.#waiters.delete(callId);
    if (waiters === undefined) return;
    let isFirst = true;
    for (const waiter of waiters) {
      // A caller may change its result; each of them has its own copy.
      waiter.settle(isFirst ? outcome : structuredClone(outcome));
      release(waiter);
      isFirst = false;
    }
  }

  /** Whether this process has recently seen the call end. Its record may have expired since, or the call may run again. */
  hasFinished(callId: string): boolean {
    return this.#finished.has(callId) || this.#previouslyFinished.has(callId);
  }

  markFinished(callId: string): void {
    this.#finished.add(callId);
    if (this.#finished.size < MAX_FINISHED) return;
    this.#previouslyFinished = this.#finished;
    this.#finished = new Set();
  }

  #abandon(callId: string, error: PawlError): void {
    const waiters = this.#waiters.get(callId);
    this.#waiters.delete(callId);
    for (const waiter of waiters ?? []) waiter.abandon(error);
  }

  /** A result that its record has lost will not come, so its waiters are rejected. After other errors it is read again. */
  #readFailed(callId: string, error: Error): void {
    this.#onError(error);
    if (error instanceof PawlError && error.code === 'UNKNOWN_CALL') this.#abandon(callId, error);
  }

  /** Calls that end together are answered together, so that the next commands of their callers share a batch as well. */
  #fetch(callId: string, event?: SettledEvent): void {
    this.#toFetch.push({ callId, event });
    if (this.#toFetch.length === 1) process.nextTick(() => this.#fetchAll());
  }

  #fetchAll(): void {
    while (this.#toFetch.length > 0) {
      const batch = this.#toFetch.splice(0, FETCH_BATCH);
      const outcomes = batch.map(({ callId, event }) => this.#ledger.outcome(callId, event));
      void Promise.allSettled(outcomes).then((fetched) => {
        fetched.forEach((answer, index) => {
          const callId = batch[index]?.callId as string;
          if (answer.status === 'rejected') this.#readFailed(callId, answer.reason as Error);
          else if (answer.value !== undefined) this.#settle(callId, answer.value);
        });
      });
    }
  }

  /** Reads the records of all waiting calls: events may have been missed. A request during the check starts another one. */
  async checkAll(): Promise<void> {
    this.#checks += 1;
    if (this.#checks > 1) return;
    for (let checked = 0; checked < this.#checks && this.#closed === undefined; ) {
      checked = this.#checks;
      const callIds = [...this.#waiters.keys()];
      // Checked in groups, because new calls need the connection after a failover too.
      for (let first = 0; first < callIds.length; first += MAX_CHECKED)
        await Promise.all(callIds.slice(first, first + MAX_CHECKED).map((callId) => this.#checkCall(callId)));
    }
    this.#checks = 0;
  }

  /** Reads the records of calls that were not checked for `olderThanMs`, the oldest first, and subscribes to their end again. */
  check(olderThanMs: number, limit = Number.POSITIVE_INFINITY): void {
    const now = performance.now();
    const due: string[] = [];
    // A checked call moves to the end of the map.
    for (const [callId, waiters] of this.#waiters) {
      // A delayed call cannot end before its start, but the calls after it in the map can.
      if (lastChecked(waiters) > now) continue;
      if (due.length >= limit || now - lastChecked(waiters) < olderThanMs) break;
      due.push(callId);
    }
    for (const callId of due) void this.#checkCall(callId);
  }

  async #checkCall(callId: string): Promise<void> {
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
        // An acknowledged call has a record, unless Redis has lost it. The claim of another call may still be under way.
        else if (record === undefined && (claimed || now - oldest >= CHECK_INTERVAL_MS))
          this.#abandon(callId, lostCall(callId));
      },
      (error: Error) => this.#readFailed(callId, error),
    );
  }

  get size(): number {
    return this.#waiters.size;
  }

  /** Rejects all waiters with `BACKEND_UNAVAILABLE`; the calls themselves go on. */
  close(): void {
    clearInterval(this.#timer);
    const closed = new PawlError('BACKEND_UNAVAILABLE', 'The client was closed while it waited; the call goes on.');
    this.#closed = closed;
    for (const waiters of this.#waiters.values()) for (const waiter of waiters) waiter.abandon(closed);
    this.#waiters.clear();
  }
}
