/** Changes a schedule that other processes may change at the same time. */
import type { AuditEvent } from '../../shared/audit/audit-event.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import { dueAt, type ScheduleProgress } from '../../shared/schedules/progress.ts';
import type { ScheduleRecord } from '../../shared/schedules/schedule.ts';
import type { ScheduleChange, ScheduleRecords, StoredSchedule } from '../../shared/store/schedules/schedules.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';

/** Enough tries even for a schedule with an occurrence each second. */
const TRIES = 50;

/** Reads a schedule, applies `change` and writes it, until no other process has written in between. `undefined` changes nothing. */
export async function updateSchedule<Changed extends ScheduleChange | undefined>(
  records: Pick<ScheduleRecords, 'read' | 'write'>,
  id: string,
  change: (stored: StoredSchedule | undefined) => Changed,
): Promise<Changed> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const { found, seen } = await records.read(id);
    const changed = change(found);
    if (changed === undefined || (await records.write(id, seen, changed))) return changed;
  }
  throw new PawlError('BACKEND_UNAVAILABLE', `The schedule ${id} is written by others all the time: try again.`);
}

/** The change of a schedule's record. */
export function recordChange(record: ScheduleRecord, before: ScheduleProgress, nowMs: number) {
  const progress = { ...before, change: before.change + 1 };
  return { record, progress, dueAtMs: dueAt(record, progress, nowMs) };
}

type ScheduleEvent = Extract<AuditEvent, { readonly type: 'schedule-changed' }>;
export type ScheduleAction = ScheduleEvent['action'];

/** The audit event of an action on a schedule. */
export function scheduleEvent(record: ScheduleRecord, action: ScheduleAction, by: string): ScheduleEvent {
  const { id, tool, sessionKey, tenantId } = record;
  return { type: 'schedule-changed', action, by, scheduleId: id, tool: qualifiedName(tool), sessionKey, tenantId };
}
