/** Leaves calls that this worker cannot run to other workers, and ends them when no worker of the fleet could run them for too long. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { hasAttemptInDoubt, isHarmless } from '../../shared/calls/call-state.ts';
import { outcomeWithoutRun } from '../../shared/calls/outcome.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import type { StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import { needOf, type StoredRequest } from '../../shared/store/calls/call-record.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { CallSettler, FailedCall } from '../outcome/settle-call.ts';
import type { LastPublished } from './version-check.ts';

/** The delay of a job that no living worker can run. */
export const NO_WORKER_DELAY_MS = 1_000;

interface IncompatibleCallsDeps {
  readonly ledger: Pick<CallLedger, 'postpone'>;
  /** The longest time that a call waits for a worker that can run it. */
  readonly toolWaitMs: number;
  lastPublished(request: StoredRequest): Promise<LastPublished>;
  readonly settler: Pick<CallSettler, 'refuse'>;
  readonly log: Logger;
}

export class IncompatibleCalls {
  readonly #deps: IncompatibleCallsDeps;

  constructor(deps: IncompatibleCallsDeps) {
    this.#deps = deps;
  }

  /** Leaves the call to another worker of the tier, without consuming an attempt. `reason` says why this one cannot run it. */
  async skip(callId: string, started: StartedAttempt, reason: string): Promise<JobOutcome> {
    const { ledger, toolWaitMs } = this.#deps;
    const { request, fence, earlierAttempts: earlier } = started;
    const { workers: others, seenAtMs } = await this.#deps.lastPublished(request);
    const waitedMs = started.nowMs - Math.max(started.firstStartedAtMs, seenAtMs);
    if (others.length === 0 && waitedMs >= toolWaitMs) return this.#expire(callId, started, waitedMs, reason);
    const delayMs = others.length > 0 ? 0 : NO_WORKER_DELAY_MS;
    // Only a worker that knows the tool can decide about an attempt that left no record.
    const answer = await ledger.postpone(callId, fence, { phase: 'queued', attempts: earlier, delayMs });
    if (answer === 'cancelled') return this.#cancelled(callId, started);
    return others.length > 0 ? { kind: 'skipped', need: needOf(request), others } : { kind: 'postponed', delayMs };
  }

  #expire(callId: string, started: StartedAttempt, waitedMs: number, reason: string): Promise<JobOutcome> {
    const { log, settler } = this.#deps;
    const { request, fence, recovered, earlierAttempts: earlier } = started;
    log.warn({ event: 'tool_unavailable', callId, incompatibility: reason }, 'no compatible worker; call expired');
    const message = `No worker could run the call for ${Math.round(waitedMs / 1_000)} s: ${reason}.`;
    const inDoubt = recovered && !isHarmless(request.tool.effects);
    const failure = inDoubt ? failureOf('OUTCOME_UNKNOWN') : failureOf('TOOL_UNAVAILABLE', message);
    const outcome = outcomeWithoutRun(request.envelope.toolName, failure, { earlier });
    return settler.refuse({ callId, fence, outcome, attempts: earlier, call: knownCall(request) });
  }

  /** The call was cancelled while this worker, which does not know its tool, held it. */
  #cancelled(callId: string, { request, fence, earlierAttempts: earlier }: StartedAttempt): Promise<JobOutcome> {
    const harmless =
      partitionFor(callId).tier === 'read-only' || request.tool.effects === 'none' || !hasAttemptInDoubt(earlier);
    const settlement = earlier.length === 0 ? 'cancelled-before-start' : harmless ? 'cancelled' : 'unsettled';
    const ended = outcomeWithoutRun(request.envelope.toolName, failureOf('CANCELLED'), { earlier });
    const outcome = { ...ended, settlement } as const;
    return this.#deps.settler.refuse({ callId, fence, outcome, attempts: earlier, call: knownCall(request) });
  }
}

/** The call whose tool this worker does not know, as its request describes it. */
function knownCall({ tool, envelope }: StoredRequest): NonNullable<FailedCall['call']> {
  const { toolNamespace: namespace, toolName: name } = envelope;
  return { tool: { namespace, name, effects: tool.effects ?? 'once' }, envelope };
}
