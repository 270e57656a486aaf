/** Charging budgets: calls and their cost with the claim, time after each attempt. */
import { type Account, type BudgetCharge, type BudgetLimits, UNITS } from '../../limits/budget.ts';
import type { Redis } from '../redis/connection.ts';
import type { FleetKeys } from '../redis/keys.ts';
import { Script } from '../redis/script.ts';

const takeScript = new Script(new URL('./budgets-take.lua', import.meta.url), [], 'once');
const returnScript = new Script(new URL('./budgets-refund.lua', import.meta.url), [], 'once');
const spendTimeScript = new Script(new URL('./spend-time.lua', import.meta.url), [], 'once');

/** The part of a ledger's context that budgets need. */
interface BudgetContext {
  readonly redis: Redis;
  readonly fleet: Pick<FleetKeys, 'budget'>;
}

export async function spendTime(access: BudgetContext, names: readonly string[], timeMs: number): Promise<void> {
  const keys = names.map((name) => access.fleet.budget(name));
  if (keys.length > 0) await spendTimeScript.run(access.redis, keys, [Math.max(0, Math.round(timeMs))]);
}

export async function spent(access: BudgetContext, name: string): Promise<Required<BudgetLimits>> {
  const [calls, costUnits, timeMs] = await access.redis.hmget(access.fleet.budget(name), ...UNITS);
  return { calls: Number(calls ?? 0), costUnits: Number(costUnits ?? 0), timeMs: Number(timeMs ?? 0) };
}

/** A budget that does not suffice: its index, the unit, the amount spent, and the time left, ms. */
export type Spent = readonly [budget: number, unit: number, spent: string, leftMs: number];

/**
 * Takes from all budgets of a call, or says which is spent: for a cluster, where they are on another node than the call. A call that
 * does not run then has `giveBack`; a producer that dies in between has spent it.
 */
export async function reserve(
  access: BudgetContext,
  { accounts, costUnits }: BudgetCharge,
): Promise<{ readonly spent: Spent } | { giveBack(): Promise<void> }> {
  const keys = accounts.map(({ name }) => access.fleet.budget(name));
  const answer = await takeScript.run(access.redis, keys, [costUnits, ...accounts.flatMap(limitArguments)]);
  if (answer[0] === 'spent') return { spent: answer.slice(1) as unknown as Spent };
  return {
    giveBack: async () => {
      await returnScript.run(access.redis, keys, [costUnits]);
    },
  };
}

function limitArguments({ limits, keptMs, window }: Account): (string | number)[] {
  const { calls = '', costUnits = '', timeMs = '' } = limits;
  return [calls, costUnits, timeMs, keptMs, window ? '1' : '0'];
}

export function budgetArguments(access: BudgetContext, spends: BudgetCharge | undefined): (string | number)[] {
  if (spends === undefined) return [0, 0];
  const { accounts, costUnits } = spends;
  const one = (account: Account) => [access.fleet.budget(account.name), ...limitArguments(account)];
  return [accounts.length, costUnits, ...accounts.flatMap(one)];
}
