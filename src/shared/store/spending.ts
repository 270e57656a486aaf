/**
 * What is taken from budgets (I17): calls and their cost with the claim, time after each attempt.
 */
import { type Account, type Limits, UNITS } from '../budget.ts';
import type { Claim } from './claim.ts';
import type { LedgerAccess } from './ledger-access.ts';
import { Script } from './redis.ts';

const spendTimeScript = new Script('spend-time', 0);

export async function spendTime(access: LedgerAccess, names: readonly string[], timeMs: number): Promise<void> {
  const keys = names.map((name) => access.fleet.budget(name));
  await spendTimeScript.run(access.redis, [], [Math.max(0, Math.round(timeMs)), ...keys]);
}

export async function spent(access: LedgerAccess, name: string): Promise<Required<Limits>> {
  const [calls, costUnits, timeMs] = await access.redis.hmget(access.fleet.budget(name), ...UNITS);
  return { calls: Number(calls ?? 0), costUnits: Number(costUnits ?? 0), timeMs: Number(timeMs ?? 0) };
}

export function budgetArguments(access: LedgerAccess, spends: Claim['spends']): (string | number)[] {
  if (spends === undefined) return [0, 0];
  const { accounts, costUnits } = spends;
  const one = ({ name, limits, keptMs, window }: Account) => {
    const { calls = '', costUnits: cost = '', timeMs = '' } = limits;
    return [access.fleet.budget(name), calls, cost, timeMs, keptMs, window ? '1' : '0'];
  };
  return [accounts.length, costUnits, ...accounts.flatMap(one)];
}
