/**
 * begin and admit: the next fence or the reason why there is none, the tool that the call means, and the fleet's circuit.
 */

import { partitionFor } from '../../shared/calls/call-id.ts';
import { type AttemptRecord, isHarmless, leftInDoubt } from '../../shared/calls/call-state.ts';
import { type Outcome, resultError } from '../../shared/calls/outcome.ts';
import { type Circuit, forcedOpenText, targetOfCircuit } from '../../shared/circuits/circuit-breaker.ts';
import { circuitPolicyOf, toolPolicy } from '../../shared/config/config.ts';
import { DIRECT, type ReliabilityModes } from '../../shared/config/switches.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import { retryPolicy } from '../../shared/retries/retry.ts';
import { retryAllowance } from '../../shared/retries/retry-budget.ts';
import type { BeginResult, StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import { needOf, type StoredRequest } from '../../shared/store/calls/call-record.ts';
import { parseCircuit } from '../../shared/store/circuits/circuits.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import { homePartition } from '../../shared/store/redis/keys.ts';
import { type Effects, qualifiedName } from '../../shared/tools/tool.ts';
import { type Attempt, type RegisteredTool, retriedBy } from '../attempt/attempt-state.ts';
import type { CircuitHold } from '../attempt/circuit-hold.ts';
import type { JobOutcome, Step } from '../attempt/job-outcome.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import type { FleetCircuits } from '../circuits/fleet-circuit.ts';
import type { ExecutorDeps } from './executor-deps.ts';
import type { CallSettler, KeptTool } from './settle-call.ts';
import { reportShadow } from './shadow-mode.ts';
import { incompatibilityReason } from './version-check.ts';

/** How long a job waits when no living worker can run its tool. */
export const ELSEWHERE_MS = 1_000;
/** How long a job waits while this worker runs another one that took a worker down before. */
const ONE_SUSPECT_AT_A_TIME_MS = 500;
/** How long a job waits that is to run alone, where the calls beside it did not end soon. */
const NEXT_SOLITUDE_MS = 1_000;

/** The way of a job to an attempt that has begun, or to the end that it has instead. */
export class Admission {
  readonly #parts: ExecutorDeps;
  readonly #circuits: FleetCircuits;
  readonly #settler: CallSettler;
  /**
   * The one attempt of this worker whose call already lost one. When a worker dies, all that it ran comes back at once: run
   * together again, the one that killed it would take the others with it until they are all set aside.
   */
  #suspect: RunningAttempt | undefined;

  constructor(parts: ExecutorDeps, circuits: FleetCircuits, settler: CallSettler) {
    this.#parts = parts;
    this.#circuits = circuits;
    this.#settler = settler;
  }

  /** `answer` is what begin answered already, when the job was taken. */
  enter(job: CallJob, running: RunningAttempt, answer: BeginResult | undefined): Promise<Step<Attempt>> {
    return answer === undefined ? this.#begin(job, running) : this.#onBegun(job, running, answer);
  }

  /** The attempt has ended, or never began. */
  left(running: RunningAttempt): void {
    if (this.#suspect === running) this.#suspect = undefined;
    this.#parts.solitude?.leave(running);
  }

  async #begin(
    job: CallJob,
    running: RunningAttempt,
    hold?: Pick<CircuitHold, 'seen' | 'probe'>,
    harmless = false,
  ): Promise<Step<Attempt>> {
    const { backend, workerId, settings } = this.#parts;
    const answer = await backend.ledger.begin(job, {
      workerId,
      leaseMs: settings.lockDurationMs,
      token: running.token,
      suspects: harmless || this.#suspect === running ? 'accept' : 'refuse',
      alone: this.#parts.solitude?.isOf(running) === true,
      ...(hold === undefined ? {} : { probeEpoch: hold.seen.epoch }),
    });
    return this.#onBegun(job, running, answer, hold);
  }

  async #onBegun(
    job: CallJob,
    running: RunningAttempt,
    answer: BeginResult,
    hold?: Pick<CircuitHold, 'seen' | 'probe'>,
  ): Promise<Step<Attempt>> {
    switch (answer.kind) {
      case 'stale':
        return { end: { kind: 'dropped' } };
      case 'ended':
        // The job of a call that was cancelled while it waited comes by in its time.
        if (partitionFor(job.callId).tier === 'elevated' && answer.state !== 'cancelled')
          this.#parts.gate?.again(job.callId);
        return { end: { kind: 'dropped' } };
      case 'awaiting':
        if (this.#parts.gate === undefined) return { end: { kind: 'dropped' } };
        return { end: await this.#parts.gate.attend(answer.approvalId, answer.nowMs, this.#parts.toolNamed) };
      case 'early':
        return { end: { kind: 'postponed', delayMs: answer.remainingMs } };
      case 'suspect':
        // It is only settled, which takes no worker down.
        if (answer.recovered && this.#effectsOf(answer.request) === 'once')
          return this.#begin(job, running, hold, true);
        if (this.#suspect !== undefined) return { end: { kind: 'postponed', delayMs: ONE_SUSPECT_AT_A_TIME_MS } };
        this.#suspect = running;
        if (answer.runsAlone && (await this.#parts.solitude?.enter(running)) === false)
          return { end: { kind: 'postponed', delayMs: NEXT_SOLITUDE_MS } };
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
    answer: StartedAttempt,
    probe: string | undefined,
  ): Promise<Step<Attempt>> {
    const { settings, clock, workerId } = this.#parts;
    let started = answer;
    let { envelope } = started.request;
    running.began(started.fence);
    const named = this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName);
    const registered = this.#isMeant(started.request, named)
      ? named
      : ((await this.#parts.toolOf?.(started.request)) ?? named);
    const incompatibility = incompatibilityReason(started.request, registered);
    if (registered === undefined || incompatibility !== undefined)
      return { end: await this.#passOn(job.callId, started, incompatibility ?? '') };
    if (started.cancelRequested) running.abort(new PawlError('CANCELLED'));
    const beganMonotonicMs = clock.monotonic();
    let unreadable: Failure | undefined;
    if (started.request.largeParams !== undefined) {
      const request = await this.#wholeRequest(job.callId, started.request, running);
      if (request === undefined) return { end: { kind: 'abandoned' } };
      if ('code' in request) unreadable = request;
      else {
        started = { ...started, request };
        envelope = request.envelope;
      }
    }
    const policy = toolPolicy(settings, registered.tool);
    const modes = this.#modesOf(started.request, registered);
    const circuit: CircuitHold = {
      partition: homePartition(partitionFor(job.callId).tier),
      key: started.circuit,
      policy: circuitPolicyOf(this.#parts.settings, registered.tool),
      seen: parseCircuit(started.circuitRaw),
      probe,
      bypassed: !modes.enabled,
      apart: this.#parts.backend.clustered === true && partitionFor(job.callId).shard > 0,
    };
    const attempt: Attempt = {
      callId: job.callId,
      generation: job.generation,
      running,
      started,
      envelope,
      registered,
      policy,
      modes,
      retry: retryPolicy(registered.tool.retry, policy.retry, envelope.transport.retryBudget, settings.defaults.retry),
      allowance: retryAllowance(qualifiedName(registered.tool), envelope.target.tenantId, policy.retry?.budget),
      circuit,
      number: started.earlier.length + 1,
      workerId,
      clock,
      beganMonotonicMs,
      ...(unreadable === undefined ? {} : { unreadable }),
      ...(this.#parts.traces === undefined ? {} : { trace: this.#parts.traces.begin(job, started, circuit) }),
    };
    return { go: attempt };
  }

  /** With its parameters, or why they cannot be read; undefined when the lease was lost over it. */
  #wholeRequest(
    callId: string,
    request: StoredRequest,
    running: RunningAttempt,
  ): Promise<StoredRequest | Failure | undefined> {
    const { backend, log, schedule } = this.#parts;
    const read = async () => {
      try {
        return await backend.ledger.wholeRequest(callId, request);
      } catch (error) {
        if (!(error instanceof PawlError) || error.code === 'BACKEND_UNAVAILABLE') throw error;
        return failureOf(error.code, error.message);
      }
    };
    return retryUntilLeaseLost(read, running, log, schedule);
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
  async #passOn(callId: string, started: StartedAttempt, incompatibility: string): Promise<JobOutcome> {
    const { settings, backend, log } = this.#parts;
    const { request, nowMs: atMs, fence, recovered, earlier } = started;
    const published = await this.#parts.lastPublished(request);
    const waitedMs = atMs - Math.max(started.firstStartedAtMs, published.seenAtMs);
    const others = published.workers;
    if (others.length > 0 || waitedMs < settings.toolWaitMs) {
      const delayMs = others.length > 0 ? 0 : ELSEWHERE_MS;
      // What became of an attempt that left no record stays for a worker to decide that knows the tool.
      const answer = await backend.ledger.postpone(callId, fence, 'queued', earlier, delayMs);
      if (answer === 'cancelled') return this.#cancelled(callId, started);
      return others.length > 0 ? { kind: 'skipped', need: needOf(request), others } : { kind: 'postponed', delayMs };
    }
    log.warn({ event: 'tool_unavailable', callId, incompatibility }, 'no worker could run a call for long');
    const failure =
      recovered && !isHarmless(request.tool.effects)
        ? failureOf('OUTCOME_UNKNOWN')
        : failureOf(
            'TOOL_UNAVAILABLE',
            `No worker could run the call for ${Math.round(waitedMs / 1_000)} s: ${incompatibility}.`,
          );
    return this.#settler.refuse(callId, fence, unstartedOutcome(request, earlier, failure), earlier, keptAs(request));
  }

  /** It was asked for while this worker, which does not know the tool, held the call. */
  #cancelled(callId: string, { request, fence, earlier }: StartedAttempt): Promise<JobOutcome> {
    const harmless =
      partitionFor(callId).tier === 'read-only' || request.tool.effects === 'none' || !leftInDoubt(earlier);
    const settlement = earlier.length === 0 ? 'cancelled-before-start' : harmless ? 'cancelled' : 'unsettled';
    const outcome = { ...unstartedOutcome(request, earlier, failureOf('CANCELLED')), settlement } as const;
    return this.#settler.refuse(callId, fence, outcome, earlier, keptAs(request));
  }

  #effectsOf({ envelope }: StoredRequest): Effects | undefined {
    return this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName)?.tool.effects;
  }

  /** The call's circuit is not closed: be its probe, wait, or refuse the call. */
  async #admit(
    job: CallJob,
    running: RunningAttempt,
    answer: Extract<BeginResult, { kind: 'circuit' }>,
  ): Promise<Step<Attempt>> {
    const { envelope } = answer.request;
    const registered = this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName);
    // Who can run it asks the circuit; who cannot passes it on, closed or not.
    if (registered === undefined || incompatibilityReason(answer.request, registered) !== undefined)
      return this.#begin(job, running, { seen: parseCircuit(answer.circuitRaw), probe: undefined });
    const policy = circuitPolicyOf(this.#parts.settings, registered.tool);
    const seen = parseCircuit(answer.circuitRaw);
    const modes = this.#modesOf(answer.request, registered);
    const bypassed = !modes.enabled;
    const hold: CircuitHold = {
      partition: homePartition(partitionFor(job.callId).tier),
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
        const attempt = await this.#begin(job, running, entry.hold);
        if ('end' in attempt) await this.#circuits.release(entry.hold);
        return attempt;
      }
      case 'refuse':
        if (modes.circuits !== 'on') {
          const attempt = answer.earlier.length + 1;
          reportShadow(this.#parts, modes.circuits, { callId: job.callId, envelope, attempt }, 'refused', seen.state);
          return this.#begin(job, running, hold);
        }
        if (policy.whenOpen === 'park') return { end: { kind: 'postponed', delayMs: entry.retryAfterMs } };
        return { end: await this.#refuse(job, answer, registered, seen, entry.retryAfterMs) };
    }
  }

  #refuse(
    { callId }: CallJob,
    answer: Extract<BeginResult, { kind: 'circuit' }>,
    { tool }: RegisteredTool,
    seen: Circuit,
    retryAfterMs: number,
  ): Promise<JobOutcome> {
    const { fence, request, earlier } = answer;
    const { envelope } = request;
    const breakerState = seen.state;
    const target = targetOfCircuit(answer.circuit);
    const message =
      seen.state === 'FORCED_OPEN'
        ? forcedOpenText(envelope.toolName, seen.reason)
        : target && `${envelope.toolName} for ${target} keeps failing and is given time to recover.`;
    // The attempt before may have had its effect, and the tool would have been asked before another one.
    const unasked = tool.effects === 'probe' && leftInDoubt(earlier);
    const failure = unasked ? failureOf('OUTCOME_UNKNOWN') : failureOf('CIRCUIT_OPEN', message, { retryAfterMs });
    const status = unasked ? 'error' : 'circuit_open';
    const outcome: Outcome = {
      status,
      toolName: envelope.toolName,
      durationMs: 0,
      attempts: earlier.length,
      error: resultError(failure, status, breakerState),
      ...retriedBy(earlier),
    };
    const event = { callId, envelope, attempt: earlier.length, errorCode: failure.code, breakerState };
    this.#parts.onEvent({ type: 'tool_call_blocked', ...event });
    const { effects } = tool;
    return this.#settler.refuse(callId, fence, outcome, earlier, {
      policy: toolPolicy(this.#parts.settings, tool),
      effects,
      expectedRetrySafe: envelope.payload.callHints?.expectedRetrySafe ?? false,
    });
  }

  #refuseForged({ callId }: CallJob, fence: number): Promise<JobOutcome> {
    this.#parts.log.error({ event: 'signature_invalid', callId }, 'a call without a valid signature was refused');
    const error = resultError(failureOf('SIGNATURE_INVALID'), 'error');
    return this.#settler.refuse(
      callId,
      fence,
      { status: 'error', toolName: '', durationMs: 0, attempts: 0, error },
      [],
    );
  }
}

/** A call is kept by what its request says of a tool that this worker does not know. */
function keptAs({ tool, envelope }: StoredRequest): KeptTool {
  const expectedRetrySafe = envelope.payload.callHints?.expectedRetrySafe ?? false;
  return { policy: {}, effects: tool.effects ?? 'once', expectedRetrySafe };
}

/** Of a call that ends without an attempt of this worker. */
function unstartedOutcome(
  { envelope: { toolName } }: StoredRequest,
  earlier: readonly AttemptRecord[],
  failure: Failure,
): Outcome {
  const error = resultError(failure, 'error');
  return { status: 'error', toolName, durationMs: 0, attempts: earlier.length, error, ...retriedBy(earlier) };
}
