/**
 * One job, from the queue to the ledger, as steps that read aloud:
 *
 * begin     take the next fence, or learn that there is nothing to do
 * admit     pass the fleet's circuit, be its probe, or be refused
 * recover   decide what became of an attempt that left no record, and whether configuration forces the circuit open
 * pace      wait, without holding anything, until the fleet's limits let the call start
 * prepare   tool, permission, parameters, context: all from this worker's own registry, nothing from the job
 * take turns  wait until nobody else changes the resource that the call works on, where the tool names one
 * secure    bring the begin to disk where the tool's durability asks for it
 * guard     the hooks before the attempt, which may rewrite or deny
 * run       the tool's code, in `attempt.ts`, and the hooks after it
 * judge     settle, try again later, hand back, or leave it to others
 *
 * Each step takes what the one before returned, or ends the job with a verdict.
 */
import type { RecordAudit } from '../shared/audit.ts';
import { type CircuitPolicy, type CircuitState, circuitPolicy } from '../shared/breaker.ts';
import { recovery, settlementOfAborted } from '../shared/call.ts';
import { type Settings, toolPolicy } from '../shared/config.ts';
import { durabilityOf } from '../shared/durability.ts';
import type { ToolCallEnvelope } from '../shared/envelope.ts';
import { classify, type Failure, failureOf, PawlError } from '../shared/failure.ts';
import { placeOf } from '../shared/fingerprint.ts';
import type { Hooks } from '../shared/hooks.ts';
import type { Logger } from '../shared/log.ts';
import { bringsTaint, type Outcome, resultError } from '../shared/outcome.ts';
import { denied, permit, taintOf } from '../shared/policy.ts';
import { redact, secretsIn, secretsOf } from '../shared/redaction.ts';
import { decideRetry, mayRunAgain, retryPolicy } from '../shared/retry.ts';
import { RETRY_BUDGET_EXHAUSTED, retryAllowance } from '../shared/retry-budget.ts';
import type { SessionRecord } from '../shared/session.ts';
import type { BeginAnswer, StartedAttempt } from '../shared/store/begin.ts';
import { parseCircuit } from '../shared/store/breakers.ts';
import type { StoredRequest } from '../shared/store/call-record.ts';
import type { Place } from '../shared/store/keys.ts';
import type { CallJob } from '../shared/store/queues.ts';
import type { CallLedger, CircuitRecords } from '../shared/store/records.ts';
import { DIRECT, type Mode, type ReliabilityModes, type ShadowKind, type Switches } from '../shared/switches.ts';
import type { Clock, Random, Schedule } from '../shared/time.ts';
import { type Channels, type Effects, type MemoryStore, qualifiedName, type ToolResult } from '../shared/tool.ts';
import { resultMetadata } from '../shared/tool-result.ts';
import type { RegistryRule } from '../shared/tool-spec.ts';
import type { WorkerAgents } from './agents.ts';
import type { ApprovalGate } from './approval-gate.ts';
import { type AttemptOptions, type Ending, runProbe, runTool } from './attempt.ts';
import { AttemptHooks } from './attempt-hooks.ts';
import { AttemptAudit } from './audit.ts';
import {
  attemptsWith,
  type Begun,
  nowMs,
  outcomeBase,
  type RegisteredTool,
  remainingMs,
  retriedBy,
  waitedMs,
} from './begun.ts';
import { type Counted, count, mayRunHere, needsConsensus, split, tooFew } from './consensus.ts';
import { contextFor } from './context.ts';
import { type CircuitChange, type CircuitHold, FleetCircuits } from './fleet-circuit.ts';
import { hasDrifted, misfitOf } from './misfit.ts';
import type { NodeCircuits } from './node-circuit.ts';
import type { Pace } from './pace.ts';
import type { RunningAttempt } from './running.ts';
import { type FailureDetails, patiently, Settler, type Verdict } from './settlement.ts';
import type { TerminalHost } from './terminals.ts';
import type { AttemptTraces } from './traces.ts';
import type { AttemptTurns } from './turns.ts';

export interface ExecuteParts {
  readonly settings: Settings;
  readonly backend: { readonly ledger: CallLedger; readonly breakers: CircuitRecords };
  readonly workerId: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Of time limits and of writing again. Default: the system's timers. */
  readonly schedule?: Schedule;
  readonly log: Logger;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly hooks: Hooks;
  readonly memory?: MemoryStore;
  readonly channels?: Channels;
  readonly terminals?: TerminalHost;
  readonly agents?: WorkerAgents;
  readonly nodeCircuits: Pick<NodeCircuits, 'run'>;
  readonly traces?: AttemptTraces;
  readonly switches: Pick<Switches, 'modes'>;
  /** Absent where no tool takes turns. */
  readonly turns?: AttemptTurns;
  /** Limits that hold for the whole fleet. Default: none. */
  readonly pace?: Pick<Pace, 'enter' | 'leave'>;
  /** Without one, what a person must approve is denied. */
  readonly gate?: Pick<ApprovalGate, 'attend' | 'pass' | 'leave'>;
  readonly audit?: RecordAudit;
  /** Whoever ends the jobs writes a success in the same step: the verdict holds what is `unwritten`. Default: no. */
  readonly endsWithJob?: boolean;
  /** There are no other workers: what needs a consensus runs once. Default: no. */
  readonly isAlone?: boolean;
  toolNamed(namespace: string, name: string): RegisteredTool | undefined;
  /** The declared tool that a call was validated with, where it is not, or not yet, the newest one here. */
  readonly toolOf?: (request: StoredRequest) => Promise<RegisteredTool | undefined>;
  /** What the registry says of calls of a tool now. */
  readonly ruleFor?: (tool: { readonly namespace: string; readonly name: string }) => RegistryRule | undefined;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  /** Writes down that a session has seen what a tool brought from outside. */
  taint?(sessionKey: string, source: string, atMs: number): Promise<void>;
  /** When the fleet could last run a call like this one. */
  lastOffered(request: StoredRequest): Promise<{ readonly alive: boolean; readonly seenAtMs: number }>;
  /** Resolves when all that Redis has acknowledged is on its disk; absent where no tool asks for it. */
  readonly onDisk?: () => Promise<void>;
  onEvent(event: ExecuteEvent): void;
}

interface CallEvent {
  readonly callId: string;
  readonly envelope: ToolCallEnvelope;
  readonly attempt: number;
}

/** The seeds' log events (R27), as values. */
export type ExecuteEvent =
  | ({
      readonly type: 'tool_call_start';
      readonly fence: number;
      /** In the queue; of a first attempt. */
      readonly waitedMs?: number;
    } & CallEvent)
  | ({ readonly type: 'tool_call_end'; readonly outcome: Outcome; readonly elapsedMs: number } & CallEvent)
  | ({ readonly type: 'tool_call_retry'; readonly delayMs: number; readonly errorCode: string } & CallEvent)
  /** A retry that the tool's budget does not allow. */
  | ({
      readonly type: 'tool_call_retry_refused';
      readonly errorCode: string;
      readonly bucket: string;
    } & CallEvent)
  | ({
      readonly type: 'tool_call_blocked';
      readonly errorCode: string;
      readonly breakerState: CircuitState;
    } & CallEvent)
  | ({ readonly type: 'tool_call_circuit_state' } & CircuitChange)
  /** What the reliability layer would have done, were it not in shadow mode. */
  | ({ readonly type: 'tool_call_shadow'; readonly kind: ShadowKind; readonly detail: string } & CallEvent);

/** A step's answer: go on with a value, or the job's end. */
type Step<T> = { readonly go: T } | { readonly end: Verdict };

/** How long a job waits when this worker cannot run its tool. */
const ELSEWHERE_MS = 1_000;
/** The same, when another one lives that can: who takes the job next is left to chance. */
const NEXT_WORKER_MS = 200;
/** How long a job waits while this worker runs another one that took a worker down before. */
const ONE_SUSPECT_AT_A_TIME_MS = 500;

export class Executor {
  readonly #parts: ExecuteParts;
  readonly #circuits: FleetCircuits;
  readonly #settler: Settler;
  /** Of this process. */
  readonly #secrets: readonly string[];
  readonly #hooks: AttemptHooks;
  readonly #audit: AttemptAudit;
  /** Attempts whose parameters a person decided on. */
  readonly #decided = new WeakSet<Begun>();
  /** Attempts in which the tool's code was reached. */
  readonly #ran = new WeakSet<Begun>();
  /**
   * The one attempt of this worker whose call already lost one. When a worker dies, all that it ran comes back at once: run
   * together again, the one that killed it would take the others with it until they are all set aside.
   */
  #suspect: RunningAttempt | undefined;

  constructor(parts: ExecuteParts) {
    const { backend, settings, log, schedule } = parts;
    this.#parts = parts;
    this.#secrets = secretsOf(settings, parts.environment);
    this.#settler = new Settler(backend.ledger, settings, log, { schedule, endsWithJob: parts.endsWithJob });
    this.#hooks = new AttemptHooks(parts.hooks);
    this.#audit = new AttemptAudit(parts.audit, log, schedule);
    this.#circuits = new FleetCircuits(
      backend.breakers,
      () => backend.ledger.now(),
      (change) => parts.onEvent({ type: 'tool_call_circuit_state', ...change }),
    );
  }

  /** `begun` is what begin answered already, when the job was taken. */
  async execute(job: CallJob, running: RunningAttempt, begun?: BeginAnswer): Promise<Verdict> {
    try {
      return await this.#execute(job, running, begun);
    } finally {
      if (this.#suspect === running) this.#suspect = undefined;
    }
  }

  async #execute(job: CallJob, running: RunningAttempt, answer: BeginAnswer | undefined): Promise<Verdict> {
    const begun = await (answer === undefined ? this.#begin(job, running) : this.#begun(job, running, answer));
    if ('end' in begun) {
      await this.#parts.turns?.leaveUnused(job, begun.end);
      return begun.end;
    }
    const verdict = await this.#attempt(begun.go).finally(() => this.#parts.pace?.leave(begun.go));
    await this.#parts.turns?.leave(begun.go, verdict);
    if (!this.#ran.has(begun.go)) this.#audit.withoutAttempt(begun.go, verdict);
    await this.#parts.gate?.leave(begun.go, verdict);
    begun.go.trace?.end(verdict);
    return verdict;
  }

  async #attempt(begun: Begun): Promise<Verdict> {
    if (begun.started.takenOver) this.#audit.lost(begun);
    const recovered = await this.#recover(begun);
    if ('end' in recovered) return recovered.end;
    const forced = await this.#refuseForcedOpen(begun);
    if (forced !== undefined) return forced;
    const elsewhere = await this.#leaveToOtherVoters(begun);
    if (elsewhere !== undefined) return elsewhere;
    const paced = await this.#parts.pace?.enter(begun);
    if (paced !== undefined) return this.#wait(begun, paced.waitMs);
    const prepared = await this.#prepare(begun);
    if ('end' in prepared) return prepared.end;
    const turn = await this.#takeTurn(begun, prepared.go.params, true);
    if ('end' in turn) return turn.end;
    const secured = await this.#secure(begun);
    if ('end' in secured) return secured.end;
    const guarded = await this.#guard(begun, prepared.go);
    if ('end' in guarded) return guarded.end;
    const ending = await this.#run(begun, guarded.go);
    this.#ran.add(begun);
    await this.#audit.ended(begun, ending);
    await this.#spend(begun);
    const final = await this.#hooks.after(begun, guarded.go, ending);
    return this.#judge(begun, final, guarded.go.context.changes.unified());
  }

  // begin and admit

  async #begin(
    job: CallJob,
    running: RunningAttempt,
    hold?: Pick<CircuitHold, 'seen' | 'probe'>,
    harmless = false,
  ): Promise<Step<Begun>> {
    const { backend, workerId, settings } = this.#parts;
    const answer = await backend.ledger.begin(job, {
      workerId,
      leaseMs: settings.lockDurationMs,
      token: running.token,
      suspects: harmless || this.#suspect === running ? 'accept' : 'refuse',
      ...(hold === undefined ? {} : { probeEpoch: hold.seen.epoch }),
    });
    return this.#begun(job, running, answer, hold);
  }

  async #begun(
    job: CallJob,
    running: RunningAttempt,
    answer: BeginAnswer,
    hold?: Pick<CircuitHold, 'seen' | 'probe'>,
  ): Promise<Step<Begun>> {
    switch (answer.kind) {
      case 'stale':
      case 'ended':
        return { end: { kind: 'dropped' } };
      case 'awaiting':
        if (this.#parts.gate === undefined) return { end: { kind: 'dropped' } };
        return { end: await this.#parts.gate.attend(answer.approvalId, answer.nowMs, this.#parts.toolNamed) };
      case 'early':
        return { end: { kind: 'later', delayMs: answer.remainingMs } };
      case 'suspect':
        // It is only settled, which takes no worker down.
        if (answer.takenOver && this.#effectsOf(answer.request) === 'once')
          return this.#begin(job, running, hold, true);
        if (this.#suspect !== undefined) return { end: { kind: 'later', delayMs: ONE_SUSPECT_AT_A_TIME_MS } };
        this.#suspect = running;
        return this.#begin(job, running, hold);
      case 'forged':
        return { end: await this.#refuseForged(job, answer.fence) };
      case 'circuit':
        return this.#admit(job, running, answer);
      case 'started':
        return this.#started(job, running, answer, hold?.probe);
    }
  }

  async #started(
    job: CallJob,
    running: RunningAttempt,
    started: StartedAttempt,
    probe: string | undefined,
  ): Promise<Step<Begun>> {
    const { settings, clock, workerId } = this.#parts;
    const { envelope } = started.request;
    running.began(started.fence);
    const named = this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName);
    const registered = this.#isMeant(started.request, named)
      ? named
      : ((await this.#parts.toolOf?.(started.request)) ?? named);
    const misfit = misfitOf(started.request, registered);
    if (registered === undefined || misfit !== undefined)
      return { end: await this.#passOn(job.callId, started, misfit ?? '') };
    if (started.cancelRequested) running.abort(new PawlError('CANCELLED'));
    const policy = toolPolicy(settings, registered.tool);
    const modes = this.#modesOf(started.request, registered);
    const circuit: CircuitHold = {
      place: placeFor(job.callId),
      key: started.circuit,
      policy: this.#circuitPolicy(registered),
      seen: parseCircuit(started.circuitRaw),
      probe,
      bypassed: !modes.enabled,
    };
    const begun: Begun = {
      callId: job.callId,
      generation: job.generation,
      running,
      started,
      envelope,
      registered,
      policy,
      modes,
      retry: retryPolicy(registered.tool.retry, policy.retry, envelope.transport.retryBudget),
      allowance: retryAllowance(qualifiedName(registered.tool), envelope.target.tenantId, policy.retry?.budget),
      circuit,
      attempt: started.earlier.length + 1,
      workerId,
      clock,
      beganMonotonicMs: clock.monotonic(),
      ...(this.#parts.traces === undefined ? {} : { trace: this.#parts.traces.begin(job, started, circuit) }),
    };
    return { go: begun };
  }

  /** Only declared tools change while a worker runs. */
  #isMeant({ tool }: StoredRequest, named: RegisteredTool | undefined): boolean {
    return named !== undefined && (named.definition === tool.definition || named.declared !== true);
  }

  /** A call that was handed in as a direct one stays one. */
  #modesOf(request: StoredRequest, { tool }: RegisteredTool): ReliabilityModes {
    return request.direct === true ? DIRECT : this.#parts.switches.modes(tool);
  }

  /**
   * Another worker of the tier may be able to run the call: the attempt goes back unspent. When the fleet has not offered what the
   * call needs for long, the call ends.
   */
  async #passOn(callId: string, started: StartedAttempt, misfit: string): Promise<Verdict> {
    const { settings, backend, log } = this.#parts;
    const { request, nowMs: atMs, fence, takenOver, earlier } = started;
    const offered = await this.#parts.lastOffered(request);
    const waitedMs = atMs - Math.max(started.firstStartedAtMs, offered.seenAtMs);
    if (offered.alive || waitedMs < settings.toolWaitMs) {
      const delayMs = offered.alive ? NEXT_WORKER_MS : ELSEWHERE_MS;
      // What became of an attempt that left no record stays for a worker to decide that knows the tool.
      await backend.ledger.postpone(callId, fence, 'queued', earlier, delayMs);
      return { kind: 'later', delayMs };
    }
    log.warn({ event: 'tool_unavailable', callId, misfit }, 'no worker could run a call for long');
    const failure = takenOver
      ? failureOf('OUTCOME_UNKNOWN')
      : failureOf('TOOL_UNAVAILABLE', `No worker could run the call for ${Math.round(waitedMs / 1_000)} s: ${misfit}.`);
    const error = resultError(failure, 'error');
    const { toolName } = request.envelope;
    const outcome: Outcome = {
      status: 'error',
      toolName,
      durationMs: 0,
      attempts: earlier.length,
      error,
      ...retriedBy(earlier),
    };
    return this.#settler.refuse(callId, fence, outcome, earlier);
  }

  #effectsOf({ envelope }: StoredRequest): Effects | undefined {
    return this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName)?.tool.effects;
  }

  #circuitPolicy({ tool }: RegisteredTool): CircuitPolicy {
    return circuitPolicy(tool.tier === 'read-only', tool.circuit, toolPolicy(this.#parts.settings, tool).circuit);
  }

  /** The call's circuit is not closed: be its probe, wait, or refuse the call. */
  async #admit(
    job: CallJob,
    running: RunningAttempt,
    answer: Extract<BeginAnswer, { kind: 'circuit' }>,
  ): Promise<Step<Begun>> {
    const { envelope } = answer.request;
    const registered = this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName);
    // Who can run it asks the circuit; who cannot passes it on, closed or not.
    if (registered === undefined || misfitOf(answer.request, registered) !== undefined)
      return this.#begin(job, running, { seen: parseCircuit(answer.circuitRaw), probe: undefined });
    const policy = this.#circuitPolicy(registered);
    const seen = parseCircuit(answer.circuitRaw);
    const modes = this.#modesOf(answer.request, registered);
    const bypassed = !modes.enabled;
    const hold: CircuitHold = {
      place: placeFor(job.callId),
      key: answer.circuit,
      policy,
      seen,
      probe: undefined,
      bypassed,
    };
    if (bypassed) return this.#begin(job, running, hold);
    const holder = `${this.#parts.workerId} ${job.callId} ${answer.fence + 1}`;
    const entry = await this.#circuits.enter(hold, holder, answer.nowMs);
    switch (entry.kind) {
      case 'pass':
      case 'again':
        return this.#begin(job, running);
      case 'probe': {
        const begun = await this.#begin(job, running, entry.hold);
        if ('end' in begun) await this.#circuits.release(entry.hold);
        return begun;
      }
      case 'refuse':
        if (modes.circuits !== 'on') {
          const attempt = answer.earlier.length + 1;
          this.#tellShadow(modes.circuits, { callId: job.callId, envelope, attempt }, 'refused', seen.state);
          return this.#begin(job, running, hold);
        }
        if (policy.whenOpen === 'park') return { end: { kind: 'later', delayMs: entry.retryAfterMs } };
        return { end: await this.#refuse(job, answer, seen.state, entry.retryAfterMs) };
    }
  }

  #refuse(
    { callId }: CallJob,
    { fence, request, earlier }: Extract<BeginAnswer, { kind: 'circuit' }>,
    breakerState: CircuitState,
    retryAfterMs: number,
  ): Promise<Verdict> {
    const { envelope } = request;
    const failure = failureOf('CIRCUIT_OPEN', undefined, { retryAfterMs });
    const outcome: Outcome = {
      status: 'circuit_open',
      toolName: envelope.toolName,
      durationMs: 0,
      attempts: earlier.length,
      error: resultError(failure, 'circuit_open', breakerState),
      ...retriedBy(earlier),
    };
    const event = { callId, envelope, attempt: earlier.length, errorCode: failure.code, breakerState };
    this.#parts.onEvent({ type: 'tool_call_blocked', ...event });
    return this.#settler.refuse(callId, fence, outcome, earlier);
  }

  #refuseForged({ callId }: CallJob, fence: number): Promise<Verdict> {
    this.#parts.log.error({ event: 'signature_invalid', callId }, 'a call without a valid signature was refused');
    const error = resultError(failureOf('SIGNATURE_INVALID'), 'error');
    return this.#settler.refuse(
      callId,
      fence,
      { status: 'error', toolName: '', durationMs: 0, attempts: 0, error },
      [],
    );
  }

  // recover

  /** An attempt before this one began and left no record: its tool's effects say what to do (DESIGN, decision 5). */
  async #recover(begun: Begun): Promise<Step<void>> {
    const { started, registered, circuit, running } = begun;
    if (started.takenOver) {
      const plan = recovery(registered.tool.effects, started.lostAttempts);
      if (plan.kind === 'stop') return { end: await this.#giveUp(begun, failureOf(plan.code)) };
      if (plan.kind === 'probe') {
        const prepared = await this.#prepare(begun);
        if ('end' in prepared) return prepared;
        const answer = await runProbe(prepared.go);
        if (answer.state === 'done') return { end: await this.#succeed(begun, answer.result) };
        if (answer.state === 'unknown') return { end: await this.#giveUp(begun, failureOf('OUTCOME_UNKNOWN')) };
      }
      // The circuit opened meanwhile: the next attempt asks it like any other.
      const closed = circuit.seen.state === 'CLOSED' || circuit.probe !== undefined || begun.modes.circuits !== 'on';
      if (!closed) return { end: await this.#settler.postpone(begun, 'waiting-retry', started.earlier, 1) };
    }
    if (!running.signal.aborted) return { go: undefined };
    const reason = running.signal.reason as PawlError;
    return { end: await this.#interrupted(begun, reason, 'not-run') };
  }

  /** R25: a circuit that configuration forces open, which Redis knows nothing of. */
  async #refuseForcedOpen(begun: Begun): Promise<Verdict | undefined> {
    const { modes, policy, circuit, callId, envelope, attempt, started } = begun;
    if (policy.circuit?.forcedOpen !== true) return undefined;
    const breakerState = 'FORCED_OPEN';
    const event = { callId, envelope, attempt };
    if (modes.circuits !== 'on') {
      this.#tellShadow(modes.circuits, event, 'refused', breakerState);
      return undefined;
    }
    const retryAfterMs = circuit.policy.cooldownMs;
    if (circuit.policy.whenOpen === 'park') {
      await this.#circuits.release(circuit);
      return this.#settler.postpone(begun, 'queued', started.earlier, retryAfterMs);
    }
    const failure = failureOf('CIRCUIT_OPEN', undefined, { retryAfterMs });
    this.#parts.onEvent({ type: 'tool_call_blocked', ...event, errorCode: failure.code, breakerState });
    return this.#fail(begun, failure, { status: 'circuit_open', ran: false, breakerState });
  }

  #tellShadow(mode: Mode, event: CallEvent, kind: ShadowKind, detail: string): void {
    if (mode === 'shadow') this.#parts.onEvent({ type: 'tool_call_shadow', ...event, kind, detail });
  }

  /** Ends a call whose code this attempt did not reach. */
  #giveUp(begun: Begun, failure: Failure): Promise<Verdict> {
    return this.#fail(begun, failure, { status: 'error', ran: false });
  }

  // pace

  /** The fleet's limits do not let the call start yet: the attempt goes back unspent. */
  async #wait(begun: Begun, waitMs: number): Promise<Verdict> {
    await this.#circuits.release(begun.circuit);
    return this.#settler.postpone(begun, 'queued', begun.started.earlier, waitMs);
  }

  // prepare

  async #prepare(begun: Begun): Promise<Step<AttemptOptions>> {
    const { envelope, registered, running, policy } = begun;
    const { tool, validate, validateOutput } = registered;
    const { settings, backend, log, environment, schedule } = this.#parts;
    const remaining = remainingMs(begun);
    if (remaining !== undefined && remaining <= 0) {
      return { end: await this.#fail(begun, failureOf('DEADLINE_EXCEEDED'), { status: 'timeout', ran: false }) };
    }
    try {
      const session = await this.#parts.sessionOf(envelope.target.sessionKey);
      if (session === undefined) throw new PawlError('UNKNOWN_SESSION');
      // Checked again here: the producer's word is not enough (DESIGN, decision 11).
      const approved = await this.#permitted(begun, session);
      const issues = validate(approved);
      if (issues.length > 0)
        throw new PawlError(
          hasDrifted(begun.started.request, registered) ? 'DEFINITION_CHANGED' : 'INVALID_PARAMS',
          undefined,
          { issues },
        );
      const { context, flushProgress } = await contextFor(begun, session, {
        settings,
        ledger: backend.ledger,
        log,
        environment,
        ...(this.#parts.memory === undefined ? {} : { memory: this.#parts.memory }),
        ...(this.#parts.channels === undefined ? {} : { channels: this.#parts.channels }),
        ...(this.#parts.agents === undefined ? {} : { agents: this.#parts.agents }),
        ...(this.#parts.terminals === undefined ? {} : { terminals: this.#parts.terminals }),
      });
      const params: unknown = tool.parse(approved);
      const timeoutMs = Math.min(
        envelope.payload.callHints?.timeoutMs ?? tool.timeoutMs,
        policy.timeoutMs ?? Number.POSITIVE_INFINITY,
      );
      const options = {
        tool,
        params,
        given: approved,
        decided: this.#decided.has(begun),
        context,
        flushProgress,
        running,
        timeoutMs,
        remainingMs: remaining,
        validateOutput,
        log,
        ...(schedule === undefined ? {} : { schedule }),
      };
      return { go: { ...options, policy: begun.retry } };
    } catch (error) {
      return { end: await this.#giveUp(begun, refusalOf(error)) };
    }
  }

  // secure

  /** A power failure must not forget that a `once` attempt began: whoever asked again would cause a second effect. */
  async #secure(begun: Begun): Promise<Step<void>> {
    const { settings, backend, onDisk } = this.#parts;
    const { callId, started, registered, running } = begun;
    if (onDisk === undefined || durabilityOf(settings, registered.tool) !== 'waitaof') return { go: undefined };
    try {
      await onDisk();
      // What is on disk may be what another server knew: the begin itself must still stand.
      if (!(await backend.ledger.tell(callId, started.fence, settings.lockDurationMs)).held)
        running.abort(new PawlError('LEASE_LOST'));
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      this.#parts.log.warn({ callId, error: error.message }, 'a begin cannot be brought to disk yet');
      await this.#circuits.release(begun.circuit);
      return { end: await this.#settler.postpone(begun, 'queued', started.earlier, ELSEWHERE_MS) };
    }
    if (!running.signal.aborted) return { go: undefined };
    return { end: await this.#interrupted(begun, running.signal.reason as PawlError, 'not-run') };
  }

  /** The parameters that policy, and where it asks a person, that person let run. */
  async #permitted(begun: Begun, session: SessionRecord): Promise<Readonly<Record<string, unknown>>> {
    const { envelope, registered, policy: toolPolicy } = begun;
    const { tool } = registered;
    const { params } = envelope.payload;
    const verdict = permit({
      tool,
      // A call that was accepted while its session was open goes on.
      session: { ...session, state: 'open' },
      toolPolicy,
      policy: this.#parts.settings.policy,
      registry: this.#parts.ruleFor?.(tool),
      channel: begun.started.request.channel,
      params,
      // What the session saw after the call was made is not in its parameters.
      taint: taintOf(envelope.control.requestTags, session, Number(begun.generation)),
      queueTier: placeFor(begun.callId).tier,
    });
    if (verdict.decision === 'allow') return params;
    if (this.#parts.gate === undefined) throw denied(tool, `${verdict.reason}, and here nobody can be asked`);
    this.#decided.add(begun);
    return this.#parts.gate.pass(begun, session, verdict);
  }

  // take turns

  /** A call that must wait goes back unspent; `any` as `AttemptTurns` takes it. */
  async #takeTurn(begun: Begun, params: unknown, any: boolean): Promise<Step<void>> {
    const answer = await this.#parts.turns?.take(begun, params, any);
    switch (answer?.kind) {
      case undefined:
      case 'granted':
        return { go: undefined };
      case 'failed':
        return { end: await this.#giveUp(begun, answer.failure) };
      case 'fenced':
        return { end: { kind: 'abandoned' } };
      case 'waiting': {
        await this.#circuits.release(begun.circuit);
        const verdict = await this.#settler.postpone(begun, 'unstarted', begun.started.earlier, answer.withinMs);
        return { end: verdict.kind === 'later' ? { kind: 'turn', delayMs: verdict.delayMs } : verdict };
      }
    }
  }

  // guard

  /** The hooks before the attempt, which may rewrite or deny. What they made may work on another resource. */
  async #guard(begun: Begun, prepared: AttemptOptions): Promise<Step<AttemptOptions>> {
    let guarded: AttemptOptions;
    try {
      guarded = await this.#hooks.before(begun, prepared);
    } catch (error) {
      return { end: await this.#giveUp(begun, refusalOf(error)) };
    }
    const turn = await this.#takeTurn(begun, guarded.params, false);
    return 'end' in turn ? turn : { go: guarded };
  }

  // run

  async #run(begun: Begun, options: AttemptOptions): Promise<Ending> {
    const { callId, envelope, attempt, started, registered, circuit } = begun;
    const waited = attempt === 1 ? { waitedMs: waitedMs(begun) } : {};
    this.#parts.onEvent({ type: 'tool_call_start', callId, envelope, attempt, fence: started.fence, ...waited });
    const tool = () => (begun.trace === undefined ? runTool(options) : begun.trace.run(() => runTool(options)));
    if (circuit.bypassed) return tool();
    return this.#parts.nodeCircuits.run(qualifiedName(registered.tool), circuit.policy, async () => {
      const ending = await tool();
      return { value: ending, failed: speaksAgainstNode(ending) };
    });
  }

  /** The attempt's time, from the budgets that count it. One that cannot be reached now has it for nothing. */
  async #spend({ started, clock, beganMonotonicMs, callId }: Begun): Promise<void> {
    const { timed } = started.request;
    if (timed === undefined) return;
    try {
      await this.#parts.backend.ledger.spendTime(timed, clock.monotonic() - beganMonotonicMs);
    } catch (error) {
      this.#parts.log.warn(
        { callId, error: error instanceof Error ? error.message : String(error) },
        'time was not counted',
      );
    }
  }

  // judge

  #judge(begun: Begun, ending: Ending, diff: string): Promise<Verdict> {
    switch (ending.kind) {
      case 'value':
        return this.#accept(begun, ending.result, diff);
      case 'failure':
        return this.#failed(begun, ending.failure);
      case 'aborted':
        // The tool finished all the same: what happened, happened.
        if (ending.result !== undefined && ending.reason.code !== 'LEASE_LOST')
          return this.#accept(begun, ending.result, diff);
        return this.#interrupted(begun, ending.reason, ending.proven ? 'proven' : 'unknown');
    }
  }

  // consensus (I11)

  /** This worker has answered already: another one runs the call, if one comes in time. */
  async #leaveToOtherVoters(begun: Begun): Promise<Verdict | undefined> {
    if (this.#parts.isAlone === true || mayRunHere(begun)) return undefined;
    const { started } = begun;
    const lastVoteAtMs = started.earlier.at(-1)?.finishedAtMs ?? started.firstStartedAtMs;
    if (started.nowMs - lastVoteAtMs > this.#parts.settings.toolWaitMs) return this.#giveUp(begun, tooFew(begun));
    return this.#wait(begun, NEXT_WORKER_MS);
  }

  async #accept(begun: Begun, result: ToolResult<unknown>, diff: string): Promise<Verdict> {
    if (this.#parts.isAlone === true || !needsConsensus(begun.registered.tool))
      return this.#succeed(begun, result, diff);
    let counted: Counted;
    try {
      counted = await count(begun, result);
    } catch (error) {
      return this.#failed(
        begun,
        failureOf('RESULT_INVALID', `The result cannot be compared: ${classify(error).message}`),
      );
    }
    begun.running.vote = counted.vote.digest;
    switch (counted.kind) {
      case 'agreed':
        return this.#succeed(begun, result, diff);
      case 'split':
        return this.#fail(begun, split(counted.votes), { status: 'error', ran: true });
      case 'open':
        await this.#circuits.release(begun.circuit);
        return this.#settler.postpone(begun, 'queued', attemptsWith(begun, undefined), 0);
    }
  }

  async #succeed(begun: Begun, result: ToolResult<unknown>, diff = ''): Promise<Verdict> {
    const { registered, policy, circuit } = begun;
    const outcome = successOutcome(begun, result, diff);
    let outcomeJson: string;
    try {
      outcomeJson = JSON.stringify(outcome);
    } catch (error) {
      return this.#failed(
        begun,
        failureOf('RESULT_INVALID', `The output cannot be said in JSON: ${classify(error).message}`),
      );
    }
    const maxBytes = policy.maxResultBytes ?? registered.tool.maxResultBytes;
    const bytes = sizeAbove(outcomeJson, maxBytes);
    if (bytes !== undefined) {
      const message = `The result of ${registered.tool.name} is ${bytes} bytes large; at most ${maxBytes} are allowed.`;
      return this.#failed(begun, failureOf('RESULT_TOO_LARGE', message));
    }
    if (!(await this.#tainted(begun, bringsTaint(outcome, registered.tool)))) return { kind: 'abandoned' };
    const sample = await this.#circuits.succeeded(circuit);
    this.#tellEnd(begun, outcome);
    return this.#settler.succeed(begun, outcome, outcomeJson, sample);
  }

  /** The attempt failed by itself: count it, then try again or give up. */
  async #failed(begun: Begun, failure: Failure): Promise<Verdict> {
    const { callId, envelope, started, attempt, registered, modes } = begun;
    begun.trace?.failed(failure);
    const circuitState = await this.#circuits.failed(begun.circuit, failure);
    const decision = decideRetry(
      {
        failure,
        effects: registered.tool.effects,
        // Votes are no tries.
        attempt: attempt - started.earlier.filter(({ vote }) => vote !== undefined).length,
        elapsedMs: nowMs(begun) - started.firstStartedAtMs,
        remainingMs: remainingMs(begun),
        expectedRetrySafe: envelope.payload.callHints?.expectedRetrySafe ?? false,
        // A circuit that only observes refuses no retry either.
        circuitState: modes.circuits === 'on' ? circuitState : 'CLOSED',
      },
      begun.retry,
      this.#parts.random,
    );
    if (decision.kind === 'stop') {
      const details = { status: decision.status, ran: true, breakerState: circuitState };
      return this.#settleFailure(begun, failure, details);
    }
    if (modes.retry !== 'on') {
      this.#tellShadow(modes.retry, { callId, envelope, attempt }, 'retried', failure.code);
      const status = failure.class === 'timeout' ? 'timeout' : 'retriable_error';
      return this.#settleFailure(begun, failure, { status, ran: true, breakerState: circuitState });
    }
    const { delayMs } = decision;
    if (!(await this.#hooks.mayRetry(begun, failure, delayMs)))
      return this.#settleFailure(begun, failure, { status: 'retry_exhausted', ran: true, breakerState: circuitState });
    const verdict = await this.#settler.postpone(
      begun,
      'waiting-retry',
      attemptsWith(begun, failure, delayMs),
      delayMs,
      {
        event: { type: 'retrying', callId, attempt, delayMs, reasonCode: failure.code },
        refused: () => this.#refuseRetry(begun, failure, circuitState),
      },
    );
    if (verdict.kind === 'later')
      this.#parts.onEvent({ type: 'tool_call_retry', callId, envelope, attempt, delayMs, errorCode: failure.code });
    return verdict;
  }

  /** The tool's calls have used up their retries together: the call ends with its last failure. */
  #refuseRetry(begun: Begun, failure: Failure, breakerState: CircuitState): Promise<Verdict> {
    const { callId, envelope, attempt, allowance } = begun;
    const { bucket } = allowance;
    this.#parts.onEvent({
      type: 'tool_call_retry_refused',
      callId,
      envelope,
      attempt,
      errorCode: failure.code,
      bucket,
    });
    const status = failure.class === 'timeout' ? 'timeout' : 'retry_exhausted';
    const message = `${failure.message} (not tried again: ${RETRY_BUDGET_EXHAUSTED})`;
    return this.#settleFailure(begun, { ...failure, message }, { status, ran: true, breakerState });
  }

  /**
   * The attempt was ended from outside. `evidence` says what is known of its effect: the code was not reached, the tool proved
   * that nothing happened, or nothing is known.
   */
  async #interrupted(begun: Begun, reason: PawlError, evidence: 'not-run' | 'proven' | 'unknown'): Promise<Verdict> {
    const { effects } = begun.registered.tool;
    const { started, envelope } = begun;
    const nothingHappened = evidence === 'proven' || (evidence === 'not-run' && !started.takenOver);
    const failure = { ...failureOf(reason.code, reason.message), nothingHappened };
    const ran = evidence !== 'not-run';
    switch (reason.code) {
      case 'LEASE_LOST':
        // Whoever takes the job over finds an attempt without a record, and knows what to do with it.
        return { kind: 'abandoned' };
      case 'CANCELLED':
        return this.#fail(begun, failure, {
          status: 'error',
          ran,
          settlement: settlementOfAborted(effects, nothingHappened),
        });
      case 'DRAINED': {
        if (effects === 'probe' && !nothingHappened) return { kind: 'abandoned' };
        const expectedRetrySafe = envelope.payload.callHints?.expectedRetrySafe ?? false;
        const again = mayRunAgain({ failure, effects, expectedRetrySafe });
        if (!again) return this.#fail(begun, failureOf('OUTCOME_UNKNOWN'), { status: 'error', ran: true });
        await this.#circuits.release(begun.circuit);
        return this.#settler.postpone(begun, 'queued', started.earlier, 0);
      }
      default:
        return this.#failed(begun, failure);
    }
  }

  /** Ends a call with an error that says nothing about the service behind the tool. */
  async #fail(begun: Begun, failure: Failure, details: FailureDetails): Promise<Verdict> {
    await this.#circuits.release(begun.circuit);
    return this.#settleFailure(begun, failure, details);
  }

  async #settleFailure(begun: Begun, raw: Failure, details: FailureDetails): Promise<Verdict> {
    const outside = details.ran && begun.registered.tool.annotations.openWorldHint === true;
    if (!(await this.#tainted(begun, outside))) return { kind: 'abandoned' };
    const failure = withoutSecrets(raw, [...secretsIn(begun.envelope.payload.params), ...this.#secrets]);
    const { status, breakerState } = details;
    const error = resultError(failure, status, breakerState);
    this.#tellEnd(begun, { ...outcomeBase(begun), status, attempts: begun.attempt, error });
    return this.#settler.fail(begun, failure, details);
  }

  /** Before anybody can read what came from outside, the session is marked (I23). False when the lease was lost over it. */
  async #tainted(begun: Begun, outside: boolean): Promise<boolean> {
    const { taint, log, schedule } = this.#parts;
    if (!outside || taint === undefined) return true;
    const { envelope, registered, running } = begun;
    const mark = async () => {
      await taint(envelope.target.sessionKey, qualifiedName(registered.tool), nowMs(begun));
      return true;
    };
    return (await patiently(mark, running, log, schedule)) === true;
  }

  #tellEnd(begun: Begun, outcome: Outcome): void {
    const { callId, envelope, attempt, started } = begun;
    const elapsedMs = nowMs(begun) - started.nowMs;
    this.#parts.onEvent({ type: 'tool_call_end', callId, envelope, attempt, outcome, elapsedMs });
  }
}

/** A tool's message may quote the secrets that it was given (R31). */
function withoutSecrets(failure: Failure, known: readonly string[]): Failure {
  if (known.length === 0) return failure;
  const issues = failure.issues?.map((issue) => ({ ...issue, message: redact(issue.message, known) }));
  return { ...failure, message: redact(failure.message, known), ...(issues === undefined ? {} : { issues }) };
}

function placeFor(callId: string): Place {
  const place = placeOf(callId);
  if (place === undefined) throw new PawlError('UNKNOWN_CALL', `${JSON.stringify(callId)} is not a call ID.`);
  return place;
}

/** Whatever stands in the way of a call before its tool runs. */
function refusalOf(error: unknown): Failure {
  if (!(error instanceof PawlError))
    return failureOf('INVALID_PARAMS', error instanceof Error ? error.message : String(error));
  return failureOf(error.code, error.message, error.issues === undefined ? {} : { issues: error.issues });
}

function speaksAgainstNode(ending: Ending): boolean {
  if (ending.kind === 'failure') return ending.failure.againstCircuit;
  return ending.kind === 'aborted' && failureOf(ending.reason.code).againstCircuit;
}

function successOutcome(begun: Begun, result: ToolResult<unknown>, diff: string): Outcome {
  const { tool } = begun.registered;
  const metadata = resultMetadata(result, { outside: tool.annotations.openWorldHint === true, diff });
  const shownBytes = begun.policy.maxOutputBytes ?? tool.maxOutputBytes;
  return {
    ...outcomeBase(begun),
    status: 'success',
    attempts: begun.attempt,
    output: { content: result.output ?? null, ...(Object.keys(metadata).length === 0 ? {} : { metadata }) },
    ...(shownBytes === undefined ? {} : { shownBytes }),
  };
}

/** The text's size in bytes when it is above the limit. Counting is skipped where it cannot be. */
function sizeAbove(text: string, maxBytes: number): number | undefined {
  if (text.length * 3 <= maxBytes) return undefined;
  const bytes = Buffer.byteLength(text);
  return bytes > maxBytes ? bytes : undefined;
}
