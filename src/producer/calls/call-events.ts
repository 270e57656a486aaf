/**
 * Following calls: whoever does hears of everything that becomes of a call, in order and once, from wherever they left off. An
 * inbox event only wakes; what is told comes from the record, so that neither a lost event nor a restart loses anything.
 */
import { PawlError } from '../../shared/errors/failure.ts';
import type { CallRecord, KeptProgress } from '../../shared/store/calls/call-record.ts';
import type { Ledger } from '../../shared/store/calls/ledger.ts';
import type { Results } from './result-waiters.ts';
import { type CallEvent, compare, type Position, timeline } from './timeline.ts';

/** Records are read this often although nothing was heard. */
const CHECK_INTERVAL_MS = 15_000;
/** As many as are kept. */
const MAX_PROGRESS = 200;

export interface Follower {
  /** Events after the last ones told, in order. */
  onEvents(events: readonly CallEvent[]): void;
  /** Nothing follows any more: the call has ended, its record has gone, or this process closes. */
  onEnd(): void;
}

interface FollowsParts {
  readonly ledger: Pick<Ledger, 'follow' | 'progress'>;
  readonly results: Pick<Results, 'wait'>;
  readonly inboxId: string;
  readonly onError: (error: Error) => void;
}

export class Follows {
  readonly #parts: FollowsParts;
  readonly #calls = new Map<string, FollowedCall>();
  #timer: NodeJS.Timeout | undefined;

  constructor(parts: FollowsParts) {
    this.#parts = parts;
  }

  /** Follows a call, from after an event when its position is given. The answer ends the following. */
  follow(callId: string, follower: Follower, after?: Position): () => void {
    let call = this.#calls.get(callId);
    if (call === undefined) {
      call = new FollowedCall(callId, this.#parts, () => this.#calls.delete(callId));
      this.#calls.set(callId, call);
    }
    this.#timer ??= setInterval(() => this.check(), CHECK_INTERVAL_MS).unref();
    return call.add(follower, after);
  }

  /** Looks after all calls: events may have been lost. */
  check(): void {
    for (const call of this.#calls.values()) call.wake('record');
    if (this.#calls.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  close(): void {
    clearInterval(this.#timer);
    for (const call of [...this.#calls.values()]) call.end();
  }
}

type News = 'record' | 'progress';

class FollowedCall {
  readonly #callId: string;
  readonly #parts: FollowsParts;
  readonly #forget: () => void;
  readonly #waiting: { stop(): void };
  readonly #followers = new Map<Follower, Position | undefined>();
  readonly #progress: KeptProgress[] = [];
  #record: CallRecord | undefined;
  /** What there is to read, once the reading that is under way has ended. */
  #news: News | undefined;
  #reading = false;
  #ended = false;

  constructor(callId: string, parts: FollowsParts, forget: () => void) {
    this.#callId = callId;
    this.#parts = parts;
    this.#forget = forget;
    const waiting = parts.results.wait(callId, ({ type }) => this.wake(type === 'progress' ? 'progress' : 'record'));
    const settled = () => this.wake('record');
    waiting.outcome.then(settled, settled);
    this.#waiting = waiting;
  }

  add(follower: Follower, after: Position | undefined): () => void {
    this.#followers.set(follower, after);
    this.wake('record');
    return () => {
      this.#followers.delete(follower);
      if (this.#followers.size === 0) this.end();
    };
  }

  wake(news: News): void {
    if (this.#ended) return;
    this.#news = this.#news === 'record' ? 'record' : news;
    if (!this.#reading) void this.#readAll();
  }

  async #readAll(): Promise<void> {
    this.#reading = true;
    try {
      while (this.#news !== undefined && !this.#ended) {
        const news = this.#news;
        this.#news = undefined;
        await this.#read(news);
      }
    } catch (error) {
      // The next wake or check reads again, unless the record's result is gone.
      this.#parts.onError(error as Error);
      if (error instanceof PawlError && error.code === 'UNKNOWN_CALL') this.end();
    } finally {
      this.#reading = false;
    }
  }

  async #read(news: News): Promise<void> {
    const { ledger, inboxId } = this.#parts;
    // The record first: what was reported before the end it tells of is then read too.
    if (news === 'record' || this.#record === undefined) this.#record = await ledger.follow(this.#callId, inboxId);
    const last = this.#progress.at(-1);
    this.#progress.push(
      ...(await ledger.progress(this.#callId, last === undefined ? undefined : `${last.fence}-${last.number}`)),
    );
    this.#progress.splice(0, this.#progress.length - MAX_PROGRESS);
    if (this.#ended) return;
    if (this.#record === undefined) return this.end();
    this.#tell(timeline(this.#record, this.#progress));
    // Whoever came while this was read is told by the reading that they asked for.
    if (this.#record.state !== 'inflight' && this.#news === undefined) this.end();
  }

  #tell(events: readonly CallEvent[]): void {
    for (const [follower, after] of this.#followers) {
      const fresh = after === undefined ? events : events.filter(({ position }) => compare(position, after) > 0);
      const last = fresh.at(-1);
      if (last === undefined) continue;
      this.#followers.set(follower, last.position);
      follower.onEvents(fresh);
    }
  }

  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#waiting.stop();
    this.#forget();
    for (const follower of this.#followers.keys()) follower.onEnd();
    this.#followers.clear();
  }
}
