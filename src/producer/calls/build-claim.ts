/** Builds the claim of a call, with the approval request if a person has to decide. */
import { callbackAddress } from '../../shared/callbacks/callback.ts';
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { scopeOf } from '../../shared/config/tool-settings.ts';
import type { PlannedCall } from '../../shared/groups/group.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import type { Claim } from '../../shared/store/calls/claim/claim.ts';
import { KEPT_PER_SECOND } from '../../shared/store/queues/jobs.ts';
import type { Clock } from '../../shared/util/time.ts';
import type { ApprovalService } from '../approvals/approvals.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import { timedOf } from './budgets.ts';
import type { IdentifiedCall, LoopGuard } from './checked-call.ts';
import type { SubmitOptions } from './submission.ts';

interface BuildClaimDeps {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly inboxId: string;
  readonly approvals?: Pick<ApprovalService, 'requestFor'>;
}

interface Submitter {
  readonly submittedBy: string | undefined;
  readonly planned: PlannedCall | undefined;
}

export class ClaimBuilder {
  readonly #deps: BuildClaimDeps;
  #markedSecond = 0;
  #markedCount = 0;

  constructor(deps: BuildClaimDeps) {
    this.#deps = deps;
  }

  /**
   * `record` is the audit record that the claim writes. Throws `PERMISSION_DENIED` when a person must approve the call and its session
   * reaches no person.
   */
  async build(call: IdentifiedCall, options: SubmitOptions, record?: string): Promise<Claim> {
    const { submittedBy, step, callbackUrl = call.callbackUrl } = options;
    const planned = plannedOf(call, options);
    const callback = callbackUrl === undefined ? undefined : callbackAddress(callbackUrl, call.envelope);
    const claim = {
      ...this.#baseClaim(call, { submittedBy, planned }, record),
      ...(callback !== undefined && { callback }),
      ...(step !== undefined && { step }),
    };
    const { approvalNeed, envelope, tool, start } = call;
    const { approvals } = this.#deps;
    // A start in the past can only match a call that exists already, so it needs no approval request.
    if (approvalNeed === undefined || approvals === undefined || start?.isPast === true || planned !== undefined)
      return claim;
    const { callId, generation } = claim;
    const startAtMs = start?.atMs;
    const approval = await approvals.requestFor({
      envelope,
      tool,
      ...approvalNeed,
      callId,
      generation,
      submittedBy,
      startAtMs,
    });
    return { ...claim, approval };
  }

  #baseClaim(call: IdentifiedCall, submitter: Submitter, record: string | undefined): Claim {
    const { envelope, tool, identity, circuit, shadow, loop, start } = call;
    const { maxInflight, queueName, spends } = call.admission;
    return {
      callId: identity.callId,
      maxInflight,
      fairQueue: queueName,
      mode: envelope.transport.dedupeMode,
      paramsDigest: call.paramsDigest,
      request: this.#requestOf(call, submitter),
      generation: String(this.#deps.clock.now()),
      circuit: circuit.key,
      keepJob: this.#marksJob(),
      once: tool.effects === 'once',
      inboxId: this.#deps.inboxId,
      ...(start !== undefined && { start }),
      ...(spends !== undefined && { spends }),
      ...(identity.mergeId !== undefined && { mergeId: identity.mergeId }),
      ...(shadow !== undefined && { shadow }),
      ...(loop !== undefined && {
        loop: { loopId: loop.loopId, windowMs: loop.guard.windowMs, refuseAt: refuseAt(loop.guard, circuit.modes) },
      }),
      ...(record !== undefined && { auditRecord: record }),
    };
  }

  #requestOf(
    { envelope, tool, identity, circuit, channel, admission, approvalNeed, start }: IdentifiedCall,
    { submittedBy, planned }: Submitter,
  ): StoredRequest {
    const { modes } = circuit;
    return {
      envelope,
      tool: { version: tool.version, definition: tool.definition, effects: tool.effects },
      idempotencyKey: envelope.payload.idempotencyKey ?? identity.callId,
      ...(modes.enabled ? {} : { direct: true }),
      ...(submittedBy !== undefined && { submittedBy }),
      ...(channel !== undefined && { channel }),
      ...timedOf(admission.spends),
      ...(approvalNeed === undefined && this.#isShared(envelope, tool, modes) ? { shared: true } : {}),
      ...(start !== undefined && { startAtMs: start.atMs }),
      ...(planned !== undefined && { planned }),
    };
  }

  /** Whether other sessions may join the call. */
  #isShared({ transport }: ToolCallEnvelope, tool: ResolvedTool, { dedupe }: ReliabilityModes): boolean {
    return dedupe === 'on' && transport.dedupeMode !== 'disabled' && scopeOf(this.#deps.settings, tool) === 'global';
  }

  /** Bull Board shows a limited number of jobs per second, over all producers. A producer marks no more; the claim selects from them. */
  #marksJob(): boolean {
    const second = Math.floor(this.#deps.clock.monotonic() / 1_000);
    if (second !== this.#markedSecond) {
      this.#markedSecond = second;
      this.#markedCount = 0;
    }
    this.#markedCount += 1;
    return this.#markedCount <= KEPT_PER_SECOND;
  }
}

/** The plan whose approval covers a call that needs one. */
function plannedOf({ approvalNeed }: IdentifiedCall, { planned }: SubmitOptions): PlannedCall | undefined {
  if (approvalNeed === undefined || planned === undefined) return undefined;
  const { approvalId, key, taint = [] } = planned;
  // The approver has not seen text from outside that the session read after the plan was shown.
  const { askedForTaint = [] } = approvalNeed.policyResult;
  return askedForTaint.every((source) => taint.includes(source)) ? { approvalId, key } : undefined;
}

/** A guard that only observes refuses no call. */
function refuseAt(guard: LoopGuard, modes: ReliabilityModes): number {
  return modes.circuits === 'on' ? guard.refuseAt : Number.MAX_SAFE_INTEGER;
}
