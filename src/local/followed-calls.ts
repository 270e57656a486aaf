/** Follows calls that run in other processes: until a call has ended, or until its lease ends and it is recovered here. */
import type { AttemptRecord } from '../shared/calls/call-state.ts';
import type { DedupeRecord, DedupeStore } from '../shared/calls/dedupe-store.ts';
import { outcomeWithoutRun } from '../shared/calls/outcome.ts';
import { failureOf } from '../shared/errors/failure.ts';
import type { Claim } from '../shared/store/calls/claim/claim.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import type { Schedule } from '../shared/util/time.ts';
import { attemptOf, withLease } from './call-record.ts';

/** A call that begins in this process: a new one, or one that is recovered from a lost process. */
export interface NewOwnCall {
  readonly claim: Claim;
  readonly record: DedupeRecord;
  readonly attempts: readonly AttemptRecord[];
  /** The previous attempt began in another process and left no record. */
  readonly leftNoRecord: boolean;
}

export interface SubscribedCallsDeps {
  readonly store: DedupeStore;
  readonly schedule: Schedule;
  /** Whether the call runs here. */
  isOwn(callId: string): boolean;
  /** Called when a call's lease had ended and this process has taken it. */
  onRecovered(call: NewOwnCall): void;
  onEvent(event: InboxEvent): void;
  onError(error: Error): void;
}

/** The interval at which another process's call is polled. */
const POLL_MS = 50;

export class SubscribedCalls {
  readonly #deps: SubscribedCallsDeps;
  readonly #followed = new Set<string>();
  #closed = false;

  constructor(deps: SubscribedCallsDeps) {
    this.#deps = deps;
  }

  get callIds(): Iterable<string> {
    return this.#followed;
  }

  /** Follows a call of another process until it has ended or is recovered here. */
  follow(callId: string, claim: Claim): void {
    if (this.#followed.has(callId)) return;
    this.#followed.add(callId);
    const poll = () => {
      if (this.#closed) return;
      this.#check(callId, claim).then(
        (isOpen) => {
          if (isOpen) this.#deps.schedule(poll, POLL_MS);
          else this.#followed.delete(callId);
        },
        (error: Error) => {
          this.#deps.onError(error);
          this.#deps.schedule(poll, POLL_MS);
        },
      );
    };
    poll();
  }

  /** Whether the call has to be polled again. */
  async #check(callId: string, claim: Claim): Promise<boolean> {
    const { store, onEvent } = this.#deps;
    if (this.#deps.isOwn(callId)) return false;
    const record = await store.get(callId);
    if (record === undefined) {
      const { toolName } = claim.request.envelope;
      const outcome = outcomeWithoutRun(toolName, failureOf('OUTCOME_UNKNOWN', 'The record of the call is gone.'));
      onEvent({ type: 'settled', callId, state: 'failed', outcome });
      return false;
    }
    if (record.state !== 'inflight') {
      onEvent({ type: 'settled', callId, state: record.state, outcome: record.payload });
      return false;
    }
    const nowMs = await store.now();
    if (nowMs <= (record.lockUntilMs ?? 0)) return true;
    const renewed = withLease(record, nowMs);
    const swap = await store.compareAndSet(callId, record.version, renewed);
    if (!swap.swapped) return true;
    const attempts = (record.execution?.attempts ?? []).map(attemptOf);
    const leftNoRecord = (record.execution?.attemptCount ?? 0) > attempts.length;
    this.#deps.onRecovered({ claim, record: { ...renewed, version: swap.version }, attempts, leftNoRecord });
    return false;
  }

  close(): void {
    this.#closed = true;
  }
}
