import { expect, test } from 'vitest';
import {
  dueAt,
  finished,
  MAX_WAITING,
  mayRetryStart,
  newProgress,
  nextStep,
  ON_TIME_MS,
  resumed,
  type ScheduleProgress,
  skipWaiting,
  upcomingTimes,
} from '../../../src/shared/schedules/progress.ts';
import {
  parseSchedule,
  type ScheduleRecord,
  type ScheduleRequest,
  scheduleRecord,
} from '../../../src/shared/schedules/schedule.ts';

const START_MS = Date.UTC(2026, 0, 1);

function record(change: Partial<ScheduleRequest> = {}): ScheduleRecord {
  const times = change.cron === undefined ? { every: '1m' } : {};
  const checked = parseSchedule({ id: 's', tool: 'echo', params: {}, session: 'ops', ...times, ...change });
  return scheduleRecord(checked, undefined, { by: 'ada', tenantId: undefined, nowMs: START_MS });
}

/** A runner without processes: each call lasts as long as the test says. */
class Simulation {
  readonly record: ScheduleRecord;
  progress: ScheduleProgress;
  nowMs = START_MS;
  readonly started: number[] = [];
  readonly cancelled: number[] = [];
  busyUntilMs = 0;
  readonly #callMs: number;

  constructor(change: Partial<ScheduleRequest>, callMs = 0) {
    this.record = record(change);
    this.progress = newProgress(this.record, START_MS);
    this.#callMs = callMs;
  }

  /** Lets a front door run until then. */
  run(toSeconds: number): this {
    const toMs = START_MS + toSeconds * 1_000;
    for (;;) {
      const due = dueAt(this.record, this.progress, this.nowMs);
      if (due === undefined || due > toMs) break;
      this.nowMs = Math.max(this.nowMs, due);
      const step = nextStep(this.record, this.progress, this.nowMs, this.nowMs < this.busyUntilMs);
      this.progress = step.progress;
      if (step.kind === 'none') continue;
      if (step.cancelsPrevious) this.cancelled.push(this.nowMs);
      const { atMs } = step.starting;
      this.started.push((atMs - START_MS) / 1_000);
      this.busyUntilMs = this.nowMs + this.#callMs;
      this.progress = finished(this.progress, { atMs, result: 'started', callId: `call ${atMs}` });
    }
    this.nowMs = toMs;
    return this;
  }

  /** All front doors are down until then. */
  away(toSeconds: number): this {
    this.nowMs = START_MS + toSeconds * 1_000;
    return this;
  }
}

test('each time starts once, and none before its time', () => {
  const simulation = new Simulation({ every: '1m' }).run(300);
  expect(simulation.started).toEqual([60, 120, 180, 240, 300]);
  expect(simulation.progress.counts).toEqual({ started: 5, skipped: 0, missed: 0, refused: 0, unknown: 0 });
});

test('`from`, `until` and `limit` bound a schedule, and an interval counts from `from`', () => {
  const at = (seconds: number) => START_MS + seconds * 1_000;
  expect(new Simulation({ every: '1m', from: at(90), until: at(210) }).run(600).started).toEqual([90, 150, 210]);
  const limited = new Simulation({ every: '1m', limit: 2 }).run(600);
  expect(limited.started).toEqual([60, 120]);
  expect(upcomingTimes(limited.record, limited.progress, limited.nowMs, 5)).toEqual([]);
  expect(dueAt(limited.record, limited.progress, limited.nowMs)).toBeUndefined();
});

test('missed ones follow the rule: none, the latest, or all up to the bound', () => {
  const after = (missed: ScheduleRequest['missed'], downSeconds: number) => {
    const simulation = new Simulation({ every: '1m', missed, overlap: 'queue' }, 500).run(60).away(downSeconds);
    return simulation.run(downSeconds + 120);
  };
  // Down from 60 to 330 s: 120, 180, 240 and 300 are missed.
  expect(after('skip', 330).started).toEqual([60, 360, 420]);
  expect(after('skip', 330).progress.counts.missed).toBe(4);
  expect(after('run-latest', 330).started).toEqual([60, 300, 360, 420]);
  expect(after('run-latest', 330).progress.counts).toMatchObject({ missed: 3, started: 4 });
  expect(after('run-all', 330).started).toEqual([60, 120, 180, 240, 300, 360, 420]);
  expect(after('run-all', 330).progress.counts).toMatchObject({ missed: 0, started: 7 });
  // 300 is on time at 308: it is the latest, so no missed one runs beside it.
  expect(after('run-latest', 308).started).toEqual([60, 300, 360, 420]);
  expect(after('skip', 300 + ON_TIME_MS / 1_000).started).toEqual([60, 300, 360, 420]);
});

test('after a long outage nothing floods: `run-all` makes up for the newest hundred', () => {
  const week = 7 * 24 * 3_600;
  const all = new Simulation({ every: '1s', missed: 'run-all', overlap: 'queue' }).run(1).away(week).run(week);
  const onTime = ON_TIME_MS / 1_000 + 1;
  expect(all.started).toHaveLength(1 + MAX_WAITING + onTime);
  expect(all.progress.counts.missed).toBe(week - 1 - MAX_WAITING - onTime);
  const latest = new Simulation({ cron: '* * * * * *' }).run(1).away(week).run(week);
  expect(latest.started).toHaveLength(1 + onTime);
  expect(latest.progress.counts.missed).toBeGreaterThan(500);
});

test('an overlapping one is skipped, waits, or cancels the call before it', () => {
  const skip = new Simulation({ every: '1m', overlap: 'skip' }, 90_000).run(300);
  expect(skip.started).toEqual([60, 180, 300]);
  expect(skip.progress.counts.skipped).toBe(2);
  const queue = new Simulation({ every: '1m', overlap: 'queue', limit: 4 }, 90_000).run(600);
  expect(queue.started).toEqual([60, 120, 180, 240]);
  const cancel = new Simulation({ every: '1m', overlap: 'cancel-previous' }, 90_000).run(240);
  expect(cancel.started).toEqual([60, 120, 180, 240]);
  expect(cancel.cancelled).toHaveLength(3);
});

test('the queue of waiting ones is bounded', () => {
  const simulation = new Simulation({ every: '1s', overlap: 'queue' }, 1e9).run(MAX_WAITING + 51);
  expect(simulation.progress.waiting).toHaveLength(MAX_WAITING);
  expect(simulation.progress.counts).toMatchObject({ started: 1, skipped: 50 });
});

test('a pause drops what waits, and what would have occurred in it is not made up for', () => {
  const simulation = new Simulation({ every: '1m', overlap: 'queue', missed: 'run-all' }, 100_000).run(120);
  const paused = { ...simulation.record, paused: { atMs: simulation.nowMs, by: 'ada' } };
  const at = skipWaiting(simulation.progress, 'the schedule was paused');
  expect(at.waiting).toBeUndefined();
  // It is looked at once a day, so that its session does not expire, unless it has none any more.
  expect(dueAt(paused, at, simulation.nowMs)).toBe(simulation.nowMs + 24 * 3_600_000);
  const lost = { ...paused, paused: { ...paused.paused, itself: true as const } };
  expect(dueAt(lost, at, simulation.nowMs)).toBeUndefined();
  expect(nextStep(paused, at, simulation.nowMs + 1e6, false)).toEqual({ kind: 'none', progress: at });
  simulation.progress = resumed(at, START_MS + 600_000);
  expect(simulation.away(600).run(720).started).toEqual([60, 660]);
});

test('a call that is refused for now is tried again for a minute, until the next occurrence is due', () => {
  const starting = { atMs: START_MS, sinceMs: START_MS + 100, callRevision: 1 };
  const may = (every: string, afterMs: number) => mayRetryStart(record({ every }), starting, START_MS + afterMs);
  expect([may('1h', 59_000), may('1h', 60_200), may('10s', 9_000), may('10s', 10_000)]).toEqual([
    true,
    false,
    true,
    false,
  ]);
});

test('the end of an occurrence is written once, by whichever process writes it first', () => {
  const schedule = record();
  const step = nextStep(schedule, newProgress(schedule, START_MS), START_MS + 60_000, false);
  const atMs = START_MS + 60_000;
  expect(step).toMatchObject({ kind: 'start', progress: { starting: { atMs } } });
  const once = finished(step.progress, { atMs, result: 'started', callId: 'a' });
  expect(once).toMatchObject({ lastCallId: 'a', counts: { started: 1 } });
  expect(finished(once, { atMs, result: 'started', callId: 'a' })).toBe(once);
});
