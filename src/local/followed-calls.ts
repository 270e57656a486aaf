/**
 * Calls that run in other processes: each is watched until it has ended, or until its lease does and it is taken over.
 */
import type { AttemptRecord } from '../shared/calls/call-state.ts';
import type { DedupeRecord, DedupeStore } from '../shared/calls/dedupe-store.ts';
import { type Outcome, resultError } from '../shared/calls/outcome.ts';
import { failureOf } from '../shared/errors/failure.ts';
import type { Claim } from '../shared/store/calls/claim.ts';
import type { InboxEvent } from '../shared/store/queues/result-inbox.ts';
import type { Schedule } from '../shared/util/time.ts';
import { attemptOf, leased } from './call-record.ts';

/** A call that begins in this process, new or taken over from a process that is lost. */
export interface NewOwnCall {
  readonly claim: Claim;
  readonly record: DedupeRecord;
  readonly attempts: readonly AttemptRecord[];
  /** The attempt before the next one began elsewhere and left no record. */
  readonly leftNoRecord: boolean;
}

export interface SubscribedCallsDeps {
  readonly store: DedupeStore;
  readonly schedule: Schedule;
  /** Whether the call runs here. */
  isOwn(callId: string): boolean;
  /** The call's lease had ended, and is this process's now. */
  onRecovered(call: NewOwnCall): void;
  onEvent(event: InboxEvent): void;
  onError(error: Error): void;
}

/** How often another process's call is looked at. */
const FOLLOW_MS = 50;

export class SubscribedCalls {
  readonly #parts: SubscribedCallsDeps;
  readonly #followed = new Set<string>();
  #closed = false;

  constructor(parts: SubscribedCallsDeps) {
    this.#parts = parts;
  }

  get callIds(): Iterable<string> {
    return this.#followed;
  }

  /** Watches a call that runs elsewhere until it has ended or is taken over. */
  follow(callId: string, claim: Claim): void {
    if (this.#followed.has(callId)) return;
    this.#followed.add(callId);
    const look = () => {
      if (this.#closed) return;
      this.#look(callId, claim).then(
        (again) => {
          if (again) this.#parts.schedule(look, FOLLOW_MS);
          else this.#followed.delete(callId);
        },
        (error: Error) => {
          this.#parts.onError(error);
          this.#parts.schedule(look, FOLLOW_MS);
        },
      );
    };
    look();
  }

  /** Whether to look again. */
  async #look(callId: string, claim: Claim): Promise<boolean> {
    const { store, onEvent } = this.#parts;
    if (this.#parts.isOwn(callId)) return false;
    const record = await store.get(callId);
    if (record === undefined) {
      const { toolName } = claim.request.envelope;
      const error = resultError(failureOf('OUTCOME_UNKNOWN', 'The record of the call is gone.'), 'error');
      const outcome: Outcome = { status: 'error', toolName, durationMs: 0, attempts: 0, error };
      onEvent({ type: 'settled', callId, state: 'failed', outcome });
      return false;
    }
    if (record.state !== 'inflight') {
      onEvent({ type: 'settled', callId, state: record.state, outcome: record.payload });
      return false;
    }
    const nowMs = await store.now();
    if (nowMs <= (record.lockUntilMs ?? 0)) return true;
    const renewed = leased(record, nowMs);
    const taken = await store.compareAndSet(callId, record.version, renewed);
    if (!taken.swapped) return true;
    const attempts = (record.execution?.attempts ?? []).map(attemptOf);
    const leftNoRecord = (record.execution?.attemptCount ?? 0) > attempts.length;
    this.#parts.onRecovered({ claim, record: { ...renewed, version: taken.version }, attempts, leftNoRecord });
    return false;
  }

  close(): void {
    this.#closed = true;
  }
}
