/**
 * An approval: one person's decision on exactly one call.
 *
 * pending    people are asked; the call waits without a worker slot
 * approved   the call is queued; the decision is bound to what was shown, and holds for one call and a limited time
 * denied     a person denied it; the call has failed
 * expired    no decision came in time; the call has failed
 * cancelled  the call ended before a decision
 *
 * `pending` becomes one of the other four, once, in `store/approvals/decide.lua` and nowhere else. All other fields of an approval never
 * change.
 */
import type { AuditEvent } from '../audit/audit-event.ts';
import { isHarmless } from '../calls/call-state.ts';
import { type Outcome, resultError } from '../calls/outcome.ts';
import { failureOf, PawlError } from '../errors/failure.ts';
import type { Effects } from '../retries/effects.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import { qualifiedName, type Tier, type ToolAnnotations } from '../tools/tool.ts';
import { defined } from '../util/json/omit-undefined.ts';
import { startOf } from '../util/text/text-cut.ts';
import { escapeLine } from '../util/text/visible-text.ts';

export const APPROVAL_STATES = ['pending', 'approved', 'denied', 'expired', 'cancelled'] as const;
export type ApprovalState = (typeof APPROVAL_STATES)[number];
export type ApprovalEnd = Exclude<ApprovalState, 'pending'>;

/** An approved call must start within this time of the decision, or of the time for which it was submitted. */
export const DECISION_VALID_MS = 60 * 60_000;
/** Each call of an approved plan must start within this time of the decision. */
export const PLAN_VALID_MS = 24 * 60 * 60_000;

/** The channel that reaches people: that of the first session with one, from the calling session upwards. */
export interface ApprovalRoute {
  readonly sessionKey: string;
  readonly channel: { readonly kind: string; readonly [name: string]: unknown };
}

/** The request that people decide on. */
export interface ApprovalRequest {
  readonly id: string;
  readonly callId: string;
  /** The call's generation while it waits. */
  readonly generation: string;
  readonly tool: {
    readonly name: string;
    readonly namespace: string;
    readonly version: string;
    /** The digest of the published definition. */
    readonly definition: string;
    readonly tier: Tier;
    readonly effects: Effects;
    readonly annotations: ToolAnnotations;
  };
  readonly params: Readonly<Record<string, unknown>>;
  readonly paramsDigest: string;
  readonly session: {
    readonly key: string;
    readonly kind: string;
    readonly workspaceRoot: string;
    readonly actorId: string;
  };
  readonly tenantId?: string;
  /** The actor that the caller names, unverified; the session's actor is verified. */
  readonly actorId: string;
  readonly agentId?: string;
  /** The caller that submitted the call, where the front door knows it. */
  readonly submittedBy?: string;
  /** The reason that the caller gives. */
  readonly justification?: string;
  /** The sources outside of the fleet that the parameters may come from. */
  readonly taint: readonly string[];
  /** The policy rule that requires approval, and its reason. */
  readonly rule: string;
  readonly reason: string;
  /** The standing approval that a person can grant along with the decision. */
  readonly amendment?: StandingApprovalRequest;
  readonly route: ApprovalRoute;
  /** The number of attempts before, for a call of unknown outcome that is to run again. */
  readonly attemptsBefore?: number;
  /** The plan that the decision is about. Its nodes are the parameters (`ShownPlan`), and no worker runs this call. */
  readonly plan?: string;
  /** The call starts at this time, and not when it is approved. */
  readonly startAtMs?: number;
  readonly createdAtMs: number;
  /** The time to decide ends here; for a delayed call it is counted from its start. */
  readonly expiresAtMs: number;
}

/**
 * A standing approval covers later calls of the session: those of a tool with these parameters, or those whose command starts with this
 * prefix.
 */
export type StandingApprovalRequest =
  | { readonly kind: 'command-prefix'; readonly prefix: readonly string[] }
  | { readonly kind: 'same-parameters'; readonly paramsDigest: string };

/** A person's decision. `digest` identifies what was shown. */
export interface Decision {
  readonly approvalId: string;
  readonly decision: 'approve' | 'deny';
  readonly digest: string;
  /** The digest of the parameters that run: the call's own, or the edited ones. */
  readonly paramsDigest: string;
  /** The edited parameters; absent when the approver left them unchanged. */
  readonly params?: Readonly<Record<string, unknown>>;
  readonly by: string;
  readonly reason?: string;
  readonly decidedAtMs: number;
  readonly validUntilMs: number;
}

/** An approval covers one life of a call: a call that is submitted again, or resolved as `retry`, needs a new one. */
export function approvalId(callId: string, generation: string): string {
  return `${callId}.${generation}`;
}

/** The generation under which the call waits, which is also the time of the request. */
export function generationOf(id: string): string {
  return id.slice(id.lastIndexOf('.') + 1);
}

export function callOf(id: string): string {
  return id.slice(0, id.lastIndexOf('.'));
}

/**
 * The digest of everything that a decision is about. The approver names it, and the worker that runs the call computes it from its own
 * registry. A change of any part changes the digest and voids the decision.
 */
export function digestOf(request: ApprovalRequest): string {
  const { tool, session } = request;
  return digest(
    canonicalJson([
      'approval',
      request.id,
      request.callId,
      request.paramsDigest,
      [tool.namespace, tool.name, tool.version, tool.definition, tool.tier],
      [session.key, session.kind, session.workspaceRoot, session.actorId],
      request.tenantId ?? null,
      request.actorId,
      request.expiresAtMs,
      ...(request.startAtMs === undefined ? [] : [request.startAtMs]),
      ...(request.plan === undefined ? [] : ['plan', request.plan]),
    ]),
  );
}

const RETRY_REASON = 'it is to run again, and whether it took effect before is unknown';

/** The request for running a call again that is resolved as `retry`: an approval of its first run does not cover a second one. */
export function retryRequest(
  request: ApprovalRequest,
  nextRun: Pick<ApprovalRequest, 'generation' | 'tool' | 'createdAtMs' | 'expiresAtMs'> & { readonly attempts: number },
): ApprovalRequest {
  const { attempts, ...nextFields } = nextRun;
  const reason = request.attemptsBefore === undefined ? `${RETRY_REASON}: ${request.reason}` : request.reason;
  return {
    ...request,
    ...nextFields,
    id: approvalId(request.callId, nextFields.generation),
    reason,
    attemptsBefore: attempts,
  };
}

const REDRIVE_REASON = 'it failed, and an operator runs it again';

/** The request for running a failed call again that is redriven. Denied, the call has failed as before, without doubt. */
export function redriveRequest(
  request: ApprovalRequest,
  nextRun: Pick<ApprovalRequest, 'generation' | 'tool' | 'createdAtMs' | 'expiresAtMs'>,
): ApprovalRequest {
  const { attemptsBefore: _, ...firstRun } = request;
  const reason = request.reason.startsWith(REDRIVE_REASON) ? request.reason : `${REDRIVE_REASON}: ${request.reason}`;
  return { ...firstRun, ...nextRun, id: approvalId(request.callId, nextRun.generation), reason };
}

type DecisionRequest = Omit<Decision, 'approvalId' | 'decidedAtMs' | 'validUntilMs'>;

/** Builds a decision. Throws `APPROVAL_STALE` for another digest, and `PERMISSION_DENIED` when the requester approves its own call. */
export function buildDecision(request: ApprovalRequest, input: DecisionRequest, nowMs: number): Decision {
  const expected = digestOf(request);
  if (input.digest !== expected)
    throw new PawlError(
      'APPROVAL_STALE',
      `The decision names the digest ${JSON.stringify(startOf(input.digest, 64))}, but approval ${request.id} has ${expected}: look at it again.`,
    );
  if (input.decision === 'approve' && isRequester(request, input.by))
    throw new PawlError(
      'PERMISSION_DENIED',
      `${input.by} requested this call and cannot approve it: another person must decide.`,
    );
  const { decision, by, reason, params, paramsDigest } = input;
  return {
    approvalId: request.id,
    decision,
    digest: expected,
    paramsDigest,
    ...(params === undefined || paramsDigest === request.paramsDigest ? {} : { params }),
    by,
    ...(reason !== undefined && { reason }),
    decidedAtMs: nowMs,
    validUntilMs:
      Math.max(nowMs, request.startAtMs ?? 0) + (request.plan === undefined ? DECISION_VALID_MS : PLAN_VALID_MS),
  };
}

function isRequester(request: ApprovalRequest, by: string): boolean {
  const { actorId, agentId, submittedBy, session } = request;
  return [actorId, session.actorId, agentId, submittedBy, session.key].includes(by);
}

/** The facts about a call that the worker determines itself before it runs the call. */
export interface PendingRun {
  readonly callId: string;
  readonly tool: ApprovalRequest['tool'];
  /** The digest of the parameters as the caller sent them. */
  readonly paramsDigest: string;
  readonly session: ApprovalRequest['session'];
  readonly tenantId?: string | undefined;
  readonly actorId: string;
  /** The time of Redis' clock. */
  readonly nowMs: number;
}

/** The reason why a decision does not cover the call that is about to run; undefined when it does. */
export function decisionMismatch(request: ApprovalRequest, decision: Decision, run: PendingRun): string | undefined {
  const currentRequest: ApprovalRequest = {
    ...request,
    callId: run.callId,
    tool: run.tool,
    paramsDigest: run.paramsDigest,
    session: run.session,
    actorId: run.actorId,
  };
  if (decision.decision !== 'approve') return 'it was denied';
  if (decision.approvalId !== request.id || request.callId !== run.callId) return 'it is about another call';
  if (request.tenantId !== run.tenantId) return 'it is about another tenant';
  if (decision.digest !== digestOf(currentRequest))
    return 'the call, its tool or its session has changed since it was shown';
  if (decision.params === undefined && decision.paramsDigest !== run.paramsDigest)
    return 'it is about other parameters';
  if (isRequester(request, decision.by)) return 'its requester approved it';
  if (run.nowMs > decision.validUntilMs) return 'it is too old';
  return undefined;
}

// The outcomes of decided calls

/** The outcome of the call that waits for the approval of a plan, once the plan is approved. */
export function approvedOutcome({ tool, createdAtMs }: ApprovalRequest, { by, decidedAtMs }: Decision): Outcome {
  const durationMs = Math.max(0, decidedAtMs - createdAtMs);
  return { status: 'success', toolName: tool.name, durationMs, attempts: 0, output: { content: { approvedBy: by } } };
}

export function deniedOutcome(request: ApprovalRequest, by: string, reason: string | undefined): Outcome {
  const suffix = reason === undefined || reason === '' ? '.' : `: ${escapeLine(reason)}`;
  return refusedOutcome(
    request,
    `${escapeLine(by)} denied the ${request.plan === undefined ? 'call' : 'plan'}${suffix}`,
  );
}

export function expiredOutcome(request: ApprovalRequest): Outcome {
  const { createdAtMs, startAtMs, expiresAtMs } = request;
  const limitMs = expiresAtMs - Math.max(createdAtMs, startAtMs ?? 0);
  const startNote = startAtMs === undefined || startAtMs <= createdAtMs ? '' : ' of its start';
  const subject = request.plan === undefined ? 'call' : 'plan';
  return refusedOutcome(request, `The ${subject} was not approved within ${limitMs / 1_000} s${startNote}.`);
}

function refusedOutcome({ tool, attemptsBefore }: ApprovalRequest, message: string): Outcome {
  // A denied retry does not prove that the earlier attempts did nothing.
  const failure =
    attemptsBefore === undefined || isHarmless(tool.effects)
      ? failureOf('PERMISSION_DENIED', message)
      : failureOf('OUTCOME_UNKNOWN', message);
  const error = resultError(failure, 'error');
  return { status: 'error', toolName: tool.name, durationMs: 0, attempts: attemptsBefore ?? 0, error };
}

/** The audit record of an approval that has ended. An expired one has no decision. */
export function decidedEvent(
  request: ApprovalRequest,
  state: 'approved' | 'denied' | 'expired',
  decision?: Decision,
): AuditEvent {
  const { id, callId, tool, session, tenantId } = request;
  return {
    type: 'approval-decided',
    approvalId: id,
    callId,
    tool: qualifiedName(tool),
    sessionKey: session.key,
    state,
    digest: digestOf(request),
    ...defined({ by: decision?.by, reason: decision?.reason }),
    edited: decision?.params !== undefined,
    params: decision?.params,
    tenantId,
  };
}
