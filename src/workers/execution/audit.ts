/** What a worker tells the audit trail (I4): every attempt, lost ones included, and calls that ended without one. */
import type { AuditEvent, RecordAudit } from '../../shared/audit/audit-event.ts';
import { compensated } from '../../shared/calls/compensation.ts';
import { costUnitsOf } from '../../shared/limits/budget.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { type Schedule, systemSchedule } from '../../shared/util/time.ts';
import { type Attempt, allParams } from '../attempt/attempt-state.ts';
import type { JobOutcome } from '../attempt/job-outcome.ts';
import type { Ending } from './run-tool.ts';

const TRIES = 4;
const AGAIN_MS = 250;

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

  /** An attempt that began elsewhere left no record: this worker took its call over. */
  lost(attempt: Attempt): void {
    const { earlier } = attempt.started;
    const before = earlier.at(-1);
    if (before?.status !== 'lost') return;
    const { attempt: number, fence, worker, startedAtMs, finishedAtMs } = before;
    const times = { startedAtMs, finishedAtMs, latencyMs: finishedAtMs - startedAtMs };
    void this.#write({ ...common(attempt), attempt: number, fence, worker, status: 'lost', ...times });
  }

  /**
   * The tool's code has ended. For an elevated tool the record is written before the outcome is. Where it cannot be, the outcome
   * still is: the effect cannot be taken back, and the trail has the record that was written before it. `final` is what the hooks
   * made of the ending, which may hide parts of the result.
   */
  async ended(attempt: Attempt, ending: Ending, final: Ending, latencyMs: number): Promise<void> {
    const { number, started, workerId, registered } = attempt;
    const event: AttemptEvent = {
      ...common(attempt),
      attempt: number,
      fence: started.fence,
      worker: workerId,
      startedAtMs: started.nowMs,
      finishedAtMs: started.nowMs + latencyMs,
      latencyMs,
      ...said(ending, final),
    };
    const elevated = registered.tool.tier === 'elevated';
    const written = this.#write(event, elevated && !attempt.running.leaseLost ? TRIES : 1);
    if (elevated) await written;
  }

  /** The call has ended, and the tool's code did not run for it this time. */
  withoutAttempt(attempt: Attempt, verdict: JobOutcome): void {
    if (verdict.kind !== 'finished') return;
    const { callId, tool, sessionKey, tenantId, worker } = { ...common(attempt), worker: attempt.workerId };
    const { status, attempts, error } = verdict.outcome;
    const why = { code: error?.code, reason: error?.message };
    void this.#write({ type: 'call-ended', callId, tool, sessionKey, tenantId, worker, status, attempts, ...why });
  }

  async #write(event: AuditEvent, tries = 1): Promise<void> {
    for (let left = tries - 1; ; left -= 1) {
      try {
        return await this.#record(event);
      } catch (error) {
        if (left <= 0) {
          const message = error instanceof Error ? error.message : String(error);
          this.#log.error({ event: 'audit_lost', type: event.type, error: message }, 'an audit record was not written');
          return;
        }
        await new Promise<void>((resolve) => this.#schedule(resolve, AGAIN_MS));
      }
    }
  }
}

function common(attempt: Attempt) {
  const { callId, envelope, registered, started } = attempt;
  const { tool } = registered;
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
    compensates: compensated(envelope),
    idempotencyKey: started.request.idempotencyKey,
    params: allParams(attempt),
  } as const;
}

function said(ending: Ending, final: Ending): Pick<AttemptEvent, 'status' | 'result' | 'code' | 'reason'> {
  switch (ending.kind) {
    case 'value':
      return { status: 'success', ...(final.kind === 'value' ? { result: final.result.output ?? null } : {}) };
    case 'failure':
      return { status: 'error', code: ending.failure.code, reason: ending.failure.message };
    case 'aborted':
      return { status: 'aborted', code: ending.reason.code, reason: ending.reason.message };
  }
}
