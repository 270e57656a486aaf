/**
 * One job, from the queue to the ledger, as steps that read aloud:
 *
 * begin     take the next fence, or learn that there is nothing to do
 * admit     pass the fleet's circuit, be its probe, or be refused
 * recover   decide what became of an attempt that left no record
 * prepare   tool, permission, parameters, context: all from this worker's own registry, nothing from the job
 * run       the tool's code, in `attempt.ts`
 * judge     settle, try again later, hand back, or leave it to others
 * write     one script; only the newest fence may
 */
import {
  admit,
  afterProbe,
  afterWindow,
  type Circuit,
  type CircuitPolicy,
  type CircuitState,
  circuitPolicy,
  windowSize,
} from '../shared/breaker.ts';
import { type AttemptRecord, recovery, type Settlement, settlementOfAborted } from '../shared/call.ts';
import { type Settings, type ToolPolicy, toolPolicy } from '../shared/config.ts';
import type { ToolCallEnvelope } from '../shared/envelope.ts';
import { type Failure, failureOf, PawlError } from '../shared/failure.ts';
import { placeOf } from '../shared/fingerprint.ts';
import type { Logger } from '../shared/log.ts';
import { type FailureStatus, type Outcome, resultError, stateOf } from '../shared/outcome.ts';
import { decideRetry, mayRunAgain, type RetryPolicy, retryPolicy } from '../shared/retry.ts';
import type { Validator } from '../shared/schema.ts';
import { SESSION_TIERS, type SessionRecord } from '../shared/session.ts';
import type { Backend } from '../shared/store/backend.ts';
import { parseCircuit } from '../shared/store/breakers.ts';
import type { Place } from '../shared/store/keys.ts';
import type { BeginAnswer, Settle, StartedAttempt, WriteAnswer } from '../shared/store/ledger.ts';
import type { CallJob } from '../shared/store/queues.ts';
import type { Clock, Random } from '../shared/time.ts';
import { type AnyTool, qualifiedName, type ToolContext } from '../shared/tool.ts';
import { type AttemptOptions, attemptRecord, type Ending, runProbe, runTool } from './attempt.ts';
import { capabilitiesFor } from './capabilities.ts';
import type { NodeCircuits } from './node-circuit.ts';
import type { RunningAttempt } from './running.ts';

/** A tool as this worker runs it. */
export interface RegisteredTool {
  readonly tool: AnyTool;
  readonly validate: Validator;
  readonly validateOutput: Validator | undefined;
  readonly definition: string;
}

export interface ExecuteParts {
  readonly settings: Settings;
  readonly backend: Backend;
  readonly workerId: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly nodeCircuits: NodeCircuits;
  toolNamed(namespace: string, name: string): RegisteredTool | undefined;
  sessionOf(sessionKey: string): Promise<SessionRecord | undefined>;
  onEvent(event: ExecuteEvent): void;
}

/** What became of the job. The queue's part in it is the worker's business. */
export type Verdict =
  | { readonly kind: 'finished'; readonly outcome: Outcome }
  /** Nothing to do for this job any more. */
  | { readonly kind: 'dropped' }
  | { readonly kind: 'later'; readonly delayMs: number }
  /** Back to the queue at once, for another worker. */
  | { readonly kind: 'handed-back' }
  /** This worker must not touch the job again: others will notice and recover it. */
  | { readonly kind: 'abandoned' };

/** The seeds' log events (R27), as values. */
export type ExecuteEvent =
  | {
      readonly type: 'tool_call_start';
      readonly callId: string;
      readonly envelope: ToolCallEnvelope;
      readonly attempt: number;
      readonly fence: number;
    }
  | {
      readonly type: 'tool_call_end';
      readonly callId: string;
      readonly envelope: ToolCallEnvelope;
      readonly outcome: Outcome;
      readonly attempt: number;
      readonly elapsedMs: number;
    }
  | {
      readonly type: 'tool_call_retry';
      readonly callId: string;
      readonly envelope: ToolCallEnvelope;
      readonly attempt: number;
      readonly delayMs: number;
      readonly errorCode: string;
    }
  | {
      readonly type: 'tool_call_blocked';
      readonly callId: string;
      readonly envelope: ToolCallEnvelope;
      readonly errorCode: string;
      readonly breakerState?: CircuitState;
    }
  | {
      readonly type: 'tool_call_circuit_state';
      readonly circuit: string;
      readonly from: CircuitState;
      readonly to: CircuitState;
      readonly reason?: string;
    };

/** The circuit as this attempt knows it. */
interface CircuitHold {
  readonly place: Place;
  readonly key: string;
  readonly policy: CircuitPolicy;
  readonly seen: Circuit;
  /** Set when this attempt is the probe. */
  readonly probe: string | undefined;
}

/** Everything about an attempt that has begun. */
interface Begun {
  readonly job: CallJob;
  readonly running: RunningAttempt;
  readonly started: StartedAttempt;
  readonly envelope: ToolCallEnvelope;
  readonly registered: RegisteredTool;
  readonly policy: ToolPolicy;
  readonly retry: RetryPolicy;
  readonly circuit: CircuitHold;
  readonly attempt: number;
  readonly beganMonotonicMs: number;
}

const PARKED_MS = 1_000;
const WRITE_AGAIN_MS = 250;

export class Executor {
  readonly #parts: ExecuteParts;

  constructor(parts: ExecuteParts) {
    this.#parts = parts;
  }

  async execute(job: CallJob, running: RunningAttempt): Promise<Verdict> {
    const begun = await this.#begin(job, running);
    if ('kind' in begun) return begun;
    const recovered = await this.#recover(begun);
    if (recovered !== undefined) return recovered;
    const prepared = await this.#prepare(begun);
    if ('kind' in prepared) return prepared;
    const ending = await this.#run(begun, prepared);
    return this.#judge(begun, ending);
  }

  // begin and admit

  async #begin(
    job: CallJob,
    running: RunningAttempt,
    probe?: { readonly next: Circuit; readonly holder: string },
  ): Promise<Begun | Verdict> {
    const { backend, workerId, settings } = this.#parts;
    const answer = await backend.ledger.begin(job, {
      workerId,
      leaseMs: settings.lockDurationMs,
      token: running.token,
      ...(probe === undefined ? {} : { probeEpoch: probe.next.epoch }),
    });
    switch (answer.kind) {
      case 'stale':
      case 'ended':
        return { kind: 'dropped' };
      case 'early':
        return { kind: 'later', delayMs: answer.remainingMs };
      case 'forged':
        return this.#refuseForged(job, answer.fence);
      case 'circuit':
        return this.#admit(job, running, answer);
      case 'started':
        return this.#started(job, running, answer, probe?.holder);
    }
  }

  async #started(
    job: CallJob,
    running: RunningAttempt,
    started: StartedAttempt,
    probe: string | undefined,
  ): Promise<Begun | Verdict> {
    running.began(started.fence);
    const { envelope } = started.request;
    const registered = this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName);
    if (registered === undefined) {
      // Another worker of the tier may have it: the attempt goes back unspent.
      await this.#parts.backend.ledger.postpone(job.callId, started.fence, 'queued', started.earlier, PARKED_MS);
      return { kind: 'later', delayMs: PARKED_MS };
    }
    const policy = toolPolicy(this.#parts.settings, registered.tool);
    const circuit: CircuitHold = {
      place: placeFor(job.callId),
      key: started.circuit,
      policy: this.#circuitPolicy(registered.tool, policy),
      seen: parseCircuit(started.circuitRaw),
      probe,
    };
    if (started.cancelRequested) running.abort(new PawlError('CANCELLED'));
    return {
      job,
      running,
      started,
      envelope,
      registered,
      policy,
      retry: retryPolicy(registered.tool.retry, withoutUndefined(policy.retry ?? {}), envelope.transport.retryBudget),
      circuit,
      attempt: started.earlier.length + 1,
      beganMonotonicMs: this.#parts.clock.monotonic(),
    };
  }

  #circuitPolicy(tool: AnyTool, policy: ToolPolicy): CircuitPolicy {
    return circuitPolicy(tool.tier === 'read-only', tool.circuit, withoutUndefined(policy.circuit ?? {}));
  }

  /** The call's circuit is not closed: be the probe, wait, or refuse the call. */
  async #admit(
    job: CallJob,
    running: RunningAttempt,
    answer: Extract<BeginAnswer, { kind: 'circuit' }>,
  ): Promise<Begun | Verdict> {
    const { backend, settings, workerId } = this.#parts;
    const { envelope } = answer.request;
    const circuit = parseCircuit(answer.circuitRaw);
    if (settings.reliability.openMode !== 'on') return this.#begin(job, running, { next: circuit, holder: '' });
    const registered = this.#parts.toolNamed(envelope.toolNamespace, envelope.toolName);
    if (registered === undefined) return { kind: 'later', delayMs: PARKED_MS };
    const policy = this.#circuitPolicy(registered.tool, toolPolicy(settings, registered.tool));
    const holder = `${workerId} ${job.callId} ${answer.fence + 1}`;
    const admission = admit(circuit, policy, holder, answer.nowMs);
    if (admission.kind === 'pass') return this.#begin(job, running);
    if (admission.kind === 'probe') {
      const place = placeFor(job.callId);
      const { changed } = await backend.breakers.change(place, answer.circuit, circuit, admission.next, 0);
      if (changed && circuit.state !== admission.next.state)
        this.#parts.onEvent({
          type: 'tool_call_circuit_state',
          circuit: answer.circuit,
          from: circuit.state,
          to: admission.next.state,
        });
      if (!changed) return this.#begin(job, running);
      const begun = await this.#begin(job, running, { next: admission.next, holder });
      if ('kind' in begun)
        await this.#changeCircuit(
          { place, key: answer.circuit, policy, seen: admission.next, probe: holder },
          undefined,
        );
      return begun;
    }
    if (policy.whenOpen === 'park')
      return { kind: 'later', delayMs: Math.min(admission.retryAfterMs, policy.cooldownMs) };
    return this.#refuse(job, answer, circuit.state, admission.retryAfterMs);
  }

  async #refuse(
    job: CallJob,
    answer: Extract<BeginAnswer, { kind: 'circuit' }>,
    breakerState: CircuitState,
    retryAfterMs: number,
  ): Promise<Verdict> {
    const { envelope } = answer.request;
    const failure = failureOf('CIRCUIT_OPEN', undefined, { retryAfterMs });
    const outcome: Outcome = {
      status: 'circuit_open',
      toolName: envelope.toolName,
      durationMs: 0,
      attempts: answer.earlier.length,
      error: resultError(failure, 'circuit_open', breakerState),
      ...retriedBy(answer.earlier),
    };
    this.#parts.onEvent({
      type: 'tool_call_blocked',
      callId: job.callId,
      envelope,
      errorCode: failure.code,
      breakerState,
    });
    return this.#write({
      callId: job.callId,
      fence: answer.fence,
      state: 'failed',
      outcome,
      outcomeJson: JSON.stringify(outcome),
      attempts: answer.earlier,
      ttlMs: this.#parts.settings.ttl.failedMs,
    });
  }

  // recover

  /** An attempt before this one began and left no record: its tool's effects say what to do (DESIGN, decision 5). */
  async #recover(begun: Begun): Promise<Verdict | undefined> {
    const { started, registered } = begun;
    if (!started.takenOver) return undefined;
    const { tool } = registered;
    const plan = recovery(tool.effects, started.lostAttempts);
    if (plan.kind === 'stop') return this.#fail(begun, failureOf(plan.code), 'error');
    if (plan.kind === 'probe') {
      const prepared = await this.#prepare(begun);
      if ('kind' in prepared) return prepared;
      const answer = await runProbe(prepared);
      if (answer.state === 'done') return this.#judge(begun, { kind: 'value', result: answer.result });
      if (answer.state === 'unknown') return this.#fail(begun, failureOf('OUTCOME_UNKNOWN'), 'error');
    }
    if (begun.circuit.seen.state === 'CLOSED' || begun.circuit.probe !== undefined) return undefined;
    // The circuit opened meanwhile: the next attempt asks it like any other.
    return this.#postpone(begun, 'waiting-retry', begun.started.earlier, 0);
  }

  // prepare

  async #prepare(begun: Begun): Promise<AttemptOptions | Verdict> {
    const { envelope, registered, running, started, policy } = begun;
    const { tool, validate, validateOutput } = registered;
    const remainingMs =
      envelope.control.deadlineAtMs === undefined ? undefined : envelope.control.deadlineAtMs - started.nowMs;
    if (remainingMs !== undefined && remainingMs <= 0)
      return this.#fail(begun, failureOf('DEADLINE_EXCEEDED'), 'timeout', false);
    const session = await this.#parts.sessionOf(envelope.target.sessionKey);
    try {
      if (session === undefined) throw new PawlError('UNKNOWN_SESSION');
      this.#permit(begun, session);
      const issues = validate(envelope.payload.params);
      if (issues.length > 0)
        throw new PawlError(
          'INVALID_PARAMS',
          `The parameters of ${tool.name} are not valid: ${issues.map((issue) => `${issue.path}: ${issue.message}`).join('; ')}.`,
          { issues },
        );
      const timeoutMs = Math.min(
        envelope.payload.callHints?.timeoutMs ?? tool.timeoutMs,
        policy.timeoutMs ?? Number.POSITIVE_INFINITY,
      );
      const capabilities = capabilitiesFor({
        session,
        needs: tool.needs,
        tier: tool.tier,
        callId: begun.job.callId,
        signal: running.signal,
        env: this.#parts.environment,
        allowedHosts: this.#parts.settings.allowedHosts,
      });
      for (const need of tool.needs) capabilities.demand(need);
      const context = this.#context(begun, session, capabilities);
      return {
        tool,
        params: tool.parse(envelope.payload.params),
        context,
        running,
        timeoutMs,
        remainingMs,
        policy: begun.retry,
        validateOutput,
        log: this.#parts.log,
      };
    } catch (error) {
      const failure =
        error instanceof PawlError
          ? failureOf(error.code, error.message, error.issues === undefined ? {} : { issues: error.issues })
          : failureOf('INVALID_PARAMS', error instanceof Error ? error.message : String(error));
      return this.#fail(begun, failure, 'error', false);
    }
  }

  /** Checked again here: the producer's word is not enough (DESIGN, decision 11). */
  #permit({ job, registered, policy }: Begun, session: SessionRecord): void {
    const { tool } = registered;
    const deny = (reason: string): never => {
      throw new PawlError('PERMISSION_DENIED', `${tool.name} (tier ${tool.tier}) is denied: ${reason}.`);
    };
    if (policy.enabled === false) deny('the tool is disabled by configuration');
    if (placeFor(job.callId).tier !== tool.tier) deny(`it came through the queue of another tier`);
    if (!SESSION_TIERS[session.kind].includes(tool.tier)) deny(`a ${session.kind} session may not use it`);
    if (tool.tier === 'elevated') deny('nobody has approved the call');
  }

  #context(
    begun: Begun,
    session: SessionRecord,
    capabilities: Pick<ToolContext, 'workspace' | 'processes' | 'memory' | 'channel' | 'fetch'>,
  ): ToolContext {
    const { envelope, started, job, running } = begun;
    const { ledger } = this.#parts.backend;
    const { log, settings } = this.#parts;
    const fields = { callId: job.callId, toolName: envelope.toolName, sessionKey: session.sessionKey };
    const tellProgress = throttled((progress: object) => {
      ledger
        .tell(job.callId, started.fence, settings.lockDurationMs, { type: 'progress', callId: job.callId, ...progress })
        .catch(() => {});
    });
    return {
      ...pick(capabilities),
      callId: job.callId,
      sessionKey: session.sessionKey,
      ...(session.agentId === undefined ? {} : { agentId: session.agentId }),
      actorId: envelope.target.actorId,
      ...(session.tenantId === undefined ? {} : { tenantId: session.tenantId }),
      attempt: begun.attempt,
      fence: started.fence,
      idempotencyKey: started.request.idempotencyKey,
      signal: running.signal,
      ...(envelope.control.deadlineAtMs === undefined ? {} : { deadlineAtMs: envelope.control.deadlineAtMs }),
      trace: envelope.trace.traceparent === undefined ? {} : { traceparent: envelope.trace.traceparent },
      values: new Map(),
      log: {
        debug: (message, more) => log.debug({ ...fields, ...more }, message),
        info: (message, more) => log.info({ ...fields, ...more }, message),
        warn: (message, more) => log.warn({ ...fields, ...more }, message),
        error: (message, more) => log.error({ ...fields, ...more }, message),
      },
      progress: (progress) =>
        tellProgress({ progress: progress.progress, total: progress.total, message: progress.message }),
    };
  }

  // run

  async #run(begun: Begun, options: AttemptOptions): Promise<Ending> {
    const { job, envelope, attempt, started } = begun;
    this.#parts.onEvent({ type: 'tool_call_start', callId: job.callId, envelope, attempt, fence: started.fence });
    return this.#parts.nodeCircuits.run(qualifiedName(begun.registered.tool), begun.circuit.policy, async () => {
      const ending = await runTool(options);
      return { value: ending, failed: failureIn(ending)?.againstCircuit ?? false };
    });
  }

  // judge

  async #judge(begun: Begun, ending: Ending): Promise<Verdict> {
    if (ending.kind === 'value') return this.#succeed(begun, ending.result);
    if (ending.kind === 'failure') return this.#failed(begun, ending.failure);
    return this.#interrupted(begun, ending);
  }

  async #succeed(
    begun: Begun,
    result: { readonly output: unknown; readonly display?: string; readonly artifacts?: readonly object[] },
  ): Promise<Verdict> {
    const { tool } = begun.registered;
    const metadata = {
      ...(result.display === undefined ? {} : { display: String(result.display) }),
      ...(result.artifacts === undefined || result.artifacts.length === 0 ? {} : { artifacts: result.artifacts }),
    };
    const outcome: Outcome = {
      ...this.#outcomeBase(begun),
      status: 'success',
      output: { content: result.output ?? null, ...(Object.keys(metadata).length === 0 ? {} : { metadata }) },
    };
    let outcomeJson: string;
    try {
      outcomeJson = JSON.stringify(outcome);
    } catch (error) {
      return this.#failed(
        begun,
        failureOf(
          'RESULT_INVALID',
          `The output of ${tool.name} cannot be said in JSON: ${error instanceof Error ? error.message : String(error)}`,
        ),
      );
    }
    const maxBytes = begun.policy.maxResultBytes ?? tool.maxResultBytes;
    const bytes = outcomeJson.length * 3 <= maxBytes ? 0 : Buffer.byteLength(outcomeJson);
    if (bytes > maxBytes)
      return this.#failed(
        begun,
        failureOf(
          'RESULT_TOO_LARGE',
          `The result of ${tool.name} is ${bytes} bytes large; at most ${maxBytes} are allowed.`,
        ),
      );
    const attempts = [...begun.started.earlier, attemptRecord(this.#attemptBase(begun), this.#nowMs(begun), undefined)];
    if (begun.circuit.probe !== undefined) await this.#changeCircuit(begun.circuit, true);
    const { key, policy, seen } = begun.circuit;
    return this.#end(begun, outcome, outcomeJson, attempts, {
      circuit: key,
      epoch: seen.epoch,
      windowSize: windowSize(policy),
      windowMs: policy.windowMs,
    });
  }

  /** The attempt failed by itself: count it, then try again or give up. */
  async #failed(begun: Begun, failure: Failure): Promise<Verdict> {
    const circuitState = await this.#countFailure(begun.circuit, failure);
    const { envelope, started } = begun;
    const elapsedMs = this.#nowMs(begun) - started.firstStartedAtMs;
    const deadlineAtMs = envelope.control.deadlineAtMs;
    const decision = decideRetry(
      {
        failure,
        effects: begun.registered.tool.effects,
        attempt: begun.attempt,
        elapsedMs,
        remainingMs: deadlineAtMs === undefined ? undefined : deadlineAtMs - this.#nowMs(begun),
        expectedRetrySafe: envelope.payload.callHints?.expectedRetrySafe ?? false,
        circuitState,
      },
      begun.retry,
      this.#parts.random,
    );
    if (decision.kind === 'stop') return this.#fail(begun, failure, decision.status, true, circuitState);
    const attempts = [
      ...started.earlier,
      attemptRecord(this.#attemptBase(begun), this.#nowMs(begun), failure, decision.delayMs),
    ];
    this.#parts.onEvent({
      type: 'tool_call_retry',
      callId: begun.job.callId,
      envelope,
      attempt: begun.attempt,
      delayMs: decision.delayMs,
      errorCode: failure.code,
    });
    return this.#postpone(begun, 'waiting-retry', attempts, decision.delayMs, {
      type: 'retrying',
      callId: begun.job.callId,
      attempt: begun.attempt,
      delayMs: decision.delayMs,
      reasonCode: failure.code,
    });
  }

  /** The attempt was ended from outside. */
  async #interrupted(begun: Begun, ending: Extract<Ending, { kind: 'aborted' }>): Promise<Verdict> {
    const { reason, wound } = ending;
    const { effects } = begun.registered.tool;
    // The tool finished all the same: what happened, happened.
    if (wound === 'value' && ending.result !== undefined && reason.code !== 'LEASE_LOST')
      return this.#succeed(begun, ending.result);
    const failure = {
      ...failureOf(reason.code, reason.message),
      ...(wound === 'nothing-happened' ? { nothingHappened: true } : {}),
    };
    switch (reason.code) {
      case 'LEASE_LOST':
        // Whoever takes the job over finds an attempt without a record, and knows what to do with it.
        return { kind: 'abandoned' };
      case 'CANCELLED':
        return this.#fail(
          begun,
          failure,
          'error',
          true,
          undefined,
          settlementOfAborted(effects, wound === 'nothing-happened'),
        );
      case 'DRAINED': {
        if (effects === 'probe') return { kind: 'abandoned' };
        if (
          !mayRunAgain({
            failure,
            effects,
            expectedRetrySafe: begun.envelope.payload.callHints?.expectedRetrySafe ?? false,
          })
        )
          return this.#fail(begun, failureOf('OUTCOME_UNKNOWN'), 'error');
        const written = await this.#parts.backend.ledger.postpone(
          begun.job.callId,
          begun.started.fence,
          'queued',
          begun.started.earlier,
          0,
        );
        return written === 'cancelled'
          ? this.#fail(begun, failureOf('CANCELLED'), 'error', true, undefined, 'cancelled')
          : { kind: 'handed-back' };
      }
      default:
        return this.#failed(begun, failure);
    }
  }

  // write

  /** Ends the call with an error. `spent` is false when the tool's code was never reached. */
  async #fail(
    begun: Begun,
    failure: Failure,
    status: FailureStatus,
    spent = true,
    breakerState?: CircuitState,
    settlement?: Settlement,
  ): Promise<Verdict> {
    const { earlier, takenOver } = begun.started;
    const ran = spent && !(takenOver && (failure.code === 'OUTCOME_UNKNOWN' || failure.code === 'POISONED'));
    const attempts = ran ? [...earlier, attemptRecord(this.#attemptBase(begun), this.#nowMs(begun), failure)] : earlier;
    if (begun.circuit.probe !== undefined && !failure.againstCircuit)
      await this.#changeCircuit(begun.circuit, undefined);
    const outcome: Outcome = {
      ...this.#outcomeBase(begun),
      status,
      attempts: attempts.length,
      error: resultError(failure, status, breakerState),
      ...(settlement === undefined ? {} : { settlement }),
    };
    return this.#end(begun, outcome, JSON.stringify(outcome), attempts);
  }

  #end(
    begun: Begun,
    outcome: Outcome,
    outcomeJson: string,
    attempts: readonly AttemptRecord[],
    sample?: Settle['sample'],
  ): Promise<Verdict> {
    const { job, envelope, started, policy } = begun;
    const { ttl } = this.#parts.settings;
    const state = stateOf(outcome);
    // A call with an unknown outcome must not be forgotten sooner than a success.
    const lasting = state === 'done' || outcome.error?.code === 'OUTCOME_UNKNOWN';
    const ttlMs = lasting
      ? (policy.ttl?.doneMs ?? ttl.doneMs)
      : state === 'cancelled'
        ? ttl.cancelledMs
        : (policy.ttl?.failedMs ?? ttl.failedMs);
    this.#parts.onEvent({
      type: 'tool_call_end',
      callId: job.callId,
      envelope,
      outcome,
      attempt: begun.attempt,
      elapsedMs: this.#nowMs(begun) - started.nowMs,
    });
    return this.#write(
      {
        callId: job.callId,
        fence: started.fence,
        state,
        outcome,
        outcomeJson,
        attempts,
        ttlMs,
        ...(sample === undefined ? {} : { sample }),
      },
      begun.running,
    );
  }

  /** Writes the outcome, again and again while Redis cannot take it and the lease still holds. */
  async #write(settle: Settle, running?: RunningAttempt): Promise<Verdict> {
    const answer = await this.#patiently(() => this.#parts.backend.ledger.settle(settle), running);
    if (answer === 'settled') return { kind: 'finished', outcome: settle.outcome };
    return answer === 'fenced' || answer === undefined ? { kind: 'abandoned' } : { kind: 'dropped' };
  }

  async #postpone(
    begun: Begun,
    phase: 'waiting-retry' | 'queued',
    attempts: readonly AttemptRecord[],
    delayMs: number,
    event?: object,
  ): Promise<Verdict> {
    const { ledger } = this.#parts.backend;
    const answer = await this.#patiently(
      () => ledger.postpone(begun.job.callId, begun.started.fence, phase, attempts, delayMs, event),
      begun.running,
    );
    if (answer === 'postponed') return { kind: 'later', delayMs };
    if (answer === 'cancelled') return this.#fail(begun, failureOf('CANCELLED'), 'error', true, undefined, 'cancelled');
    return answer === 'fenced' || answer === undefined ? { kind: 'abandoned' } : { kind: 'dropped' };
  }

  async #patiently(
    write: () => Promise<WriteAnswer>,
    running: RunningAttempt | undefined,
  ): Promise<WriteAnswer | undefined> {
    for (;;) {
      try {
        return await write();
      } catch (error) {
        if (!(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
        this.#parts.log.warn({ error: error.message }, 'an outcome cannot be written yet');
        const lost = running?.signal.aborted === true && (running.signal.reason as PawlError).code === 'LEASE_LOST';
        if (lost) return undefined;
        await new Promise((resolve) => setTimeout(resolve, WRITE_AGAIN_MS));
      }
    }
  }

  // circuit

  async #countFailure(hold: CircuitHold, failure: Failure): Promise<CircuitState> {
    if (!failure.againstCircuit) return hold.seen.state;
    if (hold.probe !== undefined) return this.#changeCircuit(hold, false);
    const { breakers } = this.#parts.backend;
    const { place, key, policy, seen } = hold;
    const counted = await breakers.addFailure(place, key, seen.epoch, windowSize(policy), policy.windowMs);
    const next = afterWindow(counted.circuit, counted.window, policy, counted.nowMs);
    if (next === undefined) return counted.circuit.state;
    const { changed, circuit } = await breakers.change(place, key, counted.circuit, next, policy.cooldownMs);
    if (changed)
      this.#parts.onEvent({
        type: 'tool_call_circuit_state',
        circuit: key,
        from: 'CLOSED',
        to: next.state,
        ...(next.state === 'OPEN' ? { reason: next.reason } : {}),
      });
    return circuit.state;
  }

  /** A probe's answer; `ok` undefined gives the lease back without one. */
  async #changeCircuit(hold: CircuitHold, ok: boolean | undefined): Promise<CircuitState> {
    const { backend } = this.#parts;
    const next = afterProbe(hold.seen, hold.policy, hold.probe ?? '', ok, await backend.ledger.now());
    if (next === undefined) return hold.seen.state;
    const { changed, circuit } = await backend.breakers.change(
      hold.place,
      hold.key,
      hold.seen,
      next,
      next.state === 'OPEN' ? next.cooldownMs : 0,
    );
    if (changed && next.state !== 'HALF_OPEN')
      this.#parts.onEvent({ type: 'tool_call_circuit_state', circuit: hold.key, from: 'HALF_OPEN', to: next.state });
    return circuit.state;
  }

  // values

  #outcomeBase(begun: Begun): Pick<Outcome, 'toolName' | 'durationMs' | 'attempts'> {
    const { started, envelope, attempt } = begun;
    return {
      toolName: envelope.toolName,
      durationMs: this.#nowMs(begun) - started.firstStartedAtMs,
      attempts: attempt,
      ...retriedBy(started.earlier),
    };
  }

  #attemptBase({ attempt, started }: Begun): Pick<AttemptRecord, 'attempt' | 'fence' | 'worker' | 'startedAtMs'> {
    return { attempt, fence: started.fence, worker: this.#parts.workerId, startedAtMs: started.nowMs };
  }

  /** Redis' clock, carried on by this process's monotonic one. */
  #nowMs({ started, beganMonotonicMs }: Begun): number {
    return Math.round(started.nowMs + this.#parts.clock.monotonic() - beganMonotonicMs);
  }
}

function placeFor(callId: string): Place {
  const place = placeOf(callId);
  if (place === undefined) throw new PawlError('UNKNOWN_CALL', `${JSON.stringify(callId)} is not a call ID.`);
  return place;
}

function failureIn(ending: Ending): Failure | undefined {
  if (ending.kind === 'failure') return ending.failure;
  return ending.kind === 'aborted' ? failureOf(ending.reason.code) : undefined;
}

function retriedBy(earlier: readonly AttemptRecord[]): Pick<Outcome, 'retriedBy'> {
  const retried = earlier.filter((attempt) => attempt.status === 'error' || attempt.status === 'lost');
  if (retried.length === 0) return {};
  return {
    retriedBy: retried.map((attempt) => ({
      attempt: attempt.attempt,
      delayMs: attempt.delayMs ?? 0,
      reasonCode: attempt.errorCode ?? 'LEASE_LOST',
      latencyMs: attempt.finishedAtMs - attempt.startedAtMs,
    })),
  };
}

function pick({
  workspace,
  processes,
  memory,
  channel,
  fetch,
}: Pick<ToolContext, 'workspace' | 'processes' | 'memory' | 'channel' | 'fetch'>) {
  return { workspace, processes, memory, channel, fetch };
}

function withoutUndefined<T extends object>(value: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

const PROGRESS_INTERVAL_MS = 100;

/** At most one report per interval; the last one is never lost. */
function throttled(tell: (value: object) => void): (value: object) => void {
  let pending: object | undefined;
  let timer: NodeJS.Timeout | undefined;
  const flush = () => {
    timer = undefined;
    if (pending === undefined) return;
    tell(pending);
    pending = undefined;
    timer = setTimeout(flush, PROGRESS_INTERVAL_MS);
    timer.unref();
  };
  return (value) => {
    pending = value;
    if (timer === undefined) flush();
  };
}
