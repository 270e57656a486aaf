/** `pawl.schedules`: manages schedules. `schedule-runner.ts` starts their occurrences. */
import type { RecordAudit } from '../../shared/audit/audit-event.ts';
import { isRefusalError, PawlError } from '../../shared/errors/failure.ts';
import {
  dueAt,
  newProgress,
  resumed,
  type ScheduleProgress,
  skipWaiting,
  upcomingTimes,
  withEvent,
} from '../../shared/schedules/progress.ts';
import {
  type CheckedSchedule,
  hasSameTiming,
  invalidSchedule,
  parseSchedule,
  type ScheduleRecord,
  type ScheduleRequest,
  scheduleRecord,
} from '../../shared/schedules/schedule.ts';
import { checkMembers, checkObject, checkReason } from '../../shared/schema/known-members.ts';
import { type SessionRecord, sessionClosed } from '../../shared/sessions/session.ts';
import type { ScheduleRecords, StoredSchedule } from '../../shared/store/schedules/schedules.ts';
import { type AnyTool, type InputOf, isTool, qualifiedName } from '../../shared/tools/tool.ts';
import { isObject } from '../../shared/util/json/json-types.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { type Clock, uuidv7 } from '../../shared/util/time.ts';
import type { CallSubmitter } from '../calls/submit-call.ts';
import type { Session } from '../sessions/session.ts';
import { type ScheduleView, scheduleView } from './schedule-view.ts';
import { type StartDeps, scheduledEnvelope, startOccurrence } from './start-occurrence.ts';
import { recordChange, type ScheduleAction, scheduleEvent, updateSchedule } from './update-schedule.ts';

/** The most schedules of a fleet: all of them are read for a list. */
const MAX_SCHEDULES = 10_000;

/** The argument of `pawl.schedules.put`. `tool` is a tool or its name; `session` is a session or its key. */
export type PutSchedule<T extends AnyTool | string = string> = Omit<ScheduleRequest, 'tool' | 'params' | 'session'> & {
  readonly tool: T;
  readonly params?: InputOf<T>;
  readonly session: string | Pick<Session, 'key'>;
};

export interface ScheduleOptions {
  /** The author of the change, for the record and the audit. Default: `local`. */
  readonly by?: string;
  /** The submitter of the schedule's calls, who cannot approve them. */
  readonly submittedBy?: string;
  /** Whether the caller may see a tenant's schedules. Default: all. */
  readonly seesTenant?: (tenantId: string | undefined) => boolean;
}

type Access = Pick<ScheduleOptions, 'seesTenant'>;

interface ScheduleServiceDeps extends StartDeps {
  readonly records: ScheduleRecords;
  readonly submitter: Pick<CallSubmitter, 'submit' | 'check'>;
  readonly audit: RecordAudit;
  readonly clock: Pick<Clock, 'now'>;
}

export class ScheduleService {
  readonly #deps: ScheduleServiceDeps;

  constructor(deps: ScheduleServiceDeps) {
    this.#deps = deps;
  }

  /**
   * Writes a schedule, or replaces it. With the same times, a replaced schedule goes on where it was; a pause stays.
   *
   * ```ts
   * await pawl.schedules.put({ id: 'nightly', tool: report, params: {}, session: 'ops', cron: '0 2 * * *', timezone: 'Europe/Berlin' });
   * ```
   *
   * Throws `CONTRACT_INVALID` with the path of every fault, `UNKNOWN_SESSION`, `SESSION_CLOSED`, `UNKNOWN_TOOL`, `INVALID_PARAMS`,
   * `PERMISSION_DENIED`, and `OVERLOADED` when there are too many schedules. Then nothing was stored.
   */
  async put<T extends AnyTool | string>(
    schedule: PutSchedule<T>,
    { by = 'local', submittedBy, seesTenant }: ScheduleOptions = {},
  ): Promise<ScheduleView> {
    const { records, clock } = this.#deps;
    const checked = parsePut(schedule);
    const session = await this.#openSession(checked.session);
    const nowMs = clock.now();
    const authorship = { by, submittedBy, nowMs, tenantId: session.record.tenantId };
    await this.#check(session.record, scheduleRecord(checked, undefined, authorship));
    const isFull = (await records.count()) >= MAX_SCHEDULES;
    const { record, progress } = await updateSchedule(records, checked.id, (before) => {
      refuseOtherTenant(before, seesTenant);
      if (before === undefined && isFull)
        throw new PawlError('OVERLOADED', `There are ${MAX_SCHEDULES} schedules already: remove some first.`);
      const record = scheduleRecord(checked, before?.record, authorship);
      const progress = progressOf(record, before, nowMs);
      return { record, progress, dueAtMs: dueAt(record, progress, nowMs) };
    });
    await this.#audit(record, record.revision === 1 ? 'created' : 'replaced', by);
    return scheduleView(record, progress, nowMs);
  }

  /** Checks a new schedule of a session that is not open yet, and stores nothing. Throws as `put` does. */
  async check(schedule: PutSchedule, draft: () => Promise<SessionRecord>, { seesTenant }: Access): Promise<void> {
    const checked = parsePut(schedule);
    refuseOtherTenant((await this.#deps.records.read(checked.id)).found, seesTenant);
    const nowMs = this.#deps.clock.now();
    const session = await draft();
    const record = scheduleRecord(checked, undefined, { by: 'local', nowMs, tenantId: session.tenantId });
    await this.#check(session, record, true);
    progressOf(record, undefined, nowMs);
  }

  /** All schedules that the caller may see, by ID. */
  async list(access: Access = {}): Promise<readonly ScheduleView[]> {
    checkOptions(access);
    const { seesTenant = () => true } = access;
    const stored = await this.#deps.records.list();
    const nowMs = this.#deps.clock.now();
    return stored
      .filter(({ record }) => seesTenant(record.tenantId))
      .map(({ record, progress }) => scheduleView(record, progress, nowMs));
  }

  /** One schedule, with its next five times and its last occurrence. Throws `NOT_FOUND`. */
  async get(id: string, access: Access = {}): Promise<ScheduleView> {
    checkOptions(access);
    const { record, progress } = await this.#find(id, access.seesTenant);
    return scheduleView(record, progress, this.#deps.clock.now());
  }

  /** Starts no occurrence until `resume`. Running calls go on. Throws `NOT_FOUND`. */
  async pause(id: string, options: ScheduleOptions & { readonly reason?: string } = {}): Promise<ScheduleView> {
    checkOptions(options);
    const { by = 'local', reason } = options;
    return this.#change(id, 'paused', options, ({ record, progress }, nowMs) => {
      if (record.paused !== undefined && record.paused.itself !== true) return undefined;
      const paused = { atMs: nowMs, by, ...defined({ reason }) };
      return recordChange({ ...record, paused }, skipWaiting(progress, 'the schedule was paused'), nowMs);
    });
  }

  /**
   * Resumes a paused schedule with its next time. Occurrences during the pause are not made up for. Throws `NOT_FOUND`, `UNKNOWN_SESSION`
   * and `SESSION_CLOSED`.
   */
  async resume(id: string, options: ScheduleOptions & { readonly reason?: string } = {}): Promise<ScheduleView> {
    checkOptions(options);
    await this.#openSession((await this.#find(id, options.seesTenant)).record.sessionKey);
    return this.#change(id, 'resumed', options, ({ record, progress }, nowMs) => {
      const { paused, ...unpaused } = record;
      return paused === undefined ? undefined : recordChange(unpaused, resumed(progress, nowMs), nowMs);
    });
  }

  /**
   * Makes the schedule's call now, beside its own times: also while it is paused or its last call is in flight. Throws `NOT_FOUND`, and the
   * error of a call that is refused.
   */
  async run(
    id: string,
    options: ScheduleOptions & { readonly reason?: string } = {},
  ): Promise<ScheduleView & { readonly callId: string }> {
    checkOptions(options);
    const { records, clock } = this.#deps;
    const { by = 'local', submittedBy, seesTenant, reason } = options;
    const { record } = await this.#find(id, seesTenant);
    const atMs = clock.now();
    // The person who runs it cannot approve it either.
    const byCaller = submittedBy === undefined ? record : { ...record, submittedBy };
    const started = await startOccurrence(this.#deps, byCaller, `schedule:${id}:run:${uuidv7()}`, atMs);
    if (started.kind === 'refused') throw started.error;
    started.pending?.stop();
    const { callId } = started;
    const changed = await updateSchedule(records, id, (now) => {
      if (now === undefined) return undefined;
      const progress = withEvent(now.progress, { atMs, result: 'run', callId });
      return { current: now.record, progress, dueAtMs: dueAt(now.record, progress, atMs) };
    });
    await this.#audit(record, 'run', by, { callId, reason });
    const { current, progress } = changed ?? { current: record, progress: newProgress(record, atMs) };
    return { ...scheduleView(current, progress, atMs), callId };
  }

  /** Removes a schedule. Calls that were started go on. Throws `NOT_FOUND`. */
  async remove(id: string, options: ScheduleOptions = {}): Promise<void> {
    checkOptions(options);
    const { by = 'local', seesTenant } = options;
    const { records } = this.#deps;
    for (;;) {
      const { found, seen: text } = await records.read(id);
      const { record } = requireVisible(id, found, seesTenant);
      if (await records.remove(id, text)) return this.#audit(record, 'removed', by);
    }
  }

  async #change(
    id: string,
    action: ScheduleAction,
    options: ScheduleOptions & { readonly reason?: string },
    change: (stored: StoredSchedule, nowMs: number) => ReturnType<typeof recordChange> | undefined,
  ): Promise<ScheduleView> {
    const { by = 'local', seesTenant, reason } = options;
    const nowMs = this.#deps.clock.now();
    const changed = await updateSchedule(this.#deps.records, id, (stored) =>
      change(requireVisible(id, stored, seesTenant), nowMs),
    );
    if (changed === undefined) return this.get(id, options);
    await this.#audit(changed.record, action, by, { reason });
    return scheduleView(changed.record, changed.progress, nowMs);
  }

  async #find(id: string, seesTenant: ScheduleOptions['seesTenant']): Promise<StoredSchedule> {
    return requireVisible(id, (await this.#deps.records.read(id)).found, seesTenant);
  }

  /** Throws `UNKNOWN_SESSION` and `SESSION_CLOSED`. */
  async #openSession(sessionKey: string): Promise<Session> {
    const session = await this.#deps.sessions.find(sessionKey).catch((error: unknown) => {
      throw withPath(error, 'session');
    });
    if (session.state === 'closed') throw withPath(sessionClosed(sessionKey), 'session');
    return session;
  }

  /** Checks the call of a schedule: its tool, its parameters, and whether the session may make it. */
  async #check(session: SessionRecord, record: ScheduleRecord, isDraft = false): Promise<void> {
    try {
      await this.#deps.submitter.check(scheduledEnvelope(session, record, 'check', 0), session, isDraft);
    } catch (error) {
      throw error instanceof PawlError && error.code === 'INVALID_PARAMS'
        ? belowPath(error, 'params')
        : withPath(error, 'tool');
    }
  }

  async #audit(
    record: ScheduleRecord,
    action: ScheduleAction,
    by: string,
    details: { readonly reason?: string | undefined; readonly callId?: string } = {},
  ): Promise<void> {
    await this.#deps.audit({ ...scheduleEvent(record, action, by), ...details });
  }
}

/** Throws `CONTRACT_INVALID` with the path of every fault. */
function parsePut(schedule: PutSchedule<AnyTool | string>): CheckedSchedule {
  checkObject('schedule', schedule);
  const tool = isTool(schedule.tool) ? qualifiedName(schedule.tool) : schedule.tool;
  const { session: given } = schedule;
  const session = isObject(given) ? given['key'] : given;
  return parseSchedule({ ...schedule, tool, session } as ScheduleRequest);
}

/** Throws `CONTRACT_INVALID` for an option that would have no effect, and for a reason that cannot be recorded. */
function checkOptions(options: ScheduleOptions & { readonly reason?: string }): void {
  checkMembers('options', options, ['by', 'submittedBy', 'seesTenant', 'reason']);
  if (options.reason !== undefined) checkReason('options.reason', options.reason);
}

/** Throws `CONTRACT_INVALID` for new times that are all in the past. */
function progressOf(record: ScheduleRecord, before: StoredSchedule | undefined, nowMs: number): ScheduleProgress {
  if (before !== undefined && hasSameTiming(before.record, record)) {
    const wasAutoPaused = before.record.paused !== undefined && record.paused === undefined;
    const progress = wasAutoPaused ? resumed(before.progress, nowMs) : before.progress;
    return { ...progress, change: progress.change + 1 };
  }
  const fresh = newProgress(record, nowMs);
  const { paused: _, ...unpaused } = record;
  if (upcomingTimes(unpaused, fresh, nowMs, 1).length === 0)
    throw invalidSchedule([{ path: 'until', message: 'is before the first time to come: it would never occur' }]);
  if (before === undefined) return fresh;
  const { change, starting, lastCallId, recent } = before.progress;
  return { ...fresh, change: change + 1, recent, ...defined({ starting, lastCallId }) };
}

function requireVisible(
  id: string,
  found: StoredSchedule | undefined,
  seesTenant: ScheduleOptions['seesTenant'] = () => true,
): StoredSchedule {
  if (found !== undefined && seesTenant(found.record.tenantId)) return found;
  throw new PawlError('NOT_FOUND', `There is no schedule ${quoteValue(id)}.`);
}

function refuseOtherTenant(
  found: StoredSchedule | undefined,
  seesTenant: ScheduleOptions['seesTenant'] = () => true,
): void {
  if (found === undefined || seesTenant(found.record.tenantId)) return;
  const name = JSON.stringify(found.record.id);
  throw new PawlError('PERMISSION_DENIED', `The schedule ${name} belongs to another tenant.`);
}

function withPath(error: unknown, path: string): unknown {
  if (!isRefusalError(error) || error.issues !== undefined) return error;
  const { code, message, details } = error;
  return new PawlError(code, message, { cause: error, issues: [{ path, message }], ...defined({ details }) });
}

function belowPath({ code, message, issues = [] }: PawlError, root: string): PawlError {
  const rooted = issues.map((issue) => ({ ...issue, path: issue.path === '' ? root : `${root}.${issue.path}` }));
  return new PawlError(code, message, { issues: rooted });
}
