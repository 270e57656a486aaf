/** Decides with which parameters a call may run: what policy allows, and what a person let run where policy asks one. */
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
import type { RuleFound } from '../connectors/declared-tools.ts';

type Params = Readonly<Record<string, unknown>>;

export interface CallPermission {
  readonly params: Params;
  /** A person decided on exactly these parameters. */
  readonly decided: boolean;
  /** The call's programs may run outside of the sandbox. */
  readonly escalated: boolean;
  /** Throws `PERMISSION_DENIED` for parameters of a hook that policy denies, or would ask a person about. */
  checkRewritten(params: Params): void;
}

export interface CallPermitsDeps {
  readonly settings: Pick<Settings, 'policy' | 'sandbox'>;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  readonly toolPolicyFor?: (tool: { readonly namespace: string; readonly name: string }) => RuleFound;
  /** Without a gate, a call that a person must approve is denied. */
  readonly gate?: Pick<ApprovalGate, 'pass'>;
  /** No sandbox works in this process, although one should: programs run once a person has decided on their call. */
  readonly unconfined?: boolean;
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
    const checkRewritten = (made: Params) => {
      const { decision, reason, rule } = requirePermission({ ...request, params: made });
      if (decision === 'ask')
        throw denied(tool, `${reason}, and a person cannot be asked about parameters that a hook made`, rule);
    };
    // A person's decision holds even where policy asks no person any more: the person may have edited the parameters.
    if (permission.decision === 'allow' && attempt.started.approvalId === undefined)
      return { params, decided: false, escalated: false, checkRewritten };
    const { gate } = this.#deps;
    if (gate === undefined) throw denied(tool, `${permission.reason}, and here no person can be asked`);
    const approved = await gate.pass(attempt, session, permission);
    if (approved !== params) {
      attempt.running.params = approved;
      // An approver may only edit parameters into others that policy lets pass.
      requirePermission({ ...request, params: approved });
    }
    const escalated = asksToEscalate(approved) || this.#isUnconfined(attempt);
    return { params: approved, decided: true, escalated, checkRewritten };
  }

  async #request(attempt: Attempt, session: SessionRecord): Promise<PolicyRequest> {
    const { settings, toolPolicyFor } = this.#deps;
    const { callId, envelope, tool, policy, started } = attempt;
    return {
      tool,
      // A call that was accepted while its session was open goes on.
      session: { ...session, state: undefined },
      toolPolicy: policy,
      policy: settings.policy,
      registry: await toolPolicyFor?.(tool),
      channel: started.request.channel ?? (await this.#channelOf(session)),
      params: envelope.payload.params,
      // The parameters cannot hold what the session saw after the call was made.
      taint: taintOf(envelope.control.requestTags, session, madeAtMs(attempt)),
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
 * When the call was made, at the earliest that a signed record says. Its generation is renewed when it is approved, or resolved as
 * `retry`. The approval that its record names is signed for that ID, or the call does not run.
 */
function madeAtMs({ generation, started: { approvalId, resolution } }: Attempt): number {
  const asked = approvalId === undefined ? generation : generationOf(approvalId);
  const resolved = resolution === undefined ? generation : firstGenerationOf(resolution);
  return Math.min(Number(generation), Number(asked), Number(resolved));
}
