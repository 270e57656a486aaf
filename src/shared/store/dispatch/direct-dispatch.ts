/**
 * Direct dispatch: if no other call is queued, the script that claims a call sends its job to an idle worker. A worker reports its free
 * slots whenever it fetches or ends jobs, and Redis counts them down. A worker that does not listen gets nothing. Jobs that a cut
 * connection loses are recovered like those of a lost worker.
 */
import type { LedgerAccess } from '../calls/ledger-context.ts';
import { callOfJob, KEPT_JOB_OPTIONS, REMOVED_JOB_OPTIONS } from '../queues/jobs.ts';
import { slotOf } from '../redis/connection.ts';
import type { Partition } from '../redis/keys.ts';
import { Subscription } from '../redis/subscription.ts';
import { type Capacity, type FetchedJob, parseFetchedJob } from './job-dispatch.ts';

/** The first lines of a message: the number of jobs sent to this connection so far, and Redis' clock. */
const HEAD_LINES = 2;
/** The lines of each job (`dispatch-job.lua`). */
const JOB_LINES = 10;

/** A dispatched job. Its attempt has started unless a lost message could do harm. */
export interface DispatchedJob extends FetchedJob {
  readonly lockToken: string;
  /** When its lock and lease started, on Redis' clock. */
  readonly atMs: number;
}

interface DispatchReaderOptions {
  readonly url: string;
  readonly prefix: string;
  readonly partition: Partition;
  readonly workerId: string;
  readonly leaseMs: number;
  /** Called without jobs when the subscription starts. */
  onJobs(jobs: readonly DispatchedJob[]): void;
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
      channels: () => [this.#newChannel()],
      node: () => slotOf(access.redis, calls)?.node,
      onMessage: (text) => this.#receive(text),
      // A claim that finds no listener removes the worker from the idle ones. The next fetch reports its capacity again.
      onSubscribed: () => options.onJobs([]),
      onError,
    });
  }

  get #base(): string {
    return this.#access.keys(this.#options.partition).job('');
  }

  /** The name of the current connection, and how many jobs it has delivered. */
  get state(): NonNullable<Capacity['dispatches']> {
    const { leaseMs, workerId } = this.#options;
    return { name: `${leaseMs} ${this.#connections} ${workerId}`, received: this.#received };
  }

  /** Each connection has its own name, so that jobs lost on a cut connection do not fill its slots. */
  #newChannel(): string {
    this.#connections += 1;
    this.#received = 0;
    return `${this.#base}push:${this.state.name}`;
  }

  #receive(text: string): void {
    const lines = text.split('\n');
    const jobs = (lines.length - HEAD_LINES) / JOB_LINES;
    if (!Number.isInteger(jobs))
      throw new Error(`a dispatch message has ${lines.length} lines, not ${HEAD_LINES} and ${JOB_LINES} for each job`);
    const [received = 0, atMs = 0] = lines.slice(0, HEAD_LINES).map(Number);
    this.#received = received;
    const dispatched: DispatchedJob[] = [];
    for (let start = HEAD_LINES; start < lines.length; start += JOB_LINES)
      dispatched.push(this.#parseJob(lines.slice(start, start + JOB_LINES), atMs));
    this.#options.onJobs(dispatched);
  }

  /** The job in the form in which the fetching scripts return it. */
  #parseJob(lines: readonly string[], atMs: number): DispatchedJob {
    const [token = '', jobId = '', name, data, kept, fence, request, signature, circuit, circuitRaw] = lines;
    const { generation } = callOfJob(jobId);
    const fields = ['name', name, 'data', data, 'opts', kept === '1' ? KEPT_JOB_OPTIONS : REMOVED_JOB_OPTIONS];
    const job = [[...fields, 'timestamp', generation, 'processedOn', String(atMs)], jobId, 0, 0];
    const firstAttempt = [request, signature, '', 0, '0', atMs, circuit, circuitRaw, '0', '', ''];
    const beginAnswer = fence === '' ? ['apart'] : ['started', atMs, fence, ...firstAttempt];
    return { ...parseFetchedJob(this.#access, job, beginAnswer), token, lockToken: token, atMs };
  }

  /** Ends dispatch. When it resolves, all dispatched jobs have arrived. A second call waits for the first. */
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
    await this.#subscription.unsubscribe();
    await this.#access.redis.hdel(`${this.#base}pushed`, name);
  }

  close(): void {
    this.#subscription.close();
  }
}
