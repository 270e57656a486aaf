/** A call's share of budgets, and its priority. */
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { accountsOf, checkCall, costUnitsOf } from '../../shared/limits/budget.ts';
import { tenantWeight } from '../../shared/limits/tenant.ts';
import { toolLimits } from '../../shared/policy/policy-layers.ts';
import type { PolicyRequest } from '../../shared/policy/policy-request.ts';
import { admittedInflight, priorityOf, queueNameOf } from '../../shared/queues/priority.ts';
import type { Priority } from '../../shared/queues/priority-names.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { Claim } from '../../shared/store/calls/claim/claim.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';

export interface CallAdmission {
  /** The call. It has a deadline if a budget limits its time. */
  readonly envelope: ToolCallEnvelope;
  readonly priority: Priority;
  readonly maxInflight: number;
  readonly queueName: string;
  readonly spends?: NonNullable<Claim['spends']>;
}

/** Throws `BUDGET_EXHAUSTED` for a call that costs too much by itself, and `CONTRACT_INVALID` for an unknown importance. */
export function admissionOf(
  envelope: ToolCallEnvelope,
  tool: ResolvedTool,
  session: SessionRecord,
  {
    settings,
    shards,
    startsAtMs,
    ...policyContext
  }: Pick<PolicyRequest, 'registry' | 'channel'> & {
    readonly settings: Settings;
    /** The number of shards of the tool's tier. Each of them has an equal part of the tier's capacity. */
    readonly shards: number;
    readonly startsAtMs: number;
  },
): CallAdmission {
  const priority = priorityOf(envelope, session);
  const costUnits = costUnitsOf(tool, envelope.payload.params);
  const { maxCallsPerTurn: perTurn, maxCallsPerSession: perSession } = tool.budget ?? {};
  const timeMs = checkCall(session.budgets, costUnits);
  const toolBudget =
    perTurn === undefined && perSession === undefined ? [] : [{ title: 'its tool', perTurn, perSession }];
  const accounts = accountsOf({
    envelope,
    tool: qualifiedName(tool),
    sessionKey: session.sessionKey,
    tenantId: session.tenantId,
    budgets: session.budgets,
    settings: settings.budgets,
    toolLimits: [...toolBudget, ...toolLimits({ tool, session, policy: settings.policy, ...policyContext })],
  });
  return {
    envelope: timeMs === undefined ? envelope : deadlineBy(envelope, startsAtMs + timeMs),
    priority,
    maxInflight: admittedInflight(priority, Math.ceil(settings.admission.maxInflight / shards)),
    queueName: queueNameOf(priority, session.tenantId, tenantWeight(settings.tenants, session.tenantId)),
    ...(accounts.length === 0 ? {} : { spends: { accounts, costUnits } }),
  };
}

function deadlineBy(envelope: ToolCallEnvelope, latestMs: number): ToolCallEnvelope {
  const deadlineAtMs = Math.min(envelope.control.deadlineAtMs ?? latestMs, latestMs);
  return { ...envelope, control: { ...envelope.control, deadlineAtMs } };
}

/** The names of the budgets that are charged with the time of attempts. */
export function timedOf(spends: Claim['spends']): { readonly timed?: readonly string[] } {
  const timed = (spends?.accounts ?? []).filter(({ limits }) => limits.timeMs !== undefined).map(({ name }) => name);
  return timed.length === 0 ? {} : { timed };
}
