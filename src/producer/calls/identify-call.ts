/** The step that computes a call's identity and charges to budgets, and decides whether a person has to approve it. */
import { type Identity, type IdentityRules, identify, paramsDigest, partitionFor } from '../../shared/calls/call-id.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { scopeOf, toolPolicy } from '../../shared/config/tool-settings.ts';
import { denied } from '../../shared/policy/policy.ts';
import type { Shards } from '../../shared/store/queues/shards.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { type Clock, uuidv7 } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { ResolvedTool, ToolCatalogue } from '../tools/tool-catalogue.ts';
import { admissionOf } from './budgets.ts';
import type { AuthorizedCall, IdentifiedCall, PassedCall } from './checked-call.ts';

export interface IdentifyDeps {
  readonly settings: Settings;
  readonly catalogue: Partial<Pick<ToolCatalogue, 'toolPolicyFor'>>;
  /** Without it, a call that a person must approve is denied. */
  readonly approvals?: Pick<ApprovalService, 'isGranted'>;
  /** Default: one shard of each tier. */
  readonly shards?: Pick<Shards, 'layout'>;
  readonly clock: Clock;
}

type CallRules = Pick<IdentityRules, 'shard' | 'independent' | 'submissionId'> & {
  readonly needsApproval: boolean;
  readonly isDelayed: boolean;
};

export class CallIdentifier {
  readonly #deps: IdentifyDeps;

  constructor(deps: IdentifyDeps) {
    this.#deps = deps;
  }

  /** Throws `PERMISSION_DENIED`, `BUDGET_EXHAUSTED` and `CONTRACT_INVALID`. */
  async identify(call: PassedCall): Promise<IdentifiedCall> {
    const { envelope, tool, circuit, session, policyResult, channel, start } = call;
    const { modes } = circuit;
    const digest = paramsDigest(envelope.payload.params, tool.inputSchema);
    const needsApproval = policyResult.decision === 'ask' && (await this.#needsApproval(call));
    const rules = { shard: session.shards?.[tool.tier] ?? 0, needsApproval, isDelayed: start !== undefined };
    const regular = this.#identityOf(envelope, tool, digest, rules);
    const identity =
      modes.dedupe === 'on'
        ? regular
        : this.#identityOf(envelope, tool, digest, { ...rules, submissionId: uuidv7(this.#deps.clock) });
    const admission = this.#admissionOf(call);
    return {
      envelope: admission.envelope,
      tool,
      paramsDigest: digest,
      identity,
      circuit,
      admission,
      channel,
      ...(start !== undefined && { start }),
      sessionActorId: session.actorId === envelope.target.actorId ? undefined : session.actorId,
      approvalNeed: needsApproval ? { policyResult, session } : undefined,
      ...(session.callbackUrl !== undefined && { callbackUrl: session.callbackUrl }),
      ...this.#loopGuard(tool, identity, modes),
      ...(modes.dedupe === 'shadow'
        ? { shadow: { slotId: regular.mergeId ?? regular.callId, derived: regular.mergeId !== undefined } }
        : {}),
    };
  }

  /** Gives the call an identity of its own: another call has used its key with other parameters. */
  makeIndependent(call: IdentifiedCall): IdentifiedCall {
    const { envelope, tool, paramsDigest: digest, approvalNeed } = call;
    const { shard } = partitionFor(call.identity.callId);
    const rules = {
      shard,
      needsApproval: approvalNeed !== undefined,
      isDelayed: call.start !== undefined,
      independent: true,
    };
    return { ...call, identity: this.#identityOf(envelope, tool, digest, rules) };
  }

  #admissionOf({ envelope, tool, session, channel, start }: PassedCall) {
    const { settings, catalogue, shards, clock } = this.#deps;
    return admissionOf(envelope, tool, session, {
      settings,
      registry: catalogue.toolPolicyFor?.(tool),
      channel,
      shards: shards?.layout[tool.tier].current ?? 1,
      startsAtMs: start?.atMs ?? clock.now(),
    });
  }

  /** Whether a person has to approve this call. Throws `PERMISSION_DENIED` without approvals. */
  async #needsApproval({ envelope, tool, session, policyResult }: AuthorizedCall): Promise<boolean> {
    const { approvals } = this.#deps;
    if (approvals === undefined)
      throw denied(tool, `${policyResult.reason}, and no person can be asked here`, policyResult.rule);
    return !(await approvals.isGranted(session, tool, envelope, policyResult));
  }

  /** With the kill switch on, no repetitions are counted. */
  #loopGuard(tool: ResolvedTool, { loopId }: Identity, modes: ReliabilityModes): Pick<IdentifiedCall, 'loop'> {
    if (loopId === undefined || !modes.enabled) return {};
    const { settings } = this.#deps;
    const toolGuard = defined(toolPolicy(settings, tool).loopGuard ?? {});
    return { loop: { loopId, guard: { ...settings.reliability.loopGuard, ...toolGuard } } };
  }

  #identityOf(
    envelope: ToolCallEnvelope,
    tool: ResolvedTool,
    digest: string,
    { shard, needsApproval, isDelayed, ...rules }: CallRules,
  ): Identity {
    const { settings } = this.#deps;
    const { reliability } = settings;
    // A person decides on one session's call, and may edit its parameters: other sessions do not share it.
    const isGlobal = scopeOf(settings, tool) === 'global' && !needsApproval;
    return identify(envelope, digest, {
      tier: tool.tier,
      // Shared calls are in the first shard, for all sessions.
      shard: isGlobal ? 0 : shard,
      scope: isGlobal ? 'global' : 'session',
      // A delayed call is not merged with a call of the same parameters that starts now.
      derive: reliability.deriveKeys === 'on' && !isDelayed,
      derivedReplay: reliability.derivedReplay,
      ...rules,
    });
  }
}
