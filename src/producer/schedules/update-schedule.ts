/** Changes a schedule that other processes may change at the same time. */
import { PawlError } from '../../shared/errors/failure.ts';
import type { ScheduleChange, ScheduleRecords, StoredSchedule } from '../../shared/store/schedules/schedules.ts';

/** Enough tries even for a schedule with an occurrence each second. */
const TRIES = 50;

/** Reads a schedule, applies `change` and writes it, until no other process has written in between. `undefined` changes nothing. */
export async function updateSchedule(
  records: Pick<ScheduleRecords, 'read' | 'write'>,
  id: string,
  change: (stored: StoredSchedule | undefined) => ScheduleChange | undefined,
): Promise<void> {
  for (let tries = 0; tries < TRIES; tries += 1) {
    const { found, seen } = await records.read(id);
    const changed = change(found);
    if (changed === undefined || (await records.write(id, seen, changed))) return;
  }
  throw new PawlError('BACKEND_UNAVAILABLE', `The schedule ${id} is written by others all the time: try again.`);
}
