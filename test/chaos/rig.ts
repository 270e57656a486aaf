/** What a row works with: a Redis of its own, processes of one stack, an effect log outside of both, and the history. */
import { existsSync, mkdirSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startWire, type Wire } from '../helpers/proxy.ts';
import { eventually } from '../helpers/signal.ts';
import { type EffectLine, readEffects } from '../journeys/fixtures/effect-log.ts';
import type { Bound } from './checker.ts';
import { type Child, startChild } from './child.ts';
import { type CallHistory, History, hasEnded, isEnd } from './history.ts';
import type { Ask, Deed, PlanOrder, Question, RedriveOrder, Reply, Told } from './protocol.ts';
import type { Random } from './random.ts';
import { type Server, startServer } from './server.ts';

export const LEASE_MS = 1_500;
export const STALLED_MS = 500;
/** I8: nothing may be stuck longer than this after the fault. */
export const SETTLE_MS = 12_000;
/** A client that hears nothing for so long does not know. */
const DEAF_MS = 15_000;

export const STACKS = ['pawl', 'naive'] as const;
export type StackName = (typeof STACKS)[number];

export interface Producer extends Child {
  /** Asks once; resolves with what it was told, `info` when the producer died or said nothing. */
  call(ask: Ask): Promise<Told>;
  look(callId: string): Promise<Told>;
  act(callId: string, deed: Deed): Promise<Told>;
  /** Makes calls that fail, of which the history knows nothing. */
  fill(asks: readonly Ask[]): Promise<Told>;
  redrive(order: RedriveOrder): Promise<Told>;
  plan(order: PlanOrder): Promise<Told>;
  /** How many calls have failed, and were not run again. Rejects when nobody knows. */
  failed(): Promise<number>;
}

export interface RigOptions {
  readonly stack: StackName;
  readonly folder: string;
  readonly random: Random;
  readonly redisOptions?: readonly string[];
  /** Where Redis keeps its files; default: a folder below `folder`. */
  readonly redisFolder?: string;
  readonly env?: Readonly<Record<string, string>>;
}

export class Rig implements AsyncDisposable {
  readonly stack: StackName;
  readonly folder: string;
  readonly random: Random;
  readonly server: Server;
  readonly history = new History();
  readonly workers: Child[] = [];
  readonly bounds: Bound[] = [];
  readonly notes: string[] = [];
  /** Asks that got no answer at all. */
  silences = 0;
  #env: Readonly<Record<string, string>>;
  readonly #parts: AsyncDisposable[] = [];
  readonly #effectLog: string;
  readonly #earlierLogs: string[] = [];
  #healedAtMs: number | undefined;

  static async open(options: RigOptions): Promise<Rig> {
    mkdirSync(options.folder, { recursive: true });
    const server = await startServer(options.redisFolder ?? join(options.folder, 'redis'), options.redisOptions);
    return new Rig(options, server);
  }

  private constructor({ stack, folder, random, env = {} }: RigOptions, server: Server) {
    this.stack = stack;
    this.folder = folder;
    this.random = random;
    this.server = server;
    this.#effectLog = join(folder, 'effects.jsonl');
    this.#env = {
      REDIS_URL: server.url,
      PAWL_LOCK_DURATION_MS: String(LEASE_MS),
      PAWL_STALLED_INTERVAL_MS: String(STALLED_MS),
      PAWL_WORKSPACE_ROOT: folder,
      PAWL_DATA_DIR: join(folder, 'data'),
      PAWL_DRAIN_MS: '1000',
      EFFECT_LOG: this.#effectLog,
      CONCURRENCY: '8',
      LOG_LEVEL: 'silent',
      ...env,
    };
  }

  // Processes

  async worker(env: Readonly<Record<string, string>> = {}): Promise<Child> {
    const worker = this.#own(await startChild(`${this.stack}-worker`, { ...this.#env, ...env }));
    this.workers.push(worker);
    return worker;
  }

  async producer(env: Readonly<Record<string, string>> = {}): Promise<Producer> {
    const child = this.#own(await startChild(`${this.stack}-producer`, { ...this.#env, ...env }));
    const waiting = new Map<number, { told: (told: Told) => void; accepted?: (callId: string) => void }>();
    let lastId = 0;
    child.process.on('message', (message) => {
      const reply = message as Reply;
      if (reply.kind === 'accepted') waiting.get(reply.id)?.accepted?.(reply.callId);
      else if (reply.kind === 'told') waiting.get(reply.id)?.told(reply.told);
    });
    const question = (ask: (id: number) => Question, accepted?: (callId: string) => void) =>
      new Promise<Told>((resolve) => {
        lastId += 1;
        const id = lastId;
        const told = (answer: Told) => {
          clearTimeout(timer);
          waiting.delete(id);
          resolve(answer);
        };
        const dunno = (code: string) => told({ kind: 'info', code, message: 'nobody answered' });
        const timer = setTimeout(() => {
          this.silences += 1;
          dunno('SILENCE');
        }, DEAF_MS);
        waiting.set(id, { told, ...(accepted === undefined ? {} : { accepted }) });
        if (child.process.connected) child.process.send(ask(id), (error) => error && dunno('PRODUCER_DIED'));
        else dunno('PRODUCER_DIED');
        void child.ended.then(() => waiting.has(id) && dunno('PRODUCER_DIED'));
      });
    const call = async (ask: Ask) => {
      const known = this.history.invoked(ask);
      const told = await question(
        (id) => ({ id, kind: 'call', ask }),
        (callId) => this.history.accepted(known, callId),
      );
      const label = ask.params['label'];
      this.history.told(known, told, typeof label === 'string' ? label : undefined);
      return told;
    };
    return Object.assign(child, {
      call,
      look: (callId: string) => question((id) => ({ id, kind: 'look', callId })),
      act: (callId: string, deed: Deed) => question((id) => ({ id, kind: 'act', callId, deed })),
      fill: (asks: readonly Ask[]) => question((id) => ({ id, kind: 'fill', asks })),
      redrive: (order: RedriveOrder) => question((id) => ({ id, kind: 'redrive', order })),
      plan: (order: PlanOrder) => question((id) => ({ id, kind: 'plan', order })),
      failed: async () => {
        const told = await question((id) => ({ id, kind: 'failed' }));
        if (told.kind !== 'ok') throw new Error(`${told.code}: ${told.message}`);
        return Number(told.output);
      },
    });
  }

  async wire(): Promise<Wire> {
    return this.#own(await startWire(this.server.url));
  }

  /** Processes that start from here on find Redis there. */
  moveTo(redisUrl: string): void {
    this.#env = { ...this.#env, REDIS_URL: redisUrl };
  }

  #own<T extends AsyncDisposable>(part: T): T {
    this.#parts.push(part);
    return part;
  }

  /** The worker in which a call has begun. */
  workerOf(line: EffectLine): Child {
    const worker = this.workers.find(({ pid }) => pid === line.pid);
    if (worker === undefined) throw new Error(`no worker has the process ID ${line.pid}`);
    return worker;
  }

  // Calls

  /** Asks, as a patient client would, until it is told an end. */
  async persist(producer: Producer, ask: Ask, deadlineMs = SETTLE_MS): Promise<Told> {
    const endMs = performance.now() + deadlineMs;
    for (;;) {
      const told = await producer.call(ask);
      if (told.kind !== 'info' || performance.now() > endMs || !producer.alive) return told;
      await new Promise((next) => setTimeout(next, 100));
    }
  }

  /** Under which Redis has acknowledged it. */
  acknowledged(ask: Ask): Promise<string> {
    const callId = () => this.history.calls.find(({ name }) => name === ask.key)?.callId;
    return eventually(callId, { what: `the acknowledgement of ${ask.key}` });
  }

  effects(key?: string): readonly EffectLine[] {
    const lines = [...this.#earlierLogs, this.#effectLog].flatMap(readEffects);
    return lines.filter((line) => key === undefined || line.key === key);
  }

  /** Since the log was turned over for the last time. */
  latestEffects(): readonly EffectLine[] {
    return readEffects(this.#effectLog);
  }

  /** What comes from here on is written to a new file: tools that look something up in a long one would stand still. */
  turnLogOver(): void {
    const earlier = `${this.#effectLog}.${this.#earlierLogs.length}`;
    if (!existsSync(this.#effectLog)) return;
    renameSync(this.#effectLog, earlier);
    this.#earlierLogs.push(earlier);
  }

  /** The first line of a call in this phase. */
  reached(key: string, phase: EffectLine['phase']): Promise<EffectLine> {
    return eventually(() => this.effects(key).find((line) => line.phase === phase), { what: `the ${phase} of ${key}` });
  }

  /** A file that does not exist yet; tools can wait for it. */
  gate(name: string): { readonly path: string; open(): void } {
    const path = join(this.folder, name);
    return { path, open: () => writeFileSync(path, '') };
  }

  // The end

  /** The fault is over: from here on recovery is timed. */
  healed(): void {
    this.#healedAtMs = performance.now();
  }

  bound(invariant: Bound['invariant'], what: string, value: number, atMost: number): void {
    this.bounds.push({ invariant, what, value, atMost });
  }

  /** Asks, from a producer of its own, after every call that was acknowledged, until each has ended or the time is up. */
  async settle(
    pending: readonly Promise<unknown>[] = [],
    calls: readonly CallHistory[] = this.history.calls,
    withinMs = SETTLE_MS,
  ): Promise<void> {
    await using observer = await this.producer();
    const endMs = performance.now() + withinMs;
    const open = new Set(calls.filter(({ callId }) => callId !== undefined));
    while (open.size > 0 && performance.now() < endMs) {
      await Promise.all([...open].map((call) => this.#lookAt(observer, call, open)));
      if (open.size > 0) await new Promise((next) => setTimeout(next, 100));
    }
    await Promise.all(pending);
  }

  async #lookAt(observer: Producer, call: CallHistory, open: Set<CallHistory>): Promise<void> {
    const told = await observer.look(call.callId ?? '');
    // A lost end that somebody was told of before counts as told; a missing record never comes back.
    if (told.kind === 'info') return;
    this.history.told(call, told);
    open.delete(call);
  }

  /** Between the end of the fault and the last end that somebody was told first. */
  get recoveryMs(): number | undefined {
    if (this.#healedAtMs === undefined) return undefined;
    const firsts = this.history.calls.filter(hasEnded).map(({ events }) => {
      const first = events.find((event) => event.kind === 'told' && isEnd(event.told));
      return first?.atMs ?? 0;
    });
    return Math.max(0, Math.max(...firsts) - this.#healedAtMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // Processes first: they would wait for a server that is gone.
    for (const part of this.#parts.reverse()) await part[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
  }
}
