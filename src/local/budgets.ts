/** The budgets of one process, with the fleet's rules (`budget.ts`). */
import { UNITS } from '../shared/limits/budget.ts';
import type { Claim, ClaimAnswer } from '../shared/store/calls/claim/claim.ts';

interface Usage {
  calls: number;
  costUnits: number;
  timeMs: number;
  untilMs: number;
}

export class LocalBudgets {
  readonly #usage = new Map<string, Usage>();

  /** The refusal of a call; undefined when its budgets allow it. */
  refusal({ callId, spends }: Claim, nowMs: number): Extract<ClaimAnswer, { kind: 'spent' }> | undefined {
    for (const account of spends?.accounts ?? []) {
      const usage = this.#current(account.name, nowMs);
      for (const unit of UNITS) {
        const limit = account.limits[unit];
        if (limit === undefined) continue;
        const requested = unit === 'calls' ? 1 : unit === 'costUnits' ? (spends?.costUnits ?? 0) : 0;
        const spent = usage?.[unit] ?? 0;
        const leftMs = usage === undefined ? 0 : usage.untilMs - nowMs;
        if (sum(spent, requested) > limit || (unit === 'timeMs' && spent >= limit))
          return { kind: 'spent', callId, account, unit, spent, leftMs };
      }
    }
    return undefined;
  }

  take({ spends }: Claim, nowMs: number): void {
    for (const { name, keptMs, window } of spends?.accounts ?? []) {
      const usage = this.#current(name, nowMs) ?? { calls: 0, costUnits: 0, timeMs: 0, untilMs: nowMs + keptMs };
      usage.calls += 1;
      usage.costUnits = sum(usage.costUnits, spends?.costUnits ?? 0);
      if (!window) usage.untilMs = nowMs + keptMs;
      this.#usage.set(name, usage);
    }
  }

  spendTime(names: readonly string[], timeMs: number): void {
    for (const name of names) {
      const usage = this.#usage.get(name);
      if (usage !== undefined) usage.timeMs += timeMs;
    }
  }

  #current(name: string, nowMs: number): Usage | undefined {
    const usage = this.#usage.get(name);
    if (usage === undefined || usage.untilMs > nowMs) return usage;
    this.#usage.delete(name);
    return undefined;
  }
}

/** Adds with 15 digits, so that 0.2 and 0.1 are 0.3. */
function sum(spent: number, requested: number): number {
  return Number((spent + requested).toPrecision(15));
}
