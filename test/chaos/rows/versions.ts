/** Workers of different ages side by side. */
import type { Ask } from '../protocol.ts';
import type { Rig } from '../rig.ts';
import { inTheMiddle, mixedAsks, passes, type Row } from './row.ts';

function versioned(prefix: string, count: number, params: Ask['params']): Ask[] {
  return Array.from({ length: count }, (_, number) => {
    const key = `${prefix}-${number}`;
    return { tool: 'versioned', key, params: { label: key, ...params } };
  });
}

/** Calls of a tool that only one of two workers has. */
async function rerouted(rig: Rig): Promise<void> {
  const producer = await rig.producer();
  const asks = mixedAsks(rig, 12).map((ask) => ({ ...ask, key: `rerouted-${ask.key}` }));
  await Promise.all(asks.map((ask) => rig.persist(producer, ask)));
  const keys = new Set(asks.map(({ key }) => key));
  const failed = rig.history.calls.filter(
    ({ name, events }) => keys.has(name) && !events.some((event) => event.kind === 'told' && event.told.kind === 'ok'),
  );
  rig.bound('I9', 'calls that failed although a worker had their tool', failed.length, 0);
}

const skew: Row = {
  number: 30,
  fault: 'an old worker, a new one with another version of the tool, and one that does not have it',
  async run(rig) {
    const gate = rig.gate('effects');
    const [producer, old] = await Promise.all([rig.producer(), rig.worker({ CONCURRENCY: '4' })]);
    const asks = versioned('old', 8, { gate: gate.path });
    const pending = await inTheMiddle(rig, producer, asks.slice(0, 4));
    pending.push(...asks.slice(4).map((ask) => rig.persist(producer, ask)));
    // What waits was made for the old version, whose worker goes away; the new one must not read it as its own.
    await Promise.all([rig.worker({ TOOL_GENERATION: '2' }), rig.worker({ WITHOUT_TOOLS: 'all' })]);
    await old.kill();
    gate.open();
    await passes(1_500);
    const next = await rig.producer();
    const newer = versioned('new', 6, { unit: 'm' }).map((ask) => rig.persist(next, ask));
    await rerouted(rig);
    await rig.worker();
    rig.healed();
    await rig.settle([...pending, ...newer]);
    const misread = rig.effects().filter(({ key, phase }) => phase === 'effect' && /^(old|new)-\d+!$/.test(key));
    rig.bound('I5', 'calls that a worker of another version misread', misread.length, 0);
  },
};

export const versionRows: readonly Row[] = [skew];
