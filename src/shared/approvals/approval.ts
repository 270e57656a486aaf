/**
 * An approval: one person's decision on exactly one call (A4 to A7, C24, I19; DESIGN, decision 9).
 *
 * pending    shown to people; the call waits without a worker slot
 * approved   the call is queued; its decision is bound to what was shown, and holds for one call and a limited time
 * denied     somebody said no; the call has failed
 * expired    nobody decided in time; the call has failed
 * cancelled  the call ended before anybody decided
 *
 * `pending` goes to one of the other four, once; `store/lua/decide.lua` is the one place that does it. All else in an approval
 * never changes after it was written.
 */

import { isHarmless } from '../calls/call-state.ts';
import { type Outcome, resultError } from '../calls/outcome.ts';
import { failureOf, PawlError } from '../errors/failure.ts';
import { canonicalJson, digest } from '../schema/canonical-json.ts';
import type { Effects, Tier, ToolAnnotations } from '../tools/tool.ts';
import { startOf } from '../util/text/text-cut.ts';
import { shownLine } from '../util/text/visible-text.ts';

export const APPROVAL_STATES = ['pending', 'approved', 'denied', 'expired', 'cancelled'] as const;
export type ApprovalState = (typeof APPROVAL_STATES)[number];
export type ApprovalEnd = Exclude<ApprovalState, 'pending'>;

/** An approved call must have begun this long after the decision. */
export const DECISION_VALID_MS = 60 * 60_000;

/** Where people are reached (A5): the first session with a channel, from the one that calls upwards. */
export interface ApprovalRoute {
  readonly sessionKey: string;
  readonly channel: { readonly kind: string; readonly [name: string]: unknown };
}

/** What people are asked. */
export interface ApprovalRequest {
  readonly id: string;
  readonly callId: string;
  /** The call's generation while it waits. */
  readonly generation: string;
  readonly tool: {
    readonly name: string;
    readonly namespace: string;
    readonly version: string;
    /** Digest of the published definition. */
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
  /** In whose name the call is made, by its caller's word: the session's actor is the one that is known to ask. */
  readonly actorId: string;
  readonly agentId?: string;
  /** Who handed the call in, where the front door knows them. */
  readonly submittedBy?: string;
  /** In the caller's words: why it wants this (C25). */
  readonly justification?: string;
  /** Where the parameters may come from: sources outside of the fleet (I23). */
  readonly taint: readonly string[];
  /** The policy's rule that asks, and why. */
  readonly rule: string;
  readonly reason: string;
  /** What could be remembered, so that calls like this one need no further decision (C24). */
  readonly amendment?: StandingApprovalRequest;
  readonly route: ApprovalRoute;
  /** Of a call whose outcome was unknown, and that somebody wants to run again: how many attempts it had. */
  readonly attemptsBefore?: number;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

/** Calls of a session that need no further decision: those of a tool with these parameters, or whose command starts like this. */
export type StandingApprovalRequest =
  | { readonly kind: 'command-prefix'; readonly prefix: readonly string[] }
  | { readonly kind: 'same-parameters'; readonly paramsDigest: string };

/** What a person decided. `digest` names what they saw. */
export interface Decision {
  readonly approvalId: string;
  readonly decision: 'approve' | 'deny';
  readonly digest: string;
  /** Of the parameters that shall run: the call's own, or the edited ones. */
  readonly paramsDigest: string;
  /** Edited by the approver; absent when they stay as asked for. */
  readonly params?: Readonly<Record<string, unknown>>;
  readonly by: string;
  readonly reason?: string;
  readonly decidedAtMs: number;
  readonly validUntilMs: number;
}

/** One per life of a call: a call that is asked anew, or resolved as `retry`, is approved anew. */
export function approvalId(callId: string, generation: string): string {
  return `${callId}.${generation}`;
}

/** The generation under which its call waits, which is also when it was asked for. */
export function generationOf(id: string): string {
  return id.slice(id.lastIndexOf('.') + 1);
}

/** The call that an approval's ID belongs to. */
export function callOf(id: string): string {
  return id.slice(0, id.lastIndexOf('.'));
}

/**
 * The digest of all that a decision is about. Whoever decides names it, and whoever runs the call computes it again from their own
 * registry: a change of any part makes another digest, and voids the decision.
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
    ]),
  );
}

const AGAIN = 'whether it took effect is unknown, and somebody wants it to run again';

/** What people are asked when a call is resolved as `retry`: whoever let it run once has not let it run again. */
export function askedAgain(
  request: ApprovalRequest,
  again: Pick<ApprovalRequest, 'generation' | 'tool' | 'createdAtMs' | 'expiresAtMs'> & { readonly attempts: number },
): ApprovalRequest {
  const { attempts, ...life } = again;
  const reason = request.attemptsBefore === undefined ? `${AGAIN}: ${request.reason}` : request.reason;
  return { ...request, ...life, id: approvalId(request.callId, life.generation), reason, attemptsBefore: attempts };
}

export interface DecisionAsked {
  readonly decision: 'approve' | 'deny';
  /** As shown to whoever decides. */
  readonly digest: string;
  readonly by: string;
  readonly reason?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly paramsDigest: string;
}

/** Builds a decision. Throws `APPROVAL_STALE` for another digest, `PERMISSION_DENIED` for whoever asked. */
export function decisionOn(request: ApprovalRequest, asked: DecisionAsked, nowMs: number): Decision {
  const expected = digestOf(request);
  if (asked.digest !== expected)
    throw new PawlError(
      'APPROVAL_STALE',
      `The decision names the digest ${JSON.stringify(startOf(asked.digest, 64))}, but approval ${request.id} has ${expected}: look at it again.`,
    );
  if (asked.decision === 'approve' && isRequester(request, asked.by))
    throw new PawlError('PERMISSION_DENIED', `${asked.by} asked for this call, so somebody else must approve it.`);
  const { decision, by, reason, params, paramsDigest } = asked;
  return {
    approvalId: request.id,
    decision,
    digest: expected,
    paramsDigest,
    ...(params === undefined || paramsDigest === request.paramsDigest ? {} : { params }),
    by,
    ...(reason === undefined ? {} : { reason }),
    decidedAtMs: nowMs,
    validUntilMs: nowMs + DECISION_VALID_MS,
  };
}

export function isRequester(request: ApprovalRequest, by: string): boolean {
  const { actorId, agentId, submittedBy, session } = request;
  return [actorId, session.actorId, agentId, submittedBy, session.key].includes(by);
}

/** What the worker that is about to run the call knows by itself. */
export interface AboutToRun {
  readonly callId: string;
  readonly tool: ApprovalRequest['tool'];
  /** Of the parameters as the caller sent them. */
  readonly paramsDigest: string;
  readonly session: ApprovalRequest['session'];
  readonly tenantId?: string | undefined;
  readonly actorId: string;
  /** Redis' clock. */
  readonly nowMs: number;
}

/** Says why a decision does not cover what is about to run; undefined when it does. */
export function whyNotCovered(request: ApprovalRequest, decision: Decision, run: AboutToRun): string | undefined {
  const about: ApprovalRequest = {
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
  if (decision.digest !== digestOf(about)) return 'the call, its tool or its session has changed since it was shown';
  if (decision.params === undefined && decision.paramsDigest !== run.paramsDigest)
    return 'it is about other parameters';
  if (isRequester(request, decision.by)) return 'whoever asked has approved it';
  if (run.nowMs > decision.validUntilMs) return 'it is too old';
  return undefined;
}

// What a call ends with that was not approved (A6)

export function deniedOutcome(request: ApprovalRequest, by: string, reason: string | undefined): Outcome {
  const why = reason === undefined || reason === '' ? '.' : `: ${shownLine(reason)}`;
  return refusedOutcome(request, `${shownLine(by)} denied the call${why}`);
}

export function expiredOutcome(request: ApprovalRequest): Outcome {
  const limitMs = request.expiresAtMs - request.createdAtMs;
  return refusedOutcome(request, `Nobody approved the call within ${limitMs / 1_000} s.`);
}

function refusedOutcome({ tool, attemptsBefore }: ApprovalRequest, message: string): Outcome {
  // Whoever does not let a call run again has not said that it did nothing before.
  const failure =
    attemptsBefore === undefined || isHarmless(tool.effects)
      ? failureOf('PERMISSION_DENIED', message)
      : failureOf('OUTCOME_UNKNOWN', `${message} Whether it took effect before is still unknown.`);
  const error = resultError(failure, 'error');
  return { status: 'error', toolName: tool.name, durationMs: 0, attempts: attemptsBefore ?? 0, error };
}
