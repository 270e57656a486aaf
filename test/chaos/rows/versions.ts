/** Workers of different ages side by side. */
import type { Ask } from '../protocol.ts';
import { LEASE_MS, type Rig, STALLED_MS } from '../rig.ts';
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
    const done = await rig.worker();
    const begun = mixedAsks(rig, 6, () => ({ afterMs: 4_000 }));
    pending.push(...(await inTheMiddle(rig, producer, begun, 'effect')));
    // First, only one that has none of the tools comes across what the dead ones left; it must not undo what is known of it.
    await rig.worker({ WITHOUT_TOOLS: 'all' });
    await Promise.all([old.kill(), done.kill()]);
    await passes(LEASE_MS + 2 * STALLED_MS);
    // What waits was made for the old version, whose worker is gone; the new one must not read it as its own.
    await rig.worker({ TOOL_GENERATION: '2' });
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
