/**
 * Starts the occurrences of schedules. Every front door has a runner, and so has a producer that was connected with `schedules`. Each takes
 * schedules that are due, under a lease. If it dies, another one goes on when the lease is over.
 *
 * An occurrence is written to the schedule's progress before its call is submitted. A runner that finds it there submits the same call
 * under the same idempotency key, while the ledger is certain to have that key. Later, no process can know whether the call existed:
 * the occurrence is recorded as `unknown`, and does not run.
 */
import type { Settings } from '../../shared/config/config.ts';
import { ttlsOf } from '../../shared/config/tool-settings.ts';
import { ignoreCode, PawlError } from '../../shared/errors/failure.ts';
import { FAILURES } from '../../shared/errors/failure-codes.ts';
import {
  dueAt,
  finished,
  mayRetryStart,
  nextStep,
  type OccurrenceCounts,
  type OccurrenceEvent,
  skipWaiting,
} from '../../shared/schedules/progress.ts';
import { occurrenceKey, type ScheduleRecord } from '../../shared/schedules/schedule.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { StoredSchedule } from '../../shared/store/schedules/schedules.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import { backgroundSchedule, type Clock } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { CallService } from '../operations/call-service.ts';
import type { ProducerMetrics } from '../operations/metrics.ts';
import { type StartDeps, type StartedOccurrence, startOccurrence } from './start-occurrence.ts';
import { recordChange, scheduleEvent, updateSchedule } from './update-schedule.ts';

/** The interval at which a runner polls for schedules that other processes have written. */
const POLL_MS = 1_000;
/** The number of schedules that one process advances at once. */
const MAX_CONCURRENT = 16;
/** How long `stop` waits for schedules that are being advanced. */
const STOP_LIMIT_MS = 2_000;
/** An occurrence that was written before its call is submitted. */
type Starting = NonNullable<StoredSchedule['progress']['starting']>;
/** The author of pauses and cancellations that a schedule makes itself. */
const byScheduleOf = ({ id }: ScheduleRecord) => `schedule:${id}`;

interface ScheduleRunnerDeps extends StartDeps {
  readonly backend: Pick<Backend, 'schedules' | 'ledger' | 'audit'>;
  readonly calls: Pick<CallService, 'requestCancel'>;
  readonly settings: Settings;
  readonly clock: Pick<Clock, 'now'>;
  readonly log: Logger;
  readonly metrics: Pick<ProducerMetrics, 'occurrences'>;
  onError(error: Error): void;
}

export class ScheduleRunner {
  readonly #deps: ScheduleRunnerDeps;
  readonly #running = new Set<Promise<void>>();
  #wakeLoop: () => void = () => {};
  #stopped = false;
  #looping: Promise<void> | undefined;

  constructor(deps: ScheduleRunnerDeps) {
    this.#deps = deps;
  }

  start(): void {
    if (!this.#stopped) this.#looping ??= this.#loop();
  }

  /** Takes no more schedules, and waits a moment for those that are being advanced. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#wakeLoop();
    await withinMs(Promise.all([this.#looping, ...this.#running]), STOP_LIMIT_MS);
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

  /** Advances the schedules that are due. Returns the time until the next one is due. */
  async #takeDue(): Promise<number> {
    const free = MAX_CONCURRENT - this.#running.size;
    // A schedule that is done wakes the loop.
    if (free <= 0) return POLL_MS;
    const { schedules, nowMs, nextInMs } = await this.#deps.backend.schedules.take(free);
    for (const stored of schedules) this.#track(this.#advance(stored, nowMs));
    return schedules.length === free ? POLL_MS : Math.min(POLL_MS, Math.max(0, nextInMs));
  }

  #track(task: Promise<void>): void {
    const guarded = task
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#running.delete(guarded);
        this.#wakeLoop();
      });
    this.#running.add(guarded);
  }

  #sleep(waitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = backgroundSchedule(resolve, waitMs);
      this.#wakeLoop = () => {
        cancel();
        resolve();
      };
    });
  }

  #failed(error: unknown): void {
    if (this.#stopped) return;
    const isOutage = error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE';
    if (!isOutage) this.#deps.log.error({ event: 'schedules_failed', error: String(error) }, 'a schedule failed');
    else this.#deps.onError(error);
  }

  /** Advances a schedule by one step. `takenAtMs` is by Redis' clock; this process's copy of that clock may be a little behind. */
  async #advance({ record, progress, seen }: StoredSchedule, takenAtMs: number): Promise<void> {
    const { backend, clock } = this.#deps;
    if (progress.starting !== undefined) return this.#startAgain(record, progress.starting);
    const { lastCallId } = progress;
    const isBusy = lastCallId !== undefined && (await backend.ledger.isInflight(lastCallId));
    const nowMs = Math.max(clock.now(), takenAtMs);
    const step = nextStep(record, progress, nowMs, isBusy);
    this.#logMissed(record, progress.recent[0], step.progress.recent[0]);
    const dueAtMs = dueAt(record, step.progress, nowMs);
    if (!(await backend.schedules.write(record.id, seen, { progress: step.progress, dueAtMs }))) return;
    this.#count(progress.counts, step.progress.counts);
    if (step.kind === 'none') return this.#checkSession(record);
    if (step.cancelsPrevious) await this.#cancel(record, lastCallId);
    await this.#start(record, step.starting);
  }

  /** Handles an occurrence that another runner began, and did not finish in time. */
  async #startAgain(record: ScheduleRecord, starting: Starting): Promise<void> {
    const { atMs, sinceMs, callRevision } = starting;
    const ttls = ttlsOf(this.#deps.settings, record.tool);
    const isKeyStored = this.#deps.clock.now() - sinceMs < Math.min(ttls.doneMs, ttls.failedMs, ttls.cancelledMs) / 2;
    if (isKeyStored && callRevision === record.callRevision) return this.#start(record, starting);
    const reason = 'a front door died as it started this one, and whether its call exists is not known';
    await this.#finish(record, { atMs, result: 'unknown', reason });
  }

  async #start(record: ScheduleRecord, starting: Starting): Promise<void> {
    const { atMs } = starting;
    const started = await startOccurrence(this.#deps, record, occurrenceKey(record.id, atMs), atMs);
    const isRetried = started.kind === 'refused' && isTransient(started.error);
    // The occurrence is tried again when the lease ends.
    if (isRetried && mayRetryStart(record, starting, this.#deps.clock.now())) return;
    await this.#finish(record, eventOf(atMs, started));
    if (started.kind === 'refused') {
      if (isWithoutSession(started.error)) await this.#autoPause(record, started.error);
    } else if (record.overlap === 'queue' || record.missed === 'run-all') this.#continueAfter(record, started);
    else started.pending?.stop();
  }

  /** Starts waiting occurrences as soon as this process receives the call's end. */
  #continueAfter({ id }: ScheduleRecord, { pending }: Extract<StartedOccurrence, { kind: 'started' }>): void {
    const advanceAgain = async () => {
      const { found } = await this.#deps.backend.schedules.read(id);
      if (found?.progress.waiting === undefined || found.progress.starting !== undefined || this.#stopped) return;
      await this.#advance(found, this.#deps.clock.now());
    };
    pending?.result.then(
      () => this.#stopped || this.#track(advanceAgain()),
      () => {},
    );
  }

  async #finish(record: ScheduleRecord, event: OccurrenceEvent): Promise<void> {
    const { backend, clock } = this.#deps;
    const changed = await updateSchedule(backend.schedules, record.id, (current) => {
      if (current === undefined) return undefined;
      const progress = finished(current.progress, event);
      if (progress === current.progress) return undefined;
      return { before: current.progress, progress, dueAtMs: dueAt(current.record, progress, clock.now()) };
    });
    if (changed !== undefined) this.#count(changed.before.counts, changed.progress.counts);
  }

  #count(before: OccurrenceCounts, after: OccurrenceCounts): void {
    for (const [result, count] of Object.entries(after)) {
      const name = result as keyof OccurrenceCounts;
      if (count > before[name]) this.#deps.metrics.occurrences(name, count - before[name]);
    }
  }

  async #cancel(record: ScheduleRecord, callId: string | undefined): Promise<void> {
    if (callId === undefined) return;
    // Without a record the call has ended.
    await this.#deps.calls.requestCancel(callId, byScheduleOf(record)).catch(ignoreCode('UNKNOWN_CALL'));
  }

  /** Pauses a schedule without an open session, which cannot make calls. Reading the session's record also renews its expiry. */
  async #checkSession(record: ScheduleRecord): Promise<void> {
    try {
      const { state } = await this.#deps.sessions.find(record.sessionKey);
      if (state === 'closed') throw new PawlError('SESSION_CLOSED', `The session ${record.sessionKey} is closed.`);
    } catch (error) {
      if (!isWithoutSession(error)) throw error;
      await this.#autoPause(record, error);
    }
  }

  async #autoPause(record: ScheduleRecord, { message: reason }: PawlError): Promise<void> {
    const { backend, clock, log } = this.#deps;
    const by = byScheduleOf(record);
    const changed = await updateSchedule(backend.schedules, record.id, (current) => {
      if (current?.record.sessionKey !== record.sessionKey || current.record.paused !== undefined) return undefined;
      const nowMs = clock.now();
      const paused = { atMs: nowMs, by, reason, itself: true } as const;
      return recordChange({ ...current.record, paused }, skipWaiting(current.progress, reason), nowMs);
    });
    if (changed === undefined) return;
    log.warn({ event: 'schedule_paused', schedule: record.id, reason }, 'a schedule paused itself');
    await backend.audit({ ...scheduleEvent(record, 'paused', by), reason });
  }

  #logMissed({ id }: ScheduleRecord, previous: OccurrenceEvent | undefined, event: OccurrenceEvent | undefined): void {
    if (event?.result !== 'missed' || event === previous) return;
    const { times = 1, more = false } = event;
    const fields = { event: 'schedule_missed', schedule: id, times, more } as const;
    this.#deps.log.warn(fields, 'occurrences of a schedule were missed');
  }
}

function eventOf(atMs: number, started: StartedOccurrence): OccurrenceEvent {
  if (started.kind === 'started') return { atMs, result: 'started', callId: started.callId };
  const { code, message } = started.error;
  return { atMs, result: 'refused', code, reason: message };
}

function isWithoutSession(error: unknown): error is PawlError {
  return error instanceof PawlError && (error.code === 'SESSION_CLOSED' || error.code === 'UNKNOWN_SESSION');
}

/** Whether a retry may succeed soon. A tool is unknown for a moment while its workers are replaced. */
function isTransient({ code }: PawlError): boolean {
  return FAILURES[code]?.retriable === true || code === 'UNKNOWN_TOOL';
}
