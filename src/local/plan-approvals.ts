/**
 * The approvals of plans without a fleet. The program's function decides once on the whole plan. Each of its calls is then compared with the
 * plan that was shown, as by a worker of a fleet.
 */
import { planRequestFor } from '../producer/approvals/plan-requests.ts';
import { callEnvelope } from '../producer/calls/call-envelope.ts';
import type { Submission } from '../producer/calls/submission.ts';
import type { PlanApprovals, PlanToApprove } from '../producer/groups/plan-approvals.ts';
import { type ApprovalRequest, buildDecision, digestOf, PLAN_VALID_MS } from '../shared/approvals/approval.ts';
import { PLAN_TOOL } from '../shared/approvals/plan-approval.ts';
import type { CompensatedCall } from '../shared/calls/compensation.ts';
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { envelopeOf, refusal } from '../shared/calls/outcome.ts';
import { PawlError } from '../shared/errors/failure.ts';
import type { NextCall } from '../shared/groups/group.ts';
import { APPROVAL_KEY } from '../shared/groups/node-state.ts';
import type { PolicyResult } from '../shared/policy/policy-request.ts';
import type { SessionRecord } from '../shared/sessions/session.ts';
import type { ApprovalRecord } from '../shared/store/approvals/approvals.ts';
import { type Clock, uuidv7 } from '../shared/util/time.ts';
import { pendingRunOf } from '../workers/approvals/approval-gate.ts';
import { PlanDecisions } from '../workers/approvals/plan-decisions.ts';
import type { Attempt } from '../workers/attempt/attempt-state.ts';

export interface LocalPlanApprovalsDeps {
  readonly clock: Clock;
  /** Throws `PERMISSION_DENIED` when the program does not approve. */
  decide(request: ApprovalRequest): Promise<void>;
  callOf(callId: string): Promise<CompensatedCall | undefined>;
}

/** The decisions are the program's own. */
const BY = 'approve';

export class LocalPlanApprovals implements Pick<PlanApprovals, 'whyUnreachable' | 'create'> {
  readonly #deps: LocalPlanApprovalsDeps;
  readonly #decisions: PlanDecisions;
  /** The approved plans, by approval ID. */
  readonly #approved = new Map<string, ApprovalRecord>();
  /** The calls that run under them, by idempotency key. */
  readonly #planned = new Map<string, NonNullable<NextCall['planned']>>();
  /** Ends the wait for a decision, by the ID of the call that waits. */
  readonly #waiting = new Map<string, (result: ToolResultEnvelope) => void>();

  constructor(deps: LocalPlanApprovalsDeps) {
    this.#deps = deps;
    const read = async (id: string) => this.#approved.get(id);
    this.#decisions = new PlanDecisions({ approvals: { read }, callOf: (callId) => deps.callOf(callId) });
  }

  async whyUnreachable(): Promise<undefined> {}

  async create(plan: PlanToApprove): Promise<ApprovalRequest> {
    const { clock } = this.#deps;
    const { planId, session } = plan;
    const { namespace, name } = PLAN_TOOL;
    return planRequestFor({
      ...plan,
      callId: `${planId}${APPROVAL_KEY}`,
      envelope: callEnvelope(plan.plan.target, name, { planId }, { namespace }, clock),
      route: { sessionKey: session.sessionKey, channel: { kind: 'local' } },
      createdAtMs: clock.now(),
      limitMs: PLAN_VALID_MS,
    });
  }

  /** The decision is requested when the plan is driven. */
  async open(): Promise<void> {}

  submit(request: ApprovalRequest): Submission {
    const { callId } = request;
    const ids = { requestId: uuidv7(), toolName: PLAN_TOOL.name, callId };
    const { promise, resolve } = Promise.withResolvers<ToolResultEnvelope>();
    this.#waiting.set(callId, resolve);
    this.#decide(request).then(
      () =>
        resolve(envelopeOf({ ...ids, status: 'success', durationMs: 0, attempts: 0, output: { content: null } }, ids)),
      (error: PawlError) => resolve(refusal(error, ids)),
    );
    const result = promise.finally(() => this.#waiting.delete(callId));
    return { kind: 'pending', callId, requestId: ids.requestId, result, stop: () => {} };
  }

  /** False when no plan waits under this ID. */
  cancel(callId: string): boolean {
    const resolve = this.#waiting.get(callId);
    resolve?.(refusal(new PawlError('CANCELLED'), { requestId: uuidv7(), toolName: PLAN_TOOL.name, callId }));
    return resolve !== undefined;
  }

  async #decide(request: ApprovalRequest): Promise<void> {
    await this.#deps.decide(request);
    const { paramsDigest } = request;
    const input = { decision: 'approve', digest: digestOf(request), by: BY, paramsDigest } as const;
    const decision = buildDecision(request, input, this.#deps.clock.now());
    this.#approved.set(request.id, { state: 'approved', request, decision, announced: true });
  }

  /** Notes that a call runs under the approval of its plan. */
  cover({ envelope, planned }: Pick<NextCall, 'envelope' | 'planned'>): void {
    const { idempotencyKey } = envelope.payload;
    if (planned !== undefined && idempotencyKey !== undefined) this.#planned.set(idempotencyKey, planned);
  }

  /** Whether the approval of its plan covers a call. Throws `APPROVAL_INVALID` for a call that the plan did not show. */
  async covers(attempt: Attempt, session: SessionRecord, policy: PolicyResult): Promise<boolean> {
    const planned = this.#planned.get(attempt.envelope.payload.idempotencyKey ?? '');
    const { askedForTaint = [] } = policy;
    const isShown = askedForTaint.every((source) => planned?.taint?.includes(source));
    if (planned === undefined || !isShown) return false;
    const decision = await this.#decisions.find(attempt, planned, { about: pendingRunOf(attempt, session), policy });
    if (typeof decision !== 'string') return true;
    throw new PawlError('APPROVAL_INVALID', `The approval of this call does not hold: ${decision}.`);
  }

  /** Forgets the approval of a plan that has ended, and its calls. */
  forget(approvalId: string): void {
    this.#approved.delete(approvalId);
    for (const [key, planned] of this.#planned) if (planned.approvalId === approvalId) this.#planned.delete(key);
  }
}
