/**
 * The way of one call into the queue: contract, tool, permission, schema, identity, circuit, claim. Each step either passes a
 * narrower value on or ends the call with a typed error, before anything is written.
 */
import type { ApprovalRequest } from '../shared/approval.ts';
import { circuitKey } from '../shared/breaker.ts';
import { budgetExhausted } from '../shared/budget.ts';
import { type Settings, toolPolicy } from '../shared/config.ts';
import { defined } from '../shared/defined.ts';
import { contractInvalid, parseEnvelope, type ToolCallEnvelope, type ToolResultEnvelope } from '../shared/envelope.ts';
import { failureOf, PawlError } from '../shared/failure.ts';
import { type Identity, type IdentityRules, identify, paramsDigest } from '../shared/fingerprint.ts';
import type { Hooks } from '../shared/hooks.ts';
import { overloaded } from '../shared/importance.ts';
import { bringsTaint, envelopeOf, type Outcome, refusal, resultError } from '../shared/outcome.ts';
import { denied, permit, taintOf, type Verdict } from '../shared/policy.ts';
import { redact, secretsIn } from '../shared/redaction.ts';
import type { SessionRecord } from '../shared/session.ts';
import type { StoredRequest } from '../shared/store/call-record.ts';
import type { Claim, ClaimAnswer } from '../shared/store/claim.ts';
import type { CallLedger } from '../shared/store/records.ts';
import type { ReliabilityModes, Switches } from '../shared/switches.ts';
import type { ProducerEvent } from '../shared/telemetry.ts';
import { backgroundSchedule, type Clock, type Schedule, uuidv7 } from '../shared/time.ts';
import { qualifiedName } from '../shared/tool.ts';
import type { ApprovalDesk } from './approvals.ts';
import { type Admission, admissionOf, timedOf } from './budgets.ts';
import { submitHooked } from './call-hooks.ts';
import type { CircuitView } from './circuits.ts';
import type { Offer, Offers } from './offers.ts';
import type { ProgressEvent, Results } from './results.ts';
import type { CallTraces } from './traces.ts';

/** Jobs per second that are kept for Bull Board after they finish; the rest is removed at once. */
const KEPT_PER_SECOND = 20;
/** After the deadline of a call that no worker ended, its waiter ends the waiting. */
const DEADLINE_GRACE_MS = 250;
/** After the deadline of a call that Redis has not answered for, its caller hears of it. */
const SILENCE_GRACE_MS = 1_000;
const MAX_PARAMS_BYTES = 4 * 1_024 * 1_024;
/** As long as nobody changes the configuration and starts anew. */
const FORCED_BY_CONFIGURATION = { state: 'FORCED_OPEN', retryAfterMs: 30_000 } as const;

export interface DispatchParts {
  readonly settings: Settings;
  readonly ledger: CallLedger;
  readonly offers: Pick<Offers, 'peek' | 'find'> & Partial<Pick<Offers, 'ruleFor'>>;
  readonly circuits: CircuitView;
  readonly hooks: Hooks;
  readonly switches: Pick<Switches, 'modes'>;
  readonly results: Results;
  readonly inboxId: string;
  readonly clock: Clock;
  readonly traces?: CallTraces;
  /** Of deadlines. Default: the system's timers. */
  readonly schedule?: Schedule;
  /** Without one, what a person must approve is denied. */
  readonly approvals?: ApprovalDesk;
  /** Writes down that a session has seen what a tool brought from outside; resolves when its next call is judged by it. */
  taint?(sessionKey: string, source: string): Promise<void>;
  /** Finds the session that an envelope names. Throws `SESSION_CLOSED`. */
  sessionOf(envelope: ToolCallEnvelope): Promise<SessionRecord> | SessionRecord;
  onEvent(event: DispatchEvent): void;
}

/** What operators and metrics hear of (R27). */
export type DispatchEvent = ProducerEvent<Offer>;

/** A call that was handed in. */
export type Submission =
  /** Refused or already known: the envelope is final. */
  | { readonly kind: 'answered'; readonly callId?: string; readonly result: ToolResultEnvelope }
  /** In the queue or running. `stop` ends the waiting, not the call. */
  | {
      readonly kind: 'pending';
      readonly callId: string;
      readonly requestId: string;
      readonly result: Promise<ToolResultEnvelope>;
      /** Another's call is waited for: no attempt runs for this one. */
      readonly merged?: boolean;
      stop(): void;
    };

export interface SubmitOptions {
  readonly onProgress?: (event: ProgressEvent) => void;
  /** Who hands the call in, where the front door knows them: they cannot approve it. */
  readonly submittedBy?: string;
  /** Told when a person has to decide before the call can run. */
  readonly onApproval?: (request: ApprovalRequest) => void;
  /** Told as soon as the call has its ID. */
  readonly onAccepted?: (callId: string) => void;
}

type LoopGuard = Settings['reliability']['loopGuard'];

/** A call whose every part has been checked. */
interface Admitted {
  readonly envelope: ToolCallEnvelope;
  readonly offer: Offer;
  readonly paramsDigest: string;
  readonly identity: Identity;
  readonly circuit: string;
  readonly modes: ReliabilityModes;
  readonly admission: Admission;
  /** When the session's agent is to be warned, or stopped. */
  readonly loop?: { readonly loopId: string; readonly guard: LoopGuard };
  /** In shadow mode: the slot in which the call would have met its duplicates. */
  readonly shadow?: Claim['shadow'];
  /** A person has to decide: what policy says, and for which session. */
  readonly asks: { readonly verdict: Verdict; readonly session: SessionRecord } | undefined;
  readonly channel: string | undefined;
}

export class Dispatch {
  readonly #parts: DispatchParts;
  #keptSecond = 0;
  #keptCount = 0;

  constructor(parts: DispatchParts) {
    this.#parts = parts;
  }

  /** Hands in an envelope from outside, which may be malformed. */
  async submitUnchecked(value: unknown, options: SubmitOptions = {}): Promise<Submission> {
    let envelope: ToolCallEnvelope;
    try {
      envelope = parseEnvelope(value);
    } catch (error) {
      return this.#refused(error, undefined, nameIn(value));
    }
    return this.submit(envelope, options);
  }

  /** Hands in a well-formed envelope. Rejects only when Redis is out of reach or the code is wrong. */
  async submit(envelope: ToolCallEnvelope, options: SubmitOptions = {}): Promise<Submission> {
    const { hooks, offers } = this.#parts;
    if (!hooks.has('beforeCall', 'onShortCircuit', 'afterCall')) return this.#submit(envelope, options);
    // A tool that nobody knows has no hooks: the call is refused below.
    const { toolNamespace: namespace, toolName: name } = envelope;
    const offer = offers.peek(namespace, name) ?? (await offers.find(namespace, name).catch(() => undefined));
    if (offer === undefined) return this.#submit(envelope, options);
    return submitHooked(
      hooks,
      offer,
      envelope,
      (made) => this.#submit(made, options),
      (error, asked) => this.#refused(error, asked),
    );
  }

  async #submit(envelope: ToolCallEnvelope, options: SubmitOptions): Promise<Submission> {
    const submission = this.#handIn(envelope, options);
    const { deadlineAtMs } = envelope.control;
    if (deadlineAtMs === undefined) return submission;
    return heardWithin(submission, deadlineAtMs - this.#parts.clock.now() + SILENCE_GRACE_MS);
  }

  async #handIn(asked: ToolCallEnvelope, options: SubmitOptions): Promise<Submission> {
    const envelope = this.#parts.traces?.begin(asked) ?? asked;
    let admitted: Admitted;
    try {
      admitted = await this.#admit(envelope);
    } catch (error) {
      return this.#refused(error, envelope);
    }
    const refused = this.#refusedByCircuit(admitted);
    if (refused !== undefined) return refused;
    return this.#claim(admitted, options);
  }

  async #admit(envelope: ToolCallEnvelope): Promise<Admitted> {
    const session = await this.#parts.sessionOf(envelope);
    const offer =
      this.#parts.offers.peek(envelope.toolNamespace, envelope.toolName) ??
      (await this.#parts.offers.find(envelope.toolNamespace, envelope.toolName));
    const policy = toolPolicy(this.#parts.settings, offer);
    const channel = await this.#channelOf(session);
    const verdict = this.#permit(envelope, offer, session, channel);
    checkParams(envelope, offer);
    const digest = paramsDigest(envelope.payload.params, offer.inputSchema);
    const modes = this.#parts.switches.modes(offer);
    const known = this.#identify(envelope, offer, digest, {});
    const identity =
      modes.dedupe === 'on' ? known : this.#identify(envelope, offer, digest, { apart: uuidv7(this.#parts.clock) });
    const circuit = circuitKey({
      hint: envelope.transport.circuitBreakerHint ?? 'tool',
      tool: qualifiedName(offer),
      dependency: policy.circuit?.dependency ?? offer.circuit.dependency,
      tenantId: envelope.target.tenantId,
    });
    const admission = admissionOf(envelope, offer, session, {
      settings: this.#parts.settings,
      registry: this.#parts.offers.ruleFor?.(offer),
      channel,
      nowMs: this.#parts.clock.now(),
    });
    const asks = verdict.decision === 'ask' && (await this.#mustAsk(envelope, offer, session, verdict));
    return {
      envelope: admission.envelope,
      offer,
      paramsDigest: digest,
      identity,
      circuit,
      modes,
      admission,
      ...this.#loopGuard(offer, identity, modes),
      ...(modes.dedupe === 'shadow'
        ? { shadow: { slotId: known.mergeId ?? known.callId, derived: known.mergeId !== undefined } }
        : {}),
      channel,
      asks: asks ? { verdict, session } : undefined,
    };
  }

  #permit(envelope: ToolCallEnvelope, offer: Offer, session: SessionRecord, channel: string | undefined): Verdict {
    const { settings } = this.#parts;
    return permit({
      tool: offer,
      session,
      toolPolicy: toolPolicy(settings, offer),
      policy: settings.policy,
      registry: this.#parts.offers.ruleFor?.(offer),
      channel,
      params: envelope.payload.params,
      taint: taintOf(envelope.control.requestTags, session),
      sandbox: settings.sandbox,
      dedupeMode: envelope.transport.dedupeMode,
    });
  }

  /** Asked for only where policy has a layer for channels. */
  #channelOf(session: SessionRecord): Promise<string | undefined> | undefined {
    const { settings, approvals } = this.#parts;
    if (Object.keys(settings.policy.channels).length === 0) return undefined;
    return approvals?.routeOf(session).then((route) => route?.channel.kind ?? 'none');
  }

  /** Whether a person has to decide on this very call. Throws `PERMISSION_DENIED` where nobody can be asked. */
  async #mustAsk(envelope: ToolCallEnvelope, offer: Offer, session: SessionRecord, verdict: Verdict): Promise<boolean> {
    const { approvals } = this.#parts;
    if (approvals === undefined) throw denied(offer, `${verdict.reason}, and here nobody can be asked`, verdict.rule);
    return !(await approvals.isGranted(session, offer, envelope.payload.params));
  }

  /** R26. The kill switch counts nothing. */
  #loopGuard(offer: Offer, { loopId }: Identity, modes: ReliabilityModes): Pick<Admitted, 'loop'> {
    if (loopId === undefined || !modes.enabled) return {};
    const { settings } = this.#parts;
    const own = defined<Partial<LoopGuard>>(toolPolicy(settings, offer).loopGuard ?? {});
    return { loop: { loopId, guard: { ...settings.reliability.loopGuard, ...own } } };
  }

  /** What is told of a call that was made again and again. */
  #tellRepetitions({ envelope, loop, modes }: Admitted, callId: string, repetitions: number | undefined): void {
    if (loop === undefined || repetitions === undefined) return;
    if (repetitions === loop.guard.warnAt)
      this.#parts.onEvent({ type: 'loop', envelope, callId, action: 'warned', repetitions });
    if (modes.circuits === 'shadow' && repetitions >= loop.guard.refuseAt)
      this.#parts.onEvent({ type: 'shadow', envelope, callId, kind: 'refused', detail: 'LOOP_DETECTED' });
  }

  #identify(
    envelope: ToolCallEnvelope,
    offer: Offer,
    digest: string,
    rules: Pick<IdentityRules, 'independent' | 'apart'>,
  ): Identity {
    const { reliability } = this.#parts.settings;
    const scope = toolPolicy(this.#parts.settings, offer).scope ?? 'session';
    return identify(envelope, digest, {
      tier: offer.tier,
      shard: 0,
      scope: scope === 'global' && offer.effects === 'none' ? 'global' : 'session',
      derive: reliability.deriveKeys === 'on',
      derivedReplay: reliability.derivedReplay,
      ...rules,
    });
  }

  /** R22: answered from the pushed copy, without a round trip. */
  #refusedByCircuit({ envelope, offer, circuit, modes }: Admitted): Submission | undefined {
    const policy = toolPolicy(this.#parts.settings, offer).circuit;
    // What only observes, the worker observes.
    if (modes.circuits !== 'on' || (policy?.whenOpen ?? offer.circuit.whenOpen) === 'park') return undefined;
    const open =
      policy?.forcedOpen === true
        ? FORCED_BY_CONFIGURATION
        : this.#parts.circuits.refusal({ tier: offer.tier, shard: 0 }, circuit);
    if (open === undefined) return undefined;
    const error = new PawlError(
      'CIRCUIT_OPEN',
      `${offer.name} keeps failing and is given time to recover; try again in ${Math.ceil(open.retryAfterMs / 1_000)} s.`,
      { details: { retryAfterMs: open.retryAfterMs } },
    );
    this.#parts.onEvent({ type: 'refused', envelope, code: error.code, message: error.message });
    return { kind: 'answered', result: refusal(error, asking(envelope), 'circuit_open', open.state) };
  }

  async #claim(admitted: Admitted, options: SubmitOptions, independent = false): Promise<Submission> {
    const { envelope, offer, identity } = admitted;
    let claim: Claim;
    try {
      claim = await this.#claimOf(admitted, options);
    } catch (error) {
      return this.#refused(error, envelope);
    }
    // The waiter stands before the claim is sent: the answer may overtake the claim's own reply.
    const waiting = this.#parts.results.wait(identity.callId, options.onProgress);
    let answer: ClaimAnswer;
    try {
      answer = await this.#parts.ledger.claim(claim);
    } catch (error) {
      waiting.stop();
      if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
        this.#parts.onEvent({ type: 'refused', envelope, code: error.code, message: error.message });
      throw error;
    }
    if (
      answer.kind === 'conflict' &&
      !independent &&
      toolPolicy(this.#parts.settings, offer).onConflict === 'independent'
    ) {
      waiting.stop();
      return this.#claim(
        { ...admitted, identity: this.#identify(envelope, offer, admitted.paramsDigest, { independent: true }) },
        options,
        true,
      );
    }
    if (answer.kind === 'overloaded' || answer.kind === 'spent') {
      waiting.stop();
      return this.#refused(notTaken(admitted, answer), envelope);
    }
    if (answer.kind === 'loop') {
      waiting.stop();
      const { repetitions, retryAfterMs } = answer;
      this.#parts.onEvent({ type: 'loop', envelope, callId: answer.callId, action: 'refused', repetitions });
      return this.#refused(looping(offer.name, repetitions, retryAfterMs), envelope);
    }
    const { submittedBy } = options;
    const { paramsDigest: digest } = admitted;
    const told = { envelope, callId: answer.callId, answer: answer.kind, paramsDigest: digest, submittedBy };
    this.#parts.onEvent({ type: 'accepted', ...told });
    if (answer.kind === 'claimed') this.#tellRepetitions(admitted, answer.callId, answer.repetitions);
    options.onAccepted?.(answer.callId);
    if (answer.kind === 'claimed' && answer.duplicateOf !== undefined) {
      const kind = answer.duplicateOf === 'conflict' ? 'refused' : 'merged';
      this.#parts.onEvent({ type: 'shadow', envelope, callId: answer.callId, kind, detail: answer.duplicateOf });
    }
    if (answer.kind === 'claimed' && claim.approval !== undefined) this.#asked(claim.approval, options);
    if (answer.kind === 'claimed') return this.#pending(admitted, answer.callId, waiting, undefined);
    if (answer.kind === 'inflight' && envelope.transport.dedupeMode === 'enforced') {
      // Under its own name the first waiter stays: it may have been told of the end already.
      if (answer.callId === identity.callId) return this.#pending(admitted, answer.callId, waiting, answer.ageMs);
      waiting.stop();
      const leading = this.#parts.results.wait(answer.callId, options.onProgress, true);
      return this.#pending(admitted, answer.callId, leading, answer.ageMs);
    }
    waiting.stop();
    if (answer.kind === 'conflict') {
      return this.#refused(
        new PawlError(
          'IDEMPOTENCY_CONFLICT',
          `The idempotency key was used before with other parameters (call ${answer.callId}); nothing ran.`,
        ),
        envelope,
        undefined,
        answer.callId,
      );
    }
    if (answer.kind === 'ended') {
      const result = envelopeOf(JSON.parse(answer.outcome) as Outcome, {
        requestId: envelope.requestId,
        callId: answer.callId,
        cache: { matchedOn: 'completed', ageMs: answer.ageMs },
      });
      await this.#ended(envelope, offer, result);
      return { kind: 'answered', callId: answer.callId, result };
    }
    return this.#refused(
      new PawlError(
        'IN_FLIGHT',
        `A call with this key is ${answer.phase} since ${answer.ageMs} ms (call ${answer.callId}).`,
      ),
      envelope,
      undefined,
      answer.callId,
    );
  }

  /** The request is durable: now it may be announced. */
  #asked(approval: ApprovalRequest, options: SubmitOptions): void {
    this.#parts.approvals?.requested(approval);
    options.onApproval?.(approval);
  }

  /** Throws `PERMISSION_DENIED` for a call that a person must approve and whose session reaches nobody (A6). */
  #claimOf(admitted: Admitted, options: SubmitOptions): Claim | Promise<Claim> {
    const claim = this.#plainClaimOf(admitted, options);
    const { asks, envelope, offer } = admitted;
    const { approvals } = this.#parts;
    if (asks === undefined || approvals === undefined) return claim;
    const { callId, generation } = claim;
    const { submittedBy } = options;
    return approvals
      .requestFor({ envelope, offer, ...asks, callId, generation, submittedBy })
      .then((approval) => ({ ...claim, approval }));
  }

  #plainClaimOf(
    { envelope, offer, paramsDigest: digest, identity, circuit, modes, shadow, loop, channel, admission }: Admitted,
    options: SubmitOptions,
  ): Claim {
    const { room, spends } = admission;
    const request: StoredRequest = {
      envelope,
      tool: { version: offer.version, definition: offer.definition },
      idempotencyKey: envelope.payload.idempotencyKey ?? identity.callId,
      ...(modes.enabled ? {} : { direct: true }),
      ...(options.submittedBy === undefined ? {} : { submittedBy: options.submittedBy }),
      ...(channel === undefined ? {} : { channel }),
      ...timedOf(spends),
    };
    return {
      callId: identity.callId,
      room,
      ...(spends === undefined ? {} : { spends }),
      ...(identity.mergeId === undefined ? {} : { mergeId: identity.mergeId }),
      ...(shadow === undefined ? {} : { shadow }),
      ...(loop === undefined
        ? {}
        : { loop: { loopId: loop.loopId, windowMs: loop.guard.windowMs, refuseAt: refuseAt(loop.guard, modes) } }),
      mode: envelope.transport.dedupeMode,
      paramsDigest: digest,
      request,
      generation: String(this.#parts.clock.now()),
      circuit,
      kept: this.#keepJob(),
      once: offer.effects === 'once',
      inboxId: this.#parts.inboxId,
    };
  }

  /**
   * Before the caller has the result. The worker has marked the session that made the call; this one may be another, which is given
   * the same call's result, and what this process knows of its own is older.
   */
  #ended(envelope: ToolCallEnvelope, offer: Offer, result: ToolResultEnvelope): Promise<void> | undefined {
    this.#parts.onEvent({ type: 'ended', envelope, offer, result });
    if (!bringsTaint(result, offer)) return undefined;
    return this.#parts.taint?.(envelope.target.sessionKey, qualifiedName(offer));
  }

  /** A bounded sample for Bull Board: everything while little happens, a few a second under load. */
  #keepJob(): boolean {
    const second = Math.floor(this.#parts.clock.monotonic() / 1_000);
    if (second !== this.#keptSecond) {
      this.#keptSecond = second;
      this.#keptCount = 0;
    }
    this.#keptCount += 1;
    return this.#keptCount <= KEPT_PER_SECOND;
  }

  #pending(
    { envelope, offer }: Admitted,
    callId: string,
    waiting: { readonly outcome: Promise<Outcome>; stop(): void },
    attachedAgeMs: number | undefined,
  ): Submission {
    const asked = {
      requestId: envelope.requestId,
      callId,
      ...(attachedAgeMs === undefined ? {} : { cache: { matchedOn: 'inflight' as const, ageMs: attachedAgeMs } }),
    };
    const settled = waiting.outcome.then((outcome) => envelopeOf(outcome, asked));
    const own = attachedAgeMs === undefined;
    const result = this.#withDeadline(envelope, callId, settled, waiting.stop, own).then(async (ended) => {
      await this.#ended(envelope, offer, ended);
      return ended;
    });
    const stop = () => {
      waiting.stop();
      this.#parts.traces?.left(envelope.requestId);
    };
    // Who only looks the result up later must not be ended by a rejection that nobody awaits.
    result.catch(() => {});
    const pending = { kind: 'pending', callId, requestId: envelope.requestId, result, stop } as const;
    return own ? pending : { ...pending, merged: true };
  }

  /**
   * A call that is still queued at its deadline never starts; a running one is ended by its worker. Who joined another's call
   * (`own` is false) only stops waiting: the call has its own deadline.
   */
  #withDeadline(
    envelope: ToolCallEnvelope,
    callId: string,
    settled: Promise<ToolResultEnvelope>,
    stop: () => void,
    own: boolean,
  ): Promise<ToolResultEnvelope> {
    const { deadlineAtMs } = envelope.control;
    if (deadlineAtMs === undefined) return settled;
    const { promise, resolve, reject } = Promise.withResolvers<ToolResultEnvelope>();
    const late = deadlineOutcome(envelope.toolName);
    const giveUpNow = () => {
      stop();
      resolve(envelopeOf(late, { requestId: envelope.requestId, callId }));
    };
    const expire = async () => {
      if (!own) return giveUpNow();
      const answer = await this.#parts.ledger.cancel(callId, {
        state: 'failed',
        beforeStart: late,
        betweenAttempts: late,
        ttlMs: this.#parts.settings.ttl.failedMs,
        inboxId: this.#parts.inboxId,
      });
      if (answer.kind === 'cancelled') await this.#parts.approvals?.cancelled(callId);
      // Whatever is left of the attempt settles by itself; its outcome can be read by ID.
      stopGivingUp = schedule(giveUpNow, this.#parts.settings.lockDurationMs);
    };
    // Whoever waits is kept alive by the connections; a deadline alone keeps no process.
    const schedule = this.#parts.schedule ?? backgroundSchedule;
    let stopGivingUp = () => {};
    const remainingMs = Math.max(0, deadlineAtMs - this.#parts.clock.now());
    const stopTimer = schedule(() => void expire().catch(reject), remainingMs + DEADLINE_GRACE_MS);
    settled.then(resolve, reject).finally(() => {
      stopTimer();
      stopGivingUp();
    });
    return promise;
  }

  /** Errors that are answers become envelopes; Redis out of reach and defects stay exceptions. */
  #refused(
    error: unknown,
    envelope: ToolCallEnvelope | undefined,
    asked = envelope === undefined ? { requestId: '', toolName: '' } : asking(envelope),
    callId?: string,
  ): Submission {
    if (!(error instanceof PawlError) || error.code === 'BACKEND_UNAVAILABLE' || error.code === 'CONFIGURATION')
      throw error;
    this.#parts.onEvent({
      type: 'refused',
      ...(envelope === undefined ? {} : { envelope }),
      code: error.code,
      message: error.message,
    });
    return {
      kind: 'answered',
      ...(callId === undefined ? {} : { callId }),
      result: refusal(error, { ...asked, ...(callId === undefined ? {} : { callId }) }),
    };
  }
}

/** What only observes refuses nothing. */
function refuseAt(guard: LoopGuard, modes: ReliabilityModes): number {
  return modes.circuits === 'on' ? guard.refuseAt : Number.MAX_SAFE_INTEGER;
}

function notTaken(
  { offer, admission }: Admitted,
  answer: Extract<ClaimAnswer, { kind: 'overloaded' | 'spent' }>,
): PawlError {
  if (answer.kind === 'overloaded') return overloaded(offer.tier, admission.importance, answer.inflight);
  const { account, unit, spent, leftMs } = answer;
  const asked = unit === 'calls' ? 1 : unit === 'costUnits' ? (admission.spends?.costUnits ?? 1) : 0;
  return budgetExhausted(account, unit, spent, asked, leftMs);
}

function looping(tool: string, repetitions: number, retryAfterMs: number): PawlError {
  return new PawlError(
    'LOOP_DETECTED',
    `${tool} was called ${repetitions} times with the same parameters within a few minutes; it did not run again. ` +
      'Use the earlier results, change the parameters or try another way; if the repetition is meant, give each call an idempotencyKey of its own.',
    { details: { retryAfterMs } },
  );
}

/** Who sets a time limit hears within it that Redis does not answer; whether it has taken the call is then not known. */
async function heardWithin(submission: Promise<Submission>, limitMs: number): Promise<Submission> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const stopTimer = backgroundSchedule(() => {
    submission.then(
      (answered) => answered.kind === 'pending' && answered.stop(),
      () => {},
    );
    reject(
      new PawlError(
        'BACKEND_UNAVAILABLE',
        'Redis did not answer within the call’s time limit; ask again with the same key.',
      ),
    );
  }, limitMs);
  try {
    return await Promise.race([submission, late]);
  } finally {
    stopTimer();
  }
}

export function deadlineOutcome(toolName: string): Outcome {
  return {
    status: 'timeout',
    toolName,
    durationMs: 0,
    attempts: 0,
    error: resultError(failureOf('DEADLINE_EXCEEDED'), 'timeout'),
  };
}

function asking(envelope: ToolCallEnvelope): { requestId: string; toolName: string } {
  return { requestId: envelope.requestId, toolName: envelope.toolName };
}

/** The little that can be said of a malformed envelope. */
function nameIn(value: unknown): { requestId: string; toolName: string } {
  const fields = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  const text = (field: unknown) => (typeof field === 'string' ? field.slice(0, 256) : '');
  return { requestId: text(fields['requestId']), toolName: text(fields['toolName']) };
}

function checkParams(envelope: ToolCallEnvelope, offer: Offer): void {
  const { params } = envelope.payload;
  const faults = offer.validate(params);
  if (faults.length > 0) {
    const known = secretsIn(params);
    const issues = faults.map((issue) => ({ ...issue, message: redact(issue.message, known) }));
    const listed = issues
      .map((issue) => `${issue.path === '' ? 'the parameters' : issue.path}: ${issue.message}`)
      .join('; ');
    throw new PawlError('INVALID_PARAMS', `The parameters of ${offer.name} are not valid: ${listed}.`, { issues });
  }
}

/** Parameters as they will look to the worker; throws `CONTRACT_INVALID` when JSON cannot say them or they are too large. */
export function jsonParams(params: unknown): Record<string, unknown> {
  let text: string | undefined;
  try {
    text = JSON.stringify(params);
  } catch (error) {
    throw contractInvalid([
      { path: 'payload.params', message: error instanceof Error ? error.message : String(error) },
    ]);
  }
  if (text === undefined || !text.startsWith('{'))
    throw contractInvalid([
      {
        path: 'payload.params',
        message: `must be an object; got ${text === undefined ? typeof params : text.slice(0, 40)}`,
      },
    ]);
  if (text.length > MAX_PARAMS_BYTES)
    throw contractInvalid([
      { path: 'payload.params', message: `is ${text.length} characters long; at most ${MAX_PARAMS_BYTES} are allowed` },
    ]);
  return params as Record<string, unknown>;
}
