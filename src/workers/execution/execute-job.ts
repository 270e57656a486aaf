/**
 * One job, from its queue to the ledger, as a list of steps:
 *
 * begin      take the next fence, or learn that there is nothing to do; pass the fleet's circuit (`begin-attempt.ts`)
 * wait       postpone the call that starts later
 * recover    decide what follows an attempt that left its effect open (`recover-attempt.ts`)
 * check      refuse the call whose circuit is forced open (`check-forced-circuit.ts`)
 * vote       leave the call to workers that have not voted yet (`consensus.ts`)
 * limit      park the call until the fleet's limits let it start (`acquire-limits.ts`)
 * prepare    find tool, permission, parameters and context in this worker's own registry (`prepare-call.ts`)
 * ready      park the call until what its tool waits for is there
 * lock       park the call until no other one works on its resource (`acquire-resource.ts`)
 * persist    bring the start to disk where the tool's durability asks for it (`persist-start.ts`)
 * guard      run the hooks before the attempt, which may rewrite or deny (`attempt-hooks.ts`)
 * run        run the tool's code (`run-tool.ts`), and the hooks after it
 * decide     settle, try again later, release the job, or leave it to other workers (`decide-outcome.ts`)
 *
 * Each step takes what the one before returned, or ends the job. A step that returns nothing lets the call go on.
 */
import { hasTarget } from '../../shared/circuits/circuit-key.ts';
import { failureOf, PawlError, reasonOf } from '../../shared/errors/failure.ts';
import type { BeginResult } from '../../shared/store/calls/begin-attempt.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import { qualifiedName } from '../../shared/tools/tool.ts';
import { type AttemptResult, finishedResult } from '../attempt/attempt-result.ts';
import { type Attempt, nowMs, waitedMs } from '../attempt/attempt-state.ts';
import type { JobOutcome, Step } from '../attempt/job-outcome.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import { serializeResult } from '../outcome/serialize-result.ts';
import { type AttemptSteps, composeSteps } from './compose-steps.ts';
import type { ExecutorDeps } from './executor-deps.ts';
import { type PreparedOptions, refusalFailure } from './prepare-call.ts';
import { type AttemptOptions, checkReady, runAttempt } from './run-tool.ts';
import { NO_WORKER_DELAY_MS } from './skip-worker.ts';

export class Executor {
  readonly #deps: ExecutorDeps;
  readonly #steps: AttemptSteps;
  /** Attempts in which the tool's code was reached. */
  readonly #ran = new WeakSet<Attempt>();

  constructor(deps: ExecutorDeps) {
    this.#deps = deps;
    this.#steps = composeSteps(deps, (attempt) => this.#reachCode(attempt));
  }

  /** `beginResult` is the answer to the attempt's start, when the fetch of the job started it too. */
  async execute(job: CallJob, running: RunningAttempt, beginResult?: BeginResult): Promise<JobOutcome> {
    try {
      return await this.#execute(job, running, beginResult);
    } finally {
      this.#steps.starter.attemptEnded(running);
    }
  }

  async #execute(job: CallJob, running: RunningAttempt, beginResult: BeginResult | undefined): Promise<JobOutcome> {
    const { locks, limits, gate } = this.#deps;
    const start = await this.#steps.starter.begin(job, running, beginResult);
    if ('end' in start) {
      await locks?.releaseUnused(job, start.end);
      return start.end;
    }
    const attempt = start.go;
    const outcome = await this.#attempt(attempt)
      .catch((error) => this.#releaseAfterOutage(attempt, error))
      .finally(() => limits?.release(attempt));
    await locks?.release(attempt, outcome);
    if (!this.#ran.has(attempt)) this.#steps.audit.withoutAttempt(attempt, outcome);
    await gate?.release(attempt, outcome);
    if (running.leaseLost) attempt.trace?.failed(failureOf('LEASE_LOST'));
    attempt.trace?.end(outcome);
    return outcome;
  }

  /**
   * Redis failed before the tool's code was reached: nothing has happened, and the job goes back without consuming an attempt. Throws every
   * other error.
   */
  #releaseAfterOutage(attempt: Attempt, error: unknown): Promise<JobOutcome> {
    if (this.#ran.has(attempt) || !(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
    // Releasing this attempt would lose the probe of the previous one. The lease runs out instead, and the call is recovered again.
    if (attempt.started.recovered && attempt.tool.effects === 'once') throw error;
    this.#deps.log.warn(
      { callId: attempt.callId, error: error.message },
      'Redis is unavailable: the attempt cannot start and will be retried',
    );
    return this.#steps.parking.requeue(attempt, NO_WORKER_DELAY_MS);
  }

  async #attempt(attempt: Attempt): Promise<JobOutcome> {
    const { forced, consensus, preparation, ender, barrier } = this.#steps;
    const notAdmitted =
      (await this.#waitForStart(attempt)) ??
      (await this.#recover(attempt)) ??
      (await forced.check(attempt)) ??
      (await consensus.leaveToOtherVoters(attempt)) ??
      (await this.#limit(attempt));
    if (notAdmitted !== undefined) return notAdmitted;
    // The preparation parses the parameters, for which the schema of a tool may run code.
    await this.#reachCode(attempt);
    const prepared = await preparation.prepare(attempt);
    if ('failure' in prepared) return ender.fail(attempt, prepared.failure, { status: prepared.status, ran: false });
    const { options } = prepared;
    const notReady =
      (await this.#ready(attempt, options)) ??
      (await this.#lock(attempt, options.params, 'draft')) ??
      (await barrier.persist(attempt));
    if (notReady !== undefined) return notReady;
    const guarded = await this.#guard(attempt, options);
    if ('end' in guarded) return guarded.end;
    const result = await this.#run(attempt, guarded.go);
    return this.#decide(attempt, guarded.go, result);
  }

  /** The record's own time is not signed: a writer to Redis can bring it forward. The start in the request is signed. */
  async #waitForStart(attempt: Attempt): Promise<JobOutcome | undefined> {
    const { request, nowMs: beganAtMs, earlierAttempts: earlier, recovered } = attempt.started;
    const delayMs = request.startAtMs === undefined ? 0 : request.startAtMs - beganAtMs;
    if (delayMs <= 0 || recovered) return undefined;
    return this.#steps.parking.postpone(attempt, { phase: 'unstarted', attempts: earlier, delayMs });
  }

  async #recover(attempt: Attempt): Promise<JobOutcome | undefined> {
    if (attempt.started.recovered) this.#steps.audit.lost(attempt);
    return this.#steps.recovery.recover(attempt);
  }

  async #limit(attempt: Attempt): Promise<JobOutcome | undefined> {
    const waiting = await this.#deps.limits?.acquire(attempt);
    return waiting && this.#steps.parking.parkUntil(attempt, waiting.waitMs, waiting.isReady);
  }

  /** From here on the tool's own code and hooks run. The record of a suspect call says so, in case its worker is lost. */
  async #reachCode({ callId, started, running }: Attempt): Promise<void> {
    const { solitude, backend } = this.#deps;
    if (solitude?.isHeldBy(running) === true) await backend.ledger.reachCode?.(callId, started.fence);
  }

  async #ready(attempt: Attempt, options: AttemptOptions): Promise<JobOutcome | undefined> {
    const { started } = attempt;
    if (options.tool.ready === undefined) return undefined;
    const check = () => checkReady(options, nowMs(attempt) - started.firstStartedAtMs);
    const answer = await check();
    if (answer.kind === 'ready') return undefined;
    if (answer.kind !== 'waiting') return this.#steps.resolver.resolve(attempt, answer);
    const delayMs = Math.min(answer.againInMs, options.remainingMs ?? answer.againInMs);
    const isReady = async () => (await check()).kind !== 'waiting';
    return this.#steps.parking.parkUntil(attempt, delayMs, isReady);
  }

  async #lock(attempt: Attempt, params: unknown, stage: 'draft' | 'final'): Promise<JobOutcome | undefined> {
    const answer = await this.#deps.locks?.acquire(attempt, params, stage);
    switch (answer?.kind) {
      case undefined:
      case 'granted':
        return undefined;
      case 'failed':
        return this.#steps.ender.giveUp(attempt, answer.failure);
      case 'fenced':
        return { kind: 'abandoned' };
      case 'waiting':
        return this.#steps.parking.parkForLock(attempt, answer.withinMs);
    }
  }

  /** Parameters that a hook rewrote may work on another resource, which needs its own lock. */
  async #guard(attempt: Attempt, options: PreparedOptions): Promise<Step<AttemptOptions>> {
    let guarded: AttemptOptions;
    try {
      guarded = await this.#steps.hooks.before(attempt, options);
    } catch (error) {
      return { end: await this.#steps.ender.giveUp(attempt, refusalFailure(error)) };
    }
    const notLocked = await this.#lock(attempt, guarded.params, 'final');
    return notLocked === undefined ? { go: guarded } : { end: notLocked };
  }

  async #run(attempt: Attempt, options: AttemptOptions): Promise<AttemptResult> {
    const { callId, envelope, number, started, tool, circuit, trace } = attempt;
    const waited = number === 1 && tool.ready === undefined ? { waitedMs: waitedMs(attempt) } : {};
    const event = { callId, envelope, attempt: number, fence: started.fence };
    this.#deps.onEvent({ type: 'tool_call_start', ...event, ...waited });
    const run = () => (trace === undefined ? runAttempt(options) : trace.run(() => runAttempt(options)));
    // A failing target says nothing about this node, and a bypassed circuit counts nothing.
    if (circuit.bypassed || hasTarget(circuit.key)) return run();
    return this.#deps.nodeCircuits.run(qualifiedName(tool), circuit.policy, async () => {
      const result = await run();
      return { value: result, failed: countsAgainstNode(result) };
    });
  }

  async #decide(attempt: Attempt, options: AttemptOptions, result: AttemptResult): Promise<JobOutcome> {
    const { hooks, audit, resolver } = this.#steps;
    const tookMs = attempt.clock.monotonic() - attempt.beganMonotonicMs;
    this.#ran.add(attempt);
    attempt.running.codeEnded();
    await this.#chargeTime(attempt, tookMs);
    const final = await hooks.after(attempt, options, finishedResult(result));
    const serialized = await serializeResult(attempt, final, options.context.changes.unified());
    // The audit trail records a result that cannot be serialized as a failure, as the caller sees it.
    const isUnserializable = final.kind === 'value' && serialized.kind === 'failure';
    await audit.ended(attempt, isUnserializable ? serialized : result, serialized, tookMs);
    return resolver.resolve(attempt, serialized);
  }

  /** Takes the attempt's time from the budgets that count it. A budget that cannot be reached is not charged. */
  async #chargeTime({ started, callId }: Attempt, tookMs: number): Promise<void> {
    const { timed } = started.request;
    if (timed === undefined) return;
    try {
      await this.#deps.backend.ledger.spendTime(timed, tookMs);
    } catch (error) {
      const message = reasonOf(error);
      this.#deps.log.warn({ callId, error: message }, 'failed to charge attempt time to budget');
    }
  }
}

function countsAgainstNode(result: AttemptResult): boolean {
  if (result.kind === 'failure') return result.failure.againstCircuit;
  return result.kind === 'aborted' && failureOf(result.reason.code).againstCircuit;
}
