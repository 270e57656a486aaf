/** The fleet's limits for an attempt. It starts, or its call is parked until there is capacity. */
import { toolLimit } from '../../shared/limits/concurrency-limit.ts';
import { type TenantSettings, tenantLimits } from '../../shared/limits/tenant.ts';
import type { FleetLimit, Limits, Starter } from '../../shared/store/limits/concurrency-limits.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';

/** A slot that is kept for a waiting call outlives that wait. */
const SLACK_MS = 5_000;
/** A call that keeps slots while it waits for another one asks again after this time. */
const KEEPS_MS = 2_000;

export interface LimitAcquirerDeps {
  readonly limits: Pick<Limits, 'take' | 'renew' | 'release' | 'giveBack' | 'hasSlot' | 'hasStart'>;
  /** The lease of an attempt, and of the slots that it holds. */
  readonly leaseMs: number;
  readonly tenants: TenantSettings;
  readonly log: Logger;
  onError(error: Error): void;
}

export interface LimitWait {
  readonly waitMs: number;
  /** Says, once the call is parked, whether it may start after all. */
  isReady(): Promise<boolean>;
}

/** A slot that is held until `untilMs`, unless it is renewed or given back. */
interface Held {
  readonly limit: FleetLimit;
  readonly starter: Starter;
  untilMs: number;
  renewing?: Promise<void>;
}

export class LimitAcquirer {
  readonly #deps: LimitAcquirerDeps;
  readonly #held = new WeakMap<RunningAttempt, readonly Held[]>();

  constructor(deps: LimitAcquirerDeps) {
    this.#deps = deps;
  }

  /** Undefined when the call may start now: under all limits that it counts against, taken one after the other. */
  async enter(attempt: Attempt): Promise<LimitWait | undefined> {
    const { limits, leaseMs } = this.#deps;
    const starter = starterOf(attempt);
    const held: Held[] = [];
    this.#held.set(attempt.running, held);
    const all = this.#limitsOf(attempt);
    for (const limit of all) {
      const answer = await limits.take(limit, starter, leaseMs);
      if (answer.kind === 'granted') {
        held.push({ limit, starter, untilMs: answer.heldUntilMs });
        continue;
      }
      this.#held.delete(attempt.running);
      // A call that is next in line keeps its slots. Giving them back each time, it might never hold all of them.
      const keeps = answer.kind === 'waiting' && answer.near && held.length > 0;
      const waitMs = keeps ? Math.min(answer.waitMs, KEEPS_MS) : answer.waitMs;
      const keptMs = keeps ? waitMs + SLACK_MS : 0;
      for (const each of held)
        await this.#retryUntilLeaseLost(attempt, () => limits.giveBack(each.limit, starter, keptMs));
      // One of these may have resumed the call.
      for (const each of all.slice(held.length + 1))
        await this.#retryUntilLeaseLost(attempt, () => limits.giveBack(each, starter));
      const isReady = () =>
        answer.kind === 'waiting' ? limits.hasSlot(limit, starter) : limits.hasStart(limit, starter);
      return { waitMs, isReady };
    }
    return undefined;
  }

  /** Renews the slots together with the attempt's lease. The slots of a dead worker are free when their lease runs out. */
  async renew(running: RunningAttempt): Promise<void> {
    await Promise.all((this.#held.get(running) ?? []).map((each) => this.#renew(each)));
  }

  async #renew(held: Held): Promise<void> {
    const { limits, leaseMs } = this.#deps;
    const renewed = limits.renew(held.limit, held.starter, held.untilMs, leaseMs);
    held.renewing = renewed.then(
      (untilMs) => {
        held.untilMs = untilMs ?? held.untilMs;
      },
      () => {},
    );
    await renewed;
  }

  /** Lets the next ones start. */
  async leave(attempt: Attempt): Promise<void> {
    const { limits, onError } = this.#deps;
    const held = this.#held.get(attempt.running) ?? [];
    this.#held.delete(attempt.running);
    const release = async (each: Held) => {
      // A slot whose renewal is under way is released with the expiry that the renewal gives it.
      await each.renewing;
      await limits.release(each.limit, each.starter, each.untilMs);
    };
    await Promise.all(held.map((each) => this.#retryUntilLeaseLost(attempt, () => release(each)).catch(onError)));
  }

  /** A slot that is not given back is of no use to others until its lease runs out. */
  #retryUntilLeaseLost(attempt: Attempt, give: () => Promise<void>): Promise<void> {
    return retryUntilLeaseLost(give, attempt.running, this.#deps.log);
  }

  /** The limits are in the same order for all calls, so that no two calls wait for each other. */
  #limitsOf({ envelope, tool, registered, policy }: Attempt): readonly FleetLimit[] {
    const { limit } = registered;
    return [
      ...tenantLimits(this.#deps.tenants, envelope.target.tenantId),
      ...toolLimit(tool, policy.limits),
      ...(limit === undefined ? [] : [limit]),
    ];
  }
}

/** Each attempt is a start of its own. */
function starterOf({
  running: { jobId },
  started: { fence, firstStartedAtMs },
  envelope: { target },
}: Attempt): Starter {
  return { jobId, start: `${jobId} ${fence}`, session: target.sessionKey, sinceMs: firstStartedAtMs };
}
