/**
 * What every system on Redis pays before its first promise: a bare list takes each call to a worker, another one its answer back. No
 * job, no record, no retry, and what a process held when it died is lost.
 */
import { type Effort, middle } from '../comparison.ts';
import { Fleet, type Measured } from '../fleet.ts';
import { startServer } from '../stores/redis.ts';
import { withStore } from '../stores/store.ts';
import { IN_FLIGHT, WORKLOADS } from '../workloads.ts';

export interface FloorResult {
  readonly rounds: number;
  readonly rows: readonly FloorRow[];
}

export interface FloorRow extends Measured {
  readonly title: string;
}

/** Of the workloads, those that a list can run. */
const MEASURED = ['small-1', 'one-at-a-time', 'large-1', 'small-16', 'large-16', 'small-64'];

export async function measureFloor(effort: Effort, say: (line: string) => void): Promise<FloorResult> {
  const rounds = Math.ceil(effort.rounds / 3);
  const rows: FloorRow[] = [];
  for (const { title, producers, inFlight, resultBytes } of WORKLOADS.filter((each) => MEASURED.includes(each.name))) {
    say(`a bare list: ${title}`);
    const measured = await withStore(startServer(), (server) =>
      Fleet.with({ sides: new Map([['list', server]]), producers }, async (fleet) => {
        const run = (calls: number, durationMs: number) =>
          fleet.run('list', producers, {
            pace: { inFlight: calls, until: { durationMs } },
            resultBytes,
            keys: 'fresh',
          });
        await run(IN_FLIGHT, effort.warmUpMs);
        const found: Measured[] = [];
        for (let number = 0; number < rounds; number += 1) found.push(await run(inFlight, effort.roundMs));
        return found;
      }),
    );
    rows.push({ title, ...middle(measured) });
  }
  return { rounds, rows };
}
