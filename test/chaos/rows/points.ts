/** Processes that die at the very points where a call's story turns. */
import { EarlyEnd } from '../child.ts';
import type { Producer, Rig, StackName } from '../rig.ts';
import { mixedAsks, type Row } from './row.ts';

/** Scripts of workers and of producers, and the moment. */
export const POINTS: Readonly<
  Record<StackName, { readonly workers: readonly string[]; readonly producers: readonly string[] }>
> = {
  pawl: {
    workers: [
      'pawl:begin-attempt@before',
      'pawl:begin-attempt@after',
      'pawl:fetch-and-begin@before',
      'pawl:fetch-and-begin@after',
      'pawl:settle-and-fetch@before',
      'pawl:settle-and-fetch@after',
    ],
    producers: ['pawl:claim-batch@before', 'pawl:claim-batch@after'],
  },
  naive: {
    workers: ['moveToActive@before', 'moveToActive@after', 'moveToFinished@before', 'moveToFinished@after'],
    producers: ['addStandardJob@before', 'addStandardJob@after'],
  },
};

const CALLS = 8;
const LIFETIME_MS = 8_000;

/** A worker dies at each point in turn; the next one finds what it left. */
async function workersDie(rig: Rig, producer: Producer): Promise<Promise<unknown>[]> {
  const pending: Promise<unknown>[] = [];
  for (const point of POINTS[rig.stack].workers) {
    // Not the first time, so that others are in the middle of something else. Only calls with effects `once`, at least three of these asks,
    // begin in a script of their own.
    const victim = await rig.worker({ CRASH_AT: `${point}@${rig.random.between(2, 3)}` }).catch(diedStarting);
    const asks = mixedAsks(rig, CALLS, () => ({ beforeMs: rig.random.between(0, 40), afterMs: 20 }));
    pending.push(...named(point, asks).map((ask) => rig.persist(producer, ask)));
    if (victim !== undefined) await died(rig, victim, point);
  }
  return pending;
}

/** What the one before left may bring a worker to its point before it is ready. */
function diedStarting(error: unknown): undefined {
  if (!(error instanceof EarlyEnd)) throw error;
}

async function producersDie(rig: Rig): Promise<Promise<unknown>[]> {
  const pending: Promise<unknown>[] = [];
  for (const point of POINTS[rig.stack].producers) {
    const nth = rig.random.between(2, CALLS / 2);
    const victim = await rig.producer({ CRASH_AT: `${point}@${nth}` });
    const asks = named(point, mixedAsks(rig, CALLS));
    // One after the other; then those that are left go together.
    for (const ask of asks.slice(0, nth - 1)) {
      pending.push(victim.call(ask));
      await rig.acknowledged(ask);
    }
    pending.push(...asks.slice(nth - 1).map((ask) => victim.call(ask)));
    await died(rig, victim, point);
    const next = await rig.producer();
    pending.push(...asks.map((ask) => rig.persist(next, ask)));
  }
  return pending;
}

function named(point: string, asks: ReturnType<typeof mixedAsks>): ReturnType<typeof mixedAsks> {
  return asks.map((ask) => {
    const key = `${point} ${ask.key}`;
    return { ...ask, key, params: { ...ask.params, label: key } };
  });
}

async function died(rig: Rig, victim: { readonly ended: Promise<void>; kill(): Promise<void> }, point: string) {
  const timer = { id: undefined as NodeJS.Timeout | undefined };
  const late = new Promise<'late'>((resolve) => {
    timer.id = setTimeout(() => resolve('late'), LIFETIME_MS);
  });
  const outcome = await Promise.race([victim.ended, late]);
  clearTimeout(timer.id);
  rig.bound('I8', `processes that did not come to ${point}`, outcome === 'late' ? 1 : 0, 0);
  await victim.kill();
}

const crashPoints: Row = {
  number: 4,
  fault: 'kill -9 just before and just after each script of a call: claim, take, begin, finish',
  async run(rig) {
    const producer = await rig.producer();
    const pending = await workersDie(rig, producer);
    await rig.worker();
    pending.push(...(await producersDie(rig)));
    rig.healed();
    await rig.settle(pending);
  },
};

export const pointRows: readonly Row[] = [crashPoints];
