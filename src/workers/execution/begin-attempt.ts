/** Begins the attempt of a job, or ends the job: it depends on Redis' answer to the start, on the call's tool and on its circuit. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { outcomeWithoutRun } from '../../shared/calls/outcome.ts';
import { DIRECT_MODES, type ReliabilityModes, type SwitchCache } from '../../shared/config/switches.ts';
import { failureOf, PawlError } from '../../shared/errors/failure.ts';
import type { BeginResult, StartedAttempt } from '../../shared/store/calls/begin-attempt.ts';
import type { StoredRequest } from '../../shared/store/calls/call-record.ts';
import { parseCircuit } from '../../shared/store/circuits/circuits.ts';
import type { CallLedger } from '../../shared/store/ports.ts';
import type { CallJob } from '../../shared/store/queues/jobs.ts';
import type { Logger } from '../../shared/telemetry/log.ts';
import type { ApprovalGate } from '../approvals/approval-gate.ts';
import type { Attempt, RegisteredTool } from '../attempt/attempt-state.ts';
import type { CircuitHold } from '../attempt/circuit-hold.ts';
import type { JobOutcome, Step } from '../attempt/job-outcome.ts';
import type { AttemptWrites } from '../attempt/retry-write.ts';
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import type { CallSettler } from '../outcome/settle-call.ts';
import type { CircuitAdmitter, OpenCircuit } from './admit-circuit.ts';
import type { WorkerTools } from './executor-deps.ts';
import type { PendingExpiry } from './expire-pending.ts';
import type { AttemptFactory } from './new-attempt.ts';
import type { Suspects } from './run-alone.ts';
import type { IncompatibleCalls } from './skip-worker.ts';
import { incompatibilityReason } from './version-check.ts';

interface AttemptStarterDeps {
  readonly ledger: Pick<CallLedger, 'begin'>;
  readonly leaseMs: number;
  readonly workerId: string;
  readonly tools: Pick<WorkerTools, 'toolNamed' | 'toolOf'>;
  readonly switches: Pick<SwitchCache, 'modes'>;
  readonly suspects: Suspects;
  readonly writes: AttemptWrites;
  readonly circuits: CircuitAdmitter;
  readonly incompatible: IncompatibleCalls;
  readonly attempts: AttemptFactory;
  readonly settler: Pick<CallSettler, 'refuse'>;
  readonly expiry: PendingExpiry;
  readonly log: Logger;
  /** Without a gate, no call waits for a person's decision here. */
  readonly gate?: Pick<ApprovalGate, 'handlePending' | 'reportEnded'>;
}

/** The circuit as an earlier answer described it. */
type KnownCircuit = Pick<CircuitHold, 'snapshot' | 'probe'>;

/** A job, with the attempt of this process that it may become. */
interface Start {
  readonly job: CallJob;
  readonly running: RunningAttempt;
  readonly hold?: KnownCircuit;
}

export class AttemptStarter {
  readonly #deps: AttemptStarterDeps;

  constructor(deps: AttemptStarterDeps) {
    this.#deps = deps;
  }

  /** `result` is the answer to the start, when the fetch of the job started the attempt too. */
  begin(job: CallJob, running: RunningAttempt, result: BeginResult | undefined): Promise<Step<Attempt>> {
    const start = { job, running };
    return result === undefined ? this.#begin(start) : this.#handleAnswer(start, result);
  }

  /** The attempt has ended, or never began. */
  attemptEnded(running: RunningAttempt): void {
    this.#deps.suspects.leave(running);
  }

  async #begin(start: Start, acceptsSuspect = false): Promise<Step<Attempt>> {
    const { ledger, workerId, leaseMs, suspects, writes } = this.#deps;
    const { job, running, hold } = start;
    let isRetry = false;
    const ask = async () => {
      // An attempt that has not begun, and shall end, need not begin.
      if (isRetry && running.signal.aborted) return undefined;
      isRetry = true;
      return ledger.begin(job, {
        workerId,
        leaseMs,
        token: running.token,
        suspects: acceptsSuspect || suspects.isSuspect(running) ? 'accept' : 'refuse',
        alone: suspects.isAlone(running),
        ...(hold !== undefined && { probeEpoch: hold.snapshot.epoch }),
      });
    };
    // A Redis that refuses for a moment would cost the call the rest of its job's lock.
    const answer = await writes.retry(running, ask);
    return answer === undefined ? { end: { kind: 'abandoned' } } : this.#handleAnswer(start, answer);
  }

  async #handleAnswer(start: Start, answer: BeginResult): Promise<Step<Attempt>> {
    const { gate, tools } = this.#deps;
    const { job } = start;
    switch (answer.kind) {
      case 'stale':
        return { end: { kind: 'dropped' } };
      case 'ended':
        // The delayed job of a call that was cancelled meanwhile is fetched when it is due.
        if (partitionFor(job.callId).tier === 'elevated' && answer.state !== 'cancelled') gate?.reportEnded(job.callId);
        return { end: { kind: 'dropped' } };
      case 'awaiting':
        if (gate === undefined) return { end: { kind: 'dropped' } };
        return { end: await gate.handlePending(answer.approvalId, answer.nowMs, tools.toolNamed) };
      case 'pending':
        return { end: await this.#deps.expiry.handle(job, answer, this.#toolNamedBy(answer.request)) };
      case 'early':
        return { end: { kind: 'postponed', delayMs: answer.remainingMs } };
      case 'suspect':
        return this.#suspect(start, answer);
      case 'forged':
        return { end: await this.#refuseForged(job, answer.fence) };
      case 'circuit':
        return this.#admit(start, answer);
      case 'started':
        return this.#started(start, answer);
    }
  }

  async #suspect(start: Start, answer: Extract<BeginResult, { kind: 'suspect' }>): Promise<Step<Attempt>> {
    // A recovered `once` call is only settled, which crashes no worker.
    if (answer.recovered && this.#toolNamedBy(answer.request)?.tool.effects === 'once') return this.#begin(start, true);
    const delayMs = await this.#deps.suspects.admit(start.running, answer.runsAlone);
    return delayMs === undefined ? this.#begin(start) : { end: { kind: 'postponed', delayMs } };
  }

  async #started({ job, running, hold }: Start, started: StartedAttempt): Promise<Step<Attempt>> {
    const { incompatible, attempts } = this.#deps;
    running.began(started.fence);
    const registered = await this.#toolFor(started.request);
    const incompatibility = incompatibilityReason(started.request, registered);
    if (registered === undefined || incompatibility !== undefined)
      return { end: await incompatible.skip(job.callId, started, incompatibility ?? '') };
    if (started.cancelRequested) running.abort(new PawlError('CANCELLED'));
    const modes = this.#modesOf(started.request, registered);
    const attempt = await attempts.create({ job, running, started, registered, modes, probe: hold?.probe });
    return attempt === undefined ? { end: { kind: 'abandoned' } } : { go: attempt };
  }

  /** The circuit of the call is not closed: begin as its probe, wait, or refuse the call. */
  async #admit(start: Start, answer: OpenCircuit): Promise<Step<Attempt>> {
    const { circuits } = this.#deps;
    const { callId } = start.job;
    const registered = this.#toolNamedBy(answer.request);
    // A worker that cannot run the call leaves it to others, whatever the state of its circuit.
    if (registered === undefined || incompatibilityReason(answer.request, registered) !== undefined)
      return this.#begin({ ...start, hold: { snapshot: parseCircuit(answer.circuitRaw), probe: undefined } });
    const modes = this.#modesOf(answer.request, registered);
    const entry = await circuits.enter(callId, answer, registered.tool, modes);
    if (entry.kind === 'end') return { end: entry.end };
    const { job, running } = start;
    const step = await this.#begin({ job, running, ...(entry.hold !== undefined && { hold: entry.hold }) });
    if (entry.kind === 'probe' && 'end' in step) await circuits.release(entry.hold);
    return step;
  }

  #refuseForged({ callId }: CallJob, fence: number): Promise<JobOutcome> {
    this.#deps.log.error({ event: 'signature_invalid', callId }, 'a call without a valid signature was refused');
    const outcome = outcomeWithoutRun('', failureOf('SIGNATURE_INVALID'));
    return this.#deps.settler.refuse({ callId, fence, outcome, attempts: [] });
  }

  #toolNamedBy({ envelope }: StoredRequest): RegisteredTool | undefined {
    return this.#deps.tools.toolNamed(envelope.toolNamespace, envelope.toolName);
  }

  /** Declared tools change while a worker runs: the call may have been validated with an earlier definition than the newest one. */
  async #toolFor(request: StoredRequest): Promise<RegisteredTool | undefined> {
    const newest = this.#toolNamedBy(request);
    const matches = newest !== undefined && (newest.definition === request.tool.definition || newest.declared !== true);
    return matches ? newest : ((await this.#deps.tools.toolOf?.(request)) ?? newest);
  }

  /** A call that was submitted as a direct one stays one. */
  #modesOf(request: StoredRequest, { tool }: RegisteredTool): ReliabilityModes {
    return request.direct === true ? DIRECT_MODES : this.#deps.switches.modes(tool);
  }
}
