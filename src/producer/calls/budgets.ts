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
import type { Claim } from '../../shared/store/calls/claim.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { matches } from '../../shared/util/wildcard.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';

export interface CallAdmission {
  /** The call, with a deadline where its budget bounds its time. */
  readonly envelope: ToolCallEnvelope;
  readonly importance: Priority;
  readonly room: number;
  readonly line: string;
  readonly spends?: NonNullable<Claim['spends']>;
}

/** Throws `BUDGET_EXHAUSTED` for a call that alone costs too much, and `CONTRACT_INVALID` for an importance that does not exist. */
export function admissionOf(
  envelope: ToolCallEnvelope,
  tool: ResolvedTool,
  session: SessionRecord,
  {
    settings,
    shards,
    startsAtMs,
    ...about
  }: Pick<PolicyRequest, 'registry' | 'channel'> & {
    readonly settings: Settings;
    /** The number of shards of the tool's tier. Each of them has an equal part of the tier's capacity. */
    readonly shards: number;
    readonly startsAtMs: number;
  },
): CallAdmission {
  const importance = priorityOf(envelope, session);
  const costUnits = costUnitsOf(tool, envelope.payload.params);
  const { maxCallsPerTurn: perTurn, maxCallsPerSession: perSession } = tool.budget ?? {};
  const timeMs = checkCall(session.budgets, costUnits);
  const own = perTurn === undefined && perSession === undefined ? [] : [{ title: 'its tool', perTurn, perSession }];
  const accounts = accountsOf({
    envelope,
    tool: qualifiedName(tool),
    sessionKey: session.sessionKey,
    tenantId: session.tenantId,
    budgets: session.budgets,
    settings: settings.budgets,
    toolLimits: [...own, ...toolLimits({ tool, session, policy: settings.policy, ...about })],
    matches,
  });
  return {
    envelope: timeMs === undefined ? envelope : endingBy(envelope, startsAtMs + timeMs),
    importance,
    room: admittedInflight(importance, Math.ceil(settings.admission.maxInflight / shards)),
    line: queueNameOf(importance, session.tenantId, tenantWeight(settings.tenants, session.tenantId)),
    ...(accounts.length === 0 ? {} : { spends: { accounts, costUnits } }),
  };
}

function endingBy(envelope: ToolCallEnvelope, atMs: number): ToolCallEnvelope {
  const deadlineAtMs = Math.min(envelope.control.deadlineAtMs ?? atMs, atMs);
  return { ...envelope, control: { ...envelope.control, deadlineAtMs } };
}

/** The names of the budgets that the time of attempts is taken from. */
export function timedOf(spends: Claim['spends']): { readonly timed?: readonly string[] } {
  const timed = (spends?.accounts ?? []).filter(({ limits }) => limits.timeMs !== undefined).map(({ name }) => name);
  return timed.length === 0 ? {} : { timed };
}
