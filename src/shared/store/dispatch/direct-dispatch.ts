/**
 * Jobs that are pushed to a worker in the step that claims their calls, because it has nothing to do and nothing stands in line: no
 * second step takes them. The worker says how many slots it has free whenever it takes or ends jobs; Redis counts down from there,
 * and hands nothing to a worker that does not listen. What a cut connection loses is taken over like the jobs of a lost worker.
 */

import type { LedgerAccess } from '../calls/ledger-context.ts';
import { callOfJob, KEPT, REMOVED_AT_ONCE } from '../queues/jobs.ts';
import { slotOf } from '../redis/connection.ts';
import type { Partition } from '../redis/keys.ts';
import { Subscription } from '../redis/subscription.ts';
import { oneTaken, type Room, type Taken } from './fetch-jobs.ts';

/** Of a message: how many jobs this connection has been sent, and Redis' clock. */
const HEAD_LINES = 2;
/** Of each job (`dispatch-job.lua`). */
const JOB_LINES = 10;

/** A job that was pushed, its attempt begun where a lost message can do no harm. */
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
  /** With none: it listens from now on. */
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
      // Whoever found nobody listening has forgotten the worker: it asks for jobs, and so says again what it has room for.
      onSubscribed: () => options.onJobs([]),
      onError,
    });
  }

  get #base(): string {
    return this.#access.keys(this.#options.partition).job('');
  }

  /** The present connection, and how many jobs it has brought. */
  get state(): NonNullable<Room['dispatches']> {
    const { leaseMs, workerId } = this.#options;
    return { name: `${leaseMs} ${this.#connections} ${workerId}`, received: this.#received };
  }

  /** What a cut connection has lost fills no slots of the next one, which has a name of its own. */
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

  /** As scripts that take a job answer it. */
  #jobOf(lines: readonly string[], atMs: number): DispatchedJobs {
    const [token = '', jobId = '', name, data, kept, fence, request, signature, circuit, circuitRaw] = lines;
    const { generation } = callOfJob(jobId);
    const fields = ['name', name, 'data', data, 'opts', kept === '1' ? KEPT : REMOVED_AT_ONCE];
    const job = [[...fields, 'timestamp', generation, 'processedOn', String(atMs)], jobId, 0, 0];
    const first = [request, signature, '', 0, '0', atMs, circuit, circuitRaw, '0', '', ''];
    const begun = fence === '' ? ['apart'] : ['started', atMs, fence, ...first];
    return { ...oneTaken(this.#access, job, begun), token, lockToken: token, atMs };
  }

  /** No more jobs are pushed; those that were have arrived. A second call waits for the first. */
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
