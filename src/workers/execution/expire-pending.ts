/** Handles a pending call that was not completed in time: it fails, runs again, or ends with an unknown outcome. */
import { type AttemptRecord, isHarmless, triesOf } from '../../shared/calls/call-state.ts';
import { type Outcome, resultError, retriedBy } from '../../shared/calls/outcome.ts';
import type { Settings } from '../../shared/config/config.ts';
import { toolPolicy } from '../../shared/config/tool-settings.ts';
import { failureOf } from '../../shared/errors/failure.ts';
import { retryPolicy } from '../../shared/retries/retry.ts';
import { RETRY_BUDGET_EXHAUSTED, retryAllowance } from '../../shared/retries/retry-budget.ts';
import type { PendingCall } from '../../shared/store/calls/begin-attempt.ts';
import { REQUEST_VALID_MS } from '../../shared/store/calls/records/signed-records.ts';
import type { PendingRecords } from '../../shared/store/ports.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { deadlineOf, type RegisteredTool } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { CallSettler } from '../outcome/settle-call.ts';
import type { AttemptAudit } from './audit.ts';

interface PendingExpiryDeps {
  readonly records: Pick<PendingRecords, 'expire' | 'resume'>;
  readonly settler: Pick<CallSettler, 'failedCallSettle'>;
  readonly settings: Settings;
  readonly workerId: string;
  readonly audit: Pick<AttemptAudit, 'expired'>;
  onEvent(event: WorkerEvent): void;
}

const NOT_IN_TIME = 'The call was not completed in time.';
/** The delay of a job whose call got more time at this moment. */
const RECHECK_MS = 50;

export class PendingExpiry {
  readonly #deps: PendingExpiryDeps;

  constructor(deps: PendingExpiryDeps) {
    this.#deps = deps;
  }

  /** `registered`: the call's tool, where this worker has it. */
  async handle(job: CallJob, call: PendingCall, registered: RegisteredTool | undefined): Promise<JobOutcome> {
    if (call.remainingMs > 0) return { kind: 'postponed', delayMs: call.remainingMs };
    if (call.onExpiry !== 'retry') return this.#end(job, call, NOT_IN_TIME);
    const refusal = this.#refusalReason(job, call, registered);
    if (refusal !== undefined) return this.#end(job, call, `${NOT_IN_TIME} It is not tried again: ${refusal}.`);
    const { envelope } = call.request;
    const policy = toolPolicy(this.#deps.settings, namedTool(call));
    const allowance = retryAllowance(qualifiedName(namedTool(call)), envelope.target.tenantId, policy.retry?.budget);
    const answer = await this.#deps.records.resume(job.callId, call.fence, expiredAttempts(call), allowance);
    if (answer === 'exhausted')
      return this.#end(job, call, `${NOT_IN_TIME} It is not tried again: ${RETRY_BUDGET_EXHAUSTED}.`);
    if (answer === 'early') return { kind: 'postponed', delayMs: RECHECK_MS };
    if (answer === 'ended') return { kind: 'dropped' };
    const event = { callId: job.callId, envelope, attempt: call.earlierAttempts.length } as const;
    this.#deps.onEvent({ type: 'tool_call_retry', ...event, delayMs: 0, errorCode: 'COMPLETION_EXPIRED' });
    return { kind: 'released' };
  }

  /** The reason why the call gets no other attempt; undefined when it may have one. Its pending time counts for none of its bounds. */
  #refusalReason(job: CallJob, call: PendingCall, registered: RegisteredTool | undefined): string | undefined {
    const { settings } = this.#deps;
    const { transport } = call.request.envelope;
    const policy = toolPolicy(settings, namedTool(call));
    const { maxAttempts } = retryPolicy(
      registered?.tool.retry ?? {},
      policy.retry,
      transport.retryBudget,
      settings.defaults.retry,
    );
    if (triesOf(call.earlierAttempts).length >= maxAttempts) return `all ${maxAttempts} attempts are used`;
    const deadlineAtMs = deadlineOf({ envelope: call.request.envelope, started: call });
    if (deadlineAtMs !== undefined && deadlineAtMs <= call.nowMs) return 'its deadline has passed';
    if (call.nowMs - Number(job.generation) > REQUEST_VALID_MS) return 'its signed request is too old';
    return undefined;
  }

  async #end(job: CallJob, call: PendingCall, message: string): Promise<JobOutcome> {
    const { records, settler } = this.#deps;
    const { envelope, tool } = call.request;
    const isUnknown = call.onExpiry === 'unknown';
    const failure = failureOf(isUnknown ? 'OUTCOME_UNKNOWN' : 'COMPLETION_EXPIRED', message);
    const attempts = expiredAttempts(call);
    const status = isUnknown ? 'error' : 'timeout';
    const outcome: Outcome = {
      toolName: envelope.toolName,
      durationMs: call.nowMs - (attempts[0]?.startedAtMs ?? call.nowMs),
      ...retriedBy(attempts.slice(0, -1)),
      status,
      attempts: attempts.length,
      error: resultError(failure, status),
    };
    const { callId } = job;
    const known = { tool: { ...namedTool(call), effects: tool.effects ?? 'once' }, envelope };
    const settle = settler.failedCallSettle({ callId, fence: call.fence, outcome, attempts, call: known });
    const answer = await records.expire(settle);
    if (answer === 'early') return { kind: 'postponed', delayMs: RECHECK_MS };
    if (answer !== 'settled') return { kind: 'dropped' };
    this.#report(callId, call, settle.outcome);
    return { kind: 'finished', outcome: settle.outcome };
  }

  #report(callId: string, call: PendingCall, outcome: Outcome): void {
    const { audit, workerId, onEvent } = this.#deps;
    const { envelope } = call.request;
    const { sessionKey, tenantId } = envelope.target;
    const { status, attempts, error } = outcome;
    const subject = { callId, tool: qualifiedName(namedTool(call)), sessionKey, tenantId, worker: workerId };
    audit.expired({ type: 'call-ended', ...subject, status, attempts, code: error?.code, reason: error?.message });
    onEvent({ type: 'tool_call_end', callId, envelope, attempt: attempts, outcome, elapsedMs: outcome.durationMs });
  }
}

/** The attempts of the call; the last one has expired. With `fail`, its tool states that nothing happened. */
function expiredAttempts({ earlierAttempts, onExpiry, request, nowMs }: PendingCall): readonly AttemptRecord[] {
  const effects = request.tool.effects ?? 'once';
  const inDoubt = onExpiry !== 'fail' && (onExpiry === 'unknown' || !isHarmless(effects));
  return earlierAttempts.map((attempt, index) =>
    index < earlierAttempts.length - 1
      ? attempt
      : {
          ...attempt,
          status: 'error',
          errorCode: 'COMPLETION_EXPIRED',
          finishedAtMs: nowMs,
          ...(inDoubt ? { inDoubt: true as const } : {}),
        },
  );
}

function namedTool({ request: { envelope } }: PendingCall) {
  return { namespace: envelope.toolNamespace, name: envelope.toolName };
}
