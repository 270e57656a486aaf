/** Schedules of every second, while the front doors that start them are killed and Redis is restarted. */
import { eventually } from '../../helpers/signal.ts';
import type { EffectLine } from '../../journeys/fixtures/effect-log.ts';
import type { Producer, Rig } from '../rig.ts';
import { passes, type Row } from './row.ts';

export interface ScheduleRowOptions {
  readonly seconds: number;
}

const FRONT_DOORS = 4;
const KILL_EVERY_MS = 2_000;
/** The time for the first front door to start, before the first occurrence. */
const AHEAD_MS = 12_000;
const OUTAGE_MS = 15_000;
/** The time within which an occurrence is not missed. */
const ON_TIME_MS = 10_000;
const DRAINED_MS = 60_000;

/** What a front door writes when it starts, as a deployment does. */
export interface ScheduleSpec {
  readonly id: string;
  readonly missed: 'skip' | 'run-latest' | 'run-all';
  readonly overlap: 'skip' | 'queue';
  readonly fromMs: number;
  readonly untilMs: number;
}

const RULES = [
  { id: 'all', missed: 'run-all', overlap: 'queue' },
  { id: 'latest', missed: 'run-latest', overlap: 'skip' },
  { id: 'none', missed: 'skip', overlap: 'skip' },
] as const;

interface Counts {
  readonly started: number;
  readonly skipped: number;
  readonly missed: number;
  readonly refused: number;
  readonly unknown: number;
}

/** Four front doors, one of which is killed every two seconds and started again. */
class FrontDoors {
  readonly #rig: Rig;
  readonly #env: Readonly<Record<string, string>>;
  #doors: Promise<Producer>[] = [];

  constructor(rig: Rig, specs: readonly ScheduleSpec[]) {
    this.#rig = rig;
    this.#env = { SCHEDULES: JSON.stringify(specs) };
  }

  async open(): Promise<void> {
    while (this.#doors.length < FRONT_DOORS) this.#doors.push(this.#door());
    await Promise.all(this.#doors);
  }

  async #door(): Promise<Producer> {
    // Redis may be away while one starts.
    for (;;) {
      const door = await this.#rig.producer(this.#env).catch(() => undefined);
      if (door !== undefined) return door;
      await passes(200);
    }
  }

  async killOne(): Promise<void> {
    const at = Math.floor(this.#rig.random.between(0, this.#doors.length - 0.001));
    const victim = this.#doors[at];
    this.#doors[at] = (async () => {
      await (await victim)?.kill();
      return this.#door();
    })();
    await victim;
  }

  async killAll(): Promise<void> {
    await Promise.all(this.#doors.map(async (door) => (await door).kill()));
    this.#doors = [];
  }
}

export function scheduleRow({ seconds }: ScheduleRowOptions): Row {
  return {
    number: 48,
    fault: `schedules of every second: one of ${FRONT_DOORS} front doors is killed every ${KILL_EVERY_MS / 1_000} s, all of them are away for ${OUTAGE_MS / 1_000} s, Redis is restarted twice, in ${seconds} s`,
    async run(rig) {
      await Promise.all([rig.worker(), rig.worker()]);
      const fromMs = Math.ceil(Date.now() / 1_000) * 1_000 + AHEAD_MS;
      const untilMs = fromMs + seconds * 1_000;
      const doors = new FrontDoors(
        rig,
        RULES.map((rule) => ({ ...rule, fromMs, untilMs })),
      );
      await doors.open();
      if (Date.now() > fromMs)
        throw new Error('this machine is too slow for the row: its front doors started too late');
      await passes(fromMs - Date.now());
      const restarts = [untilMs - seconds * 700, untilMs - seconds * 300];
      const outageAtMs = untilMs - seconds * 500;
      let outage: readonly [number, number] | undefined;
      while (Date.now() < untilMs - KILL_EVERY_MS) {
        await passes(KILL_EVERY_MS);
        await doors.killOne();
        if (Date.now() > (restarts[0] ?? Number.POSITIVE_INFINITY)) {
          restarts.shift();
          await restart(rig);
        }
        if (outage === undefined && Date.now() > outageAtMs) outage = await awayAll(doors);
      }
      await passes(Math.max(0, untilMs - Date.now()));
      rig.healed();
      await doors.open();
      await using observer = await rig.producer();
      for (const { id } of RULES) await judgeSchedule({ rig, observer, id, expected: seconds + 1, outage });
      await rig.settle();
    },
    ...(seconds === FULL_SECONDS ? {} : { atFullSize: () => scheduleRow({ seconds: FULL_SECONDS }) }),
  };
}

const FULL_SECONDS = 300;

async function restart({ server }: Rig): Promise<void> {
  await server.kill();
  await passes(1_000);
  await server.start();
}

/** Returns the moments between which no front door ran. */
async function awayAll(doors: FrontDoors): Promise<readonly [number, number]> {
  await doors.killAll();
  const downAtMs = Date.now();
  await passes(OUTAGE_MS);
  const upAtMs = Date.now();
  await doors.open();
  return [downAtMs, upAtMs];
}

interface Judged {
  readonly rig: Rig;
  readonly observer: Producer;
  readonly id: string;
  readonly expected: number;
  readonly outage: readonly [number, number] | undefined;
}

async function judgeSchedule({ rig, observer, id, expected, outage }: Judged): Promise<void> {
  const counts = await drained(observer, id).catch(() => undefined);
  const lines = rig.effects().filter(({ key }) => scheduleOf(key) === id);
  const times = Map.groupBy(lines, ({ key }) => timeOf(key));
  for (const [, ofTime] of times) enter(rig, id, ofTime);
  const ran = [...times.values()].filter((ofTime) => ofTime.some(({ phase }) => phase === 'effect')).length;
  const [downAtMs = 0, upAtMs = 0] = outage ?? [];
  const inOutage = [...times.keys()].filter((atMs) => atMs > downAtMs && atMs < upAtMs - ON_TIME_MS).length;
  if (id === 'all') rig.bound('I8', 'occurrences that `run-all` left out', Math.abs(expected - ran), 0);
  // BullMQ's workers start jobs of schedulers themselves: the outage of front doors misses none there.
  else if (rig.stack === 'pawl') rig.bound('I7', `missed occurrences that ran by the rule ${id}`, inOutage, 0);
  if (counts === undefined) return void rig.notes.push(`${id}: ${ran} of ${expected} ran`);
  const { started, skipped, missed, refused, unknown } = counts;
  const total = started + skipped + missed + refused + unknown;
  rig.bound('I8', `occurrences of ${id} that are not accounted for`, Math.abs(expected - total), 0);
  rig.bound('I8', `occurrences of ${id} that started and did not run`, Math.abs(started - ran), 0);
  const rest = { skipped, missed, refused, unknown };
  const left = Object.entries(rest).filter(([, count]) => count > 0);
  const named = left.map(([name, count]) => `${count} ${name}`).join(' ');
  rig.notes.push(`${id}: ${started} of ${expected} ran${named === '' ? '' : `, ${named}`}`);
}

/** What Pawl says about a schedule once it has ended and its calls have. */
function drained(observer: Producer, id: string): Promise<Counts> {
  return eventually(
    async () => {
      const told = await observer.look(`schedule:${id}`);
      if (told.kind !== 'ok') return undefined;
      const { state, counts, inflight } = told.output as { state: string; counts: Counts; inflight: number };
      return state === 'ended' && inflight === 0 ? counts : undefined;
    },
    { what: `the end of the schedule ${id}`, deadlineMs: DRAINED_MS, everyMs: 200 },
  );
}

/** Writes the call of an occurrence into the history, as far as the log of effects shows it. */
function enter(rig: Rig, id: string, lines: readonly EffectLine[]): void {
  const [first] = lines;
  if (first === undefined) return;
  const call = rig.history.invoked({ tool: 'record_once', key: first.key, params: { label: id } });
  rig.history.accepted(call, first.callId);
}

/** `schedule:ID:ISO` of Pawl, `repeat:ID:MS` of BullMQ. */
function scheduleOf(key: string): string {
  return key.split(':')[1] ?? '';
}

function timeOf(key: string): number {
  const time = key.split(':').slice(2).join(':');
  return /^\d+$/.test(time) ? Number(time) : Date.parse(time);
}

export const scheduleRows: readonly Row[] = [scheduleRow({ seconds: 60 })];
