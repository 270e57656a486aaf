/**
 * Jobs that are pushed to a worker in the step that claims their calls, because it has nothing to do and nothing stands in line: no
 * second step takes them. The worker says how many lanes it has free whenever it takes or ends jobs; Redis counts down from there,
 * and hands nothing to a worker that does not listen. What a cut connection loses is taken over like the jobs of a lost worker.
 */
import { oneTaken, pushName, type Taken } from './deliveries.ts';
import type { Place } from './keys.ts';
import type { LedgerAccess } from './ledger-access.ts';
import { luaFunction, slotOf } from './redis.ts';
import { Subscription } from './subscription.ts';

/** For `Script`: `idle_worker` and `push`. */
export const PUSH_LUA = [luaFunction('idle-worker'), luaFunction('push')];

/** A job that was pushed, its attempt begun where a lost message can do no harm. */
export interface Pushed extends Taken {
  readonly lockToken: string;
  /** When lock and lease began, on Redis' clock. */
  readonly atMs: number;
}

export interface PushReaderOptions {
  readonly url: string;
  readonly prefix: string;
  readonly place: Place;
  readonly workerId: string;
  readonly leaseMs: number;
  /** `received`: how many were pushed to this worker until now. */
  onJobs(jobs: readonly Pushed[], received: number): void;
  onError(error: Error): void;
}

export class PushReader {
  readonly #access: LedgerAccess;
  readonly #options: PushReaderOptions;
  readonly #subscription: Subscription;

  constructor(access: LedgerAccess, options: PushReaderOptions) {
    this.#access = access;
    this.#options = options;
    const { url, prefix, place, onError } = options;
    const { queue, calls } = access.keys(place);
    this.#subscription = Subscription.open({
      url,
      name: `${prefix}:worker:push:${queue}`,
      channels: [`${this.#base}push:${pushName(options)}`],
      node: () => slotOf(access.redis, calls)?.node,
      onMessage: (text) => this.#read(text),
      onSubscribed: () => void this.#catchUp().catch(onError),
      onError,
    });
  }

  get #base(): string {
    return this.#access.keys(this.#options.place).job('');
  }

  #read(text: string): void {
    const [received, atMs, jobs] = JSON.parse(text) as [number, number, [string, unknown[], unknown[]][]];
    const pushed = jobs.map(([token, job, begun]) => ({
      ...oneTaken(this.#access, job, begun),
      token,
      lockToken: token,
      atMs,
    }));
    this.#options.onJobs(pushed, received);
  }

  /** What was pushed while the connection was away does not come any more: it fills no lanes. */
  async #catchUp(): Promise<void> {
    const received = await this.#access.redis.hget(`${this.#base}pushed`, pushName(this.#options));
    this.#options.onJobs([], Number(received ?? 0));
  }

  /** No more jobs are pushed; those that were have arrived. */
  async leave(): Promise<void> {
    const name = pushName(this.#options);
    await this.#access.redis.zrem(`${this.#base}pushable`, name);
    await this.#subscription.leave();
    await this.#access.redis.hdel(`${this.#base}pushed`, name);
  }

  close(): void {
    this.#subscription.close();
  }
}
