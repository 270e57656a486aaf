/**
 * How far a schedule has come. An occurrence is dealt with in two writes: `starting` names it before its call is submitted, and `finished`
 * says what became of it. A process that dies between the two leaves `starting` behind. Another process then submits the same call under
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
/** The most occurrences that wait for the end of a call. It also bounds `run-all`: older missed ones are skipped. */
export const MAX_WAITING = 100;
/** The newest events that are kept with a schedule. */
const MAX_RECENT = 10;
/** A front door that takes longer over an occurrence may be dead: another one goes on. */
export const SCHEDULE_LEASE_MS = 3_000;
/** How long a call that is refused for now is submitted again. */
const REFUSED_AGAIN_MS = 60_000;
/** How often a waiting occurrence looks whether the call before it has ended, in case its end was not heard of. */
const LOOK_AGAIN_MS = 1_000;
/** An idle schedule reads its session at least this often, which keeps the session's record alive. */
const IDLE_LOOK_MS = 24 * 3_600_000;

/**
 * The end of an occurrence:
 *
 * - `started`: its call exists.
 * - `skipped`: the previous call was in flight, the queue was full, or the schedule was paused.
 * - `missed`: no front door could start it in time, and the rule for missed ones leaves it out.
 * - `refused`: the call was refused, with `code`.
 * - `unknown`: the process that started it died, and it is too late to tell whether its call existed.
 * - `run`: a person let it run.
 */
export const OCCURRENCE_RESULTS = ['started', 'skipped', 'missed', 'refused', 'unknown', 'run'] as const;
export type OccurrenceResult = (typeof OCCURRENCE_RESULTS)[number];

export interface OccurrenceEvent {
  readonly atMs: number;
  readonly result: OccurrenceResult;
  readonly callId?: string;
  readonly code?: string;
  readonly reason?: string;
  /** The number of those that were skipped or missed together; this is the last of them. */
  readonly times?: number;
  /** There were more than `times`. */
  readonly more?: true;
}

export type OccurrenceCounts = Readonly<Record<Exclude<OccurrenceResult, 'run'>, number>>;

export interface ScheduleProgress {
  /** Grows with every change of the schedule's record, so that a process with an older record cannot write. */
  readonly change: number;
  /** All occurrences up to here were dealt with, save those in `waiting` and `starting`. */
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

export type ScheduleStep =
  | { readonly kind: 'none'; readonly progress: ScheduleProgress }
  | {
      readonly kind: 'start';
      readonly progress: ScheduleProgress;
      readonly starting: NonNullable<ScheduleProgress['starting']>;
      /** The previous call is cancelled first. */
      readonly cancelsPrevious: boolean;
    };

/** Deals with what is due, up to the first occurrence that starts now. `isBusy`: the last call is in flight. */
export function nextStep(
  record: ScheduleRecord,
  before: ScheduleProgress,
  nowMs: number,
  isBusy: boolean,
): ScheduleStep {
  if (record.paused !== undefined) return { kind: 'none', progress: before };
  let progress = settleLate(record, before, nowMs);
  const starting = (atMs: number) => ({ atMs, sinceMs: nowMs, callRevision: record.callRevision });
  const { waiting = [] } = progress;
  const [first] = waiting;
  if (first !== undefined && !isBusy) {
    const { waiting: _, ...rest } = progress;
    const left = waiting.slice(1);
    return startOf({ ...rest, ...(left.length === 0 ? {} : { waiting: left }) }, starting(first));
  }
  for (const atMs of dueTimes(record, progress, nowMs)) {
    const passed = { ...progress, cursorMs: atMs };
    if (!isBusy && first === undefined) return startOf(passed, starting(atMs));
    if (record.overlap === 'cancel-previous') {
      if ((nextTime(record, passed) ?? Number.POSITIVE_INFINITY) > nowMs)
        return startOf(passed, starting(atMs), isBusy);
      progress = withEvent(passed, { atMs, result: 'skipped', reason: 'a newer one cancels it' });
    } else progress = record.overlap === 'queue' ? queued(passed, atMs) : withEvent(passed, overlapped(atMs));
  }
  return { kind: 'none', progress };
}

type Start = Extract<ScheduleStep, { kind: 'start' }>;

function startOf(progress: ScheduleProgress, starting: Start['starting'], cancelsPrevious = false): Start {
  return { kind: 'start', starting, cancelsPrevious, progress: { ...progress, starting } };
}

function overlapped(atMs: number): OccurrenceEvent {
  return { atMs, result: 'skipped', reason: 'the previous call is in flight' };
}

function queued(progress: ScheduleProgress, atMs: number): ScheduleProgress {
  const { waiting = [] } = progress;
  if (waiting.length < MAX_WAITING) return { ...progress, waiting: [...waiting, atMs] };
  return withEvent(progress, { atMs, result: 'skipped', reason: `${MAX_WAITING} occurrences wait already` });
}

/** Applies the rule for missed occurrences to those that are too late. */
function settleLate(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number): ScheduleProgress {
  const lateMs = nowMs - ON_TIME_MS - 1;
  const left = remainingCalls(record, progress);
  if (lateMs <= progress.cursorMs || left === 0) return progress;
  const { waiting = [] } = progress;
  const { newest, before, more } = occurrencesOf(record).between(progress.cursorMs, lateMs, MAX_WAITING + 1);
  const last = newest.at(-1);
  if (last === undefined) return progress;
  const passed = { ...progress, cursorMs: last };
  const kept = keptOfMissed(record, passed, newest, nowMs).slice(0, left);
  const queue = kept.slice(Math.max(0, kept.length + waiting.length - MAX_WAITING));
  const moved = queue.length === 0 ? passed : { ...passed, waiting: [...waiting, ...queue] };
  const missed = newest.filter((atMs) => !queue.includes(atMs));
  const lastMissed = missed.at(-1);
  // A schedule that has made all of its calls would not have occurred again.
  if (lastMissed === undefined || remainingCalls(record, moved) === 0) return moved;
  const times = missed.length + before;
  return withEvent(moved, { atMs: lastMissed, result: 'missed', times, ...(more ? { more } : {}) });
}

/** The missed occurrences that run all the same. */
function keptOfMissed(
  record: ScheduleRecord,
  passed: ScheduleProgress,
  newest: readonly number[],
  nowMs: number,
): readonly number[] {
  if (record.missed === 'skip') return [];
  if (record.missed === 'run-all') return newest;
  const isOneOnTime = (nextTime(record, passed) ?? Number.POSITIVE_INFINITY) <= nowMs;
  return isOneOnTime ? [] : newest.slice(-1);
}

/** How many further calls the schedule may make. */
function remainingCalls({ limit }: ScheduleRecord, { counts, waiting = [], starting }: ScheduleProgress): number {
  const taken = counts.started + waiting.length + (starting === undefined ? 0 : 1);
  return limit === undefined ? Number.POSITIVE_INFINITY : Math.max(0, limit - taken);
}

function* dueTimes(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number): Generator<number> {
  let left = remainingCalls(record, progress);
  const times = occurrencesOf(record);
  for (let at = times.after(progress.cursorMs); at !== undefined && at <= nowMs && left > 0; at = times.after(at)) {
    yield at;
    left -= 1;
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
  most: number,
): readonly number[] {
  if (record.paused !== undefined) return [];
  const times = occurrencesOf(record);
  const left = Math.min(most, remainingCalls(record, progress));
  const found: number[] = [];
  let at = left === 0 ? undefined : times.after(Math.max(progress.cursorMs, nowMs));
  for (; at !== undefined && found.length < left; at = times.after(at)) found.push(at);
  return found;
}

/** When the schedule must be looked at again; undefined when nothing of it is due any more. */
export function dueAt(record: ScheduleRecord, progress: ScheduleProgress, nowMs: number): number | undefined {
  if (progress.starting !== undefined) return nowMs + SCHEDULE_LEASE_MS;
  if (record.paused !== undefined) return undefined;
  const next = nextTime(record, progress);
  const looks = progress.waiting === undefined ? [] : [nowMs + LOOK_AGAIN_MS];
  if (next === undefined) return looks[0];
  return Math.min(next, nowMs + IDLE_LOOK_MS, ...looks);
}

/** Whether an occurrence whose call was refused for now may start again: for a while, and until the next one is due. */
export function mayStartAgain(
  record: ScheduleRecord,
  { atMs, sinceMs }: NonNullable<ScheduleProgress['starting']>,
  nowMs: number,
): boolean {
  const next = occurrencesOf(record).after(atMs) ?? Number.POSITIVE_INFINITY;
  return nowMs < Math.min(sinceMs + REFUSED_AGAIN_MS, next);
}

/** Writes down the end of the occurrence that was starting. Returns the same progress when another process has done so. */
export function finished(progress: ScheduleProgress, event: OccurrenceEvent): ScheduleProgress {
  const { starting, ...rest } = progress;
  if (starting?.atMs !== event.atMs) return progress;
  const { callId } = event;
  return withEvent({ ...rest, ...(callId === undefined ? {} : { lastCallId: callId }) }, event);
}

/** The progress of a schedule whose occurrences stop: those that wait are skipped. */
export function stopped(progress: ScheduleProgress, reason: string): ScheduleProgress {
  const { waiting = [], ...rest } = progress;
  const last = waiting.at(-1);
  return last === undefined
    ? progress
    : withEvent(rest, { atMs: last, result: 'skipped', reason, times: waiting.length });
}

/** The progress of a schedule that is resumed: what would have occurred while it was paused is not made up for. */
export function resumed(progress: ScheduleProgress, nowMs: number): ScheduleProgress {
  return { ...progress, cursorMs: Math.max(progress.cursorMs, nowMs) };
}

export function withEvent(progress: ScheduleProgress, event: OccurrenceEvent): ScheduleProgress {
  const { result, times = 1 } = event;
  const counts = result === 'run' ? progress.counts : { ...progress.counts, [result]: progress.counts[result] + times };
  return { ...progress, counts, recent: [event, ...progress.recent].slice(0, MAX_RECENT) };
}
