/** A session as its orchestrator holds it: it calls tools, opens sessions below it, and emits the events of its calls. */
import { EventEmitter } from 'node:events';
import type { ApprovalRequest } from '../../shared/approvals/approval.ts';
import { type CompensatedCall, compensation } from '../../shared/calls/compensation.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import { refusal } from '../../shared/calls/outcome.ts';
import { type StartTime, startTimeOf, withStartTime } from '../../shared/calls/start-time.ts';
import { PawlError } from '../../shared/errors/failure.ts';
import type { NewPlan } from '../../shared/groups/plan.ts';
import { type DecodedCall, decodeCall, type ProviderCall } from '../../shared/model-tools/decode.ts';
import type { ExportableTool, ExportOptions, Provider, ToolExport } from '../../shared/model-tools/export-types.ts';
import { toolsFor } from '../../shared/model-tools/tools-for.ts';
import type { JsonSchema } from '../../shared/schema/json-schema.ts';
import { checkObject } from '../../shared/schema/known-members.ts';
import type { OpenSession, SessionRecord } from '../../shared/sessions/session.ts';
import type { RepeatedCalls } from '../../shared/store/calls/repeated-calls.ts';
import { notify } from '../../shared/telemetry/listeners.ts';
import type { AgentOrder, AgentReply } from '../../shared/tools/sub-agent.ts';
import { type AnyTool, DEFAULT_NAMESPACE, type InputOf, type OutputOf } from '../../shared/tools/tool.ts';
import { quoteValue } from '../../shared/util/text/quote-value.ts';
import { startOf } from '../../shared/util/text/text-cut.ts';
import { type Clock, systemClock, uuidv7 } from '../../shared/util/time.ts';
import { type CallOptions, callEnvelope, callTargetOf, FormCache, toolNameOf } from '../calls/call-envelope.ts';
import type { Cancellation } from '../calls/cancel.ts';
import type { ProgressEvent } from '../calls/result-waiters.ts';
import type { Submission, SubmitOptions } from '../calls/submission.ts';
import { callAgainWhenInvalid, type ReaskOptions } from '../calls/validation-retry.ts';
import type { BatchService } from '../groups/batches.ts';
import type { PlanService } from '../groups/plans.ts';
import {
  type BatchCallOf,
  type BatchOptions,
  type BatchResults,
  type RunningBatch,
  runBatch,
} from '../groups/session-batch.ts';
import { type PlanOptions, type RunningPlan, runPlan } from '../groups/session-plan.ts';
import { endOnAbort } from './end-on-abort.ts';
import type { ListeningSessions } from './listening-sessions.ts';
import { receiveWhileListened } from './receive-while-listened.ts';
import { type AgentEventOf, approvalEventOf, type InvalidParams, type SessionEventsOf } from './session-events.ts';

/** The argument of `session.events.on('agent', …)`. */
export type AgentEvent = AgentEventOf<Session>;
export type SessionEvents = SessionEventsOf<Session>;

/** The producer's services for a session. */
export interface SessionHost {
  /** Refuses a call synchronously when its circuit is open. Undefined for every other call. */
  refuseNow(envelope: ToolCallEnvelope): Submission | undefined;
  submit(envelope: ToolCallEnvelope, options: SubmitOptions): Promise<Submission>;
  cancel(callId: string): Promise<Cancellation>;
  /** The record of a call. Absent where no call can be undone. */
  callOf?(callId: string): Promise<CompensatedCall | undefined>;
  openSession(open: OpenSession): Promise<Session>;
  closeSession(sessionKey: string): Promise<void>;
  setSessionState(sessionKey: string, state: string): Promise<SessionRecord>;
  /** Absent where there are no sub-agents. */
  readonly agents?: {
    listen(session: Session): void;
    unlisten(session: Session): void;
    reply(parent: string, order: AgentOrder, reply: AgentReply): Promise<boolean>;
  };
  readonly batches: Pick<BatchService, 'create' | 'results' | 'cancel'>;
  readonly plans: Pick<PlanService, 'create' | 'ended' | 'cancel'>;
  /** Absent where no state outlives the process. */
  readonly repeatedCalls?: Pick<RepeatedCalls, 'latest' | 'remember'>;
  readonly listening: ListeningSessions;
  /** A listener of this name threw, or its promise was rejected. */
  listenerFailed(name: string, error: unknown): void;
  /** Emits the event to the session's listeners in all processes. */
  emitInvalidParams(sessionKey: string, event: InvalidParams): Promise<void>;
  /** The tools that a session may call. */
  publishedFor(session: SessionRecord): Promise<readonly ExportableTool[]>;
}

/** The error of a call whose signal was aborted before it was submitted. */
const ABORTED = { code: 'CANCELLED', message: 'The call was cancelled before it was submitted: nothing ran.' } as const;

interface AcceptableCall {
  readonly envelope: ToolCallEnvelope;
  /** Absent for a call that starts at once. */
  readonly start?: StartTime | undefined;
}

type PreparedCall =
  | (AcceptableCall & { readonly refused?: undefined })
  | { readonly refused: Submission; readonly envelope?: undefined };

export class Session {
  readonly #host: SessionHost;
  readonly #clock: Pick<Clock, 'now'>;
  #record: SessionRecord;
  readonly events = new EventEmitter<SessionEvents>();

  readonly #target: ToolCallEnvelope['target'];
  readonly #forms = new FormCache();

  constructor(host: SessionHost, record: SessionRecord, clock: Pick<Clock, 'now'> = systemClock) {
    this.#host = host;
    this.#clock = clock;
    this.#record = record;
    this.#target = callTargetOf(record);
    receiveWhileListened(this, this.events as EventEmitter, host);
  }

  /** The record as it was opened or found, with changes made through this object. */
  get record(): SessionRecord {
    return this.#record;
  }

  get key(): string {
    return this.record.sessionKey;
  }

  /**
   * Calls a tool and waits for its result. Resolves with an envelope for every ending; rejects only when Redis is out of
   * reach (`BACKEND_UNAVAILABLE`) or the code is wrong.
   */
  async call<T extends AnyTool | string>(
    tool: T,
    params: InputOf<T>,
    options: CallOptions = {},
  ): Promise<ToolResultEnvelope<OutputOf<T>>> {
    const prepared = this.#prepare(tool, params, options);
    const submission = prepared.refused ?? (await this.#send(prepared, options));
    return (await this.#reportEnd(submission)) as ToolResultEnvelope<OutputOf<T>>;
  }

  /** Submits a call without waiting for its result. The submission has the call's ID and the promise of the result. */
  async submit<T extends AnyTool | string>(
    tool: T,
    params: InputOf<T>,
    options: CallOptions = {},
  ): Promise<Submission<OutputOf<T>>> {
    const prepared = this.#prepare(tool, params, options);
    const submission = prepared.refused ?? (await this.#send(prepared, options));
    // A rejection reaches the caller through the submission's own result.
    this.#reportEnd(submission).catch(() => {});
    return submission as Submission<OutputOf<T>>;
  }

  /**
   * Makes many calls in one request. Resolves with all results, in their order; a call that is refused is an error in its place, and
   * stops no other. Rejects with `CONTRACT_INVALID` for a batch that is empty or too large. The calls go on when this process dies.
   *
   *     const [first, second] = await session.batch([
   *       { tool: weather, params: { city: 'Paris' } },
   *       { tool: weather, params: { city: 'Oslo' } },
   *     ], { concurrency: 1 });
   */
  batch<const Tools extends readonly (AnyTool | string)[]>(
    calls: { readonly [Index in keyof Tools]: BatchCallOf<Tools[Index]> },
    options: BatchOptions = {},
  ): RunningBatch<BatchResults<Tools>> {
    const maker = {
      record: this.record,
      envelope: (...args: Parameters<Session['envelope']>) => this.envelope(...args),
      now: () => this.#clock.now(),
    };
    return runBatch(this.#host.batches, maker, calls, options);
  }

  /**
   * Runs a graph of calls, and resolves with how each node ended. Rejects with `PLAN_INVALID` and all issues for a plan that cannot run:
   * then nothing has run. It goes on when this process dies.
   *
   *     await session.plan({ nodes: { a: { tool: 'cities' }, b: { tool: 'book', params: { city: { $from: 'a.home' } } } } });
   */
  plan(plan: NewPlan, options: PlanOptions = {}): RunningPlan {
    const onApproval = (request: ApprovalRequest) => this.emit('approval-requested', approvalEventOf(request));
    return runPlan(this.#host.plans, { record: this.record, onApproval }, plan, options);
  }

  /** Emits the end of a call. A listener may be attached right after the call, so it is called one turn later. */
  async #reportEnd(submission: Submission): Promise<ToolResultEnvelope> {
    const result = await submission.result;
    if (result.status === 'circuit_open')
      this.emit('circuit-open', {
        toolName: result.toolName,
        ...(result.error.retryAfterMs !== undefined && { retryAfterMs: result.error.retryAfterMs }),
      });
    this.emit('settled', result);
    return result;
  }

  /** Builds the envelope of a call, or its refusal when no round trip is needed for that. */
  #prepare(tool: AnyTool | string, params: unknown, options: CallOptions): PreparedCall {
    let envelope: ToolCallEnvelope;
    let start: StartTime | undefined;
    try {
      checkObject('options', options);
      start = startTimeOf(options, this.#clock.now());
      envelope = this.envelope(tool, params, withStartTime(options, start));
      this.#forms.check(envelope, options);
    } catch (error) {
      if (!(error instanceof PawlError)) throw error;
      // Plain JavaScript passes null for no options.
      const requestId = (options as CallOptions | null)?.requestId ?? uuidv7();
      return { refused: answered(refusal(error, { requestId, toolName: startOf(toolNameOf(tool), 256) })) };
    }
    const refused = this.#refuseNow({ envelope, start }, options.signal);
    return refused === undefined ? { envelope, start } : { refused };
  }

  #refuseNow({ envelope, start }: AcceptableCall, signal: AbortSignal | undefined): Submission | undefined {
    if (signal?.aborted === true) return answered(refusal(ABORTED, envelope));
    // The circuit of a delayed call counts when the call starts.
    return start === undefined ? this.#host.refuseNow(envelope) : undefined;
  }

  async #send({ envelope, start }: AcceptableCall, { signal, callbackUrl }: CallOptions): Promise<Submission> {
    const submission = await this.#host.submit(envelope, {
      ...(start !== undefined && { start }),
      session: this.record,
      ...(callbackUrl !== undefined && { callbackUrl }),
      onProgress: (event) => this.#emitProgress(event),
      onApproval: (request) => this.emit('approval-requested', approvalEventOf(request)),
      onAccepted: (callId) => this.emit('queued', { callId, toolName: envelope.toolName }),
    });
    // Plain JavaScript passes null for no signal, as it does to `fetch`.
    if (submission.kind === 'answered' || signal === undefined || signal === null) return submission;
    return endOnAbort(submission, envelope.toolName, signal, (callId) => this.cancel(callId));
  }

  /**
   * Undoes a call of this session that succeeded, once, with its tool's `compensate`. The undoing is a call of its own: it is queued,
   * approved where the tool's calls are, retried and audited. Rejects with `UNKNOWN_CALL`, and with `CALL_NOT_COMPENSABLE` for a call
   * that did not succeed. For a tool without `compensate` it resolves with that error, or rejects where the fleet has keys.
   */
  async compensate(
    callId: string,
    options: Pick<CallOptions, 'timeoutMs' | 'turnId' | 'signal' | 'traceparent'> = {},
  ): Promise<ToolResultEnvelope> {
    const envelope = await this.compensation(callId, options);
    const refused = this.#refuseNow({ envelope }, options.signal);
    return this.#reportEnd(refused ?? (await this.#send({ envelope }, options)));
  }

  /** The envelope that undoes a call. Throws as `compensate` rejects. */
  async compensation(callId: string, options: CallOptions = {}): Promise<ToolCallEnvelope> {
    const call = await this.#host.callOf?.(callId);
    const original = call?.request.envelope;
    if (call === undefined || original?.target.sessionKey !== this.key)
      throw new PawlError('UNKNOWN_CALL', `This session has no call ${quoteValue(callId)}.`);
    return compensation(call, this.envelope(original.toolName, {}, { ...options, namespace: original.toolNamespace }));
  }

  /** The envelope of a call of this session. Throws `CONTRACT_INVALID` for parameters that are not JSON-serializable. */
  envelope(tool: AnyTool | string, params: unknown, options: CallOptions = {}): ToolCallEnvelope {
    return callEnvelope(this.#target, tool, params, options, this.#clock);
  }

  #emitProgress(event: ProgressEvent): void {
    if (event.type === 'progress') this.emit('progress', event);
    else if (event.type === 'retrying') this.emit('retrying', event);
    else if (event.type === 'pending') this.emit('pending', event);
  }

  /** Emits an event to all listeners. An error of one listener is logged; the call and the other listeners go on. */
  emit<Name extends keyof SessionEvents>(name: Name, event: SessionEvents[Name][0], onFailed?: () => void): void {
    for (const listener of (this.events as EventEmitter).rawListeners(name))
      this.inform(name, (emitted) => Reflect.apply(listener, this.events, [emitted]), event, onFailed);
  }

  /** Calls one listener in the same way; `name` is for the log. */
  inform<Event>(
    name: string,
    listener: ((event: Event) => unknown) | undefined,
    event: Event,
    onFailed?: () => void,
  ): void {
    notify(listener, event, (error) => {
      this.#host.listenerFailed(name, error);
      onFailed?.();
    });
  }

  /**
   * Calls a tool for a model. Refused arguments are corrected where they have one meaning; otherwise the model is asked again, at most
   * twice. If that does not help, the session above receives `invalid-params`.
   */
  async callWithReask<T extends AnyTool | string>(
    tool: T,
    params: Readonly<Record<string, unknown>>,
    given: CallOptions & ReaskOptions,
  ): Promise<ToolResultEnvelope<OutputOf<T>>> {
    checkObject('options', given);
    const { ask, repair, maxReasks, ...options } = given;
    const toolName = typeof tool === 'string' ? tool : tool.name;
    const schema = typeof tool === 'string' ? await this.#schemaOf(tool, options.namespace) : tool.inputSchema;
    const { idempotencyKey, requestId, ...rest } = options;
    const { result, reasks } = await callAgainWhenInvalid(
      params,
      { ask, ...(repair !== undefined && { repair }), ...(maxReasks !== undefined && { maxReasks }) },
      {
        toolName,
        schema,
        call: (corrected, round) => {
          // The same key with other arguments would be a conflict.
          const key = round === 0 ? idempotencyKey : `${idempotencyKey}:${round}`;
          const names = {
            ...(idempotencyKey === undefined || key === undefined ? {} : { idempotencyKey: key }),
            ...(round > 0 || requestId === undefined ? {} : { requestId }),
          };
          return this.call(tool as string, corrected, { ...rest, ...names });
        },
      },
    );
    if (result.error?.code === 'INVALID_PARAMS') await this.emitInvalidParams({ toolName, reasks, result });
    return result as ToolResultEnvelope<OutputOf<T>>;
  }

  /** Emits `invalid-params` to the session above: a model could not correct a tool's arguments. */
  async emitInvalidParams(event: Omit<InvalidParams, 'sessionKey'>): Promise<void> {
    const { parent } = this.record;
    if (parent !== undefined) await this.#host.emitInvalidParams(parent, { sessionKey: this.key, ...event });
  }

  async #schemaOf(name: string, namespace = DEFAULT_NAMESPACE): Promise<JsonSchema> {
    const published = await this.#host.publishedFor(this.record);
    return published.find((tool) => tool.name === name && tool.namespace === namespace)?.inputSchema ?? {};
  }

  /** This session's tools as a provider's API takes them, with a report of what got lost and a map of the names. */
  async toolsFor(provider: Provider, options?: ExportOptions): Promise<ToolExport> {
    return toolsFor(provider, await this.#host.publishedFor(this.record), options);
  }

  /** The records of calls whose IDs a model has used again in a later answer, shared by all processes of this session. */
  get repeatedCalls(): SessionHost['repeatedCalls'] {
    return this.#host.repeatedCalls;
  }

  /** The tool and parameters that a model's call names. Throws `UNKNOWN_TOOL` and `INVALID_PARAMS`. */
  async decode(exported: ToolExport, call: ProviderCall): Promise<DecodedCall> {
    checkObject('exported.names', exported?.names);
    checkObject('call', call);
    return decodeCall(exported, await this.#host.publishedFor(this.record), call);
  }

  /** Cancels a call, queued or running on any worker. The returned settlement says how it ended. */
  cancel(callId: string): Promise<Cancellation> {
    return this.#host.cancel(callId);
  }

  /** A session below this one that may do what this one may, and talks through its channel. */
  branch(): Promise<Session> {
    return this.#openChild('branch');
  }

  /** A session below this one that reads and changes nothing. */
  worker(): Promise<Session> {
    return this.#openChild('worker');
  }

  async #openChild(kind: 'branch' | 'worker'): Promise<Session> {
    return this.#host.openSession({ kind, parent: this.key });
  }

  /**
   * Answers an `agent` event with the result of the sub-agent's turn. Returns false when the agent has received more meanwhile, or is
   * closed. Throws `NOT_FOUND`.
   */
  async reply(event: AgentOrder, reply: AgentReply): Promise<boolean> {
    const { agents } = this.#host;
    if (agents === undefined) throw new PawlError('NOT_FOUND', 'There are no sub-agents without a fleet.');
    return agents.reply(this.key, event, reply);
  }

  /** The state that its owner has set, or `closed`. */
  get state(): string {
    return this.record.state;
  }

  /**
   * Changes the state of this session and of all below it: a tool's policy may name the states in which it may be called. Accepted calls go
   * on. Rejects with `SESSION_CLOSED`, and with `CONTRACT_INVALID` for a state that a session cannot have.
   */
  async setState(state: string): Promise<void> {
    this.#record = await this.#host.setSessionState(this.key, state);
  }

  /** Closes this session and those below it, and cancels their calls. */
  close(): Promise<void> {
    this.#host.listening.remove(this);
    return this.#host.closeSession(this.key);
  }
}

function answered(result: ToolResultEnvelope): Submission {
  return { kind: 'answered', result };
}
