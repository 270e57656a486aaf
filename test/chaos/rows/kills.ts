/** Workers that are killed at random, under calls of which one is to blame and all others are not. */
import { type Child, EarlyEnd } from '../child.ts';
import type { Rig } from '../rig.ts';
import { mixedAsks, passes, type Row } from './row.ts';

export interface KillsOptions {
  readonly calls: number;
  readonly kills: number;
}

const WORKERS = 4;
/** Of a call, from its begin to its effect. */
const CALL_MS = 20;
const DEADLINE_MS = 1_800_000;

export function randomKills({ calls, kills }: KillsOptions): Row {
  return {
    number: 43,
    fault: `kill -9 of ${WORKERS} workers at random, ${kills} times, under ${calls} calls, one of which kills its worker itself`,
    async run(rig) {
      const [producer] = await Promise.all([rig.producer(), ...Array.from({ length: WORKERS }, () => rig.worker())]);
      const asks = mixedAsks(rig, calls - 1, () => ({ beforeMs: CALL_MS }));
      asks.splice(Math.floor(calls / 3), 0, { tool: 'poison', key: 'poison', params: {} });
      const blamed: string[] = [];
      const asked: Promise<void>[] = [];
      const ask = async (each: (typeof asks)[number]) => {
        const told = await rig.persist(producer, each, DEADLINE_MS);
        if ('code' in told && told.code === 'POISONED') blamed.push(each.key);
      };
      const left = asks.values();
      const askSome = () => {
        for (let number = 0; number < Math.ceil(calls / kills); number += 1) {
          const { value } = left.next();
          if (value !== undefined) asked.push(ask(value));
        }
      };
      let killed = 0;
      let isOver = false;
      const seat = async (index: number) => {
        let worker = rig.workers[index];
        while (!isOver) {
          const isVictim = killed < kills;
          if (isVictim) {
            killed += 1;
            askSome();
            await passes(rig.random.between(20, 400));
            await worker?.kill();
          } else await Promise.race([worker?.ended, over]);
          if (!isOver) worker = await replacement(rig);
        }
      };
      const ends = Promise.withResolvers<void>();
      const over = ends.promise;
      const seats = Promise.all(Array.from({ length: WORKERS }, (_, index) => seat(index)));
      while (killed < kills) await passes(100);
      for (const each of left) asked.push(ask(each));
      rig.healed();
      await Promise.all(asked);
      isOver = true;
      ends.resolve();
      await seats;
      await rig.settle();
      const innocents = blamed.filter((key) => key !== 'poison');
      rig.bound('I5', 'quarantined calls that are not to blame', innocents.length, 0);
      rig.bound('I8', 'calls to blame that were not found', blamed.includes('poison') ? 0 : 1, 0);
      rig.notes.push(`${rig.effects('poison').length} starts of the call to blame`);
    },
  };
}

/** A worker may take the call to blame before it has said that it is ready. */
async function replacement(rig: Rig): Promise<Child> {
  for (;;) {
    try {
      return await rig.worker();
    } catch (error) {
      if (!(error instanceof EarlyEnd)) throw error;
    }
  }
}

export const killRows: readonly Row[] = [randomKills({ calls: 1_000, kills: 200 })];
