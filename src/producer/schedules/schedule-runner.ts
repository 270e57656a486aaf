/**
 * Starts the occurrences of schedules. Every front door has a runner, and so has a producer that was connected with `schedules`. Each takes
 * schedules that are due, under a lease. If it dies, another one goes on when the lease is over.
 *
 * An occurrence is named in the schedule's progress before its call is submitted. A runner that finds it there submits the same call under
 * the same idempotency key, while the ledger surely remembers that key. Later, no process can tell whether the call existed: the
 * occurrence is recorded as `unknown`, and does not run.
 */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { FAILURES } from '../../shared/errors/failure-codes.ts';
import {
  dueAt,
  finished,
  mayStartAgain,
  nextStep,
  type OccurrenceCounts,
  type OccurrenceEvent,
  stopped,
} from '../../shared/schedules/progress.ts';
import { occurrenceKey, type ScheduleRecord } from '../../shared/schedules/schedule.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { StoredSchedule } from '../../shared/store/schedules/schedules.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { backgroundSchedule, type Clock, type Schedule } from '../../shared/util/time.ts';
import { withinMs } from '../calls/result-waiters.ts';
import type { CallService } from '../operations/call-service.ts';
import type { ProducerMetrics } from '../operations/metrics.ts';
import { type StartDeps, type StartedOccurrence, startOccurrence } from './start-occurrence.ts';
import { updateSchedule } from './update-schedule.ts';

/** How often a runner looks for schedules that other processes have written. */
const POLL_MS = 1_000;
/** So many schedules are under way at once in one process. */
const AT_ONCE = 16;
/** How long the end of the process waits for those that are under way. */
const STOP_LIMIT_MS = 2_000;
/** The author of pauses and cancellations that a schedule makes itself. */
const byScheduleOf = ({ id }: ScheduleRecord) => `schedule:${id}`;

export interface ScheduleRunnerDeps extends StartDeps {
  readonly backend: Pick<Backend, 'schedules' | 'ledger' | 'audit'>;
  readonly calls: Pick<CallService, 'requestCancel'>;
  readonly settings: Settings;
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Logger;
  readonly schedule?: Schedule;
  readonly metrics: Pick<ProducerMetrics, 'occurrences'>;
  onError(error: Error): void;
}

export class ScheduleRunner {
  readonly #deps: ScheduleRunnerDeps;
  readonly #underWay = new Set<Promise<void>>();
  #wake: () => void = () => {};
  #stopped = false;
  #looping: Promise<void> | undefined;

  constructor(deps: ScheduleRunnerDeps) {
    this.#deps = deps;
  }

  start(): void {
    if (!this.#stopped) this.#looping ??= this.#loop();
  }

  /** Takes no more schedules, and waits a moment for those that are under way. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wake();
    await withinMs(Promise.all([this.#looping, ...this.#underWay]), STOP_LIMIT_MS);
  }

  async #loop(): Promise<void> {
    while (!this.#stopped) {
      const waitMs = await this.#takeDue().catch((error: unknown) => {
        this.#failed(error);
        return POLL_MS;
      });
      if (!this.#stopped) await this.#sleep(waitMs);
    }
  }

  /** Starts what is due. Returns how long nothing more is. */
  async #takeDue(): Promise<number> {
    const free = AT_ONCE - this.#underWay.size;
    // The end of one that is under way wakes the loop.
    if (free <= 0) return POLL_MS;
    const { schedules, nowMs, nextInMs } = await this.#deps.backend.schedules.take(free);
    for (const stored of schedules) this.#begin(this.#turn(stored, nowMs));
    return schedules.length === free ? POLL_MS : Math.min(POLL_MS, Math.max(0, nextInMs));
  }

  #begin(turn: Promise<void>): void {
    const guarded = turn
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#underWay.delete(guarded);
        this.#wake();
      });
    this.#underWay.add(guarded);
  }

  #sleep(waitMs: number): Promise<void> {
    const { schedule = backgroundSchedule } = this.#deps;
    return new Promise((resolve) => {
      const cancel = schedule(resolve, waitMs);
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
  }

  #failed(error: unknown): void {
    if (this.#stopped) return;
    const known = error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE';
    if (!known) this.#deps.log.error({ event: 'schedules_failed', error: String(error) }, 'a schedule failed');
    else this.#deps.onError(error);
  }

  /** Goes one step on with a schedule. `takenAtMs`: by Redis' clock, of which this process's copy may be a little behind. */
  async #turn({ record, progress, seen }: StoredSchedule, takenAtMs: number): Promise<void> {
    const { backend, clock } = this.#deps;
    if (progress.starting !== undefined) return this.#startAgain(record, progress.starting);
    const isBusy = await this.#isBusy(progress.lastCallId);
    const nowMs = Math.max(clock.now(), takenAtMs);
    const step = nextStep(record, progress, nowMs, isBusy);
    this.#logMissed(record, progress.recent[0], step.progress.recent[0]);
    const dueAtMs = dueAt(record, step.progress, nowMs);
    if (!(await backend.schedules.write(record.id, seen, { progress: step.progress, dueAtMs }))) return;
    this.#count(progress.counts, step.progress.counts);
    if (step.kind === 'none') return this.#checkSession(record);
    if (step.cancelsPrevious) await this.#cancel(record, progress.lastCallId);
    await this.#start(record, step.starting);
  }

  async #isBusy(callId: string | undefined): Promise<boolean> {
    if (callId === undefined) return false;
    return (await this.#deps.backend.ledger.readBrief(callId))?.state === 'inflight';
  }

  /** An occurrence that another runner began, and did not finish in time. */
  async #startAgain(
    record: ScheduleRecord,
    starting: NonNullable<StoredSchedule['progress']['starting']>,
  ): Promise<void> {
    const { atMs, sinceMs, callRevision } = starting;
    const kept = ttlsOf(this.#deps.settings, record.tool);
    const isRemembered = this.#deps.clock.now() - sinceMs < Math.min(kept.doneMs, kept.failedMs, kept.cancelledMs) / 2;
    if (isRemembered && callRevision === record.callRevision) return this.#start(record, starting);
    const reason = 'a front door died as it started this one, and whether its call exists is not known';
    await this.#finish(record, { atMs, result: 'unknown', reason });
  }

  async #start(record: ScheduleRecord, starting: NonNullable<StoredSchedule['progress']['starting']>): Promise<void> {
    const { atMs } = starting;
    const started = await startOccurrence(this.#deps, record, occurrenceKey(record.id, atMs), atMs);
    const isForNow = started.kind === 'refused' && isTransient(started.error);
    // The end of the lease brings the occurrence back.
    if (isForNow && mayStartAgain(record, starting, this.#deps.clock.now())) return;
    await this.#finish(record, eventOf(atMs, started));
    if (started.kind === 'refused') {
      const { code } = started.error;
      if (code === 'SESSION_CLOSED' || code === 'UNKNOWN_SESSION') await this.#pauseItself(record, started.error);
    } else if (record.overlap === 'queue' || record.missed === 'run-all') this.#goOnAfter(record, started);
    else started.pending?.stop();
  }

  /** Occurrences that wait for the call's end start as soon as this process hears of it. */
  #goOnAfter({ id }: ScheduleRecord, { pending }: Extract<StartedOccurrence, { kind: 'started' }>): void {
    const goOn = async () => {
      const { found } = await this.#deps.backend.schedules.read(id);
      if (found?.progress.waiting === undefined || found.progress.starting !== undefined || this.#stopped) return;
      await this.#turn(found, this.#deps.clock.now());
    };
    pending?.result.then(
      () => this.#stopped || this.#begin(goOn()),
      () => {},
    );
  }

  async #finish(record: ScheduleRecord, event: OccurrenceEvent): Promise<void> {
    const { backend, clock } = this.#deps;
    let written: readonly OccurrenceCounts[] = [];
    await updateSchedule(backend.schedules, record.id, (now) => {
      written = [];
      if (now === undefined) return undefined;
      const progress = finished(now.progress, event);
      if (progress === now.progress) return undefined;
      written = [now.progress.counts, progress.counts];
      return { progress, dueAtMs: dueAt(now.record, progress, clock.now()) };
    });
    const [before, after] = written;
    if (before !== undefined && after !== undefined) this.#count(before, after);
  }

  #count(before: OccurrenceCounts, after: OccurrenceCounts): void {
    for (const [result, count] of Object.entries(after)) {
      const name = result as keyof OccurrenceCounts;
      if (count > before[name]) this.#deps.metrics.occurrences(name, count - before[name]);
    }
  }

  async #cancel(record: ScheduleRecord, callId: string | undefined): Promise<void> {
    if (callId === undefined) return;
    await this.#deps.calls.requestCancel(callId, byScheduleOf(record)).catch((error: unknown) => {
      // Its record has expired: it is not in flight any more.
      if (!(error instanceof PawlError) || error.code !== 'UNKNOWN_CALL') throw error;
    });
  }

  /** A schedule without an open session cannot make calls: it pauses itself. Looking keeps the session's record alive. */
  async #checkSession(record: ScheduleRecord): Promise<void> {
    try {
      const session = await this.#deps.sessions.find(record.sessionKey);
      if (session.state !== 'closed') return;
    } catch (error) {
      if (!(error instanceof PawlError) || error.code !== 'UNKNOWN_SESSION') throw error;
      return this.#pauseItself(record, error);
    }
    await this.#pauseItself(record, new PawlError('SESSION_CLOSED', `The session ${record.sessionKey} is closed.`));
  }

  async #pauseItself(record: ScheduleRecord, { message: reason }: PawlError): Promise<void> {
    const { backend, clock, log } = this.#deps;
    const by = byScheduleOf(record);
    let hasPaused = false;
    await updateSchedule(backend.schedules, record.id, (now) => {
      hasPaused = now !== undefined && now.record.paused === undefined && now.record.sessionKey === record.sessionKey;
      if (now === undefined || !hasPaused) return undefined;
      const paused = { ...now.record, paused: { atMs: clock.now(), by, reason, itself: true as const } };
      const progress = { ...stopped(now.progress, reason), change: now.progress.change + 1 };
      return { record: paused, progress, dueAtMs: dueAt(paused, progress, clock.now()) };
    });
    if (!hasPaused) return;
    log.warn({ event: 'schedule_paused', schedule: record.id, reason }, 'a schedule paused itself');
    await recordPause(backend.audit, record, by, reason);
  }

  #logMissed({ id }: ScheduleRecord, before: OccurrenceEvent | undefined, event: OccurrenceEvent | undefined): void {
    if (event?.result !== 'missed' || event === before) return;
    const { times = 1, more = false } = event;
    this.#deps.log.warn(
      { event: 'schedule_missed', schedule: id, times, more },
      'occurrences of a schedule were missed',
    );
  }
}

function eventOf(atMs: number, started: StartedOccurrence): OccurrenceEvent {
  if (started.kind === 'started') return { atMs, result: 'started', callId: started.callId };
  const { code, message } = started.error;
  return { atMs, result: 'refused', code, reason: message };
}

/** The refusal may be over soon. The tool of workers that are being replaced is unknown for a moment. */
function isTransient({ code }: PawlError): boolean {
  return FAILURES[code]?.retriable === true || code === 'UNKNOWN_TOOL';
}

async function recordPause(audit: RecordAudit, record: ScheduleRecord, by: string, reason: string): Promise<void> {
  const { id, tool, sessionKey, tenantId } = record;
  const about = { scheduleId: id, tool: qualifiedName(tool), sessionKey, tenantId };
  await audit({ type: 'schedule-changed', action: 'paused', by, reason, ...about });
}
