/**
 * Direct dispatch: the step that claims a call gives its job to an idle worker, when no other call is queued. A worker reports its free
 * slots whenever it fetches or ends jobs; Redis counts down from there, and dispatches nothing to a worker that does not listen. Jobs that
 * a cut connection loses are recovered like those of a lost worker.
 */

import type { LedgerAccess } from '../calls/ledger-context.ts';
import { callOfJob, KEPT, REMOVED_AT_ONCE } from '../queues/jobs.ts';
import { slotOf } from '../redis/connection.ts';
import type { Partition } from '../redis/keys.ts';
import { Subscription } from '../redis/subscription.ts';
import { type Capacity, oneTaken, type Taken } from './fetch-jobs.ts';

/** The lines at the head of a message: how many jobs this connection has been sent, and Redis' clock. */
const HEAD_LINES = 2;
/** The lines of each job (`dispatch-job.lua`). */
const JOB_LINES = 10;

/** A dispatched job. Its attempt has started if a lost message can do no harm. */
export interface DispatchedJobs extends Taken {
  readonly lockToken: string;
  /** When lock and lease began, on Redis' clock. */
  readonly atMs: number;
}

export interface DispatchReaderOptions {
  readonly url: string;
  readonly prefix: string;
  readonly partition: Partition;
  readonly workerId: string;
  readonly leaseMs: number;
  /** Called without jobs when the subscription starts. */
  onJobs(jobs: readonly DispatchedJobs[]): void;
  onError(error: Error): void;
}

export class DispatchReader {
  readonly #access: LedgerAccess;
  readonly #options: DispatchReaderOptions;
  readonly #subscription: Subscription;
  #leaving: Promise<void> | undefined;
  #connections = 0;
  #received = 0;

  constructor(access: LedgerAccess, options: DispatchReaderOptions) {
    this.#access = access;
    this.#options = options;
    const { url, prefix, partition, onError } = options;
    const { queue, calls } = access.keys(partition);
    this.#subscription = Subscription.open({
      url,
      name: `${prefix}:worker:push:${queue}`,
      channels: () => [this.#begin()],
      node: () => slotOf(access.redis, calls)?.node,
      onMessage: (text) => this.#read(text),
      // A claim that found no listener has removed the worker from the idle ones. Fetching jobs reports the worker's capacity again.
      onSubscribed: () => options.onJobs([]),
      onError,
    });
  }

  get #base(): string {
    return this.#access.keys(this.#options.partition).job('');
  }

  /** The current connection, and how many jobs it has delivered. */
  get state(): NonNullable<Capacity['dispatches']> {
    const { leaseMs, workerId } = this.#options;
    return { name: `${leaseMs} ${this.#connections} ${workerId}`, received: this.#received };
  }

  /** A new connection has a new name, so that jobs which a cut connection lost fill none of its slots. */
  #begin(): string {
    this.#connections += 1;
    this.#received = 0;
    return `${this.#base}push:${this.state.name}`;
  }

  #read(text: string): void {
    const lines = text.split('\n');
    const jobs = (lines.length - HEAD_LINES) / JOB_LINES;
    if (!Number.isInteger(jobs)) throw new Error(`a message with jobs has ${lines.length} lines`);
    const [received = 0, atMs = 0] = lines.slice(0, HEAD_LINES).map(Number);
    this.#received = received;
    const dispatched: DispatchedJobs[] = [];
    for (let at = HEAD_LINES; at < lines.length; at += JOB_LINES)
      dispatched.push(this.#jobOf(lines.slice(at, at + JOB_LINES), atMs));
    this.#options.onJobs(dispatched);
  }

  /** The job in the form in which the fetching scripts return it. */
  #jobOf(lines: readonly string[], atMs: number): DispatchedJobs {
    const [token = '', jobId = '', name, data, kept, fence, request, signature, circuit, circuitRaw] = lines;
    const { generation } = callOfJob(jobId);
    const fields = ['name', name, 'data', data, 'opts', kept === '1' ? KEPT : REMOVED_AT_ONCE];
    const job = [[...fields, 'timestamp', generation, 'processedOn', String(atMs)], jobId, 0, 0];
    const first = [request, signature, '', 0, '0', atMs, circuit, circuitRaw, '0', '', ''];
    const begun = fence === '' ? ['apart'] : ['started', atMs, fence, ...first];
    return { ...oneTaken(this.#access, job, begun), token, lockToken: token, atMs };
  }

  /** Ends dispatch; all jobs that were dispatched have arrived when it resolves. A second call waits for the first. */
  leave(): Promise<void> {
    this.#leaving ??= this.#leave().catch((error: unknown) => {
      this.#leaving = undefined;
      throw error;
    });
    return this.#leaving;
  }

  async #leave(): Promise<void> {
    const { name } = this.state;
    await this.#access.redis.zrem(`${this.#base}pushable`, name);
    await this.#subscription.leave();
    await this.#access.redis.hdel(`${this.#base}pushed`, name);
  }

  close(): void {
    this.#subscription.close();
  }
}
