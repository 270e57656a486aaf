/**
 * The times of a schedule. An interval counts from `from`, or from the epoch, so that a schedule that is written again keeps its times.
 *
 * A cron expression names wall times. cron-parser reads it and walks its wall times in UTC, which has no changes of clocks; this module
 * finds the moment of each in the schedule's own zone, by the rules of cron:
 *
 * - An expression with `*` in its seconds, minutes or hours follows the time that passes. Wall times that clocks skip do not occur, and
 *   those that clocks show twice occur twice.
 * - Any other expression names times of the day. One that clocks skip occurs at the moment of the change, and one that clocks show twice
 *   occurs the first time.
 */
import { createRequire } from 'node:module';
import type { CronExpression } from 'cron-parser';
import { orUndefined } from '../util/or-undefined.ts';
import { backwardChangeAfter, momentsOf, offsetAt, skippingChange } from './zone-time.ts';

/** cron-parser is loaded with the first cron expression: most processes read none. */
const require = createRequire(import.meta.url);

/** The shortest interval. */
export const MIN_INTERVAL_MS = 1_000;
export const MAX_INTERVAL_MS = 366 * 24 * 3_600_000;
/** The largest number of cron times that are counted one by one. */
const MAX_COUNTED = 500;

/** The times of a schedule, as its owner states them. */
export interface Timing {
  /** Milliseconds, or a text such as `5m`. */
  readonly every?: number | string;
  readonly cron?: string;
  /** The zone of `cron`. Default: UTC. */
  readonly timezone?: string;
  readonly fromMs?: number;
  readonly untilMs?: number;
}

/** Times between two moments: the newest ones in order, and the number of older ones. */
interface TimesBetween {
  readonly newest: readonly number[];
  readonly olderCount: number;
  /** There are more than `olderCount`, which were not counted. */
  readonly hasMore: boolean;
}

export interface Occurrences {
  /** The first time after a moment; undefined when there is none. */
  after(atMs: number): number | undefined;
  /** The times after one moment and up to another, with at most `maxCount` of the newest. */
  between(afterMs: number, toMs: number, maxCount: number): TimesBetween;
}

/** Throws an Error with a sentence for a cron expression that cannot be read. */
export function occurrencesOf(timing: Timing): Occurrences {
  const { every, cron, timezone = 'UTC' } = timing;
  if (every !== undefined) return everyInterval(intervalMs(every) ?? MIN_INTERVAL_MS, timing);
  const times = new CronTimes(cron ?? '', timezone);
  const nextTime = (atMs: number) => withinBounds(times.after(Math.max(atMs, (timing.fromMs ?? 0) - 1)), timing);
  return {
    after: nextTime,
    between: (afterMs, toMs, maxCount) => countedBetween(nextTime, { afterMs, toMs, maxCount }),
  };
}

function withinBounds(atMs: number | undefined, { untilMs }: Timing): number | undefined {
  return atMs === undefined || (untilMs !== undefined && atMs > untilMs) ? undefined : atMs;
}

const UNITS_MS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 24 * 3_600_000,
  w: 7 * 24 * 3_600_000,
};

/** Milliseconds of an interval such as `90s`, `5m` or `1h30m`; undefined for a text that is none. */
export function intervalMs(every: number | string): number | undefined {
  if (typeof every === 'number') return every;
  if (!/^(?:\d{1,9}(?:ms|[smhdw]))+$/.test(every)) return undefined;
  const parts = [...every.matchAll(/(\d+)(ms|[smhdw])/g)];
  return parts.reduce((sum, [, number, unit = '']) => sum + Number(number) * (UNITS_MS[unit] ?? 0), 0);
}

function everyInterval(stepMs: number, timing: Timing): Occurrences {
  const { fromMs } = timing;
  const startMs = fromMs ?? 0;
  const lastUpTo = (atMs: number) => startMs + Math.floor((atMs - startMs) / stepMs) * stepMs;
  const after = (atMs: number) => withinBounds(lastUpTo(Math.max(atMs, startMs - 1)) + stepMs, timing);
  return {
    after,
    between(afterMs, toMs, maxCount) {
      const first = after(afterMs);
      const last = lastUpTo(Math.min(toMs, timing.untilMs ?? toMs));
      if (first === undefined || last < first) return { newest: [], olderCount: 0, hasMore: false };
      const count = (last - first) / stepMs + 1;
      const shownCount = Math.min(count, maxCount);
      const newest = Array.from({ length: shownCount }, (_, index) => last - (shownCount - 1 - index) * stepMs);
      return { newest, olderCount: count - shownCount, hasMore: false };
    },
  };
}

/** Counts times one by one. If there are too many, a binary search finds the newest. */
function countedBetween(
  after: Occurrences['after'],
  { afterMs, toMs, maxCount }: { readonly afterMs: number; readonly toMs: number; readonly maxCount: number },
): TimesBetween {
  const counted = listTimes(after, afterMs, toMs, MAX_COUNTED);
  const hasMore = counted.length > MAX_COUNTED;
  if (!hasMore)
    return { newest: counted.slice(-maxCount), olderCount: Math.max(0, counted.length - maxCount), hasMore };
  let [tooEarly, tooLate] = [afterMs, toMs];
  let newest: readonly number[] = [];
  while (newest.length < maxCount && tooLate - tooEarly > 1) {
    const middle = Math.floor((tooEarly + tooLate) / 2);
    const times = listTimes(after, middle, toMs, 2 * maxCount);
    if (times.length > 2 * maxCount) tooEarly = middle;
    else [newest, tooLate] = [times, middle];
  }
  return { newest: newest.slice(-maxCount), olderCount: MAX_COUNTED, hasMore };
}

/** Returns `maxCount + 1` times when there are more than `maxCount`. */
function listTimes(after: Occurrences['after'], afterMs: number, toMs: number, maxCount: number): number[] {
  const times: number[] = [];
  let next = after(afterMs);
  for (; next !== undefined && next <= toMs && times.length <= maxCount; next = after(next)) times.push(next);
  return times;
}

class CronTimes {
  readonly #cron: CronExpression;
  readonly #zone: string;
  /** `*` in seconds, minutes or hours: it follows the time that passes. */
  readonly #isContinuous: boolean;

  constructor(cron: string, zone: string) {
    const { CronExpressionParser } = require('cron-parser') as typeof import('cron-parser');
    this.#cron = CronExpressionParser.parse(cron, { tz: 'UTC', currentDate: 0 });
    this.#zone = zone;
    const fields = cron.trim().split(/\s+/);
    this.#isContinuous = fields.slice(0, fields.length - 3).some((field) => /^[*?]/.test(field));
  }

  after(atMs: number): number | undefined {
    return this.#isContinuous ? this.#continuousAfter(atMs) : this.#namedAfter(atMs);
  }

  /** The first wall time after another one; undefined when there is none. */
  #wallAfter(wallMs: number): number | undefined {
    this.#cron.reset(new Date(wallMs));
    // cron-parser throws after years without a match, such as those of 29 February on a certain day of the week.
    return orUndefined(() => this.#cron.next().getTime());
  }

  #namedAfter(atMs: number): number | undefined {
    const zone = this.#zone;
    for (let wallMs = this.#wallAfter(atMs + offsetAt(zone, atMs)); wallMs !== undefined; ) {
      const momentMs = momentsOf(zone, wallMs)[0] ?? skippingChange(zone, wallMs);
      if (momentMs > atMs) return momentMs;
      wallMs = this.#wallAfter(wallMs);
    }
    return undefined;
  }

  #continuousAfter(atMs: number): number | undefined {
    const zone = this.#zone;
    const nextMs = this.#firstMomentAfter(atMs);
    // When clocks are turned back, earlier wall times come again.
    const changeMs = backwardChangeAfter(zone, atMs);
    if (changeMs === undefined || (nextMs !== undefined && nextMs < changeMs)) return nextMs;
    const offset = offsetAt(zone, changeMs);
    const wallMs = this.#wallAfter(changeMs + offset - 1);
    const againMs = wallMs === undefined ? undefined : wallMs - offset;
    if (againMs === undefined || offsetAt(zone, againMs) !== offset) return nextMs;
    return nextMs === undefined ? againMs : Math.min(nextMs, againMs);
  }

  /** The first moment whose wall time comes after that of `atMs`. */
  #firstMomentAfter(atMs: number): number | undefined {
    const zone = this.#zone;
    for (let wallMs = this.#wallAfter(atMs + offsetAt(zone, atMs)); wallMs !== undefined; ) {
      const moment = momentsOf(zone, wallMs).find((each) => each > atMs);
      if (moment !== undefined) return moment;
      // The wall time is skipped: the next one may be the first after the gap.
      const changeMs = skippingChange(zone, wallMs);
      wallMs = this.#wallAfter(Math.max(wallMs, changeMs + offsetAt(zone, changeMs) - 1));
    }
    return undefined;
  }
}
