/**
 * The progress of a schedule. An occurrence takes two writes: `starting` names it before its call is submitted, and `finished`
 * records its result. A process that dies between the two leaves `starting` behind. Another process then submits the same call under
 * the same idempotency key, so the occurrence runs once.
 *
 * ```
 * due ─► late? ──► missed, or waiting (by the rule for missed ones)
 *    └─► overlaps? ─► skipped, waiting, or the previous call is cancelled
 *    └─► starting ─► started │ refused │ unknown
 * ```
 */
import { occurrencesOf } from './occurrences.ts';
import type { ScheduleRecord } from './schedule.ts';

/** An occurrence that starts no later than this is on time. A later one was missed. */
export const ON_TIME_MS = 10_000;
/** The largest number of occurrences that wait for the end of a call. It also bounds `run-all`: older missed ones are skipped. */
export const MAX_WAITING = 100;
/** The number of newest events that a schedule's record keeps. */
const MAX_RECENT = 10;
/** The lease of an occurrence that is starting. When it ends, another front door takes the occurrence over. */
export const SCHEDULE_LEASE_MS = 3_000;
/** The time for which a temporarily refused call is submitted again. */
const REFUSAL_RETRY_MS = 60_000;
/** The interval at which a waiting occurrence checks whether the previous call has ended, in case the event was lost. */
const RECHECK_MS = 1_000;
/** An idle schedule reads its session at least this often, so that the session's record does not expire. */
const IDLE_RECHECK_MS = 24 * 3_600_000;

/**
 * The end of an occurrence:
 *
 * - `started`: its call exists.
 * - `skipped`: the previous call was in flight, the queue was full, or the schedule was paused.
 * - `missed`: no front door could start it in time, and the rule for missed ones leaves it out.
 * - `refused`: the call was refused, with `code`.
 * - `unknown`: the process that started it died, and the record of a possible call has expired since.
 * - `run`: a person started it.
 */
export const OCCURRENCE_RESULTS = ['started', 'skipped', 'missed', 'refused', 'unknown', 'run'] as const;
type OccurrenceResult = (typeof OCCURRENCE_RESULTS)[number];

export interface OccurrenceEvent {
  readonly atMs: number;
  readonly result: OccurrenceResult;
  readonly callId?: string;
  readonly code?: string;
  readonly reason?: string;
  /** The number of occurrences that were skipped or missed together; this event is of the last one. */
  readonly times?: number;
  /** There were more than `times`. */
  readonly more?: true;
}

export type OccurrenceCounts = Readonly<Record<Exclude<OccurrenceResult, 'run'>, number>>;

export interface ScheduleProgress {
  /** Grows with every change of the schedule's record, so that a process with an older record cannot write. */
  readonly change: number;
  /** All occurrences up to here are handled, except those in `waiting` and `starting`. */
  readonly cursorMs: number;
  /** Occurrences that start when the call before them has ended, in order. */
  readonly waiting?: readonly number[];
  readonly starting?: {
    readonly atMs: number;
    readonly sinceMs: number /** Of the record. */;
    readonly callRevision: number;
  };
  /** The call of the last occurrence that was started. */
  readonly lastCallId?: string;
  readonly recent: readonly OccurrenceEvent[];
  readonly counts: OccurrenceCounts;
}

export function newProgress(record: ScheduleRecord, nowMs: number): ScheduleProgress {
  return {
    change: 1,
    cursorMs: Math.max(nowMs, (record.fromMs ?? 0) - 1),
    recent: [],
    counts: { started: 0, skipped: 0, missed: 0, refused: 0, unknown: 0 },
  };
}

type ScheduleStep =
  | { readonly kind: 'none'; readonly progress: ScheduleProgress }
  | {
      readonly kind: 'start';
      readonly progress: ScheduleProgress;
      readonly starting: NonNullable<ScheduleProgress['starting']>;
      /** The previous call is cancelled first. */
      readonly cancelsPrevious: boolean;
    };

/** Handles all due occurrences, up to the first one that starts now. `isBusy`: the last call is in flight. */
export function nextStep(
  record: ScheduleRecord,
  before: ScheduleProgress,
  nowMs: number,
  isBusy: boolean,
): ScheduleStep {
  if (record.paused !== undefined) return { kind: 'none', progress: before };
  let progress = handleMissed(record, before, nowMs);
  const starting = (atMs: number) => ({ atMs, sinceMs: nowMs, callRevision: record.callRevision });
  const { waiting = [] } = progress;
  const [first] = waiting;
  if (first !== undefined && !isBusy) {
    const { waiting: _, ...rest } = progress;
    const remaining = waiting.slice(1);
    return startStep({ ...rest, ...(remaining.length === 0 ? {} : { waiting: remaining }) }, starting(first));
  }
  for (const atMs of dueTimes(record, progress, nowMs)) {
    const advanced = { ...progress, cursorMs: atMs };
    if (!isBusy && first === undefined) return startStep(advanced, starting(atMs));
    if (record.overlap === 'cancel-previous') {
      if ((nextTime(record, advanced) ?? Number.POSITIVE_INFINITY) > nowMs)
        return startStep(advanced, starting(atMs), isBusy);
      progress = withEvent(advanced, { atMs, result: 'skipped', reason: 'a newer one cancels it' });
    } else
      progress =
        record.overlap === 'queue' ? enqueueOccurrence(advanced, atMs) : withEvent(advanced, overlapSkip(atMs));
  }
  return { kind: 'none', progress };
}

type Start = Extract<ScheduleStep, { kind: 'start' }>;

function startStep(progress: ScheduleProgress, starting: Start['starting'], cancelsPrevious = false): Start {
  return { kind: 'start', starting, cancelsPrevious, progress: { ...progress, starting } };
}

function overlapSkip(atMs: number): OccurrenceEvent {
  return { atMs, result: 'skipped', reason: 'the previous call is in flight' };
}

function enqueueOccurrence(progress: ScheduleProgress, atMs: number): ScheduleProgress {
  const { waiting = [] } = progress;
  if (waiting.length < MAX_WAITING) return { ...progress, waiting: [...waiting, atMs] };
  return withEvent(progress, { atMs, result: 'skipped', reason: `${MAX_WAITING} occurrences wait already` });
}

/** Applies the rule for missed occurrences to those that are late. */
function handleMissed(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number): ScheduleProgress {
  const lateMs = nowMs - ON_TIME_MS - 1;
  const remaining = remainingCalls(record, progress);
  if (lateMs <= progress.cursorMs || remaining === 0) return progress;
  const { waiting = [] } = progress;
  const { newest, olderCount, hasMore } = occurrencesOf(record).between(progress.cursorMs, lateMs, MAX_WAITING + 1);
  const last = newest.at(-1);
  if (last === undefined) return progress;
  const advanced = { ...progress, cursorMs: last };
  const retained = missedToRun(record, advanced, newest, nowMs).slice(0, remaining);
  const queue = retained.slice(Math.max(0, retained.length + waiting.length - MAX_WAITING));
  const next = queue.length === 0 ? advanced : { ...advanced, waiting: [...waiting, ...queue] };
  const missed = newest.filter((atMs) => !queue.includes(atMs));
  const lastMissed = missed.at(-1);
  // A schedule that has made all of its calls would not have occurred again.
  if (lastMissed === undefined || remainingCalls(record, next) === 0) return next;
  const times = missed.length + olderCount;
  return withEvent(next, { atMs: lastMissed, result: 'missed', times, ...(hasMore ? { more: true } : {}) });
}

/** The missed occurrences that run all the same. */
function missedToRun(
  record: ScheduleRecord,
  advanced: ScheduleProgress,
  newest: readonly number[],
  nowMs: number,
): readonly number[] {
  if (record.missed === 'skip') return [];
  if (record.missed === 'run-all') return newest;
  const isNextOnTime = (nextTime(record, advanced) ?? Number.POSITIVE_INFINITY) <= nowMs;
  return isNextOnTime ? [] : newest.slice(-1);
}

/** The number of further calls that the schedule may make. */
function remainingCalls({ limit }: ScheduleRecord, { counts, waiting = [], starting }: ScheduleProgress): number {
  const usedCalls = counts.started + waiting.length + (starting === undefined ? 0 : 1);
  return limit === undefined ? Number.POSITIVE_INFINITY : Math.max(0, limit - usedCalls);
}

function* dueTimes(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number): Generator<number> {
  let remaining = remainingCalls(record, progress);
  const times = occurrencesOf(record);
  for (
    let atMs = times.after(progress.cursorMs);
    atMs !== undefined && atMs <= nowMs && remaining > 0;
    atMs = times.after(atMs)
  ) {
    yield atMs;
    remaining -= 1;
  }
}

function nextTime(record: ScheduleRecord, progress: ScheduleProgress): number | undefined {
  return remainingCalls(record, progress) === 0 ? undefined : occurrencesOf(record).after(progress.cursorMs);
}

/** The next times of a schedule. It has none while it is paused, and after its end. */
export function upcomingTimes(
  record: ScheduleRecord,
  progress: ScheduleProgress,
  nowMs: number,
  limit: number,
): readonly number[] {
  if (record.paused !== undefined) return [];
  const times = occurrencesOf(record);
  const remaining = Math.min(limit, remainingCalls(record, progress));
  const upcoming: number[] = [];
  let atMs = remaining === 0 ? undefined : times.after(Math.max(progress.cursorMs, nowMs));
  for (; atMs !== undefined && upcoming.length < remaining; atMs = times.after(atMs)) upcoming.push(atMs);
  return upcoming;
}

/** The time of the next check of the schedule; undefined when nothing more is due. */
export function dueAt(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number): number | undefined {
  if (progress.starting !== undefined) return nowMs + SCHEDULE_LEASE_MS;
  // A person will resume it: its session must not expire until then.
  if (record.paused !== undefined) return record.paused.itself === true ? undefined : nowMs + IDLE_RECHECK_MS;
  const next = nextTime(record, progress);
  const rechecks = progress.waiting === undefined ? [] : [nowMs + RECHECK_MS];
  if (next === undefined) return rechecks[0];
  return Math.min(next, nowMs + IDLE_RECHECK_MS, ...rechecks);
}

/** Whether an occurrence whose call was refused for now may start again: for a while, and until the next one is due. */
export function mayRetryStart(
  record: ScheduleRecord,
  { atMs, sinceMs }: NonNullable<ScheduleProgress['starting']>,
  nowMs: number,
): boolean {
  const next = occurrencesOf(record).after(atMs) ?? Number.POSITIVE_INFINITY;
  return nowMs < Math.min(sinceMs + REFUSAL_RETRY_MS, next);
}

/** Records the result of the occurrence that was starting. Returns the same progress when another process has done so. */
export function finished(progress: ScheduleProgress, event: OccurrenceEvent): ScheduleProgress {
  const { starting, ...rest } = progress;
  if (starting?.atMs !== event.atMs) return progress;
  const { callId } = event;
  return withEvent({ ...rest, ...(callId !== undefined && { lastCallId: callId }) }, event);
}

/** Skips the waiting occurrences of a schedule that is paused or removed. */
export function skipWaiting(progress: ScheduleProgress, reason: string): ScheduleProgress {
  const { waiting = [], ...rest } = progress;
  const last = waiting.at(-1);
  return last === undefined
    ? progress
    : withEvent(rest, { atMs: last, result: 'skipped', reason, times: waiting.length });
}

/** The progress of a resumed schedule: occurrences during the pause are not caught up on. */
export function resumed(progress: ScheduleProgress, nowMs: number): ScheduleProgress {
  return { ...progress, cursorMs: Math.max(progress.cursorMs, nowMs) };
}

export function withEvent(progress: ScheduleProgress, event: OccurrenceEvent): ScheduleProgress {
  const { result, times = 1 } = event;
  const counts = result === 'run' ? progress.counts : { ...progress.counts, [result]: progress.counts[result] + times };
  return { ...progress, counts, recent: [event, ...progress.recent].slice(0, MAX_RECENT) };
}
