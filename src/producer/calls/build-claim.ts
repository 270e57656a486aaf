/**
 * The claim of a call, with the request for approval where a person has to decide.
 */

import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import type { ReliabilityModes } from '../../shared/config/switches.ts';
import { scopeOf } from '../../shared/config/tool-settings.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import type { Claim } from '../../shared/store/calls/claim.ts';
import { KEPT_PER_SECOND } from '../../shared/store/queues/jobs.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';
import { timedOf } from './budgets.ts';
import type { Admitted, LoopGuard } from './checked-call.ts';
import type { SubmitOptions } from './submission.ts';
import type { SubmitDeps } from './submit-deps.ts';

/** Says of calls that have been checked what is to be claimed. */
export class Claims {
  readonly #parts: SubmitDeps;
  #keptSecond = 0;
  #keptCount = 0;

  constructor(parts: SubmitDeps) {
    this.#parts = parts;
  }

  /**
   * `record`: what the audit trail is told of the claim. Throws `PERMISSION_DENIED` for a call that a person must approve and whose
   * session reaches nobody (A6).
   */
  of(admitted: Admitted, options: SubmitOptions, record?: string): Claim | Promise<Claim> {
    const claim = this.#plain(admitted, options, record);
    const { asks, envelope, published } = admitted;
    const { approvals } = this.#parts;
    if (asks === undefined || approvals === undefined) return claim;
    const { callId, generation } = claim;
    const { submittedBy } = options;
    return approvals
      .requestFor({ envelope, published, ...asks, callId, generation, submittedBy })
      .then((approval) => ({ ...claim, approval }));
  }

  #plain(
    {
      envelope,
      published,
      paramsDigest: digest,
      identity,
      circuit,
      modes,
      shadow,
      loop,
      channel,
      admission,
      asks,
    }: Admitted,
    options: SubmitOptions,
    record: string | undefined,
  ): Claim {
    const { room, line, spends } = admission;
    const request: StoredRequest = {
      envelope,
      tool: { version: published.version, definition: published.definition, effects: published.effects },
      idempotencyKey: envelope.payload.idempotencyKey ?? identity.callId,
      ...(modes.enabled ? {} : { direct: true }),
      ...(options.submittedBy === undefined ? {} : { submittedBy: options.submittedBy }),
      ...(channel === undefined ? {} : { channel }),
      ...timedOf(spends),
      ...(asks === undefined && this.#isShared(envelope, published, modes) ? { shared: true } : {}),
    };
    return {
      callId: identity.callId,
      room,
      line,
      mode: envelope.transport.dedupeMode,
      paramsDigest: digest,
      request,
      generation: String(this.#parts.clock.now()),
      circuit,
      kept: this.#keepJob(),
      once: published.effects === 'once',
      inboxId: this.#parts.inboxId,
      ...(spends === undefined ? {} : { spends }),
      ...(identity.mergeId === undefined ? {} : { mergeId: identity.mergeId }),
      ...(shadow === undefined ? {} : { shadow }),
      ...(loop === undefined
        ? {}
        : { loop: { loopId: loop.loopId, windowMs: loop.guard.windowMs, refuseAt: refuseAt(loop.guard, modes) } }),
      ...(record === undefined ? {} : { record }),
    };
  }

  /** Whether other sessions may join a call that nobody decides on. */
  #isShared({ transport }: ToolCallEnvelope, published: ResolvedTool, { dedupe }: ReliabilityModes): boolean {
    return (
      dedupe === 'on' && transport.dedupeMode !== 'disabled' && scopeOf(this.#parts.settings, published) === 'global'
    );
  }

  /** Of a producer's jobs, no more can be kept than of all; which are, the claim decides. */
  #keepJob(): boolean {
    const second = Math.floor(this.#parts.clock.monotonic() / 1_000);
    if (second !== this.#keptSecond) {
      this.#keptSecond = second;
      this.#keptCount = 0;
    }
    this.#keptCount += 1;
    return this.#keptCount <= KEPT_PER_SECOND;
  }
}

/** What only observes refuses nothing. */
function refuseAt(guard: LoopGuard, modes: ReliabilityModes): number {
  return modes.circuits === 'on' ? guard.refuseAt : Number.MAX_SAFE_INTEGER;
}
