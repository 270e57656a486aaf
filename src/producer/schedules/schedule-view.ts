/** The view of a schedule in the API and the commands. Its times are ISO 8601, in UTC. */
import { redactFields, secretsIn } from '../../shared/errors/redaction.ts';
import { type OccurrenceEvent, type ScheduleProgress, upcomingTimes } from '../../shared/schedules/progress.ts';
import type { ScheduleRecord } from '../../shared/schedules/schedule.ts';
import { defined } from '../../shared/util/json/omit-undefined.ts';

const SHOWN_TIMES = 5;

export interface OccurrenceView extends Omit<OccurrenceEvent, 'atMs'> {
  readonly at: string;
}

export type ScheduleView = ReturnType<typeof scheduleView>;

export function scheduleView(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number) {
  const { id, revision, tool, params, sessionKey, fromMs, untilMs, paused } = record;
  const { tenantId, every, cron, timezone, limit, overlap, missed } = record;
  const next = upcomingTimes(record, progress, nowMs, SHOWN_TIMES);
  const { waiting = [], starting, recent, counts } = progress;
  const isOver = next.length === 0 && waiting.length === 0 && starting === undefined;
  const last = recent.find(({ result }) => result !== 'skipped' && result !== 'missed');
  return defined({
    id,
    revision,
    tool: tool.name,
    namespace: tool.namespace,
    /** Without secrets. */
    params: redactFields(params, secretsIn(params)),
    session: sessionKey,
    tenantId,
    every,
    cron,
    timezone,
    from: iso(fromMs),
    until: iso(untilMs),
    limit,
    overlap,
    missed,
    /** `ended`: it does not occur again. */
    state: paused !== undefined ? 'paused' : isOver ? 'ended' : 'active',
    pausedAtMs: paused?.atMs,
    pausedBy: paused?.by,
    pauseReason: paused?.reason,
    /** The next five times; none while it is paused. */
    next: next.map((atMs) => new Date(atMs).toISOString()),
    /** The newest occurrence with a call or a refusal: started, run by hand, refused or unknown. */
    last: last && occurrenceView(last),
    /** The end of each of the newest occurrences, the newest first. */
    recent: recent.map(occurrenceView),
    /** Occurrences that wait for the end of the call before them. */
    waiting: waiting.length,
    counts,
    createdAtMs: record.createdAtMs,
    updatedAtMs: record.updatedAtMs,
    updatedBy: record.updatedBy,
  });
}

function occurrenceView({ atMs, ...event }: OccurrenceEvent): OccurrenceView {
  return { at: new Date(atMs).toISOString(), ...event };
}

function iso(atMs: number | undefined): string | undefined {
  return atMs === undefined ? undefined : new Date(atMs).toISOString();
}
