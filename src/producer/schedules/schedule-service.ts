/** `pawl.schedules`: manages schedules. `schedule-runner.ts` starts their occurrences. */
import type { AuditEvent, RecordAudit } from '../../shared/audit/audit-event.ts';
import { PawlError } from '../../shared/errors/failure.ts';
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
  hasSameCall,
  hasSameTiming,
  invalidSchedule,
  parseSchedule,
  type ScheduleRecord,
  type ScheduleRequest,
  scheduleRecord,
} from '../../shared/schedules/schedule.ts';
import { checkMembers, checkObject, checkReason } from '../../shared/schema/known-members.ts';
import { quoteValue } from '../../shared/schema/schema-issues.ts';
import { type SessionRecord, sessionClosed } from '../../shared/sessions/session.ts';
import type { ScheduleChange, ScheduleRecords, StoredSchedule } from '../../shared/store/schedules/schedules.ts';
import { type AnyTool, type InputOf, isTool, qualifiedName, splitName } from '../../shared/tools/tool.ts';
import { type Clock, uuidv7 } from '../../shared/util/time.ts';
import type { CallSubmitter } from '../calls/submit-call.ts';
import type { Session } from '../sessions/session.ts';
import { type ScheduleView, scheduleView } from './schedule-view.ts';
import { type StartDeps, scheduledEnvelope, startOccurrence } from './start-occurrence.ts';
import { updateSchedule } from './update-schedule.ts';

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

export interface ScheduleServiceDeps extends StartDeps {
  readonly records: ScheduleRecords;
  readonly submitter: Pick<CallSubmitter, 'submit' | 'check'>;
  readonly audit: RecordAudit;
  readonly clock: Pick<Clock, 'now'>;
}

type Action = Extract<AuditEvent, { type: 'schedule-changed' }>['action'];

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
    { by = 'local', submittedBy, seesTenant = () => true }: ScheduleOptions = {},
  ): Promise<ScheduleView> {
    const { records, clock } = this.#deps;
    const checked = parsePut(schedule);
    const session = await this.#openSession(checked.session);
    const nowMs = clock.now();
    const authorship = { by, submittedBy, nowMs, tenantId: session.record.tenantId };
    await this.#check(session.record, recordOf(checked, undefined, authorship));
    let written: StoredSchedule | undefined;
    const isFull = (await records.count()) >= MAX_SCHEDULES;
    await updateSchedule(records, checked.id, (before) => {
      if (before !== undefined && !seesTenant(before.record.tenantId)) throw otherTenant(checked.id);
      if (before === undefined && isFull) throw tooManySchedules();
      const record = recordOf(checked, before?.record, authorship);
      const progress = progressOf(record, before, nowMs);
      written = { record, progress, seen: '' };
      return { record, progress, dueAtMs: dueAt(record, progress, nowMs) };
    });
    const { record, progress } = written as unknown as StoredSchedule;
    await this.#audit(record, record.revision === 1 ? 'created' : 'replaced', by);
    return scheduleView(record, progress, nowMs);
  }

  /** Checks a new schedule of a session that is not open yet, and stores nothing. Throws as `put` does. */
  async check(
    schedule: PutSchedule,
    draft: () => Promise<SessionRecord>,
    { seesTenant = () => true }: Pick<ScheduleOptions, 'seesTenant'> = {},
  ): Promise<void> {
    const checked = parsePut(schedule);
    const { found } = await this.#deps.records.read(checked.id);
    if (found !== undefined && !seesTenant(found.record.tenantId)) throw otherTenant(checked.id);
    const nowMs = this.#deps.clock.now();
    const session = await draft();
    const authorship = { by: 'local', submittedBy: undefined, nowMs, tenantId: session.tenantId };
    const record = recordOf(checked, undefined, authorship);
    await this.#check(session, record, true);
    progressOf(record, undefined, nowMs);
  }

  /** All schedules that the caller may see, by ID. */
  async list({ seesTenant = () => true }: Pick<ScheduleOptions, 'seesTenant'> = {}): Promise<readonly ScheduleView[]> {
    const stored = await this.#deps.records.list();
    const nowMs = this.#deps.clock.now();
    return stored
      .filter(({ record }) => seesTenant(record.tenantId))
      .map(({ record, progress }) => scheduleView(record, progress, nowMs));
  }

  /** One schedule, with its next five times and its last occurrence. Throws `NOT_FOUND`. */
  async get(id: string, { seesTenant = () => true }: Pick<ScheduleOptions, 'seesTenant'> = {}): Promise<ScheduleView> {
    const { found } = await this.#deps.records.read(id);
    const { record, progress } = requireVisible(id, found, seesTenant);
    return scheduleView(record, progress, this.#deps.clock.now());
  }

  /** Starts no occurrence until `resume`. Running calls go on. Throws `NOT_FOUND`. */
  async pause(id: string, options: ScheduleOptions & { readonly reason?: string } = {}): Promise<ScheduleView> {
    checkOptions(options);
    const { by = 'local', reason } = options;
    return this.#change(id, 'paused', options, ({ record, progress }, nowMs) => {
      if (record.paused !== undefined && record.paused.itself !== true) return undefined;
      const paused = { atMs: nowMs, by, ...(reason !== undefined && { reason }) };
      return { record: { ...record, paused }, progress: skipWaiting(progress, 'the schedule was paused') };
    });
  }

  /**
   * Resumes a paused schedule with its next time. Occurrences during the pause are not made up for. Throws `NOT_FOUND`, `UNKNOWN_SESSION`
   * and `SESSION_CLOSED`.
   */
  async resume(id: string, options: ScheduleOptions & { readonly reason?: string } = {}): Promise<ScheduleView> {
    checkOptions(options);
    const { found } = await this.#deps.records.read(id);
    await this.#openSession(requireVisible(id, found, options.seesTenant).record.sessionKey);
    return this.#change(id, 'resumed', options, ({ record, progress }, nowMs) => {
      const { paused, ...unpaused } = record;
      return paused === undefined ? undefined : { record: unpaused, progress: resumed(progress, nowMs) };
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
    const { record } = requireVisible(id, (await records.read(id)).found, seesTenant);
    const atMs = clock.now();
    // The person who runs it cannot approve it either.
    const byCaller = submittedBy === undefined ? record : { ...record, submittedBy };
    const started = await startOccurrence(this.#deps, byCaller, `schedule:${id}:run:${uuidv7()}`, atMs);
    if (started.kind === 'refused') throw started.error;
    started.pending?.stop();
    const { callId } = started;
    let view = scheduleView(record, newProgress(record, atMs), atMs);
    await updateSchedule(records, id, (now) => {
      if (now === undefined) return undefined;
      const progress = withEvent(now.progress, { atMs, result: 'run', callId });
      view = scheduleView(now.record, progress, atMs);
      return { progress, dueAtMs: dueAt(now.record, progress, atMs) };
    });
    await this.#audit(record, 'run', by, { callId, reason });
    return { ...view, callId };
  }

  /** Removes a schedule. Calls that were started go on. Throws `NOT_FOUND`. */
  async remove(id: string, { by = 'local', seesTenant }: ScheduleOptions = {}): Promise<void> {
    const { records } = this.#deps;
    for (;;) {
      const { found, seen: text } = await records.read(id);
      const { record } = requireVisible(id, found, seesTenant);
      if (await records.remove(id, text)) return this.#audit(record, 'removed', by);
    }
  }

  async #change(
    id: string,
    action: Action,
    { by = 'local', seesTenant, reason }: ScheduleOptions & { readonly reason?: string },
    change: (stored: StoredSchedule, nowMs: number) => Required<Omit<ScheduleChange, 'dueAtMs'>> | undefined,
  ): Promise<ScheduleView> {
    const nowMs = this.#deps.clock.now();
    let view: ScheduleView | undefined;
    let changed: ScheduleRecord | undefined;
    await updateSchedule(this.#deps.records, id, (stored) => {
      const before = requireVisible(id, stored, seesTenant);
      const result = change(before, nowMs);
      changed = result?.record;
      const record = { ...(result?.record ?? before.record) };
      const progress = { ...(result?.progress ?? before.progress) };
      view = scheduleView(record, progress, nowMs);
      return result && nextChange(record, progress, before.progress, nowMs);
    });
    if (changed !== undefined) await this.#audit(changed, action, by, { reason });
    return view as unknown as ScheduleView;
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
    { id, tool, sessionKey, tenantId }: ScheduleRecord,
    action: Action,
    by: string,
    details: { readonly reason?: string | undefined; readonly callId?: string } = {},
  ): Promise<void> {
    const subject = { scheduleId: id, tool: qualifiedName(tool), sessionKey, tenantId };
    await this.#deps.audit({ type: 'schedule-changed', action, by, ...subject, ...details });
  }
}

/** Throws `CONTRACT_INVALID` with the path of every fault. */
function parsePut(schedule: PutSchedule<AnyTool | string>): CheckedSchedule {
  checkObject('schedule', schedule);
  const tool = isTool(schedule.tool) ? qualifiedName(schedule.tool) : schedule.tool;
  const { session: given } = schedule;
  const session = typeof given === 'object' && given !== null ? given.key : given;
  return parseSchedule({ ...schedule, tool, session } as ScheduleRequest);
}

/** Throws `CONTRACT_INVALID` for an option that would have no effect, and for a reason that cannot be recorded. */
function checkOptions(options: ScheduleOptions & { readonly reason?: string }): void {
  checkMembers('options', options, ['by', 'submittedBy', 'seesTenant', 'reason']);
  if (options.reason !== undefined) checkReason('options.reason', options.reason);
}

interface Authorship {
  readonly by: string;
  readonly submittedBy: string | undefined;
  readonly tenantId: string | undefined;
  readonly nowMs: number;
}

function recordOf(
  checked: CheckedSchedule,
  before: ScheduleRecord | undefined,
  authorship: Authorship,
): ScheduleRecord {
  const { by, submittedBy, tenantId, nowMs } = authorship;
  const revision = (before?.revision ?? 0) + 1;
  const record = scheduleRecord(checked, {
    tool: splitName(checked.tool),
    tenantId,
    submittedBy,
    revision,
    callRevision: revision,
    // A schedule that paused itself had no session to call in; this one has.
    paused: before?.paused?.itself === true ? undefined : before?.paused,
    createdAtMs: before?.createdAtMs ?? nowMs,
    updatedAtMs: nowMs,
    updatedBy: by,
  });
  return before !== undefined && hasSameCall(before, record)
    ? { ...record, callRevision: before.callRevision }
    : record;
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
  return {
    ...fresh,
    change: change + 1,
    recent,
    ...(starting !== undefined && { starting }),
    ...(lastCallId !== undefined && { lastCallId }),
  };
}

function nextChange(
  record: ScheduleRecord,
  progress: ScheduleProgress,
  { change }: ScheduleProgress,
  nowMs: number,
): ScheduleChange {
  const changed = { ...progress, change: change + 1 };
  return { record, progress: changed, dueAtMs: dueAt(record, changed, nowMs) };
}

function requireVisible(
  id: string,
  found: StoredSchedule | undefined,
  seesTenant: ScheduleOptions['seesTenant'] = () => true,
): StoredSchedule {
  if (found !== undefined && seesTenant(found.record.tenantId)) return found;
  throw new PawlError('NOT_FOUND', `There is no schedule ${quoteValue(id)}.`);
}

function otherTenant(id: string): PawlError {
  return new PawlError('PERMISSION_DENIED', `The schedule ${JSON.stringify(id)} belongs to another tenant.`);
}

function tooManySchedules(): PawlError {
  return new PawlError('OVERLOADED', `There are ${MAX_SCHEDULES} schedules already: remove some first.`);
}

function withPath(error: unknown, path: string): unknown {
  if (!(error instanceof PawlError) || error.code === 'BACKEND_UNAVAILABLE' || error.issues !== undefined) return error;
  const { code, message, details } = error;
  return new PawlError(code, message, {
    cause: error,
    issues: [{ path, message }],
    ...(details !== undefined && { details: { ...details } }),
  });
}

function belowPath({ code, message, issues = [] }: PawlError, root: string): PawlError {
  const rooted = issues.map((issue) => ({ ...issue, path: issue.path === '' ? root : `${root}.${issue.path}` }));
  return new PawlError(code, message, { issues: rooted });
}
