/**
 * The last gate before a tool runs that a person must approve. The decision must cover the call exactly as it runs here, by this worker's
 * own registry and configuration. Nothing in a job can replace it.
 *
 * While the decision is open, the call's job is fetched once. The worker adds the tool's preview and notifies people through the
 * session's channel. Then it delays the job until the approval expires.
 */
import {
  type ApprovalRequest,
  callOf,
  type Decision,
  decidedEvent,
  decisionMismatch,
  expiredOutcome,
  type PendingRun,
} from '../../shared/approvals/approval.ts';
import type { ApprovalHooks } from '../../shared/approvals/approval-hooks.ts';
import { planPreview } from '../../shared/approvals/plan-approval.ts';
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { failedLifetime } from '../../shared/calls/call-state.ts';
import { outcomeWithoutRun } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { failureOf, PawlError } from '../../shared/errors/failure.ts';
import { denied } from '../../shared/policy/policy.ts';
import type { PolicyResult } from '../../shared/policy/policy-request.ts';
import { canonicalJson, digest } from '../../shared/schema/canonical-json.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import type { ApprovalRecord } from '../../shared/store/approvals/approvals.ts';
import type { StandingApprovals } from '../../shared/store/approvals/standing-approvals.ts';
import type { ApprovalRecords, CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { type AnyTool, qualifiedName } from '../../shared/tools/tool.ts';
import type { ToolPreview } from '../../shared/tools/tool-variant.ts';
import { escapeInvisible, escapeLine } from '../../shared/util/text/visible-text.ts';
import { type Attempt, nowMs, type RegisteredTool } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import { openTenantRoot } from '../workspace/workspace-roots.ts';
import { PlanDecisions, type PlanDecisionsDeps } from './plan-decisions.ts';
import { cutPreview, previewCall } from './preview.ts';
import type { UsedApprovals } from './used-approvals.ts';

interface ApprovalGateDeps extends Pick<PlanDecisionsDeps, 'callOf'> {
  readonly settings: Settings;
  readonly approvals: ApprovalRecords;
  readonly standingApprovals: Pick<StandingApprovals, 'find'>;
  readonly ledger: Pick<CallLedger, 'cancel'>;
  readonly used: Pick<UsedApprovals, 'begin' | 'end'>;
  readonly audit: RecordAudit;
  readonly hooks: ApprovalHooks;
  readonly log: Logger;
  /** Notifies people through the session's channel. False when that failed and should be tried again. */
  announce(record: ApprovalRecord): Promise<boolean>;
}

/** The delay of a job while no worker has the tool, or the channel is down. */
const RETRY_DELAY_MS = 2_000;
/** The job is due this long after the approval's expiry by Redis' clock. */
const GRACE_MS = 20;

const withoutPreview = (tool: AnyTool): AnyTool => ({ ...tool, preview: undefined }) as unknown as AnyTool;

export class ApprovalGate {
  readonly #deps: ApprovalGateDeps;

  readonly #plans: PlanDecisions;

  constructor(deps: ApprovalGateDeps) {
    this.#deps = deps;
    this.#plans = new PlanDecisions(deps);
  }

  // While the decision is open

  async handlePending(
    approvalId: string,
    atMs: number,
    toolNamed: (namespace: string, name: string) => RegisteredTool | undefined,
  ): Promise<JobOutcome> {
    const { approvals } = this.#deps;
    const record = await approvals.read(approvalId);
    if (record === undefined) return this.#refuseForged(approvalId);
    const remainingMs = record.request.expiresAtMs - atMs;
    if (record.state !== 'pending') return { kind: 'dropped' };
    if (remainingMs <= 0) return this.#expire(record);
    if (record.preview !== undefined && record.announced)
      this.#reportEarly(
        record.request.callId,
        'waits for a decision, and its job came before the time for that was over',
      );
    const { namespace, name } = record.request.tool;
    const postponed: JobOutcome = { kind: 'postponed', delayMs: Math.min(RETRY_DELAY_MS, remainingMs + GRACE_MS) };
    let preview = record.preview;
    if (preview === undefined && record.request.plan !== undefined) {
      preview = readable(cutPreview(planPreview(record.request)));
      await approvals.addPreview(approvalId, preview);
    } else if (preview === undefined) {
      const registered = toolNamed(namespace, name);
      if (registered === undefined || registered.definition !== record.request.tool.definition) return postponed;
      preview = await this.#previewOf(registered.tool, record.request);
      await approvals.addPreview(approvalId, preview);
    }
    if (!record.announced) {
      if (!(await this.#deps.announce({ ...record, preview }))) return postponed;
      await approvals.markAnnounced(approvalId);
    }
    return { kind: 'postponed', delayMs: remainingMs + GRACE_MS };
  }

  /** Reports that the job of a call that has ended was fetched again. */
  reportEnded(callId: string): void {
    this.#reportEarly(callId, 'has ended, and its job came again');
  }

  #reportEarly(callId: string, event: string): void {
    const reason = `the call ${event}: its job was promoted, retried or copied by hand, or its worker died. Nothing ran`;
    void this.#deps.audit({ type: 'refused', what: 'job', callId, reason });
  }

  /**
   * The tool's preview, escaped for people. It runs once: one that began and left nothing may have blocked or crashed its worker, and
   * would do so to each worker in turn.
   */
  async #previewOf(tool: AnyTool, { id, callId, params, session, tenantId }: ApprovalRequest): Promise<ToolPreview> {
    const { workspaceRoot } = session;
    const mayRun = tool.preview !== undefined && (await this.#deps.approvals.beginPreview(id));
    const refusedRoot = openTenantRoot({ tenantId, workspaceRoot }, this.#deps.settings);
    const preview = await previewCall(
      mayRun && refusedRoot === undefined ? tool : withoutPreview(tool),
      params,
      { workspaceRoot },
      undefined,
      (fault) => this.#deps.log.warn({ event: 'tool_answer_invalid', callId, toolName: tool.name }, fault),
    );
    return readable(preview);
  }

  async #expire(record: ApprovalRecord): Promise<JobOutcome> {
    const { request } = record;
    const answer = await this.#deps.approvals.expire(record, expiredOutcome(request));
    if (answer.kind === 'early') return { kind: 'postponed', delayMs: answer.remainingMs + GRACE_MS };
    if (answer.kind === 'decided') {
      void this.#deps.audit(decidedEvent(request, 'expired'));
      await this.#deps.hooks.ended(record, 'expired');
    }
    return { kind: 'dropped' };
  }

  /** Refuses a call that waits for an approval without a valid signature. */
  async #refuseForged(approvalId: string): Promise<JobOutcome> {
    const callId = callOf(approvalId);
    const outcome = outcomeWithoutRun('', failureOf('APPROVAL_INVALID'));
    const life = failedLifetime(this.#deps.settings.ttl);
    const ending = { state: 'failed', beforeStart: outcome, betweenAttempts: outcome, ...life } as const;
    if (callId !== '') await this.#deps.ledger.cancel(callId, ending);
    return { kind: 'dropped' };
  }

  // Before the effect

  /**
   * The parameters that may run: the call's own, or those that the approver edited. Throws `PERMISSION_DENIED` without an approval, and
   * `APPROVAL_INVALID` when the approval does not cover the call.
   */
  async requireApproval(
    attempt: Attempt,
    session: SessionRecord,
    policy: PolicyResult,
  ): Promise<Readonly<Record<string, unknown>>> {
    const { callId, envelope, started, registered, running, workerId } = attempt;
    const { tool } = registered;
    const { params } = envelope.payload;
    const pendingRun = pendingRunOf(attempt, session);
    const { approvalId } = started;
    const { sessionKey } = session;
    const { askedForTaint, unconfined } = policy;
    const search = { sessionKey, tool: pendingRun.tool, envelope, askedForTaint, unconfined, nowMs: pendingRun.nowMs };
    const standing = approvalId === undefined ? await this.#deps.standingApprovals.find(search) : undefined;
    const used = {
      callId,
      tool: qualifiedName(tool),
      sessionKey,
      fence: started.fence,
      worker: workerId,
      tenantId: session.tenantId,
    };
    if (standing !== undefined) {
      await this.#deps.audit({ type: 'approval-used', approvalId: standing.approvalId, by: standing.by, ...used });
      return params;
    }
    const use = useOf(started);
    if (use === undefined) throw denied(tool, `${policy.reason}, and no person has approved this call`, policy.rule);
    const planned = approvalId === undefined ? started.request.planned : undefined;
    const decision =
      planned === undefined
        ? await this.#decisionOn(use.approvalId, pendingRun)
        : await this.#plans.find(attempt, planned, { about: pendingRun, policy });
    if (typeof decision === 'string') throw this.#refused(callId, decision);
    const refusal = await this.#deps.used.begin(use.name, {
      fence: started.fence,
      token: running.token,
      mayRepeat: started.recovered || tool.effects !== 'once',
    });
    if (refusal !== undefined) throw this.#refused(callId, refusal);
    // The audit record comes first: an effect that cannot be recorded must not happen.
    await this.#deps.audit({ type: 'approval-used', approvalId: use.approvalId, by: decision.by, ...used });
    return decision.params ?? params;
  }

  /** The decision on the call itself, or the reason why none covers it. */
  async #decisionOn(approvalId: string, pendingRun: PendingRun): Promise<Decision | string> {
    const record = await this.#deps.approvals.read(approvalId);
    const decision = record?.decision;
    if (record === undefined || decision === undefined || record.state !== 'approved')
      return 'no decision with a valid signature is stored';
    return decisionMismatch(record.request, decision, pendingRun) ?? decision;
  }

  /** Records that an attempt under an approval has ended. Its outcome is written already, and stays when this record fails. */
  async release({ callId, started, running }: Attempt, outcome: JobOutcome): Promise<void> {
    const { fence } = started;
    const use = useOf(started);
    if (use === undefined || outcome.kind === 'abandoned') return;
    const isLast = outcome.kind === 'pending' && outcome.onExpiry !== 'retry';
    const ended = outcome.kind === 'finished' || outcome.kind === 'dropped' || isLast;
    const { used, log } = this.#deps;
    try {
      await used.end(use.name, { fence, token: running.token, ended });
    } catch (error) {
      log.error(
        { callId, approvalId: use.approvalId, error: String(error) },
        'the end of an attempt under an approval was not noted',
      );
    }
  }

  #refused(callId: string, reason: string): PawlError {
    void this.#deps.audit({ type: 'refused', what: 'approval', callId, reason });
    return new PawlError('APPROVAL_INVALID', `The approval of this call does not hold: ${reason}.`);
  }
}

/** The call of an attempt, as a decision must cover it. */
export function pendingRunOf(attempt: Attempt, session: SessionRecord): PendingRun {
  const { callId, envelope, registered } = attempt;
  const { name, namespace, version, tier, effects, annotations } = registered.tool;
  const { sessionKey: key, kind, workspaceRoot, actorId, tenantId } = session;
  return {
    callId,
    tool: { name, namespace, version, definition: registered.definition, tier, effects, annotations },
    paramsDigest: digest(canonicalJson(envelope.payload.params)),
    session: { key, kind, workspaceRoot, actorId },
    tenantId,
    actorId: envelope.target.actorId,
    nowMs: nowMs(attempt),
  };
}

/** Escapes a preview for people. */
function readable({ summary, details }: ToolPreview): ToolPreview {
  return { summary: escapeLine(summary), ...(details !== undefined && { details: escapeInvisible(details) }) };
}

/**
 * The approval that an attempt uses, and the name of its use. A plan's approval covers each of its calls until that is redriven. Undefined
 * when no person was asked.
 */
function useOf({
  approvalId,
  resolution,
  request: { planned },
}: Attempt['started']): { readonly approvalId: string; readonly name: string } | undefined {
  if (approvalId !== undefined) return { approvalId, name: `${approvalId} ${resolution ?? ''}` };
  if (planned === undefined || resolution !== undefined) return undefined;
  return { approvalId: planned.approvalId, name: `${planned.approvalId} ${planned.key}` };
}
