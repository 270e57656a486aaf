/**
 * Call subscriptions. A subscriber receives all events of a call, in order and once, from any position. An inbox event only triggers a
 * read of the record, which has the events. A lost inbox event or a restart loses nothing.
 */
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallRecord, StoredProgress } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import type { ResultWaiters } from './result-waiters.ts';
import { type CallEvent, callEvents, compare, type Position } from './timeline.ts';

/** Records are read this often even if no event arrives. */
const CHECK_INTERVAL_MS = 15_000;
/** The number of progress events that Redis retains. */
const MAX_PROGRESS = 200;

export interface CallSubscriber {
  /** Receives new events, in order. */
  onEvents(events: readonly CallEvent[]): void;
  /** No event follows: the call has ended, its record has expired, or this process closes. */
  onEnd(): void;
}

interface CallSubscriptionsDeps {
  readonly ledger: Pick<Ledger, 'follow' | 'progress'>;
  readonly results: Pick<ResultWaiters, 'wait'>;
  readonly inboxId: string;
  readonly onError: (error: Error) => void;
}

export class CallSubscriptions {
  readonly #deps: CallSubscriptionsDeps;
  readonly #calls = new Map<string, SubscribedCall>();
  #timer: NodeJS.Timeout | undefined;

  constructor(deps: CallSubscriptionsDeps) {
    this.#deps = deps;
  }

  /** Subscribes to a call, optionally to events after a position only. The returned function unsubscribes. */
  follow(callId: string, subscriber: CallSubscriber, after?: Position): () => void {
    const make = () => new SubscribedCall(callId, this.#deps, () => this.#calls.delete(callId));
    const call = getOrInsert(this.#calls, callId, make);
    this.#timer ??= setInterval(() => this.check(), CHECK_INTERVAL_MS).unref();
    return call.add(subscriber, after);
  }

  /** Reads all calls again: events may have been lost. */
  check(): void {
    for (const call of this.#calls.values()) call.scheduleRead('record');
    if (this.#calls.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const call of [...this.#calls.values()]) call.end();
  }
}

type ReadKind = 'record' | 'progress';

class SubscribedCall {
  readonly #callId: string;
  readonly #deps: CallSubscriptionsDeps;
  readonly #forget: () => void;
  readonly #wait: { stop(): void };
  readonly #followers = new Map<CallSubscriber, Position | undefined>();
  readonly #progress: StoredProgress[] = [];
  #record: CallRecord | undefined;
  /** The next read, which starts when the current one has ended. */
  #pendingRead: ReadKind | undefined;
  #reading = false;
  #ended = false;

  constructor(callId: string, deps: CallSubscriptionsDeps, forget: () => void) {
    this.#callId = callId;
    this.#deps = deps;
    this.#forget = forget;
    const wait = deps.results.wait(callId, ({ type }) =>
      this.scheduleRead(type === 'progress' ? 'progress' : 'record'),
    );
    const settled = () => this.scheduleRead('record');
    wait.outcome.then(settled, settled);
    this.#wait = wait;
  }

  add(subscriber: CallSubscriber, after: Position | undefined): () => void {
    this.#followers.set(subscriber, after);
    this.scheduleRead('record');
    return () => {
      this.#followers.delete(subscriber);
      if (this.#followers.size === 0) this.end();
    };
  }

  scheduleRead(kind: ReadKind): void {
    if (this.#ended) return;
    this.#pendingRead = this.#pendingRead === 'record' ? 'record' : kind;
    if (!this.#reading) void this.#readAll();
  }

  async #readAll(): Promise<void> {
    this.#reading = true;
    try {
      while (this.#pendingRead !== undefined && !this.#ended) {
        const kind = this.#pendingRead;
        this.#pendingRead = undefined;
        await this.#read(kind);
      }
    } catch (error) {
      // The next event or check reads again, unless the record's result is lost.
      this.#deps.onError(error as Error);
      if (error instanceof PawlError && error.code === 'UNKNOWN_CALL') this.end();
    } finally {
      this.#reading = false;
    }
  }

  async #read(kind: ReadKind): Promise<void> {
    const { ledger, inboxId } = this.#deps;
    // The record is read before the progress, so that no progress before its end is missed.
    if (kind === 'record' || this.#record === undefined) this.#record = await ledger.follow(this.#callId, inboxId);
    const last = this.#progress.at(-1);
    this.#progress.push(
      ...(await ledger.progress(this.#callId, last === undefined ? undefined : `${last.fence}-${last.number}`)),
    );
    this.#progress.splice(0, this.#progress.length - MAX_PROGRESS);
    if (this.#ended) return;
    if (this.#record === undefined) return this.end();
    this.#emit(callEvents(this.#record, this.#progress));
    // A subscriber that was added during this read has scheduled another one.
    if (this.#record.state !== 'inflight' && this.#pendingRead === undefined) this.end();
  }

  #emit(events: readonly CallEvent[]): void {
    for (const [subscriber, after] of this.#followers) {
      const fresh = after === undefined ? events : events.filter(({ position }) => compare(position, after) > 0);
      const last = fresh.at(-1);
      if (last === undefined) continue;
      this.#followers.set(subscriber, last.position);
      subscriber.onEvents(fresh);
    }
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#wait.stop();
    this.#forget();
    for (const subscriber of this.#followers.keys()) subscriber.onEnd();
    this.#followers.clear();
  }
}
