/**
 * The approval of a plan, on the producer's side. A call that no worker runs waits for the decision. So a plan's approval is listed,
 * announced, expired and cancelled like any other one, and survives every process.
 */
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import { PLAN_TOOL, shownPlan } from '../../shared/approvals/plan-approval.ts';
import { identify } from '../../shared/calls/call-id.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { circuitKey } from '../../shared/circuits/circuit-key.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { APPROVAL_KEY } from '../../shared/groups/node-state.ts';
import type { PlanDefinition } from '../../shared/groups/plan.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { CHANNEL_ADVICE, type SessionRecord } from '../../shared/sessions/session.ts';
import type { GroupRecord } from '../../shared/store/groups/groups.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { PlanToRequest } from '../approvals/plan-requests.ts';
import { tierOfApproval } from '../approvals/plan-requests.ts';
import { callEnvelope } from '../calls/call-envelope.ts';
import type { Submission } from '../calls/submission.ts';

/** The field of a plan's record with the approval request, without the plan itself. */
export const APPROVAL_FIELD = 'approval';

const NO_CHANNEL = `neither this session nor one above it has a channel to a person: ${CHANNEL_ADVICE}`;

interface PlanApprovalsDeps {
  readonly approvals: Pick<ApprovalService, 'routeOf' | 'requestForPlan' | 'requested'>;
  readonly ledger: Pick<CallLedger, 'claim'>;
  readonly clock: Pick<Clock, 'now'>;
  result(callId: string): Promise<ToolResultEnvelope | undefined>;
}

export type PlanToApprove = Pick<PlanToRequest, 'planId' | 'plan' | 'session' | 'outside' | 'submittedBy'>;

export class PlanApprovals {
  readonly #deps: PlanApprovalsDeps;

  constructor(deps: PlanApprovalsDeps) {
    this.#deps = deps;
  }

  /** Why no person can decide; undefined when one can. */
  async whyUnreachable(session: SessionRecord): Promise<string | undefined> {
    return (await this.#deps.approvals.routeOf(session)) === undefined ? NO_CHANNEL : undefined;
  }

  /** Builds the approval request of a plan. Throws `PERMISSION_DENIED` and `HOOK_FAILED`. */
  async create(request: PlanToApprove): Promise<ApprovalRequest> {
    const { planId, plan, session } = request;
    const envelope = this.#envelope(planId, plan.target);
    const tier = tierOfApproval(plan);
    const { callId } = identify(envelope, planDigest(planId), {
      tier,
      shard: session.shards?.[tier] ?? 0,
      scope: 'session',
      derive: false,
      derivedReplay: 'same-request',
    });
    return this.#deps.approvals.requestForPlan({ ...request, callId, envelope });
  }

  /** Requests the approval, and waits for the decision. */
  async submit(request: ApprovalRequest, target: ToolCallEnvelope['target']): Promise<Submission> {
    const { callId } = request;
    const { requestId } = await this.open(request, target);
    const result = this.#deps.result(callId).then((ended) => ended ?? Promise.reject(new PawlError('UNKNOWN_CALL')));
    return { kind: 'pending', callId, requestId, result, stop: () => {} };
  }

  /** Requests the approval, unless that was done already. */
  async open(request: ApprovalRequest, target: ToolCallEnvelope['target']): Promise<ToolCallEnvelope> {
    const { approvals, ledger } = this.#deps;
    const { callId, generation, tool, plan = '' } = request;
    const envelope = this.#envelope(plan, target);
    const answer = await ledger.claim({
      callId,
      generation,
      mode: 'enforced',
      paramsDigest: planDigest(plan),
      request: {
        envelope,
        tool: { version: tool.version, definition: tool.definition, effects: tool.effects },
        idempotencyKey: envelope.payload.idempotencyKey ?? callId,
      },
      circuit: circuitKey({ hint: 'tool', tool: qualifiedName(PLAN_TOOL) }),
      keepJob: false,
      approval: request,
    });
    // The request is recorded in the audit trail before the program receives it.
    if (answer.kind === 'claimed' && answer.resubmitted !== true) await approvals.requested(request);
    return envelope;
  }

  #envelope(planId: string, target: ToolCallEnvelope['target']): ToolCallEnvelope {
    const { namespace, name } = PLAN_TOOL;
    const options = { namespace, idempotencyKey: `${planId}${APPROVAL_KEY}` };
    return callEnvelope(target, name, { planId }, options, this.#deps.clock);
  }
}

function planDigest(planId: string): string {
  return digest(canonicalJson({ planId }));
}

type StoredApproval = Omit<ApprovalRequest, 'params'>;

export function storedApproval({ params: _, ...request }: ApprovalRequest): StoredApproval {
  return request;
}

/** The request of a plan's record; undefined for a plan that needs no approval. */
export function approvalOf({ fields }: Pick<GroupRecord, 'fields'>): StoredApproval | undefined {
  return fields[APPROVAL_FIELD] as StoredApproval | undefined;
}

/** The request of a plan's record, with its parameters. */
export function fullApproval(
  stored: StoredApproval,
  { head, definition }: Pick<GroupRecord, 'head' | 'definition'>,
): ApprovalRequest {
  return { ...stored, params: { ...shownPlan(head.id, definition as PlanDefinition) } };
}
