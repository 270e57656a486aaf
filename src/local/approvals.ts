/**
 * Approvals without a fleet. A function of the program decides instead of a person, before a call's first attempt, or before a plan runs.
 * As in a fleet, the decision covers the call's retries, and all calls of the plan.
 */
import type { ApprovalService } from '../producer/approvals/approvals.ts';
import type { ApprovalRequest } from '../shared/approvals/approval.ts';
import { planPreview } from '../shared/approvals/plan-approval.ts';
import { PawlError, reasonOf } from '../shared/errors/failure.ts';
import { denied } from '../shared/policy/policy.ts';
import type { PolicyResult } from '../shared/policy/policy-request.ts';
import type { SessionRecord } from '../shared/sessions/session.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import type { Tier } from '../shared/tools/tool.ts';
import type { ToolPreview } from '../shared/tools/tool-variant.ts';
import type { Schedule } from '../shared/util/time.ts';
import { withinMs } from '../shared/util/wait.ts';
import type { ApprovalGate } from '../workers/approvals/approval-gate.ts';
import { previewCall } from '../workers/approvals/preview.ts';
import { type Attempt, remainingMs } from '../workers/attempt/attempt-state.ts';
import type { JobOutcome } from '../workers/attempt/job-outcome.ts';
import { LocalPlanApprovals, type LocalPlanApprovalsDeps } from './plan-approvals.ts';

/** The call, or the plan, as an approver sees it. A plan's tool is `pawl.plan`, and its nodes are the parameters. */
export interface LocalApprovalRequest {
  readonly callId: string;
  readonly tool: { readonly namespace: string; readonly name: string; readonly version: string; readonly tier: Tier };
  readonly params: Readonly<Record<string, unknown>>;
  /** The tool's description of what the call would do. */
  readonly preview: ToolPreview;
  readonly sessionKey: string;
  readonly actorId: string;
  /** The policy's rule that asks, and why. */
  readonly rule: string;
  readonly reason: string;
}

export interface LocalDecision {
  readonly decision: 'approve' | 'deny';
  readonly reason?: string;
}

export type Approve = (request: LocalApprovalRequest) => LocalDecision | Promise<LocalDecision>;

type Service = Pick<ApprovalService, 'routeOf' | 'isGranted' | 'requestFor' | 'requested' | 'cancelled'>;
type Gate = Pick<ApprovalGate, 'handlePending' | 'reportEnded' | 'requireApproval' | 'release'>;

interface LocalApprovalsDeps extends Pick<LocalPlanApprovalsDeps, 'clock' | 'callOf'> {
  readonly approve: Approve;
  readonly schedule: Schedule;
  readonly log: Pick<Logger, 'warn'>;
}

export class LocalApprovals implements Service, Gate {
  readonly plans: LocalPlanApprovals;
  readonly #deps: LocalApprovalsDeps;
  readonly #approved = new Set<string>();

  constructor(deps: LocalApprovalsDeps) {
    this.#deps = deps;
    this.plans = new LocalPlanApprovals({ ...deps, decide: (request) => this.#decideOnPlan(request) });
  }

  // The decision is made before the attempt, so a submitted call is never parked.

  async routeOf(): Promise<undefined> {}

  async isGranted(): Promise<boolean> {
    return true;
  }

  async requestFor(): Promise<never> {
    throw new Error('a call that needs no decision before it is queued asked for one');
  }

  async requested(): Promise<void> {}

  async cancelled(): Promise<void> {}

  // Before the effect

  async handlePending(): Promise<JobOutcome> {
    return { kind: 'dropped' };
  }

  reportEnded(): void {}

  /** Throws `PERMISSION_DENIED` when the call is denied. */
  async requireApproval(
    attempt: Attempt,
    session: SessionRecord,
    policy: PolicyResult,
  ): Promise<Readonly<Record<string, unknown>>> {
    const { callId, envelope, registered } = attempt;
    const { tool } = registered;
    const { params } = envelope.payload;
    if (this.#approved.has(callId) || (await this.plans.covers(attempt, session, policy))) return params;
    const { namespace, name, version, tier } = tool;
    const { rule, reason } = policy;
    const about = { sessionKey: session.sessionKey, actorId: envelope.target.actorId, rule, reason };
    const decide = async () => {
      const { schedule, log } = this.#deps;
      const preview = await previewCall(tool, params, session, schedule, (fault) =>
        log.warn({ event: 'tool_answer_invalid', callId, toolName: name }, fault),
      );
      await this.#decide({ callId, tool: { namespace, name, version, tier }, params, preview, ...about });
      return true;
    };
    // Nothing ran yet: without this limit, the call would end as one that may have had its effect.
    if ((await withinMs(decide(), remainingMs(attempt), this.#deps.schedule)) === undefined)
      throw new PawlError(
        'DEADLINE_EXCEEDED',
        '`approve`, or the tool’s `preview`, did not answer within the time limit of the call; nothing ran.',
      );
    this.#approved.add(callId);
    return params;
  }

  #decideOnPlan(request: ApprovalRequest): Promise<void> {
    const { callId, params, session, actorId, rule, reason } = request;
    const { namespace, name, version, tier } = request.tool;
    const about = { sessionKey: session.key, actorId, rule, reason };
    const preview = planPreview(request);
    return this.#decide({ callId, tool: { namespace, name, version, tier }, params, preview, ...about });
  }

  /** Throws `PERMISSION_DENIED` when the function does not approve, also when it throws, such as a failed expectation of a test. */
  async #decide(request: LocalApprovalRequest): Promise<void> {
    const { tool, rule } = request;
    const decision = await this.#ask(request).catch((error: unknown) => {
      throw denied(tool, `\`approve\` failed: ${reasonOf(error)}`, rule);
    });
    if (decision.decision !== 'approve') throw denied(tool, decision.reason ?? 'it was not approved', rule);
  }

  async #ask(request: LocalApprovalRequest): Promise<LocalDecision> {
    const answer: unknown = await this.#deps.approve(request);
    const { decision } = (answer ?? {}) as Partial<LocalDecision>;
    if (decision === 'approve' || decision === 'deny') return answer as LocalDecision;
    throw new Error(
      `it must answer { decision: 'approve' } or { decision: 'deny', reason? }; got ${JSON.stringify(answer) ?? typeof answer}`,
    );
  }

  async release({ callId }: Attempt, { kind }: JobOutcome): Promise<void> {
    if (kind === 'finished' || kind === 'dropped') this.#approved.delete(callId);
  }
}
