/**
 * Budgets limit calls, cost units and time, per call, turn, session tree and tenant. Each limit that concerns a call is an account. The
 * step that claims a call takes from all its accounts, or from none.
 */
import { z } from 'zod';
import { type ToolCallEnvelope, turnOf } from '../calls/envelope.ts';
import { PawlError } from '../errors/failure.ts';
import { canonicalJson } from '../schema/canonical-json.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import { defaultsOf } from '../schema/tagged-union.ts';
import type { OperationCost } from '../tools/operation-cost.ts';
import type { ToolBudget } from '../tools/tool-variant.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { MAX_KEPT_MS } from '../util/time.ts';
import { matches } from '../util/wildcard.ts';

const amount = z.number().min(0).max(Number.MAX_SAFE_INTEGER);
const limits = {
  calls: amount.int().optional(),
  /** Each call takes its tool's `budget.costUnits`, or 1 where the tool has none. */
  costUnits: amount.optional(),
  /** The time for which the code of tools ran. A call is refused once the time is spent. */
  timeMs: amount.optional(),
};
const limitsSchema = z.strictObject(limits);
export type BudgetLimits = z.output<typeof limitsSchema>;

/** A session's own budget; calls of the sessions below it take from it, too. */
export const budgetSchema = z.strictObject({
  ...limits,
  /** The limits of each turn: the tag `turn:ID`, or the `correlationId`. */
  perTurn: limitsSchema.optional(),
  /** `timeMs` covers the whole call, with its queue and retries. */
  perCall: z.strictObject({ costUnits: amount.optional(), timeMs: amount.positive().optional() }).optional(),
});
export type Budget = z.output<typeof budgetSchema>;

const DAY_MS = 24 * 3_600_000;

export const budgetSettingsSchema = z.strictObject({
  /** The key is a tenant's ID, or a pattern with `*`: each tenant that matches has its own account. */
  tenants: z
    .record(
      z.string().min(1),
      z.strictObject({
        ...limits,
        /** The window begins with the first call; when it ends, the account is full again. */
        windowMs: z.number().int().positive().max(MAX_KEPT_MS).default(DAY_MS),
      }),
    )
    .default({}),
});
type BudgetSettings = z.output<typeof budgetSettingsSchema>;

/** The cost of a call: that of the most specific entry of the tool's budget that matches the parameters, or the tool's own. */
export function costUnitsOf(
  { budget = {}, inputSchema }: { readonly budget?: ToolBudget | undefined; readonly inputSchema: JsonSchema },
  params: Readonly<Record<string, unknown>>,
): number {
  const { costUnits = 1, costs = [] } = budget;
  if (costs.length === 0) return costUnits;
  // Values are compared as the worker gets them: JSON drops undefined, and -0 is 0.
  const values: Readonly<Record<string, unknown>> = { ...defaultsOf(inputSchema, params), ...defined(params) };
  const conditions = ({ when }: OperationCost) => Object.entries(when);
  const matchesParams = (cost: OperationCost) =>
    conditions(cost).every(
      ([name, value]) => Object.hasOwn(values, name) && canonicalJson(values[name]) === canonicalJson(value),
    );
  const [bestMatch] = costs
    .filter(matchesParams)
    .sort((one, other) => conditions(other).length - conditions(one).length || other.costUnits - one.costUnits);
  return bestMatch?.costUnits ?? costUnits;
}

/** A session with a budget that its calls, and those of the sessions below it, take from. */
export interface SessionBudget {
  readonly sessionKey: string;
  readonly budget: Budget;
}

export interface Account {
  /** A name that is unique among all accounts; `store/limits` makes a key of it. */
  readonly name: string;
  /** The name for people: `session trip`. */
  readonly title: string;
  readonly limits: BudgetLimits;
  /** The time that the account is kept after its last call, or after its first one with `window`. */
  readonly keptMs: number;
  readonly window: boolean;
}

/** The accounts that a call takes from when it is claimed, and its cost. */
export interface BudgetCharge {
  readonly accounts: readonly Account[];
  readonly costUnits: number;
}

export interface ToolLimits {
  readonly title: string;
  readonly perMinute?: number | undefined;
  readonly perTurn?: number | undefined;
  readonly perSession?: number | undefined;
}

const SESSION_KEPT_MS = 30 * 24 * 3_600_000;
const TURN_KEPT_MS = 24 * 3_600_000;

interface ChargeRequest {
  readonly envelope: ToolCallEnvelope;
  /** `namespace.name`. */
  readonly tool: string;
  readonly sessionKey: string;
  readonly tenantId?: string | undefined;
  readonly budgets?: readonly SessionBudget[] | undefined;
  readonly settings: BudgetSettings;
  readonly toolLimits: readonly ToolLimits[];
}

/** All accounts that a call takes from; usually none. */
export function accountsOf(request: ChargeRequest): readonly Account[] {
  const { envelope, budgets = [], settings, toolLimits, tenantId } = request;
  if (budgets.length === 0 && toolLimits.length === 0 && tenantId === undefined) return [];
  const accounts: Account[] = [];
  const turn = turnOf(envelope) ?? envelope.target.correlationId;
  for (const [pattern, { windowMs, ...limits }] of Object.entries(settings.tenants))
    if (tenantId !== undefined && matches(pattern, tenantId))
      accounts.push({
        name: accountName('tenant', pattern, tenantId),
        title: `tenant ${tenantId}`,
        limits,
        keptMs: windowMs,
        window: true,
      });
  for (const { sessionKey, budget } of budgets) {
    const { perTurn, perCall: _each, ...limits } = budget;
    if (Object.keys(limits).length > 0) accounts.push(sessionAccount(sessionKey, limits));
    if (perTurn !== undefined && turn !== undefined)
      accounts.push({
        name: accountName('turn', sessionKey, turn),
        title: `turn ${turn} of session ${sessionKey}`,
        limits: perTurn,
        keptMs: TURN_KEPT_MS,
        window: false,
      });
  }
  for (const limit of toolLimits) accounts.push(...toolAccounts(request, limit, turn));
  return accounts;
}

export function sessionAccount(sessionKey: string, limits: BudgetLimits): Account {
  const name = accountName('session', sessionKey);
  return { name, title: `session ${sessionKey}`, limits, keptMs: SESSION_KEPT_MS, window: false };
}

function toolAccounts({ tool, sessionKey }: ChargeRequest, limit: ToolLimits, turn: string | undefined): Account[] {
  const { title, perMinute, perTurn, perSession } = limit;
  const account = (
    scope: string,
    calls: number,
    retention: Pick<Account, 'keptMs' | 'window'>,
    turnOfCall?: string,
  ) => ({
    name: accountName('tool', scope, sessionKey, tool, title, ...(turnOfCall === undefined ? [] : [turnOfCall])),
    title: `${title} for ${tool} ${scope}`,
    limits: { calls },
    ...retention,
  });
  return [
    ...(perMinute === undefined ? [] : [account('in a minute', perMinute, { keptMs: 60_000, window: true })]),
    ...(perTurn === undefined || turn === undefined
      ? []
      : [account('in a turn', perTurn, { keptMs: TURN_KEPT_MS, window: false }, turn)]),
    ...(perSession === undefined
      ? []
      : [account('in a session', perSession, { keptMs: SESSION_KEPT_MS, window: false })]),
  ];
}

/** Joins parts, each preceded by its length, so that no two lists of parts give the same name. */
function accountName(...parts: readonly string[]): string {
  return parts.map((part) => `${part.length}:${part}`).join('');
}

/** Checks the limits per call, and returns the call's time limit. Throws `BUDGET_EXHAUSTED` for a call that costs too much. */
export function checkCall(budgets: readonly SessionBudget[] | undefined, costUnits: number): number | undefined {
  let timeMs: number | undefined;
  for (const { sessionKey, budget } of budgets ?? []) {
    const { perCall } = budget;
    if (perCall?.costUnits !== undefined && costUnits > perCall.costUnits)
      throw new PawlError(
        'BUDGET_EXHAUSTED',
        `The call costs ${costUnits} units; one call of session ${sessionKey} may cost ${perCall.costUnits}.`,
        {
          issues: [
            { path: 'budget.perCall.costUnits', message: `${costUnits} asked for, ${perCall.costUnits} allowed` },
          ],
        },
      );
    if (perCall?.timeMs !== undefined) timeMs = Math.min(timeMs ?? perCall.timeMs, perCall.timeMs);
  }
  return timeMs;
}

export const UNITS = ['calls', 'costUnits', 'timeMs'] as const;
export type Unit = (typeof UNITS)[number];
const UNIT_NAMES: Readonly<Record<Unit, string>> = { calls: 'calls', costUnits: 'cost units', timeMs: 'milliseconds' };

/** The failure of a call that an account cannot pay, with the limit and the amount spent. */
export function budgetExhausted(
  account: Account,
  unit: Unit,
  { spent, requested, leftMs }: { readonly spent: number; readonly requested: number; readonly leftMs: number },
): PawlError {
  const limit = account.limits[unit] ?? 0;
  const callNote = spent < limit ? ` and this call takes ${requested}` : '';
  const retryHint = account.window && leftMs > 0 ? { retryAfterMs: leftMs } : {};
  return new PawlError(
    'BUDGET_EXHAUSTED',
    `The budget of ${account.title} is spent: ${spent} of ${limit} ${UNIT_NAMES[unit]}${callNote}.`,
    {
      issues: [{ path: `budget.${unit}`, message: `${account.title}: ${spent} of ${limit} spent` }],
      details: { account: account.title, unit, spent, limit, ...retryHint },
    },
  );
}
