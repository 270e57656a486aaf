/** Decides with which parameters a call may run: those that policy allows, or that a person approved. */
import { generationOf } from '../../shared/approvals/approval.ts';
import { partitionFor } from '../../shared/calls/call-id.ts';
import type { Settings } from '../../shared/config/config.ts';
import { denied, requirePermission } from '../../shared/policy/policy.ts';
import type { PolicyRequest } from '../../shared/policy/policy-request.ts';
import { asksToEscalate } from '../../shared/policy/sandbox-policy.ts';
import { taintOf } from '../../shared/policy/taint.ts';
import type { SessionRecord } from '../../shared/sessions/session.ts';
import { firstGenerationOf } from '../../shared/store/calls/call-record.ts';
import { routeOf } from '../../shared/store/sessions/sessions.ts';
import type { ApprovalGate } from '../approvals/approval-gate.ts';
import type { Attempt } from '../attempt/attempt-state.ts';
import type { CallLookups, ToolServices, WorkerTools } from './executor-deps.ts';

type Params = Readonly<Record<string, unknown>>;

export interface CallPermission {
  readonly params: Params;
  /** A person approved exactly these parameters. */
  readonly isApproved: boolean;
  /** The call's programs may run outside of the sandbox. */
  readonly escalated: boolean;
  /** Throws `PERMISSION_DENIED` for parameters of a hook that policy denies, or would ask a person about. */
  checkRewritten(params: Params): void;
}

interface CallPermitsDeps
  extends Pick<WorkerTools, 'toolPolicyFor'>,
    Pick<CallLookups, 'sessionOf'>,
    Pick<ToolServices, 'unconfined'> {
  readonly settings: Pick<Settings, 'policy' | 'sandbox'>;
  /** Without a gate, a call that a person must approve is denied. */
  readonly gate?: Pick<ApprovalGate, 'requireApproval'>;
}

export class CallPermits {
  readonly #deps: CallPermitsDeps;

  constructor(deps: CallPermitsDeps) {
    this.#deps = deps;
  }

  /** Throws `PERMISSION_DENIED`, and `APPROVAL_INVALID` for an approval that does not cover the call. */
  async permit(attempt: Attempt, session: SessionRecord): Promise<CallPermission> {
    const { envelope, tool } = attempt;
    const { params } = envelope.payload;
    const request = await this.#request(attempt, session);
    const permission = requirePermission(request);
    const checkRewritten = (rewritten: Params) => {
      const { decision, reason, rule } = requirePermission({ ...request, params: rewritten });
      if (decision === 'ask')
        throw denied(tool, `${reason}, and a person cannot be asked about parameters that a hook made`, rule);
    };
    // A person's decision holds even when policy now allows the call: the person may have edited the parameters.
    if (permission.decision === 'allow' && attempt.started.approvalId === undefined)
      return { params, isApproved: false, escalated: false, checkRewritten };
    const { gate } = this.#deps;
    if (gate === undefined) throw denied(tool, `${permission.reason}, and here no person can be asked`);
    const approved = await gate.requireApproval(attempt, session, permission);
    if (approved !== params) {
      attempt.running.params = approved;
      // Policy must also allow the parameters that an approver edited.
      requirePermission({ ...request, params: approved });
    }
    const escalated = asksToEscalate(approved) || this.#isUnconfined(attempt);
    return { params: approved, isApproved: true, escalated, checkRewritten };
  }

  async #request(attempt: Attempt, session: SessionRecord): Promise<PolicyRequest> {
    const { settings, toolPolicyFor } = this.#deps;
    const { callId, envelope, tool, policy, started } = attempt;
    return {
      tool,
      // A call runs even if its session was closed after it was accepted.
      session: { ...session, state: undefined },
      toolPolicy: policy,
      policy: settings.policy,
      registry: await toolPolicyFor?.(tool),
      channel: started.request.channel ?? (await this.#channelOf(session)),
      params: envelope.payload.params,
      // The parameters cannot hold what the session saw after the call was made.
      taint: taintOf(envelope.control.requestTags, session, createdAtMs(attempt)),
      sandbox: settings.sandbox,
      unconfined: this.#isUnconfined(attempt),
      queueTier: partitionFor(callId).tier,
    };
  }

  #isUnconfined({ tool }: Attempt): boolean {
    return this.#deps.unconfined === true && tool.needs.includes('processes');
  }

  /** The channel of the session. Producers whose policy has no layer for channels do not record it with the call. */
  async #channelOf(session: SessionRecord): Promise<string | undefined> {
    if (Object.keys(this.#deps.settings.policy.channels).length === 0) return undefined;
    return (await routeOf(session, (key) => this.#deps.sessionOf(key)))?.channel.kind;
  }
}

/**
 * When the call was made: the earliest time that a signed record proves. Approving the call, or resolving it as `retry`, renews its
 * generation. The call only runs with an approval that is signed for the ID in its record.
 */
function createdAtMs({ generation, started: { approvalId, resolution } }: Attempt): number {
  const approvedGeneration = approvalId === undefined ? generation : generationOf(approvalId);
  const resolvedGeneration = resolution === undefined ? generation : firstGenerationOf(resolution);
  return Math.min(Number(generation), Number(approvedGeneration), Number(resolvedGeneration));
}
