/** Delayed calls, while the front doors that submit them, the workers that run them and Redis are killed. */
import type { HistoryEvent } from '../history.ts';
import type { Ask } from '../protocol.ts';
import type { Producer, Rig } from '../rig.ts';
import { passes, type Row } from './row.ts';

export interface DelayedRowOptions {
  readonly calls: number;
}

const FULL_CALLS = 1_000;
const WORKERS = 3;
const FRONT_DOORS = 2;
const SUBMITTED_AT_ONCE = 50;
/** From the first submission to the first start: front doors are killed meanwhile, and start again. */
const AHEAD_MS = 20_000;
const AHEAD_PER_CALL_MS = 40;
const STARTS_WITHIN_MS = 10_000;
const KILL_EVERY_MS = 1_500;
const AWAY_MS = 1_000;
const SETTLED_MS = 40_000;
/** Two clocks are compared, one of which shows whole milliseconds. */
const CLOCK_ERROR_MS = 2;

interface DelayedAsk extends Ask {
  readonly startAtMs: number;
}

export function delayedRow({ calls }: DelayedRowOptions): Row {
  return {
    number: 50,
    fault: `${calls} delayed calls: kill -9 of front doors that submit them, of workers and of front doors every ${KILL_EVERY_MS / 1_000} s while they start, one Redis restart`,
    async run(rig) {
      const [doors] = await Promise.all([
        Promise.all(Array.from({ length: FRONT_DOORS }, () => rig.producer())),
        ...Array.from({ length: WORKERS }, () => rig.worker()),
      ]);
      const firstMs = Date.now() + AHEAD_MS + calls * AHEAD_PER_CALL_MS;
      const asks = Array.from({ length: calls }, (_, number): DelayedAsk => {
        const key = `later-${number}`;
        const startAtMs = firstMs + Math.floor((number / calls) * STARTS_WITHIN_MS);
        return { tool: 'record_once', key, params: { label: key, beforeMs: 10, afterMs: 10 }, startAtMs };
      });
      await submitAll(rig, doors, asks);
      const submittedMs = Date.now();
      if (submittedMs > firstMs) throw new Error('this machine is too slow for the row: calls were submitted too late');
      rig.bound('I7', 'calls that ran before the first start', rig.effects().length, 0);
      await passes(firstMs - submittedMs);
      await killWhileTheyStart(rig, doors, firstMs + STARTS_WITHIN_MS);
      rig.healed();
      await rig.settle([], rig.history.calls, SETTLED_MS);
      judgeStarts(rig, asks);
    },
    ...(calls === FULL_CALLS ? {} : { atFullSize: () => delayedRow({ calls: FULL_CALLS }) }),
  };
}

/** Each front door is killed once meanwhile; what it may not have submitted is submitted again, by another one. */
async function submitAll(rig: Rig, doors: Producer[], asks: readonly DelayedAsk[]): Promise<void> {
  const queue = asks.values();
  let submitted = 0;
  const killAt = doors.map((_, at) => Math.floor((asks.length * (at + 1)) / (doors.length + 1)));
  const submitting = Array.from({ length: SUBMITTED_AT_ONCE }, async (_, number) => {
    for (const ask of queue) {
      // With its answer, the call is delayed; without one, the caller does not know.
      for (let at = number; !isAcknowledged(rig, ask); at += 1) {
        const door = doors[at % doors.length];
        if (door?.alive === true) await door.call(ask);
        else await passes(20);
        if (Date.now() > ask.startAtMs) return;
      }
      submitted += 1;
    }
  });
  const killing = killAt.map(async (after, at) => {
    while (submitted < after && Date.now() < (asks[0]?.startAtMs ?? 0)) await passes(5);
    await doors[at]?.kill();
    doors[at] = await rig.producer();
  });
  await Promise.all([...submitting, ...killing]);
}

function isAcknowledged({ history }: Rig, { key }: DelayedAsk): boolean {
  return history.find(key)?.callId !== undefined;
}

async function killWhileTheyStart(rig: Rig, doors: Producer[], endMs: number): Promise<void> {
  const restartAtMs = (Date.now() + endMs) / 2;
  const started: Promise<unknown>[] = [];
  let isRestarted = false;
  while (Date.now() < endMs) {
    await passes(KILL_EVERY_MS);
    const [first, ...others] = rig.workers.filter((worker) => worker.alive);
    if (first !== undefined && others.length > 0) {
      await rig.random.pick([first, ...others]).kill();
      started.push(startAgain(() => rig.worker()));
    }
    const at = started.length % doors.length;
    if (doors[at]?.alive === true) {
      await doors[at].kill();
      started.push(startAgain(() => rig.producer()).then((door) => Object.assign(doors, { [at]: door })));
    }
    if (isRestarted || Date.now() < restartAtMs) continue;
    isRestarted = true;
    await rig.server.kill();
    await passes(AWAY_MS);
    await rig.server.start();
  }
  await Promise.all(started);
}

/** Redis may be away while a process starts. */
async function startAgain<T>(start: () => Promise<T>): Promise<T> {
  for (;;) {
    const started = await start().catch(() => undefined);
    if (started !== undefined) return started;
    await passes(200);
  }
}

function judgeStarts(rig: Rig, asks: readonly DelayedAsk[]): void {
  // Effects are logged with the machine's monotonic clock.
  const monotonicOffsetMs = Number(process.hrtime.bigint()) / 1e6 - Date.now();
  const begins = Map.groupBy(
    rig.effects().filter(({ phase }) => phase === 'begin'),
    ({ key }) => key,
  );
  const latenessMs = asks.map(({ key, startAtMs }) =>
    Math.min(...(begins.get(key) ?? []).map(({ mono }) => mono - monotonicOffsetMs - startAtMs)),
  );
  const began = latenessMs.filter(Number.isFinite).sort((one, other) => one - other);
  const doubled = [...begins.values()].filter(({ length }) => length > 1).length;
  // A worker may die between the start of an attempt and the tool's code: its call then ends in doubt.
  const isInDoubt = ({ key }: DelayedAsk) => rig.history.find(key)?.events.some(isDoubt) === true;
  const inDoubt = asks.filter(isInDoubt).length;
  const silent = asks.filter((ask) => !begins.has(ask.key) && !isInDoubt(ask)).length;
  rig.bound('I8', 'delayed calls that never began', silent, 0);
  rig.bound('I7', 'delayed calls that began early', began.filter((ms) => ms < -CLOCK_ERROR_MS).length, 0);
  rig.bound('I7', 'delayed calls that began twice', doubled, 0);
  const lateness = `p50 late by ${shown(began, 0.5)}, p99 by ${shown(began, 0.99)}`;
  rig.notes.push(inDoubt === 0 ? lateness : `${lateness}, ${inDoubt} in doubt`);
}

function isDoubt(event: HistoryEvent): boolean {
  return event.kind === 'told' && event.told.kind === 'doubt';
}

function shown(sorted: readonly number[], share: number): string {
  return `${((sorted[Math.floor(sorted.length * share)] ?? 0) / 1_000).toFixed(1)} s`;
}

export const delayedRows: readonly Row[] = [delayedRow({ calls: 300 })];
