/**
 * Runs redrives batch by batch, at their rates. A redrive outlives this process: another one takes it when its lease ends. That process
 * may repeat a batch, but each call is started once only.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { invalidArgument } from '../../shared/schema/known-members.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type {
  BatchResult,
  HeldRedrive,
  RedrivenCall,
  RedriveRecord,
  SkippedCall,
} from '../../shared/store/redrives/redrives.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { RecordOverride } from '../calls/audit.ts';
import type { CallRedriver } from './redrive-call.ts';

/** The delay of the next try, after an outage of Redis or while another process holds the redrive. */
const RETRY_DELAY_MS = 1_000;
/** The interval at which a front door checks for redrives of dead processes. */
const SWEEP_MS = 5_000;
const MAX_BATCH = 100;
const BATCHES_PER_SECOND = 4;

/** The highest rate of a redrive. */
export const MAX_PER_SECOND = 1_000;

/** Throws `CONTRACT_INVALID` for a rate that no redrive can have. */
export function checkRate(perSecond: number): void {
  const message = `must be a whole number from 1 to ${MAX_PER_SECOND}; got ${quoteValue(perSecond)}`;
  if (!(Number.isInteger(perSecond) && perSecond >= 1 && perSecond <= MAX_PER_SECOND))
    throw invalidArgument('perSecond', message);
}

/** The number of calls that are started together. */
export function batchSize(perSecond: number): number {
  return Math.min(MAX_BATCH, Math.ceil(perSecond / BATCHES_PER_SECOND));
}

/** The calls with a skip code, in the order of the codes. */
export function skippedCalls(calls: readonly RedrivenCall[], codes: readonly (string | undefined)[]): SkippedCall[] {
  return calls.map(({ callId }, index) => ({ callId, code: codes[index] ?? '' })).filter(({ code }) => code !== '');
}

interface RedriveRunnerDeps {
  readonly redrives: Backend['redrives'];
  readonly redriver: Pick<CallRedriver, 'redrive'>;
  readonly recordOverride: RecordOverride;
  readonly clock: Pick<Clock, 'monotonic'>;
  onError(error: Error): void;
}

export class RedriveRunner {
  readonly #deps: RedriveRunnerDeps;
  /** The redrives that this process runs. */
  readonly #running = new Map<string, Promise<void>>();
  readonly #closing = new AbortController();

  constructor(deps: RedriveRunnerDeps) {
    this.#deps = deps;
  }

  /** Runs a redrive until it has ended, here or in another process, or until this process closes. */
  run(redriveId: string): Promise<void> {
    const start = () => this.#runToEnd(redriveId).finally(() => this.#running.delete(redriveId));
    return getOrInsert(this.#running, redriveId, start);
  }

  /** Periodically checks for redrives that no process runs. The returned function ends that. */
  watch(): () => void {
    const { redrives, onError } = this.#deps;
    const sweep = async () => {
      for (const redriveId of await redrives.running()) if (!this.#isClosed) void this.run(redriveId);
    };
    const timer = setInterval(() => void sweep().catch(onError), Math.min(SWEEP_MS, redrives.leaseMs)).unref();
    return () => clearInterval(timer);
  }

  /** Stops after the current batch. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#running.values());
  }

  async #runToEnd(redriveId: string): Promise<void> {
    while (!this.#isClosed) {
      try {
        const lease = await this.#deps.redrives.take(redriveId);
        if (lease === undefined) return;
        if ('heldMs' in lease) await this.#sleep(Math.min(lease.heldMs, RETRY_DELAY_MS));
        else if (await this.#runBatches(lease)) return;
      } catch (error) {
        this.#deps.onError(error as Error);
        await this.#sleep(RETRY_DELAY_MS);
      }
    }
  }

  /** Runs the remaining batches. Returns whether the redrive has ended. Throws when Redis is unavailable: the batch is repeated. */
  async #runBatches(firstLease: HeldRedrive): Promise<boolean> {
    const { redrives, clock } = this.#deps;
    const { redriveId } = firstLease;
    const order = await redrives.read(redriveId);
    for (let lease = firstLease; !this.#isClosed; lease = { ...lease, position: lease.position + 1 }) {
      const startedAtMs = clock.monotonic();
      const calls = order === undefined ? undefined : await redrives.batch(lease);
      if (order === undefined || calls === undefined) {
        // No key of this fleet signed it, or its calls were deleted.
        await redrives.stop(redriveId);
        return true;
      }
      const state = await redrives.advance(lease, await this.#redrive(calls, order));
      if (state !== 'running') return state !== 'fenced';
      await this.#sleep(startedAtMs + (calls.length / order.perSecond) * 1_000 - clock.monotonic());
    }
    return false;
  }

  async #redrive(calls: readonly RedrivenCall[], order: RedriveRecord): Promise<BatchResult> {
    const codes = await Promise.all(calls.map((call) => this.#deps.redriver.redrive(call, order)));
    const callIds = calls.filter((_call, index) => codes[index] === undefined).map(({ callId }) => callId);
    const { redriveId, by, tenantId, reason } = order;
    const override = { what: 'dead-letters', action: 'redrive', by, tenantId, reason, redriveId, callIds } as const;
    if (callIds.length > 0) await this.#deps.recordOverride(override);
    return { started: callIds.length, skipped: skippedCalls(calls, codes) };
  }

  get #isClosed(): boolean {
    return this.#closing.signal.aborted;
  }

  async #sleep(ms: number): Promise<void> {
    if (ms > 0) await sleep(ms, undefined, { signal: this.#closing.signal, ref: false }).catch(() => {});
  }
}
