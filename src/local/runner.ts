/**
 * Runs tools in this process, without Redis, workers or a queue, by the fleet's own rules: calls go in through the producer's
 * dispatch and are carried out by the worker's executor. What stands here is what lies between the two in a fleet: a queue that is
 * a loop, records that are a dedupe store, and sessions that are a map.
 */

import type { CallOptions } from '../producer/calls/call-envelope.ts';
import { type Cancellation, cancelCall } from '../producer/calls/cancel.ts';
import { composeSubmitter } from '../producer/calls/compose-submitter.ts';
import { Results } from '../producer/calls/result-waiters.ts';
import type { DispatchEvent, Submission, SubmitOptions } from '../producer/calls/submission.ts';
import type { CallSubmitter } from '../producer/calls/submit-call.ts';
import { CircuitAdmin } from '../producer/circuits/circuit-admin.ts';
import { CircuitView } from '../producer/circuits/circuit-cache.ts';
import { logListenerFailure } from '../producer/sessions/listeners.ts';
import { ListeningSessions } from '../producer/sessions/listening-sessions.ts';
import { Session, type SessionHost } from '../producer/sessions/session.ts';
import type { InvalidParams } from '../producer/sessions/session-events.ts';
import { type ResolvedTool, unknownTool } from '../producer/tools/tool-catalogue.ts';
import type { DedupeStore } from '../shared/calls/dedupe-store.ts';
import type { Hook } from '../shared/calls/define-hook.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { Hooks } from '../shared/calls/hooks.ts';
import type { Settings } from '../shared/config/config.ts';
import { SwitchCache } from '../shared/config/switches.ts';
import { PawlError } from '../shared/errors/failure.ts';
import { needsResourceLock } from '../shared/limits/resource-lock.ts';
import {
  newSession,
  type OpenSession,
  parseOpenSession,
  parseSessionState,
  requireUsable,
  SESSION_TIERS,
  type SessionKind,
  type SessionRecord,
  sessionClosed,
  sessionTaken,
  withTaint,
} from '../shared/sessions/session.ts';
import { type PublishedTool, publishedTool } from '../shared/store/fleet/catalogue.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import type { WorkerEvent } from '../shared/telemetry/call-events.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import {
  type AnyTool,
  type Channels,
  type InputOf,
  type MemoryStore,
  type OutputOf,
  qualifiedName,
  TIERS,
} from '../shared/tools/tool.ts';
import { type Clock, type Random, type Schedule, uuidv7 } from '../shared/util/time.ts';
import { type RegisteredTool, register } from '../workers/attempt/attempt-state.ts';
import type { JobOutcome } from '../workers/attempt/job-outcome.ts';
import { RunningAttempt } from '../workers/attempt/running-attempts.ts';
import { toolsForAgent } from '../workers/context/agent-tools.ts';
import { TerminalHost } from '../workers/context/terminal-host.ts';
import { AttemptLocks } from '../workers/execution/acquire-resource.ts';
import { Executor } from '../workers/execution/execute-job.ts';
import { type Approve, LocalApprovals } from './approvals.ts';
import { LocalCircuits } from './circuits.ts';
import { LocalLedger } from './ledger.ts';
import { LocalResourceLocks } from './resource-locks.ts';

export interface RunnerDeps {
  readonly tools: readonly AnyTool[];
  readonly settings: Settings;
  readonly store: DedupeStore;
  readonly clock: Clock;
  readonly schedule: Schedule;
  /** Schedules the runner's own periodic work; must keep no process alive. */
  readonly background: Schedule;
  /** Waits between two attempts. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly random: Random;
  readonly log: Logger;
  readonly workspaceRoot: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly hooks?: readonly Hook[];
  readonly memory?: MemoryStore;
  readonly channels?: Channels;
  /** Without it, what a person must approve is denied. */
  readonly approve?: Approve;
  readonly onEvent: (event: DispatchEvent | WorkerEvent) => void;
}

export interface RunOptions extends CallOptions {
  /** Default: one session for each kind. */
  readonly sessionKey?: string;
  readonly actorId?: string;
  readonly kind?: SessionKind;
}

const INBOX = 'local';
const RENEW_MS = 30_000;
const SWEEP_MS = 60_000;
/** After the grace period, interrupted attempts have this long to be written. */
const INTERRUPT_MS = 5_000;

export class LocalRunner implements SessionHost, AsyncDisposable {
  /** An operator's view of the circuits: list, force open, reset. */
  readonly circuits: CircuitAdmin;
  readonly store: DedupeStore;
  readonly listening = new ListeningSessions();
  readonly #parts: RunnerDeps;
  readonly #tools: ReadonlyMap<string, RegisteredTool>;
  readonly #ledger: LocalLedger;
  readonly #results: Results;
  readonly #submitter: CallSubmitter;
  readonly #executor: Executor;
  readonly #terminals: TerminalHost;
  readonly #locks = new LocalResourceLocks();
  readonly #sessions = new Map<string, SessionRecord>();
  readonly #running = new Map<string, RunningAttempt>();
  readonly #working = new Set<Promise<void>>();
  readonly #closing = Promise.withResolvers<void>();
  #stopTimers: (() => void)[] = [];
  #closed: Promise<void> | undefined;

  /** Throws `CONFIGURATION` for tools that cannot be offered together. */
  constructor(parts: RunnerDeps) {
    const { settings, store, clock, schedule, log, tools } = parts;
    const onError = (error: Error) => log.warn({ error: error.message }, 'dedupe store');
    this.#parts = parts;
    this.store = store;
    this.#tools = register(tools);
    const seen = new CircuitView(clock);
    const breakers = new LocalCircuits(clock, (broadcast) => seen.learn(broadcast));
    this.#ledger = new LocalLedger({
      store,
      circuits: breakers,
      schedule,
      retentionMs: settings.ttl.doneMs,
      onJob: (job) => this.#start(job),
      onEvent: (event) => this.#results.deliver(event),
      onStop: (callId, reason) => this.#running.get(callId)?.abort(reason),
      onError,
    });
    this.#results = new Results(this.#ledger, INBOX, onError);
    const catalogue = this.#catalogue();
    const switches = new SwitchCache(settings.reliability);
    const hooks = new Hooks(parts.hooks ?? [], {
      schedule,
      onFailure: (hook, kind, message) =>
        log.warn({ event: 'hook_failed', hook, kind, error: message }, 'a hook failed'),
    });
    this.circuits = new CircuitAdmin(
      {
        breakers,
        ledger: this.#ledger,
        tools: async () => [...catalogue.values()],
      },
      TIERS.map(homePartition),
    );
    const approvals = parts.approve === undefined ? undefined : new LocalApprovals(parts.approve, schedule);
    this.#submitter = composeSubmitter({
      settings,
      ...(approvals === undefined ? {} : { approvals }),
      ledger: this.#ledger,
      catalogue: {
        peek: (namespace, name) => catalogue.get(`${namespace}.${name}`),
        find: async (namespace, name) => {
          const tool = catalogue.get(`${namespace}.${name}`);
          if (tool !== undefined) return tool;
          throw unknownTool([...catalogue.values()], namespace, name);
        },
      },
      circuits: seen,
      hooks,
      switches,
      results: this.#results,
      inboxId: INBOX,
      clock,
      schedule,
      sessions: {
        peekOf: ({ target }) => requireUsable(this.#session(target.sessionKey), target),
        of: async ({ target }) => requireUsable(this.#session(target.sessionKey), target),
      },
      onEvent: parts.onEvent,
    });
    this.#terminals = new TerminalHost({
      env: parts.environment,
      sandbox: settings.sandbox,
      network: settings.sandboxNetwork === 'on',
    });
    this.#executor = new Executor({
      settings,
      ...(approvals === undefined ? {} : { gate: approvals }),
      backend: { ledger: this.#ledger, breakers },
      workerId: INBOX,
      clock,
      random: parts.random,
      schedule,
      log,
      environment: parts.environment,
      hooks,
      ...(parts.memory === undefined ? {} : { memory: parts.memory }),
      ...(parts.channels === undefined ? {} : { channels: parts.channels }),
      terminals: this.#terminals,
      // There is no other node that could do better.
      nodeCircuits: { run: async (_tool, _policy, job) => (await job()).value, failsInARow: () => false },
      switches,
      ...(tools.some(needsResourceLock) ? { locks: new AttemptLocks(this.#locks, log) } : {}),
      isAlone: true,
      toolNamed: (namespace, name) => this.#tools.get(`${namespace}.${name}`),
      sessionOf: async (sessionKey) => this.#sessions.get(sessionKey),
      toolsOf: (session) =>
        toolsForAgent(session, [...catalogue.values()], { settings, toolPolicyFor: () => undefined }),
      taint: async (sessionKey, source, atMs) => {
        const record = this.#sessions.get(sessionKey);
        if (record !== undefined) this.#sessions.set(sessionKey, withTaint(record, [source], atMs));
      },
      lastPublished: async () => ({ workers: [], seenAtMs: 0 }),
      onEvent: parts.onEvent,
    });
    this.#every(RENEW_MS, () => this.#ledger.renew());
    this.#every(SWEEP_MS, async () => void (await store.sweep()));
  }

  /**
   * Calls a tool and waits for its result: resolves with an envelope for every ending. Rejects with `BACKEND_UNAVAILABLE` when the
   * store cannot take the call, and with `CONTRACT_INVALID` when the session is open as one of another kind.
   */
  async run<T extends AnyTool | string>(
    tool: T,
    params: InputOf<T>,
    options: RunOptions = {},
  ): Promise<ToolResultEnvelope<OutputOf<T>>> {
    const { kind = 'main', sessionKey = `local-${kind}`, actorId, ...call } = options;
    let record = this.#sessions.get(sessionKey);
    record ??= (await this.openSession({ sessionKey, kind, ...(actorId === undefined ? {} : { actorId }) })).record;
    if (record.kind !== kind) {
      const issues = [{ path: 'kind', message: `is ${kind}, but the session is open as a ${record.kind} session` }];
      throw new PawlError('CONTRACT_INVALID', `Session ${JSON.stringify(sessionKey)}: kind ${issues[0]?.message}.`, {
        issues,
      });
    }
    const session = new Session(this, { ...record, actorId: actorId ?? record.actorId }, this.#parts.clock);
    return session.call(tool, params, call);
  }

  // The methods that sessions use.

  refuseNow(envelope: ToolCallEnvelope): Submission | undefined {
    this.#checkOpen();
    return this.#submitter.refuseNow(envelope);
  }

  submit(envelope: ToolCallEnvelope, options?: SubmitOptions): Promise<Submission> {
    return this.#submitter.submit(envelope, options);
  }

  /** Throws `UNKNOWN_CALL`. */
  cancel(callId: string): Promise<Cancellation> {
    const { settings, schedule } = this.#parts;
    const { ttl } = settings;
    return cancelCall({ ledger: this.#ledger, results: this.#results, inboxId: INBOX, ttl, schedule }, callId);
  }

  /** Opens a session. Throws `CONTRACT_INVALID` for what cannot be one, and `UNKNOWN_SESSION` for an unknown parent. */
  async openSession(open: OpenSession = {}): Promise<Session> {
    this.#checkOpen();
    const { clock, workspaceRoot } = this.#parts;
    const asked = parseOpenSession(open);
    const record = newSession(asked, asked.parent === undefined ? undefined : this.#session(asked.parent), {
      sessionKey: uuidv7(clock),
      workspaceRoot,
      createdAtMs: clock.now(),
    });
    if (this.#sessions.has(record.sessionKey)) throw sessionTaken(record.sessionKey);
    this.#sessions.set(record.sessionKey, record);
    return new Session(this, record, clock);
  }

  /** Throws `SESSION_CLOSED`, and `CONTRACT_INVALID` for a state that a session cannot have. */
  async setSessionState(sessionKey: string, state: string): Promise<SessionRecord> {
    const record = this.#session(sessionKey);
    if (record.state === 'closed') throw sessionClosed(sessionKey);
    const changed = { ...record, state: parseSessionState(state) };
    this.#sessions.set(sessionKey, changed);
    for (const { parent, state: now, sessionKey: below } of [...this.#sessions.values()])
      if (parent === sessionKey && now !== 'closed') await this.setSessionState(below, state);
    return changed;
  }

  /** Closes a session and those below it: nothing new is accepted, what runs is cancelled. */
  async closeSession(sessionKey: string): Promise<void> {
    this.#sessions.set(sessionKey, { ...this.#session(sessionKey), state: 'closed' });
    for (const { parent, state, sessionKey: below } of [...this.#sessions.values()])
      if (parent === sessionKey && state !== 'closed') await this.closeSession(below);
    this.#terminals.endSession(sessionKey);
    const calls = this.#ledger.ownCallsOf(sessionKey);
    await Promise.all(calls.map((callId) => this.cancel(callId)));
  }

  listenerFailed(name: string, error: unknown): void {
    logListenerFailure(this.#parts.log, name, error);
  }

  async emitInvalidParams(sessionKey: string, event: InvalidParams): Promise<void> {
    this.listening.emit(sessionKey, event);
  }

  async publishedFor({ kind }: Pick<SessionRecord, 'kind'>): Promise<readonly PublishedTool[]> {
    const catalogue = [...this.#catalogue().values()];
    return catalogue.filter((published) => SESSION_TIERS[kind].includes(published.tier));
  }

  #session(sessionKey: string): SessionRecord {
    const record = this.#sessions.get(sessionKey);
    if (record === undefined)
      throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
    return record;
  }

  #catalogue(): ReadonlyMap<string, ResolvedTool> {
    const nowMs = this.#parts.clock.now();
    return new Map(
      [...this.#tools.values()].map(({ tool, validate }) => [
        qualifiedName(tool),
        { ...publishedTool(tool, nowMs), workers: 1, validate },
      ]),
    );
  }

  // Jobs

  #start(job: CallJob): void {
    const work = this.#work(job).finally(() => this.#working.delete(work));
    this.#working.add(work);
  }

  /** A call's way from its claim to its end, or until the runner closes. */
  async #work(job: CallJob): Promise<void> {
    for (;;) {
      const verdict = await this.#attempt(job);
      if (verdict.kind === 'postponed' || verdict.kind === 'waiting')
        await Promise.race([this.#parts.sleep(verdict.delayMs), this.#closing.promise]);
      else if (verdict.kind === 'waiting-for-lock')
        await Promise.race([this.#locks.granted(job.callId), this.#closing.promise]);
      else if (verdict.kind !== 'released') return;
      if (this.#closed !== undefined) return;
    }
  }

  async #attempt(job: CallJob): Promise<JobOutcome> {
    const { clock, log } = this.#parts;
    const running = new RunningAttempt(job.callId, job.callId, uuidv7(clock), clock.monotonic());
    this.#running.set(job.callId, running);
    try {
      return await this.#executor.execute(job, running);
    } catch (error) {
      const stack = error instanceof Error ? error.stack : String(error);
      log.error({ event: 'worker_defect', callId: job.callId, stack }, 'a call could not be executed');
      this.#ledger.abandon(job.callId);
      return { kind: 'abandoned' };
    } finally {
      this.#running.delete(job.callId);
      running.release();
    }
  }

  #every(intervalMs: number, task: () => Promise<void>): void {
    const { background, log } = this.#parts;
    let stop = () => {};
    const again = () => {
      stop = background(() => {
        again();
        task().catch((error: Error) => log.warn({ error: error.message }, 'dedupe store'));
      }, intervalMs);
    };
    again();
    this.#stopTimers.push(() => stop());
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw new PawlError('BACKEND_UNAVAILABLE', 'This runner is closed.');
  }

  /**
   * Takes no further calls, waits `graceMs` for those that run, then interrupts them. Calls that wait for another attempt, and
   * those that were interrupted before they did anything, end as `DRAINED`. A second call waits for the first.
   */
  close(graceMs: number = this.#parts.settings.drainMs): Promise<void> {
    this.#closed ??= this.#close(graceMs);
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(graceMs: number): Promise<void> {
    // Not before `#closed` is set.
    await Promise.resolve();
    this.#closing.resolve();
    if (!(await this.#workEnds(graceMs))) {
      for (const running of this.#running.values()) running.abort(new PawlError('DRAINED'));
      await this.#workEnds(INTERRUPT_MS);
    }
    for (const stop of this.#stopTimers) stop();
    await this.#terminals.close();
    await this.#ledger.close();
    this.#results.close();
  }

  async #workEnds(limitMs: number): Promise<boolean> {
    const ended = Promise.all(this.#working).then(() => true);
    const { promise: limit, resolve: giveUp } = Promise.withResolvers<boolean>();
    const stopTimer = this.#parts.schedule(() => giveUp(false), limitMs);
    const inTime = await Promise.race([ended, limit]);
    stopTimer();
    return inTime;
  }
}
