/**
 * Wall-clock times of a time zone. A wall time is written as the milliseconds that it would be in UTC, so that 09:00 in any zone is the
 * same number.
 */
import { getOrInsert } from '../util/get-or-insert.ts';
import { LimitedMap } from '../util/limited-map.ts';
import { orUndefined } from '../util/or-undefined.ts';

const MINUTE_MS = 60_000;
/** A zone changes its clocks at most once within this time. */
const AROUND_MS = 26 * 3_600_000;
/** No zone turns its clocks by more than this, save for a change of the date line. */
const LONGEST_CHANGE_MS = 3 * 3_600_000;

const formats = new Map<string, Intl.DateTimeFormat>();

/** Throws a RangeError for a zone that does not exist. */
function formatOf(zone: string): Intl.DateTimeFormat {
  const options = { timeZone: zone, timeZoneName: 'longOffset' } as const;
  return getOrInsert(formats, zone, () => new Intl.DateTimeFormat('en-US', options));
}

export function isTimeZone(zone: string): boolean {
  return orUndefined(() => formatOf(zone)) !== undefined;
}

/** Zones change their clocks at full quarters of an hour. */
const QUARTER_MS = 15 * MINUTE_MS;
/** A cache of offsets by zone and quarter, because `Intl` takes most of the time. */
const offsets = new LimitedMap<string, number>(10_000);

/** The zone's offset from UTC at a moment, in milliseconds. */
export function offsetAt(zone: string, atMs: number): number {
  const quarter = Math.floor(atMs / QUARTER_MS);
  return getOrInsert(offsets, `${zone} ${quarter}`, () => readOffset(zone, quarter * QUARTER_MS));
}

function readOffset(zone: string, atMs: number): number {
  const part = formatOf(zone)
    .formatToParts(atMs)
    .find(({ type }) => type === 'timeZoneName');
  const [, sign, hours = 0, minutes = 0, seconds = 0] =
    /^GMT(?:([+-])(\d\d):(\d\d)(?::(\d\d))?)?$/.exec(part?.value ?? '') ?? [];
  const ms = (Number(hours) * 60 + Number(minutes)) * MINUTE_MS + Number(seconds) * 1_000;
  return sign === '-' ? -ms : ms;
}

/** The moments at which the zone's clocks show a wall time, in order: two when clocks are turned back, none when it is skipped. */
export function momentsOf(zone: string, wallMs: number): readonly number[] {
  const candidateOffsets = new Set([offsetAt(zone, wallMs - AROUND_MS), offsetAt(zone, wallMs + AROUND_MS)]);
  return [...candidateOffsets]
    .map((offset) => wallMs - offset)
    .filter((atMs) => atMs + offsetAt(zone, atMs) === wallMs)
    .sort((one, other) => one - other);
}

/** The moment of the change that skips a wall time: the first one after the gap. */
export function skippingChange(zone: string, wallMs: number): number {
  return changeBetween(zone, wallMs - AROUND_MS, wallMs + AROUND_MS);
}

/** The moment at which clocks are turned back soon after another one; undefined when they are not. */
export function backwardChangeAfter(zone: string, atMs: number): number | undefined {
  const endMs = atMs + LONGEST_CHANGE_MS;
  return offsetAt(zone, endMs) < offsetAt(zone, atMs) ? changeBetween(zone, atMs, endMs) : undefined;
}

/** The first moment with the offset of the end. The offset differs between the two ends, and changes once. */
function changeBetween(zone: string, fromMs: number, toMs: number): number {
  const startOffset = offsetAt(zone, fromMs);
  let [low, high] = [fromMs, toMs];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetAt(zone, middle) === startOffset) low = middle;
    else high = middle;
  }
  return high;
}
