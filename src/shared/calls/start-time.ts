/** When a call starts: at once, after a delay, or at a time that its caller names. */
import type { PawlError } from '../errors/failure.ts';
import { quoteValue } from '../util/text/quote-value.ts';
import { isoMoment, MAX_DELAY_MS } from '../util/time.ts';
import { contractInvalid } from './envelope.ts';

/** A call starts at once unless one of these is given; both at once are refused. */
export interface StartOptions {
  /** The call starts so many milliseconds from now: a whole number, at most 365 days. 0 is now. */
  readonly startAfterMs?: number;
  /** The call starts at this time: an ISO 8601 time with `Z` or an offset, or a `Date`. At most 365 days from now, and not in the past. */
  readonly startAt?: string | Date;
}

/** The start of a delayed call, on Redis' clock. */
export interface StartTime {
  readonly atMs: number;
  /** The delay when it was named. */
  readonly afterMs: number;
  /** The time had passed when the caller named it: only a repeated request of an existing call may do that. */
  readonly isPast: boolean;
}

/** The error of this process's estimate of Redis' clock. It is added, so that a call never starts early. */
const CLOCK_ERROR_MS = 2;

/**
 * The start of a call; undefined for one that starts at once. Throws `CONTRACT_INVALID` with the path of the fault. A time in the past
 * is no fault yet: the call may have been submitted before.
 */
export function startTimeOf({ startAfterMs, startAt }: StartOptions, nowMs: number): StartTime | undefined {
  if (startAfterMs === undefined && startAt === undefined) return undefined;
  if (startAfterMs !== undefined && startAt !== undefined)
    throw invalid('startAt', 'cannot be given together with startAfterMs: give one of them');
  if (startAt === undefined) return afterDelay(startAfterMs, nowMs);
  const atMs = parseStartAt(startAt);
  if (atMs - nowMs > MAX_DELAY_MS + CLOCK_ERROR_MS)
    throw invalid('startAt', `must be at most 365 days from now; got ${new Date(atMs).toISOString()}`);
  return { atMs, afterMs: Math.max(0, atMs - nowMs), isPast: atMs <= nowMs };
}

/** The options with their start replaced by a start time that was computed before. */
export function withStartTime<Options extends object>(
  options: Options & StartOptions,
  start: StartTime | undefined,
): Omit<Options, keyof StartOptions> & StartOptions {
  const { startAfterMs: _, startAt: __, ...rest } = options;
  return start === undefined ? rest : { ...rest, startAt: new Date(start.atMs) };
}

/** Whether a call names a start of its own, valid or not. */
export function isDelayed({ startAfterMs, startAt }: StartOptions): boolean {
  return startAfterMs !== undefined || startAt !== undefined;
}

function afterDelay(startAfterMs: unknown, nowMs: number): StartTime | undefined {
  if (typeof startAfterMs !== 'number' || !Number.isInteger(startAfterMs) || startAfterMs < 0)
    throw invalid('startAfterMs', `must be a whole number of milliseconds from 0 on; got ${quoteValue(startAfterMs)}`);
  if (startAfterMs > MAX_DELAY_MS)
    throw invalid('startAfterMs', `must be at most ${MAX_DELAY_MS} (365 days); got ${startAfterMs}`);
  if (startAfterMs === 0) return undefined;
  return { atMs: Math.ceil(nowMs) + startAfterMs + CLOCK_ERROR_MS, afterMs: startAfterMs, isPast: false };
}

function parseStartAt(startAt: unknown): number {
  if (startAt instanceof Date && !Number.isNaN(startAt.getTime())) return startAt.getTime();
  // A day alone is no time to start.
  const atMs = typeof startAt === 'string' && /t/i.test(startAt) ? isoMoment(startAt) : Number.NaN;
  if (Number.isNaN(atMs))
    throw invalid(
      'startAt',
      `must be an ISO 8601 time with Z or an offset, such as 2027-01-31T08:00:00Z; got ${startAt instanceof Date ? 'an invalid Date' : quoteValue(startAt)}`,
    );
  return atMs;
}

function invalid(path: string, message: string): PawlError {
  return contractInvalid([{ path, message }]);
}

/** The failure of a new call that was to start in the past. */
export function startInPast(atMs: number, nowMs: number): PawlError {
  const message = `is in the past: ${new Date(atMs).toISOString()}, and it is ${new Date(nowMs).toISOString()}`;
  return invalid('startAt', message);
}

/** Throws `CONTRACT_INVALID` for a deadline that ends before the call starts. */
export function checkDeadline(deadlineAtMs: number | undefined, { atMs }: StartTime): void {
  if (deadlineAtMs !== undefined && deadlineAtMs <= atMs)
    throw invalid('control.deadlineAtMs', `must be after the start of the call, ${new Date(atMs).toISOString()}`);
}
