/** Builds approval requests: what a person is shown, and the route to a person. */

import {
  type ApprovalRequest,
  type ApprovalRoute,
  approvalId,
  redriveRequest,
  retryRequest,
} from '../../shared/approvals/approval.ts';
import type { ApprovalHooks } from '../../shared/approvals/approval-hooks.ts';
import { PLAN_TOOL, plannedNodeRequest, planOf } from '../../shared/approvals/plan-approval.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { nodeOf } from '../../shared/groups/node-state.ts';
import { denied } from '../../shared/policy/policy.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { CHANNEL_ADVICE, type SessionRecord } from '../../shared/sessions/session.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { ApprovalRecords } from '../../shared/store/ports.ts';
import type { Tier } from '../../shared/tools/tool.ts';
import type { ResolvedTool, ToolCatalogue } from '../tools/tool-catalogue.ts';
import { originOf, type PlanToRequest, planRequestFor, tierOfApproval } from './plan-requests.ts';

/** A call that a person has to approve, and policy's reason. */
export interface CallToApprove {
  readonly envelope: ToolCallEnvelope;
  readonly tool: ResolvedTool;
  readonly session: SessionRecord;
  readonly policyResult: PolicyResult;
  readonly callId: string;
  readonly generation: string;
  readonly submittedBy?: string | undefined;
  /** The start of a delayed call. */
  readonly startAtMs?: number | undefined;
}

interface ApprovalRequestsDeps {
  readonly settings: Settings;
  readonly approvals: Pick<ApprovalRecords, 'read' | 'idOfCall'>;
  readonly catalogue: Pick<ToolCatalogue, 'peek'>;
  readonly hooks: ApprovalHooks;
  routeOf(session: SessionRecord): Promise<ApprovalRoute | undefined>;
  /** Redis' clock. */
  now(): Promise<number>;
}

export class ApprovalRequests {
  readonly #deps: ApprovalRequestsDeps;

  constructor(deps: ApprovalRequestsDeps) {
    this.#deps = deps;
  }

  /**
   * The approval request of a call. Throws `PERMISSION_DENIED` when the session has no route to a person, or a hook denies the call, and
   * `HOOK_FAILED`.
   */
  async create(call: CallToApprove): Promise<ApprovalRequest> {
    const { envelope, tool, session, policyResult } = call;
    const { routeOf, now, settings } = this.#deps;
    const route = await routeOf(session);
    if (route === undefined) throw unreachable(tool, policyResult);
    const request = requestFor(call, route, await now(), settings.policy.approvalLimitMs);
    await this.#runHooks(request, envelope.requestId);
    return request;
  }

  /** The approval request of a plan. Throws as `create` does. */
  async createForPlan(subject: Omit<PlanToRequest, 'route' | 'createdAtMs' | 'limitMs'>): Promise<ApprovalRequest> {
    const { routeOf, now, settings, hooks } = this.#deps;
    const route = await routeOf(subject.session);
    if (route === undefined)
      throw unreachable(
        { name: PLAN_TOOL.name, tier: tierOfApproval(subject.plan) },
        { reason: 'a person must approve it', rule: '' },
      );
    const limitMs = settings.policy.approvalLimitMs;
    const request = planRequestFor({ ...subject, route, createdAtMs: await now(), limitMs });
    await hooks.requested(request, subject.envelope.requestId);
    return request;
  }

  /**
   * The approval request of a call that is to run again. Throws `CALL_NOT_RESOLVABLE` when the earlier request has expired, and the error
   * of a hook.
   */
  async createAgain(
    { callId, request, attempts, readAtMs }: CallRecord,
    approvalId: string,
    reason: 'retry' | 'redrive',
  ): Promise<ApprovalRequest> {
    const { approvals, catalogue, hooks, settings } = this.#deps;
    const stored = (await approvals.read(approvalId))?.request;
    const previous = stored?.plan === undefined ? stored : nodeRequest(stored, callId, request);
    if (previous === undefined || previous.callId !== callId)
      throw new PawlError(
        'CALL_NOT_RESOLVABLE',
        `Call ${callId} cannot run again: the approval that it ran under is not there any more. Resolve it as succeeded or failed.`,
      );
    const tool = catalogue.peek(previous.tool.namespace, previous.tool.name);
    const life = {
      generation: String(readAtMs),
      tool: tool === undefined ? previous.tool : toolOf(tool),
      createdAtMs: readAtMs,
      expiresAtMs: readAtMs + settings.policy.approvalLimitMs,
    };
    const renewed =
      reason === 'redrive'
        ? redriveRequest(previous, life)
        : retryRequest(previous, { ...life, attempts: attempts.length });
    if (hooks.hasHooks) await hooks.requested(renewed, request.envelope.requestId);
    return renewed;
  }

  /** Hooks do not run for a call that exists already: it creates no new request. */
  async #runHooks(request: ApprovalRequest, requestId: string): Promise<void> {
    const { hooks, approvals } = this.#deps;
    if (hooks.hasHooks && (await approvals.idOfCall(request.callId)) === undefined)
      await hooks.requested(request, requestId);
  }
}

function unreachable(
  tool: { readonly name: string; readonly tier: Tier },
  { reason, rule }: Pick<PolicyResult, 'reason' | 'rule'>,
): PawlError {
  return denied(
    tool,
    `${reason}, and neither this session nor one above it has a channel to a person: ${CHANNEL_ADVICE}`,
    rule,
  );
}

function requestFor(call: CallToApprove, route: ApprovalRoute, createdAtMs: number, limitMs: number): ApprovalRequest {
  const { envelope, tool, session, policyResult, callId, generation, submittedBy, startAtMs } = call;
  const { params } = envelope.payload;
  const { justification } = params;
  const paramsDigest = digest(canonicalJson(params));
  const undoneCallId = compensatedCallId(envelope);
  return {
    id: approvalId(callId, generation),
    callId,
    generation,
    tool: toolOf(tool),
    params,
    paramsDigest,
    ...originOf(session, envelope, submittedBy),
    ...(typeof justification === 'string' ? { justification } : {}),
    taint: taintOf(envelope.control.requestTags, session),
    rule: policyResult.rule,
    reason:
      undoneCallId === undefined
        ? policyResult.reason
        : `it undoes the call ${undoneCallId}, and ${policyResult.reason}`,
    // Approving a compensation does not approve the call itself.
    ...(undoneCallId === undefined
      ? { amendment: policyResult.amendment ?? { kind: 'same-parameters', paramsDigest } }
      : {}),
    route,
    ...(startAtMs !== undefined && { startAtMs }),
    createdAtMs,
    expiresAtMs: Math.max(createdAtMs, startAtMs ?? 0) + limitMs,
  };
}

/** The request of a node's own call, which ran under the approval of its plan. */
function nodeRequest(
  plan: ApprovalRequest,
  callId: string,
  { envelope, planned }: CallRecord['request'],
): ApprovalRequest | undefined {
  const node = planned === undefined ? undefined : planOf(plan).nodes[nodeOf(planned.key)];
  if (node === undefined) return undefined;
  const { namespace, tool: name, version, definition, tier, effects } = node;
  const tool = { name, namespace, version, definition, tier, effects, annotations: {} };
  return plannedNodeRequest(plan, { callId, tool, params: envelope.payload.params });
}

function toolOf({
  name,
  namespace,
  version,
  definition,
  tier,
  effects,
  annotations,
}: ResolvedTool): ApprovalRequest['tool'] {
  return { name, namespace, version, definition, tier, effects, annotations };
}
