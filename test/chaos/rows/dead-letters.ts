/** Calls that failed for good are redriven at a rate, while the front doors that do it are killed. */

import type { Ask, Told } from '../protocol.ts';
import type { Producer, Rig } from '../rig.ts';
import { passes, type Row } from './row.ts';

export interface RedriveOptions {
  readonly calls: number;
  readonly perSecond: number;
  readonly kills: number;
}

const FULL_CALLS = 10_000;
const ASKED_AT_ONCE = 200;
/** One of so many fails again. */
const HOPELESS_EVERY = 10;
const WORKERS = 2;
/** Generous: a killed front door is missed when its lease ends. */
const SLACK_MS = 60_000;

export function redrives({ calls, perSecond, kills }: RedriveOptions): Row {
  return {
    number: 49,
    // Failures that are meant open no circuit.
    env: { TOOL_RELIABILITY_OPEN_MODE: 'off' },
    fault: `kill -9 of front doors, ${kills} times, while ${calls} calls that failed are redriven at ${perSecond} a second`,
    async run(rig) {
      const [filler] = await Promise.all([rig.producer(), ...Array.from({ length: WORKERS }, () => rig.worker())]);
      const outage = rig.gate('service');
      const asks = Array.from({ length: calls }, (_, number): Ask => {
        const key = `pay-${number}`;
        const hopeless = number % HOPELESS_EVERY === 0;
        return { tool: 'pay_when_open', key, params: { label: key, gate: outage.path, hopeless } };
      });
      const hopeless = asks.filter(({ params }) => params['hopeless'] === true).length;
      for (let at = 0; at < calls; at += ASKED_AT_ONCE) await filler.fill(asks.slice(at, at + ASKED_AT_ONCE));
      rig.bound('I8', 'failures that are not in the view', calls - (await filler.failed()), 0);
      const tried = outputOf(await filler.redrive({ perSecond, dryRun: true }));
      rig.notes.push(`a dry run: ${tried.matched} match`);
      const begunBefore = rig.effects().length;
      outage.open();

      let [first, second] = await Promise.all([rig.producer(), rig.producer()]);
      const startedAtMs = performance.now();
      // The one that is asked dies in the middle; its answer may never come.
      void first.redrive({ perSecond, dryRun: false });
      const allMs = (calls / perSecond) * 1_000;
      for (let killed = 0; killed < kills; killed += 1) {
        await passes((allMs / (kills + 1)) * (0.5 + rig.random.between(0, 100) / 100));
        await first.kill();
        [first, second] = [second, await rig.producer()];
      }
      rig.healed();
      const endMs = performance.now() + allMs + SLACK_MS;
      while ((await left(first)) > hopeless && performance.now() < endMs) await passes(250);
      const tookMs = performance.now() - startedAtMs;
      await quiet(rig);
      const runs = new Map<string, number>();
      for (const { key, phase } of rig.effects()) if (phase === 'begin') runs.set(key, (runs.get(key) ?? 0) + 1);
      rig.bound('I8', 'calls that were not redriven', asks.filter(({ key }) => (runs.get(key) ?? 0) < 2).length, 0);
      rig.bound('I7', 'calls that were redriven twice', [...runs.values()].filter((count) => count > 2).length, 0);
      rig.bound('I8', 'failures that are not in the view in the end', hopeless - (await left(first)), 0);
      rig.bound('I7', 'calls a second', Math.floor((calls - 1) / (tookMs / 1_000)), perSecond * 1.1);
      rig.notes.push(`${rig.effects().length - begunBefore} lines in ${(tookMs / 1_000).toFixed(0)} s`);
      for (let at = 0; at < calls; at += ASKED_AT_ONCE)
        await Promise.all(asks.slice(at, at + ASKED_AT_ONCE).map((ask) => rig.persist(first, ask)));
    },
    ...(calls === FULL_CALLS ? {} : { atFullSize: () => redrives({ calls: FULL_CALLS, perSecond, kills: 20 }) }),
  };
}

async function left(producer: Producer): Promise<number> {
  return producer.failed().catch(() => Number.POSITIVE_INFINITY);
}

/** Waits until no call runs any more. */
async function quiet(rig: Rig): Promise<void> {
  for (let before = -1; before !== rig.effects().length; ) {
    before = rig.effects().length;
    await passes(1_000);
  }
}

function outputOf(told: Told): { readonly matched: number } {
  if (told.kind !== 'ok') throw new Error(`the redrive was not begun: ${told.code} ${told.message}`);
  return told.output as { readonly matched: number };
}

export const deadLetterRows: readonly Row[] = [redrives({ calls: 1_000, perSecond: 100, kills: 4 })];
