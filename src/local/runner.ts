/**
 * Runs tools in this process, without Redis, workers or a queue, by the fleet's rules: the producer's submitter and the worker's
 * executor. This module replaces what is between the two in a fleet: the queue is a loop, the records are a dedupe store, and the
 * sessions are a map.
 */
import { isNativeError } from 'node:util/types';
import type { CallOptions } from '../producer/calls/call-envelope.ts';
import type { Cancellation } from '../producer/calls/cancel.ts';
import type { Submission, SubmitOptions } from '../producer/calls/submission.ts';
import type { CircuitAdmin } from '../producer/circuits/circuit-admin.ts';
import type { CompletionAnswer } from '../producer/completions/completion-service.ts';
import { ListeningSessions } from '../producer/sessions/listening-sessions.ts';
import { Session, type SessionHost } from '../producer/sessions/session.ts';
import type { InvalidParams } from '../producer/sessions/session-events.ts';
import type { Completion } from '../shared/calls/completion.ts';
import type { DedupeStore } from '../shared/calls/dedupe-store.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { stackOf } from '../shared/errors/classify-error.ts';
import { PawlError, reasonOf } from '../shared/errors/failure.ts';
import { checkObject } from '../shared/schema/known-members.ts';
import type { SessionKind } from '../shared/sessions/channel-kinds.ts';
import { type OpenSession, SESSION_TIERS, type SessionRecord } from '../shared/sessions/session.ts';
import type { PublishedTool } from '../shared/store/fleet/catalogue.ts';
import type { CallJob } from '../shared/store/queues/jobs.ts';
import { logListenerFailure } from '../shared/telemetry/listeners.ts';
import type { AnyTool, InputOf, OutputOf } from '../shared/tools/tool.ts';
import { uuidv7 } from '../shared/util/time.ts';
import { withinMs } from '../shared/util/wait.ts';
import type { JobOutcome } from '../workers/attempt/job-outcome.ts';
import { RunningAttempt } from '../workers/attempt/running-attempts.ts';
import { type ComposedRunner, composeRunner, type RunnerDeps } from './compose-runner.ts';
import type { LocalGroups } from './groups.ts';
import { LocalResourceLocks } from './resource-locks.ts';
import { LocalSessions } from './sessions.ts';

export interface RunOptions extends CallOptions {
  /** Default: one session for each kind. */
  readonly sessionKey?: string;
  readonly actorId?: string;
  readonly kind?: SessionKind;
}

const RENEW_MS = 30_000;
const SWEEP_MS = 60_000;
/** After the grace period, interrupted attempts have this long to be written. */
const INTERRUPT_MS = 5_000;

export class LocalRunner implements SessionHost, AsyncDisposable {
  /** Lists circuits, forces them open and resets them. */
  readonly circuits: CircuitAdmin;
  readonly store: DedupeStore;
  readonly listening = new ListeningSessions();
  /** Batches and plans, which end with this runner. */
  readonly batches: LocalGroups['batches'];
  readonly plans: LocalGroups['plans'];
  readonly #deps: RunnerDeps;
  readonly #parts: ComposedRunner;
  readonly #locks = new LocalResourceLocks();
  readonly #sessions: LocalSessions;
  readonly #running = new Map<string, RunningAttempt>();
  readonly #jobs = new Set<Promise<void>>();
  readonly #closing = Promise.withResolvers<void>();

  #stopTimers: (() => void)[] = [];
  #closed: Promise<void> | undefined;

  /** Throws `CONFIGURATION` for tools that cannot be offered together. */
  constructor(deps: RunnerDeps) {
    this.#deps = deps;
    this.store = deps.store;
    this.#sessions = new LocalSessions(deps.clock, deps.workspaceRoot);
    this.#parts = composeRunner(deps, this.#sessions, this.#locks, {
      onJob: (job) => this.#start(job),
      onStop: (callId, reason) => this.#running.get(callId)?.abort(reason),
    });
    const { circuits, groups } = this.#parts;
    this.circuits = circuits;
    this.batches = groups.batches;
    this.plans = groups.plans;
    this.#every(RENEW_MS, () => this.#parts.ledger.own.prolong());
    this.#every(SWEEP_MS, async () => void (await this.store.sweep()));
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
    checkObject('options', options);
    const { kind = 'main', sessionKey = `local-${kind}`, actorId, ...call } = options;
    let record = this.#sessions.peek(sessionKey);
    record ??= (await this.openSession({ sessionKey, kind, ...(actorId !== undefined && { actorId }) })).record;
    if (record.kind !== kind) {
      const message = `is ${kind}, but the session is open as a ${record.kind} session`;
      const issues = [{ path: 'kind', message }];
      throw new PawlError('CONTRACT_INVALID', `Session ${JSON.stringify(sessionKey)}: kind ${message}.`, { issues });
    }
    const session = new Session(this, { ...record, actorId: actorId ?? record.actorId }, this.#deps.clock);
    return session.call(tool, params, call);
  }

  // The methods that sessions use.

  refuseNow(envelope: ToolCallEnvelope): Submission | undefined {
    this.#checkOpen();
    return this.#parts.submitter.refuseNow(envelope);
  }

  async submit(envelope: ToolCallEnvelope, options?: SubmitOptions): Promise<Submission> {
    return this.#parts.submitter.submit(envelope, options);
  }

  /** Throws `UNKNOWN_CALL`. */
  cancel(callId: string): Promise<Cancellation> {
    return this.#parts.cancel(callId);
  }

  /** Completes a call that waits for an outside system, as `pawl.complete` does. */
  complete(token: string, completion: Completion): Promise<CompletionAnswer> {
    return this.#parts.completions.complete(token, completion);
  }

  /** Opens a session. Throws `CONTRACT_INVALID` for an invalid request, and `UNKNOWN_SESSION` for an unknown parent. */
  async openSession(open: OpenSession = {}): Promise<Session> {
    this.#checkOpen();
    return new Session(this, this.#sessions.open(open), this.#deps.clock);
  }

  /** Throws `SESSION_CLOSED`, and `CONTRACT_INVALID` for a state that a session cannot have. */
  async setSessionState(sessionKey: string, state: string): Promise<SessionRecord> {
    return this.#sessions.setState(sessionKey, state);
  }

  /** Closes a session and its descendants: new calls are refused, and running ones cancelled. */
  async closeSession(sessionKey: string): Promise<void> {
    for (const closed of this.#sessions.close(sessionKey)) {
      this.#parts.terminals.endSession(closed);
      await Promise.all(this.#parts.ledger.own.ofSession(closed).map((callId) => this.cancel(callId)));
    }
  }

  listenerFailed(name: string, error: unknown): void {
    logListenerFailure(this.#deps.log, name, error);
  }

  async emitInvalidParams(sessionKey: string, event: InvalidParams): Promise<void> {
    this.listening.emit(sessionKey, event);
  }

  async publishedFor({ kind }: Pick<SessionRecord, 'kind'>): Promise<readonly PublishedTool[]> {
    return this.#parts.tools.published().filter(({ tier }) => SESSION_TIERS[kind].includes(tier));
  }

  // Jobs

  #start(job: CallJob): void {
    const work = this.#runJob(job)
      .catch((error: unknown) => this.#giveUp(job, error))
      .finally(() => this.#jobs.delete(work));
    this.#jobs.add(work);
  }

  /**
   * Ends a call that cannot go on: a function of the program failed that no attempt answers for, such as its store. A store that is only
   * away does not end it: the call may go on in another process.
   */
  async #giveUp({ callId }: CallJob, error: unknown): Promise<void> {
    const { own } = this.#parts.ledger;
    const { log } = this.#deps;
    log.error({ event: 'worker_defect', callId, stack: stackOf(error) }, 'a call could not be executed');
    const cause = isNativeError(error) && error instanceof PawlError ? error : undefined;
    if (cause?.code === 'BACKEND_UNAVAILABLE') own.abandon(callId);
    else await own.fail(callId, cause ?? new PawlError('CONFIGURATION', reasonOf(error)));
  }

  /** Runs a call's attempts until it has ended, or the runner closes. */
  async #runJob(job: CallJob): Promise<void> {
    const { own } = this.#parts.ledger;
    if (own.get(job.callId)?.phase === 'delayed') {
      await own.untilStart(job.callId);
      if (this.#closed !== undefined) return;
    }
    do {
      const outcome = await this.#attempt(job);
      if (outcome.kind === 'postponed' || outcome.kind === 'waiting')
        await Promise.race([this.#deps.sleep(outcome.delayMs), this.#closing.promise]);
      else if (outcome.kind === 'pending') await own.wait(job.callId, outcome.expiresAtMs - this.#deps.clock.now());
      else if (outcome.kind === 'waiting-for-lock')
        await Promise.race([this.#locks.granted(job.callId), this.#closing.promise]);
      else if (outcome.kind !== 'released') return;
    } while (this.#closed === undefined);
  }

  async #attempt(job: CallJob): Promise<JobOutcome> {
    const { clock } = this.#deps;
    const running = new RunningAttempt(job.callId, job.callId, uuidv7(clock), clock.monotonic());
    this.#running.set(job.callId, running);
    try {
      return await this.#parts.executor.execute(job, running);
    } finally {
      this.#running.delete(job.callId);
      running.release();
    }
  }

  #every(intervalMs: number, task: () => Promise<void>): void {
    const { background, log } = this.#deps;
    let stop = () => {};
    const schedule = () => {
      stop = background(() => {
        schedule();
        task().catch((error: Error) => log.warn({ error: error.message }, 'dedupe store'));
      }, intervalMs);
    };
    schedule();
    this.#stopTimers.push(() => stop());
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw new PawlError('BACKEND_UNAVAILABLE', 'This runner is closed.');
  }

  /**
   * Accepts no further calls, waits `graceMs` for the running ones, then interrupts them. Calls that wait for another attempt, or were
   * interrupted before they did anything, end with `DRAINED`. A second call waits for the first.
   */
  close(graceMs: number = this.#deps.settings.drainMs): Promise<void> {
    this.#closed ??= this.#close(graceMs);
    return this.#closed;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(graceMs: number): Promise<void> {
    // The rest runs after `#closed` is set.
    await Promise.resolve();
    this.#closing.resolve();
    await this.#parts.groups.close();
    this.#parts.ledger.own.wakeAll();
    const { schedule } = this.#deps;
    if ((await withinMs(Promise.all(this.#jobs), graceMs, schedule)) === undefined) {
      for (const running of this.#running.values()) running.abort(new PawlError('DRAINED'));
      await withinMs(Promise.all(this.#jobs), INTERRUPT_MS, schedule);
    }
    for (const stop of this.#stopTimers) stop();
    await this.#parts.terminals.close();
    await this.#parts.ledger.own.close();
    this.#parts.results.close();
  }
}
