/** The requests to people about calls: what a person is shown, and who is asked. */
import {
  type ApprovalRequest,
  type ApprovalRoute,
  approvalId,
  redriveRequest,
  retryRequest,
} from '../../shared/approvals/approval.ts';
import type { ApprovalHooks } from '../../shared/approvals/approval-hooks.ts';
import { PLAN_TOOL, planOf, requestOfNode } from '../../shared/approvals/plan-approval.ts';
import { compensated } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { nodeOf } from '../../shared/groups/node-state.ts';
import { denied } from '../../shared/policy/policy.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import { GIVE_A_CHANNEL, type SessionRecord } from '../../shared/sessions/session.ts';
import type { CallRecord } from '../../shared/store/calls/call-record.ts';
import type { ApprovalRecords } from '../../shared/store/ports.ts';
import type { Tier } from '../../shared/tools/tool.ts';
import type { ResolvedTool, ToolCatalogue } from '../tools/tool-catalogue.ts';
import { type AskedPlan, planRequestFor, tierOfApproval } from './plan-requests.ts';
import { originOf } from './request-origin.ts';

/** A call that a person has to decide on, and why. */
export interface AskedApproval {
  readonly envelope: ToolCallEnvelope;
  readonly tool: ResolvedTool;
  readonly session: SessionRecord;
  readonly policyResult: PolicyResult;
  readonly callId: string;
  readonly generation: string;
  readonly submittedBy?: string | undefined;
  /** When a delayed call starts. */
  readonly startAtMs?: number | undefined;
}

export interface ApprovalRequestsDeps {
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
   * The request to a person about a call. Throws `PERMISSION_DENIED` when the session reaches no person, or a hook denies the call first,
   * and `HOOK_FAILED`.
   */
  async create(asked: AskedApproval): Promise<ApprovalRequest> {
    const { envelope, tool, session, policyResult } = asked;
    const { routeOf, now, settings } = this.#deps;
    const route = await routeOf(session);
    if (route === undefined) throw unreachable(tool, policyResult);
    const request = requestFor(asked, route, await now(), settings.policy.approvalLimitMs);
    await this.#runHooks(request, envelope.requestId);
    return request;
  }

  /** The request to a person about a plan. Throws as `create` does. */
  async createForPlan(asked: Omit<AskedPlan, 'route' | 'createdAtMs' | 'limitMs'>): Promise<ApprovalRequest> {
    const { routeOf, now, settings, hooks } = this.#deps;
    const route = await routeOf(asked.session);
    if (route === undefined)
      throw unreachable(
        { name: PLAN_TOOL.name, tier: tierOfApproval(asked.plan) },
        { reason: 'a person must approve it', rule: '' },
      );
    const limitMs = settings.policy.approvalLimitMs;
    const request = planRequestFor({ ...asked, route, createdAtMs: await now(), limitMs });
    await hooks.requested(request, asked.envelope.requestId);
    return request;
  }

  /**
   * The request to a person about a call that shall run again. Throws `CALL_NOT_RESOLVABLE` when the earlier request has expired, and the
   * error of a hook.
   */
  async createAgain(
    { callId, request, attempts, readAtMs }: CallRecord,
    approvalId: string,
    why: 'retry' | 'redrive',
  ): Promise<ApprovalRequest> {
    const { approvals, catalogue, hooks, settings } = this.#deps;
    const known = (await approvals.read(approvalId))?.request;
    const before = known?.plan === undefined ? known : nodeRequest(known, callId, request);
    if (before === undefined || before.callId !== callId)
      throw new PawlError(
        'CALL_NOT_RESOLVABLE',
        `Call ${callId} cannot run again: the approval that it ran under is not there any more. Resolve it as succeeded or failed.`,
      );
    const tool = catalogue.peek(before.tool.namespace, before.tool.name);
    const life = {
      generation: String(readAtMs),
      tool: tool === undefined ? before.tool : toolOf(tool),
      createdAtMs: readAtMs,
      expiresAtMs: readAtMs + settings.policy.approvalLimitMs,
    };
    const again =
      why === 'redrive' ? redriveRequest(before, life) : retryRequest(before, { ...life, attempts: attempts.length });
    if (hooks.hasHooks) await hooks.requested(again, request.envelope.requestId);
    return again;
  }

  /** A call that exists already asks no person again. */
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
    `${reason}, and neither this session nor one above it has a channel to a person: ${GIVE_A_CHANNEL}`,
    rule,
  );
}

function requestFor(asked: AskedApproval, route: ApprovalRoute, createdAtMs: number, limitMs: number): ApprovalRequest {
  const { envelope, tool, session, policyResult, callId, generation, submittedBy, startAtMs } = asked;
  const { params } = envelope.payload;
  const { justification } = params;
  const paramsDigest = digest(canonicalJson(params));
  const undone = compensated(envelope);
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
    reason: undone === undefined ? policyResult.reason : `it undoes the call ${undone}, and ${policyResult.reason}`,
    // Approving a compensation does not approve the call itself.
    ...(undone === undefined ? { amendment: policyResult.amendment ?? { kind: 'same-parameters', paramsDigest } } : {}),
    route,
    ...(startAtMs === undefined ? {} : { startAtMs }),
    createdAtMs,
    expiresAtMs: Math.max(createdAtMs, startAtMs ?? 0) + limitMs,
  };
}

/** The request about a node's own call, which ran under the approval of its plan. */
function nodeRequest(
  plan: ApprovalRequest,
  callId: string,
  { envelope, planned }: CallRecord['request'],
): ApprovalRequest | undefined {
  const node = planned === undefined ? undefined : planOf(plan).nodes[nodeOf(planned.key)];
  if (node === undefined) return undefined;
  const { namespace, tool: name, version, definition, tier, effects } = node;
  const tool = { name, namespace, version, definition, tier, effects, annotations: {} };
  return requestOfNode(plan, { callId, tool, params: envelope.payload.params });
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
