/**
 * The fleet's circuit under attempts of several workers whose reads and writes interleave as fast-check likes, in virtual time.
 */
import fc, { type Scheduler } from 'fast-check';
import { expect, test } from 'vitest';
import { LocalCircuits } from '../../src/local/circuits.ts';
import { type Circuit, type CircuitState, forcedOpen, reset } from '../../src/shared/circuits/circuit-breaker.ts';
import { circuitPolicy } from '../../src/shared/circuits/circuit-policy.ts';
import { failureOf } from '../../src/shared/errors/failure.ts';
import type { CircuitRecords } from '../../src/shared/store/ports.ts';
import type { CircuitHold } from '../../src/workers/attempt/circuit-hold.ts';
import { FleetCircuits } from '../../src/workers/circuits/fleet-circuit.ts';
import { type Bound, judge } from '../chaos/checker.ts';
import { SEARCHES, SEED } from './searches.ts';
import { VirtualTime } from './time.ts';

const PLACE = { tier: 'workspace', shard: 0 } as const;
const KEY = 'tool:tools.flaky';
const POLICY = circuitPolicy(false, { consecutiveFailures: 3, cooldownMs: 1_000, probeLeaseMs: 2_000, rateMinimum: 6 });

/** How an attempt ends; a `lost` one never says. */
const ENDINGS = ['ok', 'fails', 'says nothing', 'lost'] as const;
type Ending = (typeof ENDINGS)[number];

const LEGAL: Readonly<Record<CircuitState, readonly CircuitState[]>> = {
  CLOSED: ['CLOSED', 'OPEN', 'FORCED_OPEN'],
  OPEN: ['HALF_OPEN', 'CLOSED', 'FORCED_OPEN'],
  HALF_OPEN: ['HALF_OPEN', 'OPEN', 'CLOSED', 'FORCED_OPEN'],
  FORCED_OPEN: ['CLOSED', 'FORCED_OPEN'],
};

class Workers {
  readonly #scheduler: Scheduler;
  readonly #time = new VirtualTime();
  readonly #records: LocalCircuits;
  readonly #fleet: FleetCircuits;
  readonly #probes = new Map<string, number>();
  readonly bounds: Bound[] = [];
  #seen: Circuit = { state: 'CLOSED', epoch: 0 };
  #attempts = 0;

  /** `broken`: changes do not ask whether the circuit is still what they were decided on. */
  constructor(scheduler: Scheduler, broken: boolean) {
    this.#scheduler = scheduler;
    this.#records = new LocalCircuits(this.#time, ({ circuit }) => this.#changed(circuit));
    const slowly = async <T>(act: () => Promise<T>): Promise<T> => {
      await this.#step();
      return act();
    };
    const records: CircuitRecords = {
      addFailure: (...args) => slowly(() => this.#records.addFailure(...args)),
      change: (at, from, next, retryAfterMs) =>
        slowly(() => {
          const compared = broken ? this.#records.now(at.partition, at.key) : from;
          return this.#records.change(at, compared, next, retryAfterMs);
        }),
      read: (...args) => slowly(() => this.#records.read(...args)),
      list: (...args) => this.#records.list(...args),
      window: (...args) => this.#records.window(...args),
    };
    this.#fleet = new FleetCircuits(
      records,
      async () => this.#time.now(),
      () => {},
    );
  }

  async #step(): Promise<void> {
    await this.#scheduler.schedule(Promise.resolve());
  }

  #bound(what: string, value: number, atMost: number): void {
    if (value > atMost) this.bounds.push({ invariant: 'I7', what, value, atMost });
  }

  #changed(next: Circuit): void {
    const before = this.#seen;
    this.#seen = next;
    this.#bound(`${before.state} became ${next.state}`, LEGAL[before.state].includes(next.state) ? 0 : 1, 0);
    this.#bound('an epoch that was used before', before.epoch, next.epoch - 1);
    if (before.state === 'OPEN' && next.state === 'HALF_OPEN')
      this.#bound('ms too early for a probe', before.openedAtMs + before.cooldownMs - this.#time.now(), 0);
    if (next.state !== 'HALF_OPEN') this.#probes.clear();
  }

  /** One attempt, as an executor goes about it. */
  async attempt(ending: Ending): Promise<void> {
    this.#attempts += 1;
    const holder = `attempt ${this.#attempts}`;
    const hold = await this.#enter(holder);
    if (hold === undefined) return;
    if (hold.snapshot.state === 'HALF_OPEN') this.#probing(holder, hold.snapshot.probe?.untilMs ?? 0);
    await this.#step();
    if (ending === 'lost') return;
    this.#probes.delete(holder);
    await this.#end(hold, ending);
  }

  async #enter(holder: string): Promise<CircuitHold | undefined> {
    for (;;) {
      await this.#step();
      const seen = this.#records.now(PLACE, KEY);
      const hold: CircuitHold = { partition: PLACE, key: KEY, policy: POLICY, snapshot: seen, probe: undefined };
      if (seen.state === 'CLOSED') return hold;
      const entry = await this.#fleet.enter(hold, holder, this.#time.now());
      if (entry.kind === 'refuse') return undefined;
      // Begins only in the epoch for which it is the probe.
      if (entry.kind === 'probe' && this.#records.now(PLACE, KEY).epoch === entry.hold.snapshot.epoch)
        return entry.hold;
    }
  }

  #probing(holder: string, untilMs: number): void {
    for (const [other, leaseEndMs] of this.#probes) if (leaseEndMs <= this.#time.now()) this.#probes.delete(other);
    this.#probes.set(holder, untilMs);
    this.#bound('probes at once', this.#probes.size, 1);
  }

  async #end(hold: CircuitHold, ending: Exclude<Ending, 'lost'>): Promise<void> {
    if (ending === 'ok') {
      const sample = await this.#fleet.succeeded(hold);
      if (sample !== undefined) this.#records.addSuccess(PLACE, sample);
    } else if (ending === 'fails') await this.#fleet.failed(hold, failureOf('TIMEOUT'));
    else await this.#fleet.release(hold);
  }

  async operate(decision: 'force open' | 'reset'): Promise<void> {
    const seen = this.#records.now(PLACE, KEY);
    const next = decision === 'reset' ? reset(seen) : forcedOpen(seen, 'an operator', this.#time.now());
    await this.#records.change({ partition: PLACE, key: KEY }, seen, next, 0);
  }

  pass(ms: number): void {
    this.#time.reach(this.#time.now() + ms);
  }

  async happen(steps: number): Promise<void> {
    for (let step = 0; step < steps; step += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      if (this.#scheduler.count() === 0) return;
      await this.#scheduler.waitOne();
    }
  }

  /** The service is well again: after a while, everybody may pass. */
  async recovers(): Promise<void> {
    await this.happen(Number.POSITIVE_INFINITY);
    if (this.#records.now(PLACE, KEY).state === 'FORCED_OPEN') await this.operate('reset');
    for (let time = 0; time <= POLICY.successesToClose; time += 1) {
      this.pass(POLICY.cooldownMs + POLICY.probeLeaseMs);
      void this.attempt('ok');
      await this.happen(Number.POSITIVE_INFINITY);
    }
    const open = this.#records.now(PLACE, KEY).state === 'CLOSED' ? 0 : 1;
    this.bounds.push({ invariant: 'I8', what: 'circuits that stay open', value: open, atMost: 0 });
  }
}

type Command = fc.AsyncCommand<Record<string, never>, Workers>;

function command(text: string, steps: number, act: (workers: Workers) => unknown): Command {
  return {
    check: () => true,
    run: async (_, workers) => {
      await act(workers);
      await workers.happen(steps);
    },
    toString: () => `${text}, ${steps} steps`,
  };
}

const steps = fc.nat({ max: 6 });
const attempt = fc
  .tuple(fc.constantFrom(...ENDINGS), steps)
  .map(([ending, count]) => command(`attempt: ${ending}`, count, (workers) => void workers.attempt(ending)));
const pass = fc
  .tuple(fc.constantFrom(10, 999, 1_001, 2_001), steps)
  .map(([ms, count]) => command(`${ms} ms pass`, count, (workers) => workers.pass(ms)));
const operate = fc
  .tuple(fc.constantFrom('force open' as const, 'reset' as const), steps)
  .map(([decision, count]) => command(decision, count, (workers) => workers.operate(decision)));
const failing = steps.map((count) => command('attempt: fails', count, (workers) => void workers.attempt('fails')));

const stories = fc.commands([attempt, attempt, failing, failing, pass, operate], { maxCommands: 20, size: 'max' });

function holds(broken = false) {
  return fc.asyncProperty(fc.scheduler(), stories, async (scheduler, story) => {
    const workers = new Workers(scheduler, broken);
    await fc.asyncModelRun(() => ({ model: {}, real: workers }), story);
    await workers.recovers();
    const { breaches } = judge([], [], workers.bounds);
    if (breaches.length > 0) throw new Error(breaches.join('; '));
  });
}

for (const { schedules, tags } of SEARCHES)
  test(`one probe at a time, no probe too early, legal changes only, and a way back, over ${schedules} schedules`, {
    timeout: 200 * schedules,
    tags,
  }, async () => {
    await fc.assert(holds(), { numRuns: schedules, seed: SEED });
  });

test('a change that does not compare epochs is found', async () => {
  const result = await fc.check(holds(true), { numRuns: 10_000, seed: 1, endOnFailure: true });
  expect(String(result.errorInstance)).toMatch(/an epoch that was used before|probes at once/);
});
