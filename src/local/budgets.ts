/** The budgets of one process, with the fleet's rules (`budget.ts`). */
import { UNITS } from '../shared/limits/budget.ts';
import type { Claim, ClaimAnswer } from '../shared/store/calls/claim.ts';

interface Spent {
  calls: number;
  costUnits: number;
  timeMs: number;
  untilMs: number;
}

export class LocalBudgets {
  readonly #spent = new Map<string, Spent>();

  /** Why a call is not taken; undefined when it is. */
  refusal({ callId, spends }: Claim, nowMs: number): Extract<ClaimAnswer, { kind: 'spent' }> | undefined {
    for (const account of spends?.accounts ?? []) {
      const held = this.#held(account.name, nowMs);
      for (const unit of UNITS) {
        const limit = account.limits[unit];
        if (limit === undefined) continue;
        const asked = unit === 'calls' ? 1 : unit === 'costUnits' ? (spends?.costUnits ?? 0) : 0;
        const spent = held?.[unit] ?? 0;
        if (sum(spent, asked) > limit || (unit === 'timeMs' && spent >= limit))
          return { kind: 'spent', callId, account, unit, spent, leftMs: held === undefined ? 0 : held.untilMs - nowMs };
      }
    }
    return undefined;
  }

  take({ spends }: Claim, nowMs: number): void {
    for (const { name, keptMs, window } of spends?.accounts ?? []) {
      const held = this.#held(name, nowMs) ?? { calls: 0, costUnits: 0, timeMs: 0, untilMs: nowMs + keptMs };
      held.calls += 1;
      held.costUnits = sum(held.costUnits, spends?.costUnits ?? 0);
      if (!window) held.untilMs = nowMs + keptMs;
      this.#spent.set(name, held);
    }
  }

  spendTime(names: readonly string[], timeMs: number): void {
    for (const name of names) {
      const held = this.#spent.get(name);
      if (held !== undefined) held.timeMs += timeMs;
    }
  }

  #held(name: string, nowMs: number): Spent | undefined {
    const held = this.#spent.get(name);
    if (held === undefined || held.untilMs > nowMs) return held;
    this.#spent.delete(name);
    return undefined;
  }
}

/** To so many digits that 0.2 and 0.1 are 0.3. */
function sum(spent: number, asked: number): number {
  return Number((spent + asked).toPrecision(15));
}
