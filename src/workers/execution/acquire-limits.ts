/** Acquires the fleet's limits for an attempt. The attempt starts, or its call is parked until there is capacity. */
import { type NamedLimit, toolLimit } from '../../shared/limits/concurrency-limit.ts';
import { type TenantSettings, tenantLimits } from '../../shared/limits/tenant.ts';
import type { Limits, Starter } from '../../shared/store/limits/concurrency-limits.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import { AttemptWrites } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';

/** A slot that a waiting call holds outlives that wait by this time. */
const SLACK_MS = 5_000;
/** A call that holds slots while it waits for another one checks again after this time. */
const RECHECK_MS = 2_000;

interface LimitAcquirerDeps {
  readonly limits: Pick<Limits, 'acquire' | 'renew' | 'release' | 'releaseUnused' | 'hasSlot' | 'hasStart'>;
  /** The lease of an attempt, and of the slots that it holds. */
  readonly leaseMs: number;
  readonly tenants: TenantSettings;
  readonly log: Logger;
  onError(error: Error): void;
}

interface LimitWait {
  readonly waitMs: number;
  /** Checks, once the call is parked, whether it may start after all. */
  isReady(): Promise<boolean>;
}

/** A slot that is held until `untilMs`, unless it is renewed or given back. */
interface HeldSlot {
  readonly limit: NamedLimit;
  readonly starter: Starter;
  untilMs: number;
  renewing?: Promise<void>;
}

export class LimitAcquirer {
  readonly #deps: LimitAcquirerDeps;
  /** A slot that is not released stays unusable until its lease ends. */
  readonly #writes: AttemptWrites;
  readonly #held = new WeakMap<RunningAttempt, readonly HeldSlot[]>();

  constructor(deps: LimitAcquirerDeps) {
    this.#deps = deps;
    this.#writes = new AttemptWrites(deps.log);
  }

  /** Acquires all limits of the call, one after the other. Undefined when it may start now. */
  async acquire(attempt: Attempt): Promise<LimitWait | undefined> {
    const { limits, leaseMs } = this.#deps;
    const starter = starterOf(attempt);
    const held: HeldSlot[] = [];
    this.#held.set(attempt.running, held);
    const required = this.#limitsOf(attempt);
    for (const limit of required) {
      const answer = await limits.acquire(limit, starter, leaseMs);
      if (answer.kind === 'granted') {
        held.push({ limit, starter, untilMs: answer.heldUntilMs });
        continue;
      }
      this.#held.delete(attempt.running);
      // A call that is next in the queue keeps its slots. Otherwise it might never hold all of them at once.
      const keepsSlots = answer.kind === 'waiting' && answer.near && held.length > 0;
      const waitMs = keepsSlots ? Math.min(answer.waitMs, RECHECK_MS) : answer.waitMs;
      const holdMs = keepsSlots ? waitMs + SLACK_MS : 0;
      for (const slot of held)
        await this.#writes.retry(attempt.running, () => limits.releaseUnused(slot.limit, starter, holdMs));
      // One of these may have resumed the call.
      for (const limit of required.slice(held.length + 1))
        await this.#writes.retry(attempt.running, () => limits.releaseUnused(limit, starter));
      const isReady = () =>
        answer.kind === 'waiting' ? limits.hasSlot(limit, starter) : limits.hasStart(limit, starter);
      return { waitMs, isReady };
    }
    return undefined;
  }

  /** Renews the slots together with the attempt's lease. The slots of a dead worker are free when their lease runs out. */
  async renew(running: RunningAttempt): Promise<void> {
    await Promise.all((this.#held.get(running) ?? []).map((slot) => this.#renew(slot)));
  }

  async #renew(slot: HeldSlot): Promise<void> {
    const { limits, leaseMs } = this.#deps;
    const renewed = limits.renew(slot.limit, slot.starter, slot.untilMs, leaseMs);
    slot.renewing = renewed.then(
      (untilMs) => {
        slot.untilMs = untilMs ?? slot.untilMs;
      },
      () => {},
    );
    await renewed;
  }

  /** Releases the slots, so that waiting calls can start. */
  async release({ running }: Attempt): Promise<void> {
    const { limits, onError } = this.#deps;
    const held = this.#held.get(running) ?? [];
    this.#held.delete(running);
    const releaseSlot = async (slot: HeldSlot) => {
      // A slot whose renewal is under way is released with the expiry that the renewal gives it.
      await slot.renewing;
      await limits.release(slot.limit, slot.starter, slot.untilMs);
    };
    await Promise.all(held.map((slot) => this.#writes.retry(running, () => releaseSlot(slot)).catch(onError)));
  }

  /** All calls acquire limits in this order, so that no two calls wait for each other. */
  #limitsOf({ envelope, tool, registered, policy }: Attempt): readonly NamedLimit[] {
    const { limit } = registered;
    return [
      ...tenantLimits(this.#deps.tenants, envelope.target.tenantId),
      ...toolLimit(tool, policy.limits),
      ...(limit === undefined ? [] : [limit]),
    ];
  }
}

/** Each attempt counts as one start. */
function starterOf({
  running: { jobId },
  started: { fence, firstStartedAtMs },
  envelope: { target },
}: Attempt): Starter {
  return { jobId, start: `${jobId} ${fence}`, session: target.sessionKey, sinceMs: firstStartedAtMs };
}
