/** The fleet's limits, as an attempt meets them: it starts, or goes back to its queue unspent until there is room. */
import type { FleetLimit, Limits } from '../shared/store/limits.ts';
import type { Begun } from './begun.ts';

/** A slot outlives its attempt's time limit by as much as winding it down may take. */
const SLACK_MS = 5_000;

export class Pace {
  readonly #limits: Pick<Limits, 'take' | 'release'>;
  readonly #onError: (error: Error) => void;
  readonly #held = new WeakMap<Begun, FleetLimit>();

  constructor(limits: Pick<Limits, 'take' | 'release'>, onError: (error: Error) => void) {
    this.#limits = limits;
    this.#onError = onError;
  }

  /** How long the call has to wait; undefined when it may start now. */
  async enter(begun: Begun): Promise<{ readonly waitMs: number } | undefined> {
    const { registered, policy, running } = begun;
    const { limit, tool } = registered;
    if (limit === undefined) return undefined;
    const leaseMs = Math.max(tool.timeoutMs, policy.timeoutMs ?? 0) + SLACK_MS;
    const { waitMs } = await this.#limits.take(limit, running.jobId, leaseMs, startOf(begun));
    if (waitMs > 0) return { waitMs };
    this.#held.set(begun, limit);
    return undefined;
  }

  /** Lets the next one start. A slot that cannot be given back now ends with its lease. */
  async leave(begun: Begun): Promise<void> {
    const limit = this.#held.get(begun);
    if (limit !== undefined)
      await this.#limits.release(limit, begun.running.jobId, startOf(begun)).catch(this.#onError);
  }
}

/** Each attempt is a start of its own. */
function startOf({ running, started }: Begun): string {
  return `${running.jobId} ${started.fence}`;
}
