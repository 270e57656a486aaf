/** Begins the attempt of a job, or says why there is none: the answer of Redis to its start, the tool that the call means, its circuit. */
import { partitionFor } from '../../shared/calls/call-id.ts';
import { resultError } from '../../shared/calls/outcome.ts';
import { DIRECT, type ReliabilityModes, type SwitchCache } from '../../shared/config/switches.ts';
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
import type { RunningAttempt } from '../attempt/running-attempts.ts';
import type { CallSettler } from '../outcome/settle-call.ts';
import type { CircuitAdmitter, OpenCircuit } from './admit-circuit.ts';
import type { WorkerTools } from './executor-deps.ts';
import type { PendingExpiry } from './expire-pending.ts';
import type { AttemptFactory } from './new-attempt.ts';
import type { Suspects } from './run-alone.ts';
import type { IncompatibleCalls } from './skip-worker.ts';
import { incompatibilityReason } from './version-check.ts';

export interface AttemptStarterDeps {
  readonly ledger: Pick<CallLedger, 'begin'>;
  readonly leaseMs: number;
  readonly workerId: string;
  readonly tools: Pick<WorkerTools, 'toolNamed' | 'toolOf'>;
  readonly switches: Pick<SwitchCache, 'modes'>;
  readonly suspects: Suspects;
  readonly circuits: CircuitAdmitter;
  readonly incompatible: IncompatibleCalls;
  readonly attempts: AttemptFactory;
  readonly settler: Pick<CallSettler, 'refuse'>;
  readonly expiry: PendingExpiry;
  readonly log: Logger;
  /** Without a gate, no call waits for a person's decision here. */
  readonly gate?: Pick<ApprovalGate, 'attend' | 'again'>;
}

/** The circuit as an earlier answer described it. */
type SeenCircuit = Pick<CircuitHold, 'seen' | 'probe'>;

/** A job, with the attempt of this process that it may become. */
interface Start {
  readonly job: CallJob;
  readonly running: RunningAttempt;
  readonly hold?: SeenCircuit;
}

export class AttemptStarter {
  readonly #deps: AttemptStarterDeps;

  constructor(deps: AttemptStarterDeps) {
    this.#deps = deps;
  }

  /** `begun` is the answer to the start, where the job was taken together with it. */
  begin(job: CallJob, running: RunningAttempt, begun: BeginResult | undefined): Promise<Step<Attempt>> {
    const start = { job, running };
    return begun === undefined ? this.#begin(start) : this.#answered(start, begun);
  }

  /** The attempt has ended, or never began. */
  ended(running: RunningAttempt): void {
    this.#deps.suspects.leave(running);
  }

  async #begin(start: Start, harmless = false): Promise<Step<Attempt>> {
    const { ledger, workerId, leaseMs, suspects } = this.#deps;
    const { job, running, hold } = start;
    const answer = await ledger.begin(job, {
      workerId,
      leaseMs,
      token: running.token,
      suspects: harmless || suspects.isSuspect(running) ? 'accept' : 'refuse',
      alone: suspects.isAlone(running),
      ...(hold === undefined ? {} : { probeEpoch: hold.seen.epoch }),
    });
    return this.#answered(start, answer);
  }

  async #answered(start: Start, answer: BeginResult): Promise<Step<Attempt>> {
    const { gate, tools } = this.#deps;
    const { job } = start;
    switch (answer.kind) {
      case 'stale':
        return { end: { kind: 'dropped' } };
      case 'ended':
        // The job of a call that was cancelled while it waited comes by in its time.
        if (partitionFor(job.callId).tier === 'elevated' && answer.state !== 'cancelled') gate?.again(job.callId);
        return { end: { kind: 'dropped' } };
      case 'awaiting':
        if (gate === undefined) return { end: { kind: 'dropped' } };
        return { end: await gate.attend(answer.approvalId, answer.nowMs, tools.toolNamed) };
      case 'pending':
        return { end: await this.#deps.expiry.attend(job, answer, this.#toolNamedBy(answer.request)) };
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

  /** The circuit of the call is not closed: be its probe, wait, or refuse the call. */
  async #admit(start: Start, answer: OpenCircuit): Promise<Step<Attempt>> {
    const { circuits } = this.#deps;
    const { callId } = start.job;
    const registered = this.#toolNamedBy(answer.request);
    // A worker that cannot run the call leaves it to others, whatever the state of its circuit.
    if (registered === undefined || incompatibilityReason(answer.request, registered) !== undefined)
      return this.#begin({ ...start, hold: { seen: parseCircuit(answer.circuitRaw), probe: undefined } });
    const modes = this.#modesOf(answer.request, registered);
    const entry = await circuits.enter(callId, answer, registered.tool, modes);
    if (entry.kind === 'end') return { end: entry.end };
    const { job, running } = start;
    const begun = await this.#begin({ job, running, ...(entry.hold === undefined ? {} : { hold: entry.hold }) });
    if (entry.kind === 'probe' && 'end' in begun) await circuits.release(entry.hold);
    return begun;
  }

  #refuseForged({ callId }: CallJob, fence: number): Promise<JobOutcome> {
    this.#deps.log.error({ event: 'signature_invalid', callId }, 'a call without a valid signature was refused');
    const error = resultError(failureOf('SIGNATURE_INVALID'), 'error');
    const outcome = { status: 'error', toolName: '', durationMs: 0, attempts: 0, error } as const;
    return this.#deps.settler.refuse({ callId, fence, outcome, attempts: [] });
  }

  #toolNamedBy({ envelope }: StoredRequest): RegisteredTool | undefined {
    return this.#deps.tools.toolNamed(envelope.toolNamespace, envelope.toolName);
  }

  /** Declared tools change while a worker runs: the call may mean an earlier definition than the newest one here. */
  async #toolFor(request: StoredRequest): Promise<RegisteredTool | undefined> {
    const named = this.#toolNamedBy(request);
    const isMeant = named !== undefined && (named.definition === request.tool.definition || named.declared !== true);
    return isMeant ? named : ((await this.#deps.tools.toolOf?.(request)) ?? named);
  }

  /** A call that was submitted as a direct one stays one. */
  #modesOf(request: StoredRequest, { tool }: RegisteredTool): ReliabilityModes {
    return request.direct === true ? DIRECT : this.#deps.switches.modes(tool);
  }
}
