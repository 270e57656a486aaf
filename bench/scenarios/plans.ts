/** What plans and batches cost more than the same calls made one by one. */
import { middle, type Ratio, ratioOf } from '../comparison.ts';
import { Fleet, type Measured } from '../fleet.ts';
import type { Load } from '../protocol.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { TOGETHER } from '../together.ts';

export interface PlansResult {
  readonly date: string;
  /** Calls of each batch or plan. */
  readonly calls: number;
  readonly rounds: number;
  readonly shapes: readonly ShapeResult[];
}

export interface ShapeResult {
  readonly title: string;
  /** Time and CPU time of all processes, against the same calls one by one in the same round. */
  readonly time: Ratio;
  readonly cpu: Ratio;
  readonly single: Measured;
  readonly together: Measured;
}

interface Shape {
  readonly title: string;
  readonly together: NonNullable<Load['together']>;
  readonly inFlight: number;
  /** Of each round. */
  readonly groups: number;
}

const SHAPES: readonly Shape[] = [
  { title: 'A plan without references', together: 'plan', inFlight: 100, groups: 3 },
  { title: 'A plan of which half the nodes have a reference', together: 'references', inFlight: 100, groups: 3 },
  { title: 'A plan with one `forEach`', together: 'each', inFlight: 100, groups: 3 },
  { title: 'A batch', together: 'batch', inFlight: 100, groups: 3 },
  { title: 'A plan that is one chain', together: 'chain', inFlight: 1, groups: 1 },
];
const ROUNDS = 9;
const QUICK_ROUNDS = 3;
const WARM_UP_ROUNDS = 2;
const RESULT_BYTES = 200;

export async function measurePlans(quick: boolean, say: (line: string) => void): Promise<PlansResult> {
  const rounds = quick ? QUICK_ROUNDS : ROUNDS;
  const date = new Date().toISOString().slice(0, 10);
  const shapes = await withStore(startServer(), (server) =>
    Fleet.with({ sides: new Map([['pawl', server]]), producers: 1 }, async (fleet) => {
      const found: ShapeResult[] = [];
      for (const shape of SHAPES) {
        say(shape.title);
        found.push(await measureShape(fleet, shape, rounds));
      }
      return found;
    }),
  );
  return { date, calls: TOGETHER, rounds, shapes };
}

async function measureShape(
  fleet: Fleet,
  { title, together, inFlight, groups }: Shape,
  rounds: number,
): Promise<ShapeResult> {
  const pace = { inFlight, until: { calls: groups * TOGETHER } };
  const run = (more: Pick<Load, 'together' | 'alike'>) =>
    fleet.run('pawl', 1, { pace, resultBytes: RESULT_BYTES, keys: 'fresh', ...more });
  const single: Measured[] = [];
  const made: Measured[] = [];
  for (let round = -WARM_UP_ROUNDS; round < rounds; round += 1) {
    const isOdd = round % 2 !== 0;
    const first = isOdd ? await run({ together }) : undefined;
    const one = await run({ alike: together });
    const other = first ?? (await run({ together }));
    if (round < 0) continue;
    single.push(one);
    made.push(other);
  }
  return {
    title,
    time: ratioOf(made, single, ({ callsPerSecond }) => 1 / callsPerSecond),
    cpu: ratioOf(made, single, ({ cpu }) => cpu.worker + cpu.callers + cpu.store),
    single: middle(single),
    together: middle(made),
  };
}
