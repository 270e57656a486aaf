/** What can happen to a fleet, as fast-check's commands: it makes up the order, and shortens a story that went wrong. */
import fc from 'fast-check';
import { vi } from 'vitest';
import { DEDUPE_DEFAULTS } from '../../src/testing.ts';
import { type BrokenStore, DEEDS, type Deed, Fleet } from './fleet.ts';

const PLACES = 2;
const LEASE_MS = DEDUPE_DEFAULTS.lockMs;
const KEYS = ['a', 'b', 'c'] as const;
const LABELS = ['one', 'other'] as const;

type Model = Record<string, never>;
type Command = fc.AsyncCommand<Model, Fleet>;

/** After each command, the schedule goes on for a while; what is under way then stays under way. */
function command(text: string, steps: number, act: (fleet: Fleet) => void | Promise<void>): Command {
  return {
    check: () => true,
    run: async (_, fleet) => {
      await act(fleet);
      await fleet.happen(steps);
    },
    toString: () => `${text}, ${steps} steps`,
  };
}

const partition = fc.nat({ max: PLACES - 1 });
const steps = fc.nat({ max: 12 });
const key = fc.constantFrom(...KEYS);
/** Most calls work in the end. */
const deeds = fc.oneof(
  { weight: 3, arbitrary: fc.constant<Deed[]>(['works']) },
  { weight: 5, arbitrary: fc.array(fc.constantFrom(...DEEDS), { minLength: 1, maxLength: 3 }) },
);

/** A key stands for one tool; with other parameters, it is a conflict. */
const ask = fc
  .tuple(
    partition,
    key,
    fc.oneof({ weight: 6, arbitrary: fc.constant(LABELS[0]) }, fc.constantFrom(...LABELS)),
    deeds,
    steps,
  )
  .map(([at, name, label, what, count]) =>
    command(`ask ${name} (${what.join(', ')}) at ${at}`, count, (fleet) => fleet.askAt(at, name, label, what)),
  );

const crash = fc
  .tuple(partition, steps)
  .map(([at, count]) => command(`crash ${at}`, count, (fleet) => fleet.crash(at)));
const freeze = fc
  .tuple(partition, steps)
  .map(([at, count]) => command(`freeze ${at}`, count, (fleet) => fleet.freeze(at)));
const thaw = fc.tuple(partition, steps).map(([at, count]) => command(`thaw ${at}`, count, (fleet) => fleet.thawAt(at)));
const cut = fc
  .tuple(partition, fc.boolean(), steps)
  .map(([at, on, count]) => command(`${on ? 'cut' : 'mend'} ${at}`, count, (fleet) => fleet.cut(at, on)));
const cancel = fc
  .tuple(partition, key, steps)
  .map(([at, name, count]) => command(`cancel ${name} at ${at}`, count, (fleet) => fleet.cancel(at, name)));
const drain = fc
  .tuple(partition, steps)
  .map(([at, count]) => command(`drain ${at}`, count, (fleet) => fleet.drain(at)));
const pass = fc
  .tuple(fc.constantFrom(10, 1_000, 6_000, LEASE_MS + 1), steps)
  .map(([ms, count]) => command(`${ms} ms pass`, count, (fleet) => fleet.pass(ms)));

/** A machine stands still in the middle of a call until its lease has ended, and another is asked for the same. */
const overtaken = fc
  .tuple(partition, key, deeds, fc.nat({ max: 8 }), fc.nat({ max: 40 }))
  .map(([at, name, what, before, count]) =>
    command(`overtake ${name} (${what.join(', ')}) at ${at} after ${before} steps`, count, async (fleet) => {
      fleet.askAt(at, name, LABELS[0], what);
      await fleet.happen(before);
      fleet.freeze(at);
      await fleet.pass(LEASE_MS + 1);
      fleet.askAt((at + 1) % PLACES, name, LABELS[0], what);
    }),
  );

const stories = fc.commands([ask, ask, ask, crash, freeze, thaw, cut, cancel, drain, pass, overtaken], {
  maxCommands: 14,
  size: 'max',
});

/** Whatever happens to the fleet, and in whatever order: the checker of the fault rig finds nothing. */
export function nothingBreaks(broken?: BrokenStore) {
  return fc.asyncProperty(fc.scheduler(), fc.nat(), stories, async (scheduler, seed, story) => {
    const fleet = new Fleet(scheduler, seed, PLACES, broken);
    await fc.asyncModelRun(() => ({ model: {}, real: fleet }), story);
    const { breaches } = await fleet.judged();
    // Runners look after their waiters now and then by the real clock.
    vi.clearAllTimers();
    if (breaches.length > 0) throw new Error(breaches.join('; '));
  });
}
