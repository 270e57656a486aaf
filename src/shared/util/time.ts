/** Clocks and random numbers are passed in, so that rules can be tested with a virtual clock and fixed values. */
export interface Clock {
  /** Wall-clock time, milliseconds since the epoch. Processes never compare their own clocks; they use Redis' clock. */
  now(): number;
  /** Milliseconds from an arbitrary start; never jumps. */
  monotonic(): number;
}

const ISO_DATE = /^\d{4}-\d{2}-\d{2}$/;
const ISO_TIME = /^(\d{4}-\d{2}-\d{2})T\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})$/i;

/**
 * The moment of an ISO 8601 time with `Z` or an offset; NaN for another text. Without an offset, a text would mean another moment on each
 * machine. Of a day alone, it is the beginning in UTC.
 */
export function isoMoment(text: string): number {
  if (ISO_DATE.test(text)) return isDay(text) ? Date.parse(text) : Number.NaN;
  const [time, day = ''] = ISO_TIME.exec(text) ?? [];
  return time === undefined || !isDay(day) ? Number.NaN : Date.parse(time.replace(',', '.').toUpperCase());
}

/** V8 takes 30 February for 2 March. */
function isDay(day: string): boolean {
  const date = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(day);
}

/** A number in [0, 1). */
export type Random = () => number;

/** Runs something once, `afterMs` later. The returned function cancels it. */
export type Schedule = (run: () => void, afterMs: number) => () => void;

/** The longest that a call may take, and that anything waits. A few times as long still fits into a timer. */
export const MAX_WAIT_MS = 7 * 24 * 3_600_000;
/** The longest delay of a call's start: 365 days. */
export const MAX_DELAY_MS = 365 * 24 * 3_600_000;
/** The longest that a record is kept: a hundred years. */
export const MAX_KEPT_MS = 100 * 365 * 24 * 3_600_000;

/** The longest delay of Node's timers. A longer one fires at once. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

export const systemSchedule: Schedule = (run, afterMs) => chainTimers(run, afterMs, setTimeout);

/** A schedule whose timers keep no process alive. */
export const backgroundSchedule: Schedule = (run, afterMs) =>
  chainTimers(run, afterMs, (part, partMs) => setTimeout(part, partMs).unref());

/** Chains several timers for a delay that is too long for one. */
function chainTimers(
  run: () => void,
  afterMs: number,
  start: (run: () => void, ms: number) => NodeJS.Timeout,
): () => void {
  let timer: NodeJS.Timeout;
  const wait = (remainingMs: number) => {
    timer =
      remainingMs > MAX_TIMER_MS
        ? start(() => wait(remainingMs - MAX_TIMER_MS), MAX_TIMER_MS)
        : start(run, remainingMs);
  };
  wait(Math.max(0, afterMs));
  return () => clearTimeout(timer);
}

export const systemClock: Clock = { now: () => Date.now(), monotonic: () => performance.now() };

/** The age at which any newer reading replaces one, whatever its round trip. */
const READING_AGE_MS = 60_000;

/**
 * Another machine's wall clock, extrapolated by this process's monotonic clock, so that a wrong local clock has no effect. Until the first
 * reading it shows the local time.
 */
export class SyncedClock implements Clock {
  readonly #localClock: Clock;
  #reading: { readonly aheadMs: number; readonly roundTripMs: number; readonly atMs: number } | undefined;

  constructor(localClock: Clock = systemClock) {
    this.#localClock = localClock;
  }

  now(): number {
    return this.#reading === undefined ? this.#localClock.now() : Math.round(this.monotonic() + this.#reading.aheadMs);
  }

  monotonic(): number {
    return this.#localClock.monotonic();
  }

  /**
   * Takes a reading of the other clock, for which the request was sent `roundTripMs` ago. The quickest answer of a minute counts,
   * unless this reading may be of a different clock (`replace`).
   */
  learn(otherMs: number, roundTripMs: number, replace = false): void {
    const atMs = this.monotonic();
    const current = this.#reading;
    if (!replace && current !== undefined && roundTripMs > current.roundTripMs && atMs - current.atMs < READING_AGE_MS)
      return;
    this.#reading = { aheadMs: otherMs + roundTripMs / 2 - atMs, roundTripMs, atMs };
  }

  /** The difference of the local wall clock to the other one; positive when the local one is ahead. */
  get ownAheadMs(): number {
    return Math.round(this.#localClock.now() - this.now());
  }
}

let lastMs = 0;
/** The first digits of an ID, for the present millisecond. */
let timeHex = '';
let sequence = 0;

/**
 * A UUIDv7 (RFC 9562): sortable by creation time, also within one millisecond of one process.
 * The 12 bits after the version are a counter that starts at random in each millisecond.
 */
export function uuidv7(clock: Clock = systemClock): string {
  const nowMs = Math.max(clock.now(), lastMs);
  if (nowMs === lastMs) {
    sequence += 1;
    if (sequence > 0xfff) {
      beginMillisecond(lastMs + 1);
      sequence = 0;
    }
  } else {
    beginMillisecond(nowMs);
    sequence = (randomByte() << 3) & 0x7ff;
  }
  const counterHex = (0x7000 | sequence).toString(16);
  let tailHex = HEX[(randomByte() & 0x3f) | 0x80] ?? '';
  for (let index = 1; index < 8; index += 1) tailHex += HEX[randomByte()];
  return `${timeHex}-${counterHex}-${tailHex.slice(0, 4)}-${tailHex.slice(4)}`;
}

function beginMillisecond(ms: number): void {
  lastMs = ms;
  const hex = ms.toString(16).padStart(12, '0');
  timeHex = `${hex.slice(0, 8)}-${hex.slice(8)}`;
}

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));
/** Random bytes are generated in bulk, because a call for a few of them dominates the cost of an ID. */
const pool = new Uint8Array(4_096);
let poolOffset = pool.length;

function randomByte(): number {
  if (poolOffset === pool.length) {
    crypto.getRandomValues(pool);
    poolOffset = 0;
  }
  const byte = pool[poolOffset] ?? 0;
  poolOffset += 1;
  return byte;
}

/** Lets everything else that waits for the event loop go first. Long work calls it between its parts. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
