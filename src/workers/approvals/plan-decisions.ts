/** Caches the decisions on plans. All calls of a plan run under one decision, and a plan may be large, so it is read and checked once. */
import type { ApprovalRequest, Decision, PendingRun } from '../../shared/approvals/approval.ts';
import { isPlanAsShown, planMismatch } from '../../shared/approvals/plan-approval.ts';
import { type CompensatedCall, compensatedCallId } from '../../shared/calls/compensation.ts';
import type { PlannedCall } from '../../shared/groups/group.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { asksToEscalate } from '../../shared/policy/sandbox-policy.ts';
import type { ApprovalRecords } from '../../shared/store/ports.ts';
import { LimitedMap } from '../../shared/util/limited-map.ts';
import type { Attempt } from '../attempt/attempt-state.ts';

export interface PlanDecisionsDeps {
  readonly approvals: Pick<ApprovalRecords, 'read'>;
  /** Reads the call that another one undoes. Without it, no plan's decision covers a call that undoes one. */
  callOf?(callId: string): Promise<CompensatedCall | undefined>;
}

interface DecidedPlan {
  readonly request: ApprovalRequest;
  readonly decision: Decision;
}

const MAX_CACHED = 16;

export class PlanDecisions {
  readonly #deps: PlanDecisionsDeps;
  /** The newest entry last. An approved plan does not change. */
  readonly #cache = new LimitedMap<string, DecidedPlan>(MAX_CACHED);

  constructor(deps: PlanDecisionsDeps) {
    this.#deps = deps;
  }

  /** The decision that covers a call of a plan, or the reason why none does. */
  async find(
    attempt: Attempt,
    planned: PlannedCall,
    { about: pendingRun, policy }: { readonly about: PendingRun; readonly policy: PolicyResult },
  ): Promise<Decision | string> {
    const plan = await this.#plan(planned.approvalId);
    if (plan === undefined) return 'no decision on its plan with a valid signature is stored';
    const { params } = attempt.envelope.payload;
    const mismatch = planMismatch(plan.request, plan.decision, {
      ...pendingRun,
      key: planned.key,
      params,
      idempotencyKey: await this.#keyOf(attempt),
      askedForTaint: policy.askedForTaint,
      unconfined: policy.unconfined,
      escalates: asksToEscalate,
    });
    return mismatch ?? plan.decision;
  }

  async #plan(approvalId: string): Promise<DecidedPlan | undefined> {
    const cached = this.#cache.get(approvalId);
    if (cached !== undefined) return cached;
    const record = await this.#deps.approvals.read(approvalId);
    if (record?.decision === undefined || record.state !== 'approved' || !isPlanAsShown(record.request))
      return undefined;
    const { request, decision } = record;
    this.#cache.set(approvalId, { request, decision });
    return { request, decision };
  }

  /** The idempotency key of a node's call: its own, or that of the call that it undoes. */
  async #keyOf({ envelope }: Attempt): Promise<string | undefined> {
    const undoneCallId = compensatedCallId(envelope);
    if (undoneCallId === undefined) return envelope.payload.idempotencyKey;
    return (await this.#deps.callOf?.(undoneCallId))?.request.envelope.payload.idempotencyKey;
  }
}
