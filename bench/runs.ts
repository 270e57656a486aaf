/** When the tool of this worker process ran. Noted in memory only, so that noting costs the measured sides next to nothing. */
const KEPT = 1 << 18;
const startsMs = new Float64Array(KEPT);
let runs = 0;

/** Call it first thing in a tool. */
export function noteRun(): void {
  startsMs[runs % KEPT] = performance.timeOrigin + performance.now();
  runs += 1;
}

export function runCount(): number {
  return runs;
}

/** When the run with this number, from 1, began, in wall-clock milliseconds; undefined before, and when it is forgotten. */
export function runAtMs(number: number): number | undefined {
  return number < 1 || number > runs || number <= runs - KEPT ? undefined : startsMs[(number - 1) % KEPT];
}

/** How many runs began in this span of wall-clock milliseconds, its ends left out. */
export function runsBetween(fromMs: number, toMs: number): number {
  return Math.max(0, firstAfter(toMs, false) - firstAfter(fromMs, true));
}

/** Number, from 0, of the first kept run that began after a time, or at it. */
function firstAfter(timeMs: number, strictly: boolean): number {
  let low = Math.max(0, runs - KEPT);
  let high = runs;
  while (low < high) {
    const middle = (low + high) >>> 1;
    const atMs = startsMs[middle % KEPT] ?? Number.POSITIVE_INFINITY;
    if (strictly ? atMs > timeMs : atMs >= timeMs) high = middle;
    else low = middle + 1;
  }
  return low;
}
