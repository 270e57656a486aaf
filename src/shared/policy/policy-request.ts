/** The input and the result of the policy. */
import type { StandingApprovalRequest } from '../approvals/approval.ts';
import type { DedupeMode } from '../calls/envelope.ts';
import type { Effects } from '../retries/effects.ts';
import type { JsonSchema } from '../schema/json-schema.ts';
import type { SessionKind } from '../sessions/channel-kinds.ts';
import type { SkillRule } from '../sessions/skill-rule.ts';
import type { Tier } from '../tools/tool.ts';
import type { PolicyDecision, PolicySettings, ToolPolicyRecord } from './policy-file.ts';
import type { SandboxPolicy } from './sandbox-policy.ts';

export interface PolicyRequest {
  readonly tool: {
    readonly name: string;
    readonly namespace?: string;
    readonly tier: Tier;
    readonly effects?: Effects;
    /** The schema supplies defaults for parameters that a call leaves out. */
    readonly inputSchema?: JsonSchema;
  };
  readonly session: {
    readonly kind: SessionKind;
    readonly sessionKey?: string;
    readonly ancestors?: readonly string[];
    readonly agentId?: string | undefined;
    readonly tenantId?: string | undefined;
    /** Undefined for a call that was accepted before: it continues in any state of the session. */
    readonly state?: string | undefined;
    readonly skillRules?: readonly SkillRule[];
  };
  /** The operator's entry for this tool in `tools`. */
  readonly toolPolicy?: {
    readonly enabled?: boolean | undefined;
    readonly allowDisabledDedupe?: boolean | undefined;
    readonly states?: readonly string[] | undefined;
  };
  readonly policy?: PolicySettings;
  readonly registry?: ToolPolicyRecord | undefined;
  /** The kind of the channel that the session's requests reach. */
  readonly channel?: string | undefined;
  readonly params?: Readonly<Record<string, unknown>>;
  /** The sources outside of the fleet that the parameters may come from. */
  readonly taint?: readonly string[];
  /** The operator's setting for the sandbox of programs. */
  readonly sandbox?: SandboxPolicy;
  /** Whether a worker that would run the tool's programs has no working sandbox, although the operator has not turned it off. */
  readonly unconfined?: boolean;
  /** The mode that the caller requested; undefined where the call has been claimed already. */
  readonly dedupeMode?: DedupeMode | undefined;
  /** The tier of the queue that the call came through. */
  readonly queueTier?: Tier;
}

/** One rule's decision. `rule` is the rule's path: in the configuration, or below `built-in`. */
export interface Ruling {
  readonly decision: PolicyDecision;
  readonly rule: string;
  readonly reason: string;
}

export interface PolicyResult extends Ruling {
  /** The rulings of all rules that apply, the deciding one included. */
  readonly rulings: readonly Ruling[];
  /** The sources that the parameters may come from, if they are a reason to ask. */
  readonly askedForTaint?: readonly string[];
  /** With `ask`: programs of the call would run without a sandbox. */
  readonly unconfined?: true;
  /** With `ask`: the standing approval that a person could grant for the rest of the session. */
  readonly amendment?: Extract<StandingApprovalRequest, { kind: 'command-prefix' }>;
}

export const SEVERITY: Readonly<Record<PolicyDecision, number>> = { allow: 0, ask: 1, deny: 2 };
