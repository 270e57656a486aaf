/**
 * The records of schedules. Each schedule has two signed texts: its record, which people change, and its progress, which changes with each
 * occurrence. A sorted set says when each is due. A writer names the progress that it saw, so that two processes never deal with one
 * occurrence in different ways.
 */
import type { ScheduleProgress } from '../../schedules/progress.ts';
import { SCHEDULE_LEASE_MS } from '../../schedules/progress.ts';
import type { ScheduleRecord } from '../../schedules/schedule.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';
import { reSignFields } from '../signing/re-sign.ts';
import { signedText, verifiedText } from '../signing/signed-text.ts';

const writeScript = new Script(new URL('./schedule-write.lua', import.meta.url), [], 'once');
const takeScript = new Script(new URL('./schedules-take.lua', import.meta.url), [], 'once');

const RECORD_MEMBERS = ['revision', 'tool', 'params', 'sessionKey'] as const;
const PROGRESS_MEMBERS = ['change', 'cursorMs', 'recent', 'counts'] as const;

export interface StoredSchedule {
  readonly record: ScheduleRecord;
  readonly progress: ScheduleProgress;
  /** The text of the progress, for `write`. */
  readonly seen: string;
}

export interface ScheduleChange {
  /** Absent: the record stays as it is. */
  readonly record?: ScheduleRecord;
  readonly progress: ScheduleProgress;
  /** Undefined: nothing of it is due any more. */
  readonly dueAtMs: number | undefined;
}

interface TakenSchedules {
  /** Redis' clock. */
  readonly nowMs: number;
  readonly schedules: readonly StoredSchedule[];
  /** How long until the next one is due. */
  readonly nextInMs: number;
}

export class ScheduleRecords extends FleetRecords {
  /** Undefined when there is none, or none that this fleet signed. `seen` is then what a new one replaces. */
  async read(id: string): Promise<{ readonly found: StoredSchedule | undefined; readonly seen: string }> {
    // Callers without types may pass anything.
    if (typeof id !== 'string') return { found: undefined, seen: '' };
    const { schedules, scheduleProgress } = this.keys;
    // The progress comes first: a writer that has an older progress than its record is refused, the other way round it is not.
    const [progress, record] = await Promise.all([
      this.redis.hget(scheduleProgress, id),
      this.redis.hget(schedules, id),
    ]);
    return { found: this.#opened(id, record, progress), seen: progress ?? '' };
  }

  async list(): Promise<readonly StoredSchedule[]> {
    const { schedules, scheduleProgress } = this.keys;
    const [progress, records] = await Promise.all([
      this.redis.hgetall(scheduleProgress),
      this.redis.hgetall(schedules),
    ]);
    return Object.entries(records)
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .flatMap(([id, text]) => this.#opened(id, text, progress[id] ?? null) ?? []);
  }

  count(): Promise<number> {
    return this.redis.hlen(this.keys.schedules);
  }

  /** How many have been due since before a time, and were not taken. */
  overdue(beforeMs: number): Promise<number> {
    return this.redis.zcount(this.keys.schedulesDue, '-inf', `(${beforeMs}`);
  }

  /** Takes those that are due, at most so many: no other process takes them while the lease lasts. */
  async take(maxSchedules: number): Promise<TakenSchedules> {
    const { schedules, scheduleProgress, schedulesDue } = this.keys;
    const keys = [schedulesDue, schedules, scheduleProgress];
    const [nowMs, next, ...texts] = await takeScript.run(this.redis, keys, [SCHEDULE_LEASE_MS, maxSchedules]);
    const due: StoredSchedule[] = [];
    for (let index = 0; index < texts.length; index += 3) {
      const [id, record, progress] = texts.slice(index, index + 3).map(String);
      const found = this.#opened(id ?? '', record ?? null, progress ?? null);
      if (found !== undefined) due.push(found);
    }
    const nextInMs = next === null ? Number.POSITIVE_INFINITY : Number(next) - Number(nowMs);
    return { nowMs: Number(nowMs), schedules: due, nextInMs };
  }

  /** False when another process has written since the progress was `seen`, which is empty for a new schedule. */
  async write(id: string, seen: string, { record, progress, dueAtMs }: ScheduleChange): Promise<boolean> {
    const signed = record === undefined ? '' : signedText(this.signatures, 'schedule', id, record);
    return this.#write([id, seen, this.#signedProgress(id, progress), signed, dueAtMs ?? '']);
  }

  /** False when another process has written since. */
  remove(id: string, seen: string): Promise<boolean> {
    return this.#write([id, seen, '', '', '']);
  }

  async #write(args: readonly (string | number)[]): Promise<boolean> {
    const { schedules, scheduleProgress, schedulesDue } = this.keys;
    const [written] = await writeScript.run(this.redis, [schedules, scheduleProgress, schedulesDue], args);
    return written === 1;
  }

  /** With the newest key. */
  async reSign(): Promise<void> {
    const { schedules, scheduleProgress } = this.keys;
    await reSignFields(this.redis, schedules, (id, stored) => {
      const record = verifiedText<ScheduleRecord>(this.signatures, 'schedule', id, stored);
      return record && signedText(this.signatures, 'schedule', id, record);
    });
    await reSignFields(this.redis, scheduleProgress, (id, stored) => {
      const progress = verifiedText<ScheduleProgress>(this.signatures, 'schedule-progress', id, stored);
      return progress && this.#signedProgress(id, progress);
    });
  }

  #signedProgress(id: string, progress: ScheduleProgress): string {
    return signedText(this.signatures, 'schedule-progress', id, progress);
  }

  /** The schedule, when keys of this fleet signed both of its texts under this ID. */
  #opened(id: string, recordText: string | null, progressText: string | null): StoredSchedule | undefined {
    if (recordText === null || progressText === null) return undefined;
    const record = verifiedText<ScheduleRecord>(this.signatures, 'schedule', id, recordText, RECORD_MEMBERS);
    const progress = verifiedText<ScheduleProgress>(
      this.signatures,
      'schedule-progress',
      id,
      progressText,
      PROGRESS_MEMBERS,
    );
    return record === undefined || progress === undefined ? undefined : { record, progress, seen: progressText };
  }
}
