/** The fleet's limits, as an attempt meets them: it starts, or goes back to its queue unspent until there is room. */
import { toolLimit } from '../../shared/limits/concurrency-limit.ts';
import { type TenantSettings, tenantLimits } from '../../shared/limits/tenant.ts';
import type { FleetLimit, Limits, Starter } from '../../shared/store/limits/concurrency-limits.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';

/** A slot that is kept for a call that waits for another one outlives that wait. */
const SLACK_MS = 5_000;
/** Who keeps slots while it waits for another asks again after that time, and keeps them on. */
const KEEPS_MS = 2_000;

export interface LimitAcquirerDeps {
  readonly limits: Pick<Limits, 'take' | 'renew' | 'release' | 'giveBack' | 'hasSlot' | 'hasStart'>;
  /** Of an attempt, and of the slots that it holds. */
  readonly leaseMs: number;
  readonly tenants: TenantSettings;
  readonly log: Logger;
  onError(error: Error): void;
}

export interface Waiting {
  readonly waitMs: number;
  /** Once the call has been put aside: whether it may start after all. */
  isReady(): Promise<boolean>;
}

/** A slot that is held until then, unless it is renewed or given back. */
interface Held {
  readonly limit: FleetLimit;
  readonly starter: Starter;
  untilMs: number;
  renewing?: Promise<void>;
}

export class LimitAcquirer {
  readonly #parts: LimitAcquirerDeps;
  readonly #held = new WeakMap<RunningAttempt, readonly Held[]>();

  constructor(parts: LimitAcquirerDeps) {
    this.#parts = parts;
  }

  /** Undefined when the call may start now: under all limits that it counts against, taken one after the other. */
  async enter(attempt: Attempt): Promise<Waiting | undefined> {
    const { limits, leaseMs } = this.#parts;
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
      // Who is nearly through keeps what it has: giving it back each time, it might never have all at once.
      const keeps = answer.kind === 'waiting' && answer.near && held.length > 0;
      const waitMs = keeps ? Math.min(answer.waitMs, KEEPS_MS) : answer.waitMs;
      const keptMs = keeps ? waitMs + SLACK_MS : 0;
      for (const each of held)
        await this.#retryUntilLeaseLost(attempt, () => limits.giveBack(each.limit, starter, keptMs));
      // It may have been woken for one of these.
      for (const each of all.slice(held.length + 1))
        await this.#retryUntilLeaseLost(attempt, () => limits.giveBack(each, starter));
      const isReady = () =>
        answer.kind === 'waiting' ? limits.hasSlot(limit, starter) : limits.hasStart(limit, starter);
      return { waitMs, isReady };
    }
    return undefined;
  }

  /** The attempt's lease was renewed: so are those of its slots. What a worker held that died is free when its lease ends. */
  async renew(running: RunningAttempt): Promise<void> {
    await Promise.all((this.#held.get(running) ?? []).map((each) => this.#renew(each)));
  }

  async #renew(held: Held): Promise<void> {
    const { limits, leaseMs } = this.#parts;
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
    const { limits, onError } = this.#parts;
    const held = this.#held.get(attempt.running) ?? [];
    this.#held.delete(attempt.running);
    const release = async (each: Held) => {
      // Whose renewal is still under way is released as what it will be.
      await each.renewing;
      await limits.release(each.limit, each.starter, each.untilMs);
    };
    await Promise.all(held.map((each) => this.#retryUntilLeaseLost(attempt, () => release(each)).catch(onError)));
  }

  /** Nobody else can use what is not given back until its lease ends. */
  #retryUntilLeaseLost(attempt: Attempt, give: () => Promise<void>): Promise<void> {
    return retryUntilLeaseLost(give, attempt.running, this.#parts.log);
  }

  /** In the same order for all calls, so that no two wait for each other. */
  #limitsOf({ envelope, tool, registered, policy }: Attempt): readonly FleetLimit[] {
    const { limit } = registered;
    return [
      ...tenantLimits(this.#parts.tenants, envelope.target.tenantId),
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
