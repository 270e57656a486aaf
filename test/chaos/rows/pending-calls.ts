/** Calls that an outside system completes, while everything is killed; several front doors are told the end of each at once. */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Ask } from '../protocol.ts';
import type { Producer, Rig } from '../rig.ts';
import { firstCall, passes, type Row } from './row.ts';

export interface PendingRowOptions {
  readonly calls: number;
}

const FULL_CALLS = 240;
const WORKERS = 2;
const FRONT_DOORS = 2;
const COMPLETIONS_OF_CALL = 10;
/** Ordinary calls that come while all others are pending. */
const NEIGHBOURS = 4;
const NEIGHBOUR_MS = 4_000;
const LEFT_OUTSIDE_MS = 6_000;
const AWAY_MS = 1_000;
const SETTLED_MS = 30_000;

export function pendingRow({ calls }: PendingRowOptions): Row {
  return {
    number: 51,
    fault: `${calls} calls that an outside system completes: kill -9 of all front doors, workers and Redis while they wait, then ${COMPLETIONS_OF_CALL} completions of each at once`,
    async run(rig) {
      const mailbox = join(rig.folder, 'mailbox');
      mkdirSync(mailbox);
      const open = () => Promise.all(Array.from({ length: FRONT_DOORS }, () => rig.producer()));
      const serve = () => Promise.all(Array.from({ length: WORKERS }, () => rig.worker()));
      const [doors] = await Promise.all([open(), serve()]);
      // The first one opens the session.
      for (const door of doors) await firstCall(rig, door);
      const asks = Array.from({ length: calls }, (_, number): Ask => {
        const key = `order-${number}`;
        return { tool: 'order_outside', key, params: { label: key, mailbox } };
      });
      const asked = asks.map((ask, number) => doors[number % FRONT_DOORS]?.call(ask));
      await Promise.all(asks.map((ask) => rig.acknowledged(ask)));
      await waits(() => readdirSync(mailbox).length === calls, LEFT_OUTSIDE_MS);
      await judgeNeighbours(rig, doors);

      await Promise.all([...doors, ...rig.workers].map((child) => child.kill()));
      await rig.server.kill();
      await passes(AWAY_MS);
      await rig.server.start();
      const [again] = await Promise.all([open(), serve()]);
      rig.healed();
      // Jobs that a worker holds for their time come one after the other.
      await waits(() => readdirSync(mailbox).length === calls, LEFT_OUTSIDE_MS);
      await judgeCompletions(rig, again, mailbox);
      await rig.settle(
        asked.map((answer) => Promise.resolve(answer)),
        rig.history.calls,
        SETTLED_MS,
      );
    },
    ...(calls === FULL_CALLS ? {} : { atFullSize: () => pendingRow({ calls: FULL_CALLS }) }),
  };
}

/** Workers have nothing to do with calls that wait outside: ordinary ones run at once. */
async function judgeNeighbours(rig: Rig, doors: readonly Producer[]): Promise<void> {
  const answers = Array.from({ length: NEIGHBOURS }, async (_, number) => {
    const key = `neighbour-${number}`;
    const ask = { tool: 'record_none', key, params: { label: key } };
    const late = passes(NEIGHBOUR_MS).then(() => undefined);
    return (await Promise.race([doors[number % FRONT_DOORS]?.call(ask), late]))?.kind === 'ok';
  });
  const late = (await Promise.all(answers)).filter((isDone) => !isDone).length;
  rig.bound('I9', 'ordinary calls that waited behind pending ones', late, 0);
}

async function judgeCompletions(rig: Rig, doors: readonly Producer[], mailbox: string): Promise<void> {
  const keys = readdirSync(mailbox);
  const accepted = await Promise.all(
    keys.map(async (key) => {
      const token = readFileSync(join(mailbox, key), 'utf8');
      const answers = Array.from({ length: COMPLETIONS_OF_CALL }, async (_, number) => {
        const by = `sender ${number}`;
        const told = await doors[number % doors.length]?.act(token, {
          kind: 'complete',
          by,
          output: { label: key, by },
        });
        return told?.kind === 'ok' ? [by] : [];
      });
      return { key, by: (await Promise.all(answers)).flat() };
    }),
  );
  const beyond = accepted.reduce((sum, { by }) => sum + Math.max(0, by.length - 1), 0);
  rig.bound('I7', 'completions that were accepted beside another one of their call', beyond, 0);
  rig.bound('I8', 'pending calls that could not be completed', accepted.filter(({ by }) => by.length === 0).length, 0);
  rig.notes.push(`${accepted.filter(({ by }) => by.length === 1).length} of ${keys.length} were completed once`);
}

async function waits(isDone: () => boolean, atMostMs: number): Promise<void> {
  const endMs = performance.now() + atMostMs;
  while (!isDone() && performance.now() < endMs) await passes(50);
}

export const pendingRows: readonly Row[] = [pendingRow({ calls: 24 })];
