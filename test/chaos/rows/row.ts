/** What a row is, and what rows share. */

import type { EffectLine } from '../../journeys/fixtures/effect-log.ts';
import { EFFECTS_CLASSES } from '../../journeys/fixtures/tools.ts';
import type { Ask, Told } from '../protocol.ts';
import type { Producer, Rig } from '../rig.ts';

export interface Row {
  readonly number: number;
  /** One line of the table. */
  readonly fault: string;
  readonly redisOptions?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** What this mode of Redis says that it may forget: I1 to I4 are counted, and excused. */
  readonly stated?: string;
  /** A file system of so many bytes for Redis' files; needs root. */
  readonly diskBytes?: number;
  /** Why it cannot run on this machine; undefined when it can. */
  needs?(): string | undefined | Promise<string | undefined>;
  run(rig: Rig): Promise<void>;
  /** The same row for as long as its promise names; `--full` runs it. */
  atFullSize?(): Row;
}

/** `count` calls over all effects classes, every third of them `once`. */
export function mixedAsks(rig: Rig, count: number, params: (number: number) => Ask['params'] = () => ({})): Ask[] {
  return Array.from({ length: count }, (_, number) => {
    const effects = number % 3 === 0 ? 'once' : rig.random.pick(EFFECTS_CLASSES);
    const key = `call-${number}`;
    return { tool: `record_${effects}`, key, params: { label: key, ...params(number) } };
  });
}

/** A process is slow at its first call: on a busy machine, slower than the lease of several. */
export async function firstCall(rig: Rig, producer: Producer): Promise<void> {
  const key = `first-${rig.workers.length}`;
  await rig.persist(producer, { tool: 'record_none', key, params: { label: key } });
}

/** Asks for calls, and waits until each has come so far. */
export async function inTheMiddle(
  rig: Rig,
  producer: Producer,
  asks: readonly Ask[],
  phase: EffectLine['phase'] = 'begin',
): Promise<Promise<Told>[]> {
  const pending = asks.map((ask) => rig.persist(producer, ask));
  await Promise.all(asks.map(({ key }) => rig.reached(key, phase)));
  return pending;
}

/** Submits calls at so many at a time, each until it is told an end. */
export async function load(rig: Rig, producer: Producer, asks: readonly Ask[], atATime: number): Promise<void> {
  const queue = asks.values();
  await Promise.all(
    Array.from({ length: atATime }, async () => {
      for (const ask of queue) await rig.persist(producer, ask);
    }),
  );
}

export function passes(ms: number): Promise<void> {
  return new Promise((next) => setTimeout(next, ms));
}
