/**
 * Approvals without a fleet. A function of the program decides instead of a person, before a call's first attempt. As in a fleet, the
 * decision covers the call's retries.
 */
import type { ApprovalService } from '../producer/approvals/approvals.ts';
import { denied } from '../shared/policy/policy.ts';
import type { PolicyResult } from '../shared/policy/policy-request.ts';
import type { SessionRecord } from '../shared/sessions/session.ts';
import type { Tier, ToolPreview } from '../shared/tools/tool.ts';
import type { Schedule } from '../shared/util/time.ts';
import type { ApprovalGate } from '../workers/approvals/approval-gate.ts';
import { previewCall } from '../workers/approvals/preview.ts';
import type { Attempt } from '../workers/attempt/attempt-state.ts';
import type { JobOutcome } from '../workers/attempt/job-outcome.ts';

/** The call as an approver sees it. */
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

export class LocalApprovals implements Service, Gate {
  readonly #approve: Approve;
  readonly #schedule: Schedule;
  readonly #approved = new Set<string>();

  constructor(approve: Approve, schedule: Schedule) {
    this.#approve = approve;
    this.#schedule = schedule;
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
    { callId, envelope, registered: { tool } }: Attempt,
    session: SessionRecord,
    { rule, reason }: PolicyResult,
  ): Promise<Readonly<Record<string, unknown>>> {
    const { params } = envelope.payload;
    if (this.#approved.has(callId)) return params;
    const { namespace, name, version, tier } = tool;
    const request: LocalApprovalRequest = {
      callId,
      tool: { namespace, name, version, tier },
      params,
      preview: await previewCall(tool, params, session, this.#schedule),
      sessionKey: session.sessionKey,
      actorId: envelope.target.actorId,
      rule,
      reason,
    };
    const decision = await this.#decide(request).catch((error: unknown) => {
      // The function may throw, such as a failed expectation of a test. The call is denied then.
      throw denied(tool, `\`approve\` failed: ${error instanceof Error ? error.message : String(error)}`, rule);
    });
    if (decision.decision !== 'approve') throw denied(tool, decision.reason ?? 'it was not approved', rule);
    this.#approved.add(callId);
    return params;
  }

  async #decide(request: LocalApprovalRequest): Promise<LocalDecision> {
    const answer: unknown = await this.#approve(request);
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
