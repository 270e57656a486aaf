/**
 * Serializers of calls, tools, circuits, approvals and audit records, for the API and the commands. Commands load this module without
 * the HTTP server.
 */
import { phaseOf } from '../../../shared/calls/call-state.ts';
import { envelopeOf, isUnresolved } from '../../../shared/calls/outcome.ts';
import { redactFields, secretsIn } from '../../../shared/errors/redaction.ts';
import type { ApprovalRecord, BriefApproval } from '../../../shared/store/approvals/approvals.ts';
import type { StandingApproval } from '../../../shared/store/approvals/standing-approvals.ts';
import type { AuditEntry } from '../../../shared/store/audit/audit-trail.ts';
import type { CallRecord } from '../../../shared/store/calls/call-record.ts';
import type { CatalogueContent } from '../../../shared/store/fleet/catalogue.ts';
import type { RedriveRecord } from '../../../shared/store/redrives/redrives.ts';
import { defined } from '../../../shared/util/json/omit-undefined.ts';
import { formatForDisplay } from '../../../shared/util/text/visible-text.ts';
import type { ApprovalListing } from '../../approvals/approvals.ts';
import type { EnforcedCircuit } from '../../circuits/circuit-effects.ts';
import type { DeadLetter, RedriveProgress } from '../../dead-letters/dead-letter-service.ts';
import type { SwitchedTool } from '../../tools/switched-tools.ts';

/** A call as lists show it, without its result, which may be large. */
export function callSummary(record: CallRecord) {
  const { request, callId, state, pendingUntilMs, worker } = record;
  const { envelope, tool } = request;
  const running = state === 'inflight';
  const outcome = running ? undefined : record.outcome;
  return {
    callId,
    requestId: envelope.requestId,
    tool: envelope.toolName,
    namespace: envelope.toolNamespace,
    toolVersion: tool.version,
    ...(tool.effects !== undefined && { effects: tool.effects }),
    session: envelope.target.sessionKey,
    actorId: envelope.target.actorId,
    state,
    phase: phaseOf(record),
    attempts: record.attempts,
    lostAttempts: record.lostAttempts,
    ...defined({ redrives: record.redrives, worker: running ? worker : undefined }),
    circuit: record.circuit,
    cancelRequested: record.cancelRequested,
    ...(request.startAtMs !== undefined && { startAtMs: request.startAtMs }),
    createdAtMs: record.createdAtMs,
    updatedAtMs: record.updatedAtMs,
    ...defined({ pendingUntilMs: running ? pendingUntilMs : undefined }),
    ...defined({ expiresAtMs: record.expiresAtMs, freeAtMs: record.freeAtMs }),
    ...defined({ status: outcome?.status, errorCode: outcome?.error?.code, settlement: outcome?.settlement }),
    ...(isUnresolved(outcome) ? { unresolved: true as const } : {}),
  };
}

/** A call that failed, as lists show it. */
export function deadLetterView({ record, failedAtMs }: DeadLetter) {
  const { envelope } = record.request;
  const { tenantId } = envelope.target;
  const { attempts, ...summary } = callSummary(record);
  return {
    ...summary,
    ...defined({ tenantId }),
    attempts: attempts.length,
    failedAtMs,
    code: record.outcome?.error?.code ?? '',
    message: record.outcome?.error?.message ?? '',
  };
}

/** A redrive, with the calls that it skipped, or with their number if those were not read. */
export function redriveView({ skipped, ...rest }: RedriveProgress | RedriveRecord) {
  return typeof skipped === 'number' ? { ...rest, skippedCount: skipped } : { ...rest, skipped };
}

export function callView(record: CallRecord) {
  const { callId, outcome, request } = record;
  const { envelope } = request;
  const { requestId, toolName } = envelope;
  const hasEnded = outcome !== undefined && record.state !== 'inflight';
  const result = hasEnded ? envelopeOf(outcome, { requestId, toolName, callId }) : undefined;
  const { idempotencyKey, params } = envelope.payload;
  const { deadlineAtMs } = envelope.control;
  return {
    ...callSummary(record),
    fence: record.fence,
    params: redactFields(params, secretsIn(params)),
    ...defined({ idempotencyKey, deadlineAtMs, startedAtMs: record.startedAtMs }),
    ...defined({ traceparent: envelope.trace.traceparent, result }),
  };
}

export function toolView(tool: CatalogueContent['tools'][number]) {
  const { name, namespace, version, tier, effects, description, inputSchema, outputSchema, annotations } = tool;
  const { title, icon, examples, variant, budget, parallel, timeoutMs, workers } = tool;
  return {
    ...{ name, namespace, version, tier, effects, description, inputSchema, annotations, timeoutMs, workers },
    ...defined({ outputSchema, title, icon, examples, variant, budget, parallel }),
  };
}

export function switchedToolView(tool: SwitchedTool) {
  return { ...toolView(tool), enabled: tool.off === undefined };
}

export function circuitView({ key, partition, circuit, failures, enforcement }: EnforcedCircuit) {
  return {
    key,
    tier: partition.tier,
    state: circuit.state,
    failures,
    enforcement,
    ...('openedAtMs' in circuit && circuit.openedAtMs !== undefined ? { openedAtMs: circuit.openedAtMs } : {}),
    ...('cooldownMs' in circuit ? { cooldownMs: circuit.cooldownMs } : {}),
    ...('reason' in circuit ? { reason: circuit.reason } : {}),
  };
}

/** An approval as lists, pages and channels show it. `shown` is for people, `params` for programs. */
export function approvalView({ record, digest }: ApprovalListing) {
  const { request, state, preview, decision, decidedAtMs } = record;
  const { tool, session, route: approvalRoute } = request;
  return {
    id: request.id,
    callId: request.callId,
    tool: tool.name,
    namespace: tool.namespace,
    toolVersion: tool.version,
    tier: tool.tier,
    effects: tool.effects,
    annotations: tool.annotations,
    params: request.params,
    shown: formatForDisplay(request.params),
    preview: preview ?? { summary: `Run ${tool.namespace}.${tool.name}`, details: formatForDisplay(request.params) },
    digest,
    state,
    requestedBy: session.actorId,
    actorId: request.actorId,
    session: session.key,
    sessionKind: session.kind,
    workspaceRoot: session.workspaceRoot,
    ...defined({ agentId: request.agentId, tenantId: request.tenantId, justification: request.justification }),
    shownIn: approvalRoute.sessionKey,
    channel: approvalRoute.channel.kind,
    taint: request.taint,
    rule: request.rule,
    reason: request.reason,
    ...defined({ amendment: request.amendment, startAtMs: request.startAtMs, planId: request.plan }),
    createdAtMs: request.createdAtMs,
    expiresAtMs: request.expiresAtMs,
    ...defined({ decidedAtMs, decidedBy: decision?.by }),
    ...defined({ decisionReason: decision?.reason, decidedParams: decision?.params }),
  };
}

/** A standing approval of a session, under the ID of the approval that created it. */
export function standingApprovalView({ sessionKey: session, tool, ...approval }: StandingApproval) {
  const { approvalId, amendment, by, grantedAtMs, validUntilMs } = approval;
  const { name, namespace, version: toolVersion } = tool;
  const decided = { by, grantedAtMs, validUntilMs };
  return { approvalId, session, tool: name, namespace, toolVersion, amendment, ...decided };
}

/** An approval as lists show it. Large parameters are truncated there, and `paramsBytes` is their full size. */
export function listedApprovalView({ record, digest }: ApprovalListing<BriefApproval>) {
  const { shortened, paramsBytes } = record;
  return { ...approvalView({ record, digest }), ...(shortened ? { shortened, paramsBytes } : {}) };
}

/** An earlier decision on the same tool. */
export function decisionView({ request, state, preview, decision, decidedAtMs }: ApprovalRecord) {
  return {
    id: request.id,
    state,
    summary: preview?.summary ?? request.tool.name,
    requestedBy: request.session.actorId,
    actorId: request.actorId,
    session: request.session.key,
    decidedBy: decision?.by,
    reason: decision?.reason,
    decidedAtMs,
  };
}

/** An audit record as lists show it. Its number and signature are absent until the record is chained. */
export function auditView({ record, seq, seal }: AuditEntry): object {
  return defined({ seq, ...record, seal });
}
