/** Plans of many nodes, while the front doors that drive them and the workers that run them are killed. */
import { eventually } from '../../helpers/signal.ts';
import type { EffectLine } from '../../journeys/fixtures/effect-log.ts';
import type { Child } from '../child.ts';
import type { PlanOrder, Told } from '../protocol.ts';
import type { Producer, Rig } from '../rig.ts';
import { passes, type Row } from './row.ts';

export interface PlanRowOptions {
  /** Chains of nodes, each of which needs the output of the one before. */
  readonly lanes: number;
  readonly length: number;
  readonly kills: number;
}

const FRONT_DOORS = 3;
const WORKERS = 3;
const KILL_EVERY_MS = 200;
const ENDED_MS = 120_000;

/** What a node returns in the end, which came from the first one of its lane. */
export const LABEL = 'passed on';

export function placeOf(plan: string, lane: number, number: number): string {
  return `${plan}.${lane}.${number}`;
}

/** What is said about a plan that is over. */
export interface PlanEnd {
  readonly state: string;
  /** Nodes whose output is another than it should be. */
  readonly wrong: number;
}

export function planRow({ lanes, length, kills }: PlanRowOptions): Row {
  return {
    number: 54,
    fault: `two plans of ${lanes * length} nodes, one of which is undone: kill -9 of a front door or a worker every ${KILL_EVERY_MS} ms, ${kills} times`,
    async run(rig) {
      const [doors] = await Promise.all([
        Promise.all(Array.from({ length: FRONT_DOORS }, () => rig.producer({ PLANS: 'on' }))),
        ...Array.from({ length: WORKERS }, () => rig.worker()),
      ]);
      const orders = [false, true].map((undo): PlanOrder => ({ id: undo ? 'undone' : 'done', lanes, length, undo }));
      const plans = await Promise.all(orders.map((order) => begun(rig, doors[0] as Producer, order)));
      await killAtRandom(rig, doors, kills);
      rig.healed();
      await using observer = await rig.producer({ PLANS: 'on' });
      for (const [at, order] of orders.entries()) await judgePlan(rig, observer, order, plans[at] ?? '');
    },
    ...(lanes * length === FULL_NODES ? {} : { atFullSize: () => planRow({ lanes: 37, length: 27, kills: 100 }) }),
  };
}

/** The plan that is undone has one more, which fails. */
const FULL_NODES = 37 * 27;

/** The front door that is asked answers before the first one is killed. */
async function begun(rig: Rig, door: Producer, order: PlanOrder): Promise<string> {
  for (const place of placesOf(order))
    for (const key of [place, undoKey(place)]) rig.history.invoked({ tool: 'step', key, params: {} });
  // Only the application by hand needs a last node where nothing fails.
  rig.history.invoked({ tool: 'step', key: placeOfLast(order.id), params: {} });
  const told = await door.plan(order);
  // A large flow of BullMQ's takes longer than a producer may be silent: it begins all the same, under the name that was given.
  if (told.kind === 'info' && told.code === 'SILENCE') return order.id;
  if (told.kind !== 'ok') throw new Error(`the plan did not begin: ${told.code}: ${told.message}`);
  return String(told.output);
}

function placesOf({ id, lanes, length }: PlanOrder): string[] {
  return Array.from({ length: lanes * length }, (_, at) => placeOf(id, Math.floor(at / length), at % length));
}

export function placeOfLast(plan: string): string {
  return `${plan}.last`;
}

export function undoKey(place: string): string {
  return `undo:${place}`;
}

/** One front door and one worker stay, so that something goes on; for each that is killed, another one starts. */
async function killAtRandom(rig: Rig, doors: Producer[], kills: number): Promise<void> {
  const started: Promise<unknown>[] = [];
  for (let killed = 0; killed < kills; ) {
    await passes(KILL_EVERY_MS);
    const living = [...doors, ...rig.workers].filter(({ alive }) => alive);
    const isDoor = (child: Child) => doors.includes(child as Producer);
    const mayDie = (child: Child) => living.filter((other) => isDoor(other) === isDoor(child)).length > 1;
    const [first, ...others] = living.filter(mayDie);
    if (first === undefined) continue;
    // The front door that was asked dies first.
    const victim = killed === 0 ? first : rig.random.pick([first, ...others]);
    await victim.kill();
    killed += 1;
    started.push(isDoor(victim) ? rig.producer({ PLANS: 'on' }).then((door) => doors.push(door)) : rig.worker());
  }
  await Promise.all(started);
}

async function judgePlan(rig: Rig, observer: Producer, order: PlanOrder, plan: string): Promise<void> {
  const end = await eventually(async () => endOf(await observer.look(`plan:${plan}`)), {
    what: `the end of the plan ${order.id}`,
    deadlineMs: ENDED_MS,
    everyMs: 200,
  }).catch(() => undefined);
  const expected = order.undo ? 'undone' : 'done';
  rig.bound('I8', `the plan ${order.id}, which is ${end?.state ?? 'not over'}`, end?.state === expected ? 0 : 1, 0);
  rig.bound('I5', 'outputs that are wrong', end?.wrong ?? 0, 0);
  const places = placesOf(order);
  const effects = rig.effects().filter(({ phase }) => phase === 'effect');
  const done = Map.groupBy(effects, ({ key }) => key);
  const count = (keys: readonly string[], is: (lines: readonly EffectLine[]) => boolean) =>
    keys.filter((key) => is(done.get(key) ?? [])).length;
  const calls = Map.groupBy(rig.effects(), ({ key }) => key);
  const isTwoCalls = (key: string) => new Set(calls.get(key)?.map(({ callId }) => callId)).size > 1;
  rig.bound(
    'I8',
    'nodes that did not run',
    count(places, ({ length }) => length === 0),
    0,
  );
  rig.bound(
    'I7',
    'nodes that had two effects',
    count(places, ({ length }) => length > 1),
    0,
  );
  rig.bound('I7', 'nodes that were made as two calls', places.filter(isTwoCalls).length, 0);
  const again = places.filter((place) => (calls.get(place)?.filter(({ phase }) => phase === 'begin').length ?? 0) > 1);
  rig.notes.push(`${order.id}: ${places.length} nodes, ${again.length} began again after their worker had died`);
  const undone = places.map(undoKey);
  if (!order.undo)
    return rig.bound(
      'I7',
      'nodes that were undone',
      count(undone, ({ length }) => length > 0),
      0,
    );
  rig.bound(
    'I8',
    'nodes that were not undone',
    count(undone, ({ length }) => length === 0),
    0,
  );
  rig.bound(
    'I7',
    'nodes that were undone twice',
    count(undone, ({ length }) => length > 1),
    0,
  );
  rig.bound('I7', 'nodes that were undone before one that needs them', outOfOrder(order, effects), 0);
}

function endOf(told: Told): PlanEnd | undefined {
  return told.kind === 'ok' ? (told.output as PlanEnd) : undefined;
}

/** Places of a lane, of which the later one is to be undone first. */
function outOfOrder({ id, lanes, length }: PlanOrder, effects: readonly EffectLine[]): number {
  const at = new Map(effects.map(({ key }, index) => [key, index]));
  let wrong = 0;
  for (let lane = 0; lane < lanes; lane += 1)
    for (let number = 1; number < length; number += 1) {
      const [before, after] = [number - 1, number].map((one) => at.get(undoKey(placeOf(id, lane, one))) ?? -1);
      if ((before ?? -1) < (after ?? -1)) wrong += 1;
    }
  return wrong;
}

export const planRows: readonly Row[] = [planRow({ lanes: 20, length: 10, kills: 30 })];
