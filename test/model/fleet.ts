/**
 * A fleet in one process: runners that share a store, each with its own ways to fail, in virtual time. The rules are the real ones
 * (dispatch, executor, settlement, retry, recovery, circuits); the order in which things happen is fast-check's. What came of it is
 * judged by the fault rig's checker.
 */
import type { Scheduler } from 'fast-check';
import { z } from 'zod';
import { type AnyTool, defineTool, type Session, type ToolContext } from '../../src/index.ts';
import { LocalRunner } from '../../src/local/runner.ts';
import { resolveSettings } from '../../src/shared/config/resolve-settings.ts';
import { PawlError } from '../../src/shared/errors/failure.ts';
import { silentLogger } from '../../src/shared/telemetry/log.ts';
import { type DedupeStore, InMemoryDedupeStore } from '../../src/testing.ts';
import { type Bound, judge, type Verdict } from '../chaos/checker.ts';
import { type CallHistory, History, isEnd } from '../chaos/history.ts';
import type { Ask, Told } from '../chaos/protocol.ts';
import { seeded } from '../chaos/random.ts';
import { toldOf } from '../chaos/told.ts';
import type { EffectLine } from '../journeys/fixtures/effect-log.ts';
import { VirtualTime } from './time.ts';

/** What an attempt does; the last of a call's deeds is repeated. */
export const DEEDS = ['works', 'refused', 'breaks', 'hangs', 'hangs-after', 'slow', 'deaf'] as const;
export type Deed = (typeof DEEDS)[number];
export const TOOLS = ['record_idempotent', 'record_keyed', 'record_probe', 'record_once'] as const;

const DAY_MS = 24 * 3_600_000;
const TIMEOUT_MS = 5_000;
/** Longer than the lease, shorter than its own time limit. */
const SLOW_MS = 150_000;
/** Longer than the time limit and the wind-down after it. */
const DEAF_MS = 10_000;
const MAX_ATTEMPTS = 4;
/** Nothing takes longer once the faults are over: a lease, a takeover, all attempts of a slow call. */
const SETTLE_MS = 60 * 60_000;
/** Records are not forgotten in the middle of a story. */
const HAPPEN_MS = 10 * 60_000;
/** How late timers are in the end, so that a lease runs out in few steps. */
const LATE_MS = 5_000;

const params = z.strictObject({ label: z.string(), deeds: z.array(z.enum(DEEDS)) });

const definitions: readonly AnyTool[] = TOOLS.map((name) =>
  defineTool({
    name,
    version: '1.0.0',
    description: 'Does what its parameters say.',
    tier: 'workspace',
    effects: name.slice('record_'.length) as 'idempotent' | 'keyed' | 'probe' | 'once',
    input: params,
    retry: { maxAttempts: MAX_ATTEMPTS, baseMs: 10, maxElapsedMs: DAY_MS },
    circuit: { consecutiveFailures: 3, cooldownMs: 1_000, probeLeaseMs: 1_000 },
    timeoutMs: TIMEOUT_MS,
    run: () => ({ output: null }),
    ...(name === 'record_probe' ? { probe: () => ({ state: 'unknown' as const }) } : {}),
  }),
);

const settings = resolveSettings({ options: { ttl: { failedMs: DAY_MS, doneMs: DAY_MS, cancelledMs: DAY_MS } } });

/** What a store does otherwise when a rule of it is broken. */
export type BrokenStore = (store: DedupeStore) => Partial<DedupeStore>;

function methodsOf(store: DedupeStore): DedupeStore {
  return {
    setIfNotExists: store.setIfNotExists.bind(store),
    get: store.get.bind(store),
    compareAndSet: store.compareAndSet.bind(store),
    delete: store.delete.bind(store),
    sweep: store.sweep.bind(store),
    size: store.size.bind(store),
    now: store.now.bind(store),
  };
}

/** One process: a runner, and what is wrong with it. */
export interface Machine {
  readonly runner: LocalRunner;
  readonly session: Promise<Session>;
  /** Neither its requests nor their answers reach the other side. */
  cut: boolean;
  condition: 'up' | 'frozen' | 'dead';
  /** What it does as soon as it is thawed. */
  readonly held: (() => void)[];
  /** Asks that have not been answered. */
  pending: number;
}

export class Fleet {
  readonly #scheduler: Scheduler;
  readonly #time = new VirtualTime();
  readonly #random: () => number;
  readonly #store: DedupeStore;
  readonly #history = new History();
  readonly #asks = new Map<CallHistory, Ask>();
  readonly #deeds = new Map<string, readonly Deed[]>();
  /** Calls whose cancellation said that they had not begun. */
  readonly #saidNotRun = new Set<string>();
  readonly #log: EffectLine[] = [];
  readonly #bounds: Bound[] = [];
  readonly #all: Machine[] = [];
  /** Those that take calls, at their places. */
  readonly machines: Machine[];
  /** Tools in the middle of something that they will do whatever happens. */
  #deaf = 0;
  #drains = 0;

  constructor(scheduler: Scheduler, seed: number, partitions: number, broken: BrokenStore = () => ({})) {
    this.#scheduler = scheduler;
    this.#random = seeded(seed).next;
    this.#store = new InMemoryDedupeStore({ clock: this.#time });
    Object.assign(this.#store, broken(methodsOf(this.#store)));
    this.machines = Array.from({ length: partitions }, () => this.#start());
  }

  // Machines

  #start(): Machine {
    const held: (() => void)[] = [];
    const schedule: VirtualTime['schedule'] = (run, afterMs) => {
      let wanted = true;
      const ring = () => this.#when(machine, () => wanted && run());
      const forget = this.#time.schedule(ring, afterMs);
      return () => {
        wanted = false;
        forget();
      };
    };
    const runner = new LocalRunner({
      tools: definitions.map((tool) => ({
        ...tool,
        run: (given, ctx) => this.#run(machine, given as z.output<typeof params>, ctx),
        ...(tool.probe === undefined ? {} : { probe: (given, ctx) => this.#probe(given as { label: string }, ctx) }),
      })),
      settings,
      store: this.#storeOf(() => machine),
      clock: this.#time,
      schedule,
      background: schedule,
      sleep: (ms) => new Promise((resolve) => void schedule(resolve, ms)),
      random: this.#random,
      log: silentLogger,
      workspaceRoot: '/nowhere',
      environment: {},
      onEvent: () => {},
    });
    const session = runner.openSession({ sessionKey: 'model' });
    const machine: Machine = { runner, session, cut: false, condition: 'up', held, pending: 0 };
    this.#all.push(machine);
    return machine;
  }

  /** Runs it now, when the machine is thawed, or never. */
  #when(machine: Machine, run: () => void): void {
    if (machine.condition === 'up') run();
    else if (machine.condition === 'frozen') machine.held.push(run);
  }

  /** A moment that fast-check picks, at which the machine is awake. */
  async #step(machine: Machine, what: string): Promise<void> {
    await this.#scheduler.schedule(Promise.resolve(), what);
    await new Promise<void>((resolve) => this.#when(machine, resolve));
  }

  #storeOf(owner: () => Machine): DedupeStore {
    const over = async <T>(what: string, act: () => Promise<T>): Promise<T> => {
      const machine = owner();
      await this.#step(machine, what);
      this.#checkWire(machine);
      const answer = await act();
      await this.#step(machine, `${what}: answer`);
      this.#checkWire(machine);
      return answer;
    };
    const store = this.#store;
    return {
      ...methodsOf(store),
      setIfNotExists: (record) => over('setIfNotExists', () => store.setIfNotExists(record)),
      compareAndSet: (key, version, next) => over('compareAndSet', () => store.compareAndSet(key, version, next)),
      get: async (key) => {
        await this.#step(owner(), 'get');
        this.#checkWire(owner());
        return store.get(key);
      },
    };
  }

  #checkWire(machine: Machine): void {
    if (machine.cut) throw new PawlError('BACKEND_UNAVAILABLE', 'The wire is cut.');
  }

  /** kill -9, and another process in its place. */
  crash(partition: number): void {
    const machine = this.machines[partition];
    if (machine === undefined) return;
    machine.condition = 'dead';
    machine.held.length = 0;
    this.machines[partition] = this.#start();
  }

  /** SIGTERM, and another process in its place. */
  drain(partition: number): void {
    const machine = this.machines[partition];
    if (machine === undefined) return;
    this.#drains += 1;
    void machine.runner.close(1_000);
    this.machines[partition] = this.#start();
  }

  cut(partition: number, on: boolean): void {
    const machine = this.machines[partition];
    if (machine !== undefined) machine.cut = on;
  }

  freeze(partition: number): void {
    const machine = this.machines[partition];
    if (machine !== undefined) machine.condition = 'frozen';
  }

  thawAt(partition: number): void {
    const machine = this.machines[partition];
    if (machine !== undefined) this.#thaw(machine);
  }

  #thaw(machine: Machine): void {
    if (machine.condition !== 'frozen') return;
    machine.condition = 'up';
    for (const run of machine.held.splice(0)) run();
  }

  // Tools

  async #run(machine: Machine, { label, deeds }: z.output<typeof params>, ctx: ToolContext) {
    this.#note(ctx, 'begin');
    const deed = deeds[Math.min(ctx.attempt, deeds.length) - 1] ?? 'works';
    await this.#step(machine, deed);
    switch (deed) {
      case 'works':
        break;
      case 'refused':
        throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', syscall: 'connect' });
      case 'breaks':
        throw new Error('a defect');
      case 'hangs':
        await this.#wait(machine, DAY_MS, ctx.signal);
        break;
      case 'hangs-after':
        this.#note(ctx, 'effect');
        await this.#wait(machine, DAY_MS, ctx.signal);
        return { output: { label } };
      case 'slow':
        await this.#wait(machine, SLOW_MS, ctx.signal);
        break;
      case 'deaf':
        this.#deaf += 1;
        await this.#wait(machine, DEAF_MS).finally(() => {
          this.#deaf -= 1;
        });
        break;
    }
    this.#note(ctx, 'effect');
    await this.#step(machine, 'after the effect');
    return { output: { label } };
  }

  async #probe({ label }: { label: string }, { idempotencyKey }: ToolContext) {
    const done = this.#log.some(({ key, phase }) => key === idempotencyKey && phase === 'effect');
    return done ? { state: 'done' as const, result: { output: { label } } } : { state: 'not-done' as const };
  }

  #wait(machine: Machine, ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#time.schedule(() => this.#when(machine, resolve), ms);
      signal?.addEventListener('abort', () => this.#when(machine, () => reject(signal.reason)), { once: true });
    });
  }

  #note({ callId, idempotencyKey: key, attempt, fence }: ToolContext, phase: EffectLine['phase']): void {
    this.#log.push({ callId, key, attempt, fence, phase, pid: 0, mono: this.#time.monotonic() });
  }

  // Calls

  /** A key stands for one tool, and with its label for what the first one asked for. */
  askAt(partition: number, key: string, label: string, deeds: readonly Deed[]): void {
    const machine = this.machines[partition];
    const tool = TOOLS[key.charCodeAt(0) % TOOLS.length] ?? 'record_once';
    const given = this.#deeds.get(`${key} ${label}`) ?? deeds;
    this.#deeds.set(`${key} ${label}`, given);
    if (machine !== undefined) void this.ask(machine, { tool, key, params: { label, deeds: given } });
  }

  /** Asks, and notes whatever is told, whenever. */
  ask(machine: Machine, ask: Ask): Promise<Told> {
    const call = this.#history.invoked(ask);
    const label = String(ask.params['label']);
    machine.pending += 1;
    return this.#told(machine, ask, call).then((told) => {
      this.#history.told(call, told, label);
      machine.pending -= 1;
      return told;
    });
  }

  async #told(machine: Machine, { tool, key, params: given }: Ask, call: CallHistory): Promise<Told> {
    try {
      const submission = await (await machine.session).submit(tool, given, { idempotencyKey: key });
      const { callId } = submission;
      const refused = submission.kind === 'answered' && submission.result.error?.code === 'IDEMPOTENCY_CONFLICT';
      if (callId !== undefined && !refused) {
        this.#history.accepted(call, callId);
        this.#asks.set(call, { tool, key, params: given });
      }
      const told = toldOf(await submission.result);
      // The runner was closed before it knew: no end.
      return told.kind === 'fail' && told.code === 'DRAINED' ? { ...told, kind: 'info' } : told;
    } catch (error) {
      const { code, message } = error as PawlError;
      return { kind: 'info', code, message };
    }
  }

  /** Cancels a call from a machine, and holds the answer against what happened. */
  cancel(partition: number, key: string): void {
    const call = this.#history.calls.find(({ name }) => name === key);
    if (call?.callId === undefined) return;
    this.machines[partition]?.runner.cancel(call.callId).then(
      ({ settlement }) => {
        if (settlement === 'cancelled-before-start') this.#saidNotRun.add(key);
      },
      () => {},
    );
  }

  // The course of things

  /** Lets so many things happen, in the order of the schedule; time passes only when nothing else can. */
  async happen(steps: number): Promise<void> {
    const untilMs = this.#time.now() + HAPPEN_MS;
    for (let step = 0; step < steps; step += 1) if (!(await this.#next(untilMs))) return;
  }

  async pass(ms: number): Promise<void> {
    const untilMs = this.#time.now() + ms;
    // What is under way stays under way: slow answers arrive after this time.
    while (this.#time.next(untilMs)) await idle();
    this.#time.reach(untilMs);
  }

  async #next(untilMs: number, lateMs = 0): Promise<boolean> {
    await idle();
    if (this.#scheduler.count() > 0) {
      await this.#scheduler.waitOne();
      return true;
    }
    return this.#time.next(untilMs, lateMs);
  }

  async #until(condition: () => boolean): Promise<void> {
    const untilMs = this.#time.now() + SETTLE_MS;
    for (;;) {
      if (condition() || !(await this.#next(untilMs, LATE_MS))) break;
    }
  }

  /** Ends all faults, asks after every call that was acknowledged until each has ended, and judges. */
  async judged(): Promise<Verdict> {
    for (const machine of this.#all) {
      machine.cut = false;
      this.#thaw(machine);
    }
    const awake = this.#all.filter(({ condition }) => condition === 'up');
    await this.#until(() => this.#deaf === 0 && awake.every(({ pending }) => pending === 0));
    const observer = this.#start();
    const open = new Set(this.#history.calls.filter(({ callId }) => callId !== undefined));
    for (const call of open) {
      const again = async () => {
        const ask = this.#asks.get(call);
        const told = ask === undefined ? undefined : await this.ask(observer, ask);
        if (told !== undefined && !isEnd(told)) await again();
        else open.delete(call);
      };
      void again();
    }
    await this.#until(() => open.size === 0);
    this.#countAttempts();
    return judge(this.#history.calls, this.#log, this.#bounds);
  }

  #countAttempts(): void {
    // What a drain interrupts and hands back does not count as an attempt. A last one that is lost is followed by another.
    const atMost = MAX_ATTEMPTS + 1 + this.#drains;
    const begins = this.#log.filter(({ phase }) => phase === 'begin');
    for (const [key, lines] of Map.groupBy(begins, ({ key }) => key)) {
      const again = lines.length - new Set(lines.map(({ attempt }) => attempt)).size;
      this.#bounds.push({ invariant: 'I7', what: `attempts of ${key}`, value: lines.length, atMost });
      this.#bounds.push({
        invariant: 'I7',
        what: `attempts of ${key} that began twice`,
        value: again,
        atMost: this.#drains,
      });
    }
    const ran = [...this.#saidNotRun].filter((key) => begins.some((line) => line.key === key));
    this.#bounds.push({ invariant: 'I7', what: 'calls that ran and were said not to', value: ran.length, atMost: 0 });
  }
}

/** Whatever can go on without another step of the schedule has gone on. */
function idle(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
