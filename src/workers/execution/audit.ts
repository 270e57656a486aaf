/** The audit records of a worker: every attempt, lost ones included, and the calls that ended without one. */
import type { AuditEvent, RecordAudit } from '../../shared/audit/audit-event.ts';
import { compensatedCallId } from '../../shared/calls/compensation.ts';
import { reasonOf } from '../../shared/errors/failure.ts';
import { costUnitsOf } from '../../shared/limits/budget.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import type { AttemptResult } from '../attempt/attempt-result.ts';
import { type Attempt, allParams } from '../attempt/attempt-state.ts';
import { callOutcome, type JobOutcome } from '../attempt/job-outcome.ts';

const TRIES = 4;
const RETRY_DELAY_MS = 250;

type AttemptEvent = Extract<AuditEvent, { type: 'attempt' }>;

export class AttemptAudit {
  readonly #record: RecordAudit;
  readonly #log: Logger;
  readonly #schedule: Schedule;

  constructor(record: RecordAudit | undefined, log: Logger, schedule: Schedule = systemSchedule) {
    this.#record = record ?? (() => {});
    this.#log = log;
    this.#schedule = schedule;
  }

  /** Records an attempt that began elsewhere and left no record: this worker recovers its call. */
  lost(attempt: Attempt): void {
    const { earlierAttempts } = attempt.started;
    const lostAttempt = earlierAttempts.at(-1);
    if (lostAttempt?.status !== 'lost') return;
    const { attempt: number, fence, worker, startedAtMs, finishedAtMs } = lostAttempt;
    const times = { startedAtMs, finishedAtMs, latencyMs: finishedAtMs - startedAtMs };
    void this.#write({ ...commonFields(attempt), attempt: number, fence, worker, status: 'lost', ...times });
  }

  /**
   * Records that the tool's code has ended. For an elevated tool this happens before the outcome is written. If the record cannot be
   * written the outcome still is: the effect cannot be taken back, and the trail has the record of the approval. `final` is the result
   * after the hooks, which may hide parts of it.
   */
  async ended(attempt: Attempt, result: AttemptResult, final: AttemptResult, latencyMs: number): Promise<void> {
    const { number, started, workerId, tool } = attempt;
    const event: AttemptEvent = {
      ...commonFields(attempt),
      attempt: number,
      fence: started.fence,
      worker: workerId,
      startedAtMs: started.nowMs,
      finishedAtMs: started.nowMs + latencyMs,
      latencyMs,
      ...statusOf(result, final),
    };
    const elevated = tool.tier === 'elevated';
    const written = this.#write(event, elevated && !attempt.running.leaseLost ? TRIES : 1);
    if (elevated) await written;
  }

  /** Records the end of a call for which the tool's code did not run this time. */
  withoutAttempt(attempt: Attempt, jobOutcome: JobOutcome): void {
    const outcome = callOutcome(jobOutcome);
    if (outcome === undefined) return;
    const { callId, tool, sessionKey, tenantId } = commonFields(attempt);
    const { status, attempts, error } = outcome;
    const call = { callId, tool, sessionKey, tenantId, worker: attempt.workerId };
    void this.#write({ type: 'call-ended', ...call, status, attempts, code: error?.code, reason: error?.message });
  }

  expired(event: Extract<AuditEvent, { type: 'call-ended' }>): void {
    void this.#write(event);
  }

  /** Never rejects. */
  async #write(event: AuditEvent, tries = 1): Promise<void> {
    for (let retriesLeft = tries - 1; ; retriesLeft -= 1) {
      try {
        return await this.#record(event);
      } catch (error) {
        if (retriesLeft <= 0) {
          const message = reasonOf(error);
          this.#log.error({ event: 'audit_lost', type: event.type, error: message }, 'an audit record was not written');
          return;
        }
        await new Promise<void>((resolve) => this.#schedule(resolve, RETRY_DELAY_MS));
      }
    }
  }
}

function commonFields(attempt: Attempt) {
  const { callId, envelope, tool, started } = attempt;
  const { sessionKey, tenantId, actorId } = envelope.target;
  return {
    type: 'attempt',
    callId,
    tool: qualifiedName(tool),
    toolVersion: tool.version,
    tier: tool.tier,
    sessionKey,
    tenantId,
    actorId,
    estimatedCostUnits: costUnitsOf(tool, envelope.payload.params),
    trustClass: tool.trustClass,
    compensates: compensatedCallId(envelope),
    idempotencyKey: started.request.idempotencyKey,
    params: allParams(attempt),
  } as const;
}

function statusOf(
  result: AttemptResult,
  final: AttemptResult,
): Pick<AttemptEvent, 'status' | 'result' | 'code' | 'reason'> {
  switch (result.kind) {
    case 'value':
      return { status: 'success', ...(final.kind === 'value' ? { result: final.result.output ?? null } : {}) };
    case 'pending':
      return { status: 'pending' };
    case 'failure':
      return { status: 'error', code: result.failure.code, reason: result.failure.message };
    case 'aborted':
      return { status: 'aborted', code: result.reason.code, reason: result.reason.message };
  }
}
