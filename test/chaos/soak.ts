/**
 * Row 39: one fleet under load for as long as one likes, in rounds. In each, faults of the other rows strike at random moments, several
 * at once; then all calls of the round must end, and are judged. Workers and producers that live on, and the Redis under them, keep what
 * the rounds before left behind.
 */
import type { Wire } from '../helpers/proxy.ts';
import { judge, type Verdict } from './checker.ts';
import { type Child, EarlyEnd } from './child.ts';
import { hasEnded, tellings } from './history.ts';
import type { Ask, Told } from './protocol.ts';
import { type Random, seeded } from './random.ts';
import { LEASE_MS, type Producer, type Rig } from './rig.ts';
import { wrongBy } from './rows/load.ts';
import { POINTS } from './rows/points.ts';
import { mixedAsks, passes, type Row } from './rows/row.ts';

const WORKERS = 3;
const PRODUCERS = 2;
const SESSIONS = 3;
/** Calls that are under way at a time, and of a round at most. */
const LANES = 8;
const MOST_CALLS = 2_000;
/** One of so many takes longer than a lease, and is in the middle of something when a fault comes. */
const LONG_EVERY = 12;
const FAULTS_AT_ONCE = 3;
/** What a round has not ended by then is lost: generous, so that it is not the machine that was slow. */
const SETTLE_MS = 60_000;
const LIFETIME_MS = 8_000;
const OUTAGE_MS = 4 * LEASE_MS;

/** A process behind a wire of its own. */
interface Member<C extends Child> {
  readonly child: C;
  readonly wire: Wire;
}

/** A fault that heals by itself. Of those with one subject, one strikes at a time. */
interface Fault {
  readonly name: string;
  readonly subject: 'worker' | 'producer' | 'redis' | 'keys';
  strike(soak: Soak, random: Random): Promise<void>;
}

const FAULTS: readonly [Fault, ...Fault[]] = [
  { name: 'kill a worker', subject: 'worker', strike: (soak, random) => soak.worker(random).child.kill() },
  { name: 'stop a worker', subject: 'worker', strike: stopWorker },
  { name: 'replace a worker', subject: 'worker', strike: drainWorker },
  { name: 'kill a worker at a script', subject: 'worker', strike: crashPoint },
  { name: 'cut a worker off', subject: 'worker', strike: (soak, random) => cutOff(soak.worker(random), random) },
  { name: 'silence a worker', subject: 'worker', strike: (soak, random) => silence(soak.worker(random), random) },
  { name: 'a worker with a wrong clock', subject: 'worker', strike: wrongClock },
  { name: 'a call that kills its workers', subject: 'worker', strike: poison },
  { name: 'a tool that holds the event loop', subject: 'worker', strike: block },
  { name: 'kill a producer', subject: 'producer', strike: (soak, random) => soak.producer(random).child.kill() },
  { name: 'cut a producer off', subject: 'producer', strike: (soak, random) => cutOff(soak.producer(random), random) },
  { name: 'silence a producer', subject: 'producer', strike: (soak, random) => silence(soak.producer(random), random) },
  { name: 'pause clients', subject: 'redis', strike: pauseClients },
  { name: 'kill connections', subject: 'redis', strike: killConnections },
  { name: 'kill Redis', subject: 'redis', strike: killRedis },
  { name: 'stop Redis', subject: 'redis', strike: stopRedis },
  { name: 'no memory', subject: 'redis', strike: fillMemory },
  { name: 'trim event streams', subject: 'redis', strike: trimStreams },
  { name: 'one key, the same parameters', subject: 'keys', strike: (soak) => oneKey(soak, () => 'same') },
  { name: 'one key, other parameters', subject: 'keys', strike: (soak) => oneKey(soak, (asker) => `other-${asker}`) },
];

class Soak {
  readonly rig: Rig;
  readonly #workers: Member<Child>[] = [];
  readonly #producers: Member<Producer>[] = [];
  /** Who asks whom is up to the machine's speed, and must not change what else chance gives. */
  readonly #dice = seeded(0);
  /** In front of the keys of this round. */
  #prefix = '';
  #deadlineMs = 0;

  constructor(rig: Rig) {
    this.rig = rig;
  }

  worker(random: Random): Member<Child> {
    return random.pick(this.#workers as unknown as [Member<Child>]);
  }

  producer(random: Random): Member<Producer> {
    return random.pick(this.#producers as unknown as [Member<Producer>]);
  }

  async hire(env: Readonly<Record<string, string>> = {}): Promise<Child> {
    const wire = await this.rig.wire();
    const child = await started(() => this.rig.worker({ REDIS_URL: wire.url, ...env }));
    this.#workers.push({ child, wire });
    return child;
  }

  /** Replaces those that are gone. */
  async mend(): Promise<void> {
    for (const members of [this.#workers, this.#producers])
      for (const dead of members.filter(({ child }) => !child.alive)) {
        members.splice(members.indexOf(dead as Member<Producer>), 1);
        await dead.wire[Symbol.asyncDispose]();
      }
    while (this.#workers.length < WORKERS) await this.hire();
    while (this.#producers.length < PRODUCERS) {
      const wire = await this.rig.wire();
      this.#producers.push({ child: await started(() => this.rig.producer({ REDIS_URL: wire.url })), wire });
    }
  }

  /** Asks whoever is there, until it is told an end or the round's time is up. */
  async ask(ask: Ask): Promise<void> {
    let told: Told;
    do {
      const { child } = this.producer(this.#dice);
      told = child.alive ? await child.call(ask) : { kind: 'info', code: 'PRODUCER_DIED', message: '' };
      if (told.kind === 'info') await passes(100);
    } while (told.kind === 'info' && performance.now() < this.#deadlineMs);
  }

  /** A call of this round. */
  named(ask: Ask): Ask {
    const key = `${this.#prefix}${ask.key}`;
    return {
      ...ask,
      key,
      params: 'label' in ask.params ? { ...ask.params, label: ask.params['label'] || key } : ask.params,
    };
  }

  /** Calls as long as the faults last; then waits until all have ended. */
  async round(number: number, faults: readonly Fault[]): Promise<Verdict & { readonly recoveryMs: number }> {
    this.#prefix = `${number}: `;
    this.#deadlineMs = Number.POSITIVE_INFINITY;
    this.rig.turnLogOver();
    const { random } = this.rig;
    const asks = this.#asks().values();
    const plans = faults.map((fault) => ({ fault, random: seeded(random.between(0, 2 ** 31)) }));
    let over = false;
    const lanes = Array.from({ length: LANES }, async () => {
      for (const ask of asks) {
        await this.ask(ask);
        if (over) return;
      }
    });
    await Promise.all(
      plans.map(async (plan) => {
        await passes(plan.random.between(200, 1_500));
        await plan.fault.strike(this, plan.random);
      }),
    );
    over = true;
    await this.mend();
    const healedAtMs = performance.now();
    this.#deadlineMs = healedAtMs + SETTLE_MS;
    await Promise.all(lanes);
    const recoveryMs = performance.now() - healedAtMs;
    const calls = this.rig.history.calls.filter(({ name }) => name.startsWith(this.#prefix));
    await this.rig.settle([], calls, SETTLE_MS);
    const effects = this.rig.latestEffects().filter(({ key }) => key.startsWith(this.#prefix));
    return { ...judge(calls, effects, []), recoveryMs };
  }

  #asks(): readonly Ask[] {
    const { random } = this.rig;
    const params = (number: number) =>
      number % LONG_EVERY === 0
        ? { beforeMs: random.between(LEASE_MS, 2 * LEASE_MS), deaf: random.between(0, 1) === 1 }
        : { beforeMs: random.between(0, 200), afterMs: random.between(0, 100) };
    return mixedAsks(this.rig, MOST_CALLS, params).map((ask, number) => ({
      ...this.named({ ...ask, params: { ...ask.params, label: '' } }),
      session: `soak-${number % SESSIONS}`,
    }));
  }
}

/** Starts it again, as a supervisor does, while there is no Redis to start on. */
async function started<C extends Child>(start: () => Promise<C>): Promise<C> {
  for (;;) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof EarlyEnd)) throw error;
    }
  }
}

async function stopWorker(soak: Soak, random: Random): Promise<void> {
  const { child } = soak.worker(random);
  child.signal('SIGSTOP');
  await passes(2 * LEASE_MS);
  child.signal('SIGCONT');
}

async function drainWorker(soak: Soak, random: Random): Promise<void> {
  const { child } = soak.worker(random);
  child.signal('SIGTERM');
  await soak.hire();
  await Promise.race([child.ended, passes(LIFETIME_MS)]);
  await child.kill();
}

async function crashPoint(soak: Soak, random: Random): Promise<void> {
  const [first = '', ...others] = POINTS[soak.rig.stack].workers;
  const victim = await soak.hire({ CRASH_AT: `${random.pick([first, ...others])}@${random.between(5, 30)}` });
  await Promise.race([victim.ended, passes(LIFETIME_MS)]);
  await victim.kill();
}

async function cutOff({ wire }: Member<Child>, random: Random): Promise<void> {
  wire.cut();
  await passes(random.between(200, OUTAGE_MS));
  wire.heal();
}

async function silence({ wire }: Member<Child>, random: Random): Promise<void> {
  wire.silence();
  await passes(random.between(200, OUTAGE_MS));
}

async function wrongClock(soak: Soak, random: Random): Promise<void> {
  const child = await soak.hire(wrongBy(random.pick([1, -1])));
  await passes(2 * LEASE_MS);
  await child.kill();
}

async function poison(soak: Soak): Promise<void> {
  const ask = soak.named({ tool: 'poison', key: 'poison', params: {} });
  await soak.ask(ask);
  soak.rig.bound('I7', `starts of ${ask.key}`, soak.rig.effects(ask.key).length, 2);
}

async function block(soak: Soak): Promise<void> {
  await soak.ask(soak.named({ tool: 'block', key: 'block', params: { label: '', blockMs: 3 * LEASE_MS } }));
}

async function pauseClients({ rig }: Soak, random: Random): Promise<void> {
  const ms = random.between(500, OUTAGE_MS);
  await rig.server.admin.client('PAUSE', ms, 'ALL');
  await passes(ms);
}

async function killConnections({ rig }: Soak, random: Random): Promise<void> {
  for (let time = 0; time < 5; time += 1) {
    await rig.server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    await passes(random.between(100, 300));
  }
}

async function killRedis({ rig }: Soak, random: Random): Promise<void> {
  await rig.server.kill();
  await passes(random.between(0, OUTAGE_MS));
  await rig.server.start();
}

async function stopRedis({ rig }: Soak, random: Random): Promise<void> {
  rig.server.signal('SIGSTOP');
  await passes(random.between(500, OUTAGE_MS));
  rig.server.signal('SIGCONT');
}

async function fillMemory({ rig }: Soak, random: Random): Promise<void> {
  await rig.server.admin.config('SET', 'maxmemory', '1mb');
  await passes(random.between(500, OUTAGE_MS));
  await rig.server.admin.config('SET', 'maxmemory', '0');
}

async function trimStreams({ rig: { server } }: Soak): Promise<void> {
  for (const stream of await server.admin.keys('*:events')) await server.admin.xtrim(stream, 'MAXLEN', 0);
}

async function oneKey(soak: Soak, labelOf: (asker: number) => string): Promise<void> {
  const asks = Array.from({ length: 100 }, (_, asker) =>
    soak.named({ tool: 'record_once', key: 'one', params: { label: labelOf(asker) } }),
  );
  await Promise.all(asks.map((ask) => soak.ask(ask)));
}

function someFaults({ random }: Rig): readonly Fault[] {
  const chosen = Array.from({ length: random.between(1, FAULTS_AT_ONCE) }, () => random.pick(FAULTS));
  return [...new Map(chosen.map((fault) => [fault.subject, fault])).values()];
}

const MINUTE_MS = 60_000;

/** Ends with the round in which the time is up, or which was not clean. Each round is told. */
export function soakRow(minutes: number, tell: (line: string) => void): Row {
  return {
    number: 39,
    fault: `soak: one fleet under load for ${minutes} minutes, faults of the other rows at random, up to ${FAULTS_AT_ONCE} at once`,
    async run(rig) {
      const startMs = performance.now();
      const soak = new Soak(rig);
      const struck = new Map<string, number>();
      let [rounds, slowestMs, clean] = [0, 0, true];
      await soak.mend();
      while (clean && performance.now() < startMs + minutes * MINUTE_MS) {
        rounds += 1;
        const faults = someFaults(rig);
        for (const { name } of faults) struck.set(name, (struck.get(name) ?? 0) + 1);
        const { calls, breaches, recoveryMs } = await soak.round(rounds, faults);
        clean = breaches.length === 0;
        slowestMs = Math.max(slowestMs, recoveryMs);
        const minute = ((performance.now() - startMs) / MINUTE_MS).toFixed(1);
        const verdict = clean ? `clean, recovered in ${(recoveryMs / 1_000).toFixed(1)} s` : breaches.join('; ');
        const what = faults.map(({ name }) => name).join(' + ');
        tell(`minute ${minute}, round ${rounds}: ${what}: ${calls} calls, ${verdict}`);
      }
      const count = [...struck.values()].reduce((sum, times) => sum + times, 0);
      const ended = rig.history.calls.filter(hasEnded);
      const succeeded = ended.filter((call) => tellings(call).some(({ told }) => told.kind === 'ok')).length;
      rig.notes.push(
        `${rounds} rounds`,
        `${count} faults of ${struck.size} kinds`,
        `${succeeded} of ${ended.length} calls succeeded`,
        `slowest recovery ${(slowestMs / 1_000).toFixed(1)} s`,
      );
    },
  };
}
