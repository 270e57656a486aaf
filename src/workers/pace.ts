/** The fleet's limits, as an attempt meets them: it starts, or goes back to its queue unspent until there is room. */
import { toolLimit } from '../shared/fleet-limit.ts';
import type { Logger } from '../shared/log.ts';
import type { FleetLimit, Limits, Starter } from '../shared/store/limits.ts';
import { type TenantSettings, tenantLimits } from '../shared/tenant.ts';
import { type Begun, timeLimitMs } from './begun.ts';
import { patiently } from './settlement.ts';

/** A slot outlives its attempt's time limit by as much as winding it down may take. */
const SLACK_MS = 5_000;
/** Who keeps slots while it waits for another asks again after that time, and keeps them on. */
const KEEPS_MS = 2_000;

export interface PaceParts {
  readonly limits: Pick<Limits, 'take' | 'release' | 'giveBack' | 'hasSlot' | 'hasStart'>;
  readonly tenants: TenantSettings;
  readonly log: Logger;
  onError(error: Error): void;
}

export interface Waiting {
  readonly waitMs: number;
  /** Once the call has been put aside: whether it may start after all. */
  isReady(): Promise<boolean>;
}

/** A slot that is held until then, unless it is given back. */
interface Held {
  readonly limit: FleetLimit;
  readonly untilMs: number;
}

export class Pace {
  readonly #parts: PaceParts;
  readonly #held = new WeakMap<Begun, readonly Held[]>();

  constructor(parts: PaceParts) {
    this.#parts = parts;
  }

  /** Undefined when the call may start now: under all limits that it counts against, taken one after the other. */
  async enter(begun: Begun): Promise<Waiting | undefined> {
    const { limits } = this.#parts;
    const leaseMs = timeLimitMs(begun, begun.registered.tool) + SLACK_MS;
    const starter = starterOf(begun);
    const held: Held[] = [];
    this.#held.set(begun, held);
    const all = this.#limitsOf(begun);
    for (const limit of all) {
      const answer = await limits.take(limit, starter, leaseMs);
      if (answer.kind === 'granted') {
        held.push({ limit, untilMs: answer.heldUntilMs });
        continue;
      }
      this.#held.delete(begun);
      // Who is nearly through keeps what it has: giving it back each time, it might never have all at once.
      const keeps = answer.kind === 'waiting' && answer.near && held.length > 0;
      const waitMs = keeps ? Math.min(answer.waitMs, KEEPS_MS) : answer.waitMs;
      const keptMs = keeps ? waitMs + SLACK_MS : 0;
      for (const each of held) await this.#patiently(begun, () => limits.giveBack(each.limit, starter, keptMs));
      // It may have been woken for one of these.
      for (const each of all.slice(held.length + 1)) await this.#patiently(begun, () => limits.giveBack(each, starter));
      const isReady = () =>
        answer.kind === 'waiting' ? limits.hasSlot(limit, starter) : limits.hasStart(limit, starter);
      return { waitMs, isReady };
    }
    return undefined;
  }

  /** Lets the next ones start. */
  async leave(begun: Begun): Promise<void> {
    const { limits, onError } = this.#parts;
    const held = this.#held.get(begun) ?? [];
    const release = ({ limit, untilMs }: Held) => limits.release(limit, starterOf(begun), untilMs);
    await Promise.all(held.map((each) => this.#patiently(begun, () => release(each)).catch(onError)));
  }

  /** Nobody else can use what is not given back: it ends with its lease, which may be long. */
  #patiently(begun: Begun, give: () => Promise<void>): Promise<void> {
    return patiently(give, begun.running, this.#parts.log);
  }

  /** In the same order for all calls, so that no two wait for each other. */
  #limitsOf({ envelope, registered, policy }: Begun): readonly FleetLimit[] {
    const { tool, limit } = registered;
    return [
      ...tenantLimits(this.#parts.tenants, envelope.target.tenantId),
      ...toolLimit(tool, policy.limits),
      ...(limit === undefined ? [] : [limit]),
    ];
  }
}

/** Each attempt is a start of its own. */
function starterOf({ running: { jobId }, started: { fence, firstStartedAtMs }, envelope: { target } }: Begun): Starter {
  return { jobId, start: `${jobId} ${fence}`, session: target.sessionKey, sinceMs: firstStartedAtMs };
}
