/**
 * One job, from the queue to the ledger, as steps that read aloud:
 *
 * begin     take the next fence, or learn that there is nothing to do (`admission.ts`)
 * admit     pass the fleet's circuit, be its probe, or be refused (`admission.ts`)
 * recover   decide what became of an attempt that left its effect open, and whether configuration forces the circuit open
 * pace      wait, without holding anything, until the fleet's limits let the call start
 * prepare   tool, permission, parameters, context: all from this worker's own registry, nothing from the job (`preparation.ts`)
 * await     wait, without holding anything, until what the tool waits for has come
 * take turns  wait until nobody else changes the resource that the call works on, where the tool names one
 * secure    bring the begin to disk where the tool's durability asks for it
 * guard     the hooks before the attempt, which may rewrite or deny
 * run       the tool's code, in `attempt.ts`, and the hooks after it
 * judge     settle, try again later, hand back, or leave it to others (`judge.ts`)
 *
 * Each step takes what the one before returned, or ends the job with a verdict.
 */

import { recovery } from '../../shared/calls/call-state.ts';
import { votesOf } from '../../shared/calls/consensus.ts';
import { FORCED_BY_CONFIGURATION, forcedOpenText, isOfTarget } from '../../shared/circuits/circuit-breaker.ts';
import { durabilityOf } from '../../shared/config/durability.ts';
import { type Failure, failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { BeginResult } from '../../shared/store/calls/begin-attempt.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import { qualifiedName, type ToolResult } from '../../shared/tools/tool.ts';
import { type Attempt, needsProbe, nowMs, supportsProbe, waitedMs } from '../attempt/attempt-state.ts';
import type { JobOutcome, Step } from '../attempt/job-outcome.ts';
import { retryUntilLeaseLost } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import { FleetCircuits } from '../circuits/fleet-circuit.ts';
import { AttemptHooks } from './attempt-hooks.ts';
import { AttemptAudit } from './audit.ts';
import { Admission, ELSEWHERE_MS } from './begin-attempt.ts';
import { mayRunHere, nextVoters, tooFew } from './consensus.ts';
import { OutcomeResolver } from './decide-outcome.ts';
import type { ExecutorDeps } from './executor-deps.ts';
import { Preparation, refusalOf } from './prepare-call.ts';
import { type AttemptOptions, askReady, type Ending, lastWord, runProbe, runTool } from './run-tool.ts';
import { CallSettler } from './settle-call.ts';
import { reportShadow } from './shadow-mode.ts';

/** How long a call waits for one that has voted already, or for a voter that does not live yet. */
const NEXT_VOTER_MS = 200;

export class Executor {
  readonly #parts: ExecutorDeps;
  readonly #circuits: FleetCircuits;
  readonly #settler: CallSettler;
  readonly #hooks: AttemptHooks;
  readonly #audit: AttemptAudit;
  readonly #resolver: OutcomeResolver;
  readonly #admission: Admission;
  readonly #preparation: Preparation;
  /** Attempts in which the tool's code was reached. */
  readonly #ran = new WeakSet<Attempt>();

  constructor(parts: ExecutorDeps) {
    const { backend, settings, log, schedule } = parts;
    this.#parts = parts;
    this.#settler = new CallSettler(backend.ledger, settings, log, { schedule, endsWithJob: parts.endsWithJob });
    this.#hooks = new AttemptHooks(parts.hooks);
    this.#audit = new AttemptAudit(parts.audit, log, schedule);
    this.#circuits = new FleetCircuits(
      backend.breakers,
      () => backend.ledger.now(),
      (change) => parts.onEvent({ type: 'tool_call_circuit_state', ...change }),
    );
    this.#resolver = new OutcomeResolver(parts, this.#circuits, this.#settler, this.#hooks);
    this.#admission = new Admission(parts, this.#circuits, this.#settler);
    this.#preparation = new Preparation(parts, this.#resolver);
  }

  /** `begun` is what begin answered already, when the job was taken. */
  async execute(job: CallJob, running: RunningAttempt, begun?: BeginResult): Promise<JobOutcome> {
    try {
      return await this.#execute(job, running, begun);
    } finally {
      this.#admission.left(running);
    }
  }

  async #execute(job: CallJob, running: RunningAttempt, answer: BeginResult | undefined): Promise<JobOutcome> {
    const begun = await this.#admission.enter(job, running, answer);
    if ('end' in begun) {
      await this.#parts.locks?.leaveUnused(job, begun.end);
      return begun.end;
    }
    const verdict = await this.#attempt(begun.go)
      .catch((error) => this.#handBack(begun.go, error))
      .finally(() => this.#parts.limits?.leave(begun.go));
    await this.#parts.locks?.leave(begun.go, verdict);
    if (!this.#ran.has(begun.go)) this.#audit.withoutAttempt(begun.go, verdict);
    await this.#parts.gate?.leave(begun.go, verdict);
    if (running.leaseLost) begun.go.trace?.failed(failureOf('LEASE_LOST'));
    begun.go.trace?.end(verdict);
    return verdict;
  }

  /** Redis could not take a step before the tool's code was reached: nothing has happened, and the attempt goes back unspent. */
  #handBack(begun: Attempt, error: unknown): Promise<JobOutcome> {
    if (this.#ran.has(begun) || !(error instanceof PawlError) || error.code !== 'BACKEND_UNAVAILABLE') throw error;
    // Of the attempt before it nobody would ask any more: the call is recovered by its lease once again.
    if (begun.started.recovered && begun.registered.tool.effects === 'once') throw error;
    this.#parts.log.warn({ callId: begun.callId, error: error.message }, 'an attempt cannot be made ready now');
    return this.#wait(begun, ELSEWHERE_MS);
  }

  async #attempt(begun: Attempt): Promise<JobOutcome> {
    if (begun.started.recovered) this.#audit.lost(begun);
    const recovered = await this.#recover(begun);
    if ('end' in recovered) return recovered.end;
    const forced = await this.#refuseForcedOpen(begun);
    if (forced !== undefined) return forced;
    const elsewhere = await this.#leaveToOtherVoters(begun);
    if (elsewhere !== undefined) return elsewhere;
    const paced = await this.#parts.limits?.enter(begun);
    if (paced !== undefined) return this.#waitUntil(begun, paced.waitMs, paced.isReady);
    const prepared = await this.#preparation.prepare(begun);
    if ('end' in prepared) return prepared.end;
    await this.#reachCode(begun);
    const ready = await this.#awaitReady(begun, prepared.go);
    if ('end' in ready) return ready.end;
    const turn = await this.#takeTurn(begun, prepared.go.params, true);
    if ('end' in turn) return turn.end;
    const secured = await this.#secure(begun);
    if ('end' in secured) return secured.end;
    const guarded = await this.#guard(begun, prepared.go);
    if ('end' in guarded) return guarded.end;
    const ending = await this.#run(begun, guarded.go);
    const tookMs = begun.clock.monotonic() - begun.beganMonotonicMs;
    this.#ran.add(begun);
    await this.#spend(begun, tookMs);
    const final = await this.#hooks.after(begun, guarded.go, lastWord(ending));
    const worded = await this.#resolver.word(begun, final, guarded.go.context.changes.unified());
    // What nobody can be given is no success, for the audit trail as for its caller.
    const isUnsaid = final.kind === 'value' && worded.kind === 'failure';
    await this.#audit.ended(begun, isUnsaid ? worded : ending, worded, tookMs);
    return this.#resolver.decide(begun, worded);
  }

  /** From here on the tool's own code and hooks run: where the call is a suspect, that tells what a lost worker was lost to. */
  async #reachCode({ callId, started, running }: Attempt): Promise<void> {
    const { solitude, backend } = this.#parts;
    if (solitude?.isOf(running) === true) await backend.ledger.reachCode?.(callId, started.fence);
  }

  // recover

  /** An attempt before this one began and left its effect open: its tool's effects say what to do (DESIGN, decision 5). */
  async #recover(begun: Attempt): Promise<Step<void>> {
    const { started, registered, circuit, running } = begun;
    if (started.recovered || needsProbe(begun)) {
      const plan = recovery(registered.tool.effects, started.isPoison, supportsProbe(registered));
      if (plan.kind === 'stop') return { end: await this.#resolver.giveUp(begun, failureOf(plan.code)) };
      if (plan.kind === 'probe') {
        const asked = await this.#ask(begun);
        if ('end' in asked) return asked;
      }
      // The circuit opened meanwhile: the next attempt asks it like any other.
      const closed = circuit.seen.state === 'CLOSED' || circuit.probe !== undefined || begun.modes.circuits !== 'on';
      if (!closed) return { end: await this.#settler.postpone(begun, 'waiting-retry', started.earlier, 1) };
    }
    if (!running.signal.aborted) return { go: undefined };
    const reason = running.signal.reason as PawlError;
    return { end: await this.#resolver.interrupted(begun, reason, 'not-run') };
  }

  /** Asks the tool what became of that attempt; goes on when it had no effect. */
  async #ask(begun: Attempt): Promise<Step<void>> {
    const prepared = await this.#preparation.prepare(begun, true);
    if ('end' in prepared) return prepared;
    await this.#reachCode(begun);
    const asking = await this.#hooks.before(begun, prepared.go).catch(() => undefined);
    if (asking === undefined) return { end: await this.#resolver.giveUp(begun, failureOf('OUTCOME_UNKNOWN')) };
    const answer = await runProbe(asking);
    if (answer.state === 'done') return { end: await this.#found(begun, asking, answer.result) };
    if (answer.state === 'unknown') return { end: await this.#unanswered(begun, answer.fault) };
    return { go: undefined };
  }

  /** The result of the attempt that was asked about: its hooks have not seen it yet. */
  async #found(begun: Attempt, asking: AttemptOptions, result: ToolResult<unknown>): Promise<JobOutcome> {
    const ending = await this.#hooks.after(begun, asking, { kind: 'value', result });
    const worded = await this.#resolver.word(begun, ending, '');
    return worded.kind === 'value' ? this.#resolver.succeed(begun, worded) : this.#resolver.decide(begun, worded);
  }

  /** The tool gave no clear answer, or was not heard out: then what it is asked about stays as open as it was. */
  #unanswered(begun: Attempt, fault: string | undefined): Promise<JobOutcome> {
    const { aborted, reason } = begun.running.signal as { readonly aborted: boolean; readonly reason: PawlError };
    return aborted && reason.code !== 'TIMEOUT'
      ? this.#resolver.interrupted(begun, reason, 'not-run')
      : this.#resolver.giveUp(begun, unknownOutcome(fault));
  }

  /** Why a circuit is forced open: by configuration, which Redis knows nothing of, or by an operator, where the call goes through another. */
  async #forcedOpen({ policy, circuit, registered, running }: Attempt): Promise<string | undefined> {
    if (policy.circuit?.forcedOpen === true) return FORCED_BY_CONFIGURATION;
    const { forced, log, schedule } = this.#parts;
    if (forced?.mayBeAny !== true) return undefined;
    return retryUntilLeaseLost(() => forced.reasonFor(registered.tool, circuit.key), running, log, schedule);
  }

  /** R25 */
  async #refuseForcedOpen(begun: Attempt): Promise<JobOutcome | undefined> {
    const { modes, circuit, callId, envelope, attempt, started } = begun;
    const reason = await this.#forcedOpen(begun);
    if (reason === undefined) return undefined;
    const breakerState = 'FORCED_OPEN';
    const event = { callId, envelope, attempt };
    if (modes.circuits !== 'on') {
      reportShadow(this.#parts, modes.circuits, event, 'refused', breakerState);
      return undefined;
    }
    const retryAfterMs = circuit.policy.cooldownMs;
    if (circuit.policy.whenOpen === 'park') {
      await this.#circuits.release(circuit);
      return this.#settler.postpone(begun, 'queued', started.earlier, retryAfterMs);
    }
    const message = forcedOpenText(envelope.toolName, reason);
    const failure = failureOf('CIRCUIT_OPEN', message, { retryAfterMs });
    this.#parts.onEvent({ type: 'tool_call_blocked', ...event, errorCode: failure.code, breakerState });
    return this.#resolver.fail(begun, failure, { status: 'circuit_open', ran: false, breakerState });
  }

  // consensus (I11)

  /** This worker has answered already: another one runs the call, if one comes in time. */
  async #leaveToOtherVoters(begun: Attempt): Promise<JobOutcome | undefined> {
    if (this.#parts.isAlone === true || mayRunHere(begun)) return undefined;
    const { started } = begun;
    const lastVoteAtMs = started.earlier.at(-1)?.finishedAtMs ?? started.firstStartedAtMs;
    if (started.nowMs - lastVoteAtMs > this.#parts.settings.toolWaitMs)
      return this.#resolver.giveUp(begun, tooFew(begun));
    const next = nextVoters(begun, votesOf(started.earlier), this.#parts.othersWith?.(begun.registered.tool));
    const verdict = await this.#wait(begun, next === undefined ? NEXT_VOTER_MS : 0);
    return next !== undefined && verdict.kind === 'handed-back' ? next : verdict;
  }

  // pace

  /** The fleet's limits do not let the call start yet: the attempt goes back unspent. */
  async #wait(begun: Attempt, waitMs: number): Promise<JobOutcome> {
    const { log, schedule } = this.#parts;
    await retryUntilLeaseLost(() => this.#circuits.release(begun.circuit), begun.running, log, schedule);
    return this.#settler.postpone(begun, 'queued', begun.started.earlier, waitMs);
  }

  /** The same for a call that is woken: what woke it may have come before its job was put aside. */
  async #waitUntil(begun: Attempt, waitMs: number, isReady: () => Promise<boolean>): Promise<JobOutcome> {
    const verdict = await this.#wait(begun, waitMs);
    return verdict.kind === 'later' ? { ...verdict, kind: 'waiting', isReady } : verdict;
  }

  // await

  /** What the call waits for has not come yet: it goes back unspent, and looks once more when its job has been put aside. */
  async #awaitReady(begun: Attempt, options: AttemptOptions): Promise<Step<void>> {
    const { started } = begun;
    if (options.tool.ready === undefined) return { go: undefined };
    const ask = () => askReady(options, nowMs(begun) - started.firstStartedAtMs);
    const answer = await ask();
    if (answer.kind === 'ready') return { go: undefined };
    if (answer.kind !== 'waiting') return { end: await this.#resolver.decide(begun, answer) };
    const { againInMs } = answer;
    const isReady = async () => (await ask()).kind !== 'waiting';
    return { end: await this.#waitUntil(begun, Math.min(againInMs, options.remainingMs ?? againInMs), isReady) };
  }

  // secure

  /** A power failure must not forget that a `once` attempt began: whoever asked again would cause a second effect. */
  async #secure(begun: Attempt): Promise<Step<void>> {
    const { settings, backend, onDisk } = this.#parts;
    const { callId, started, registered, running } = begun;
    if (onDisk === undefined || durabilityOf(settings, registered.tool) !== 'waitaof') return { go: undefined };
    try {
      await onDisk(callId);
      // What is on disk may be what another server knew: the begin itself must still stand.
      if (!(await backend.ledger.renewLease(callId, started.fence, settings.lockDurationMs)).held)
        running.abort(new PawlError('LEASE_LOST'));
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      this.#parts.log.warn({ callId, error: error.message }, 'a begin cannot be brought to disk yet');
      await this.#circuits.release(begun.circuit);
      return { end: await this.#settler.postpone(begun, 'queued', started.earlier, ELSEWHERE_MS) };
    }
    if (!running.signal.aborted) return { go: undefined };
    return { end: await this.#resolver.interrupted(begun, running.signal.reason as PawlError, 'not-run') };
  }

  // take turns

  /** A call that must wait goes back unspent; `any` as `AttemptLocks` takes it. */
  async #takeTurn(begun: Attempt, params: unknown, any: boolean): Promise<Step<void>> {
    const answer = await this.#parts.locks?.take(begun, params, any);
    switch (answer?.kind) {
      case undefined:
      case 'granted':
        return { go: undefined };
      case 'failed':
        return { end: await this.#resolver.giveUp(begun, answer.failure) };
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
  async #guard(begun: Attempt, prepared: AttemptOptions): Promise<Step<AttemptOptions>> {
    let guarded: AttemptOptions;
    try {
      guarded = await this.#hooks.before(begun, prepared);
    } catch (error) {
      return { end: await this.#resolver.giveUp(begun, refusalOf(error)) };
    }
    const turn = await this.#takeTurn(begun, guarded.params, false);
    return 'end' in turn ? turn : { go: guarded };
  }

  // run

  async #run(begun: Attempt, options: AttemptOptions): Promise<Ending> {
    const { callId, envelope, attempt, started, registered, circuit } = begun;
    const waited = attempt === 1 && registered.tool.ready === undefined ? { waitedMs: waitedMs(begun) } : {};
    this.#parts.onEvent({ type: 'tool_call_start', callId, envelope, attempt, fence: started.fence, ...waited });
    const tool = () => (begun.trace === undefined ? runTool(options) : begun.trace.run(() => runTool(options)));
    if (circuit.bypassed) return tool();
    // A target that fails says nothing about this node.
    if (isOfTarget(circuit.key)) return tool();
    return this.#parts.nodeCircuits.run(qualifiedName(registered.tool), circuit.policy, async () => {
      const ending = await tool();
      return { value: ending, failed: speaksAgainstNode(ending) };
    });
  }

  /** The attempt's time, from the budgets that count it. One that cannot be reached now has it for nothing. */
  async #spend({ started, callId }: Attempt, tookMs: number): Promise<void> {
    const { timed } = started.request;
    if (timed === undefined) return;
    try {
      await this.#parts.backend.ledger.spendTime(timed, tookMs);
    } catch (error) {
      this.#parts.log.warn(
        { callId, error: error instanceof Error ? error.message : String(error) },
        'time was not counted',
      );
    }
  }
}

function speaksAgainstNode(ending: Ending): boolean {
  if (ending.kind === 'failure') return ending.failure.againstCircuit;
  return ending.kind === 'aborted' && failureOf(ending.reason.code).againstCircuit;
}

/** With what the tool said that is no answer. */
function unknownOutcome(fault: string | undefined): Failure {
  const failure = failureOf('OUTCOME_UNKNOWN');
  return fault === undefined ? failure : failureOf('OUTCOME_UNKNOWN', `${failure.message} ${fault}`);
}
