/**
 * A producer: each process that submits calls has one. It holds the connections, knows the fleet's tools and circuits, and brings results
 * back to their callers.
 */
import type { Readable } from 'node:stream';
import type { Completion } from '../shared/calls/completion.ts';
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import type { Settings } from '../shared/config/config.ts';
import type { OpenSession } from '../shared/sessions/session.ts';
import type { AuditEntry } from '../shared/store/audit/audit-trail.ts';
import { type Backend, openBackend } from '../shared/store/backend.ts';
import type { CallRecord } from '../shared/store/calls/call-record.ts';
import type { CatalogueContent, PublishedTool } from '../shared/store/fleet/catalogue.ts';
import { reSignRecords } from '../shared/store/signing/re-sign.ts';
import type { FleetMetrics } from '../shared/store/telemetry/fleet-metrics.ts';
import { notify } from '../shared/telemetry/listeners.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { withinMs } from '../shared/util/wait.ts';
import type { ApprovalService } from './approvals/approvals.ts';
import type { QuestionService } from './approvals/questions.ts';
import { checkArguments, guardServices } from './arguments.ts';
import type { CallbackService } from './callbacks/callback-service.ts';
import { type AuditQuery, findRecords } from './calls/audit.ts';
import type { CallSubscriber } from './calls/call-events.ts';
import type { Cancellation } from './calls/cancel.ts';
import type { Resolution } from './calls/resolution.ts';
import type { Submission, SubmitOptions } from './calls/submission.ts';
import type { Position } from './calls/timeline.ts';
import type { CompletionAnswer } from './completions/completion-service.ts';
import { composeProducer, type PawlOptions, type ProducerParts } from './compose.ts';
import type { DeadLetterService } from './dead-letters/dead-letter-service.ts';
import type { BatchService } from './groups/batches.ts';
import type { PlanService } from './groups/plans.ts';
import type { CallService } from './operations/call-service.ts';
import type { CircuitService } from './operations/circuit-service.ts';
import type { ShardService, WorkerService } from './operations/fleet-services.ts';
import type { ProducerMetrics } from './operations/metrics.ts';
import type { ReliabilityService } from './operations/reliability-service.ts';
import type { ScheduleService } from './schedules/schedule-service.ts';
import type { Session } from './sessions/session.ts';
import type { SessionService } from './sessions/session-service.ts';
import type { Skills } from './sessions/skills.ts';
import type { SubAgentService } from './sessions/sub-agents.ts';
import type { Registry } from './tools/registry.ts';
import { type ServedTool, ServedTools, type ServeOptions } from './tools/served-tools.ts';
import type { ToolViewer } from './tools/session-tools.ts';
import type { ResolvedTool } from './tools/tool-catalogue.ts';
import type { ToolClients } from './tools/tool-clients.ts';

/** A closing client publishes its last counts, if Redis accepts them within this time. */
const LAST_METRICS_MS = 500;
/** How long a new client waits for the state of circuits. Without it, workers check circuits. */
const CATCH_UP_MS = 3_000;

export type { Cancellation, PawlOptions };

export class Pawl implements AsyncDisposable {
  /** Finds, follows and ends calls. */
  readonly calls: CallService;
  /** Lists calls of mutating tools that failed, runs them again and discards them. */
  readonly deadLetters: DeadLetterService;
  /** Many calls in one request, each with an outcome of its own. */
  readonly batches: BatchService;
  /** Graphs of calls that need each other's results. */
  readonly plans: PlanService;
  /** Lists the fleet's circuits, forces them open and resets them. */
  readonly circuits: CircuitService;
  /** The kill switch of the reliability layer. */
  readonly reliability: ReliabilityService;
  readonly shards: ShardService;
  /** Ends of calls that are posted to a URL: lists them, and sends them again. */
  readonly callbacks: CallbackService;
  readonly workers: WorkerService;
  /** Opens and finds sessions, changes their state and closes them. */
  readonly sessions: SessionService;
  /** Calls that wait for a person, and their decisions. */
  readonly approvals: ApprovalService;
  readonly questions: QuestionService;
  /** Delivers the tasks of sub-agents to sessions that listen. */
  readonly agents: SubAgentService<Session>;
  /** Tools that are declared while the system runs. */
  readonly registry: Registry;
  /** Instructions, and the tools that go with them. */
  readonly skills: Skills;
  /** Calls that are made again and again, at times of an interval or a cron expression. */
  readonly schedules: ScheduleService;
  /** Clients that run declared tools themselves. */
  readonly toolClients: ToolClients;
  /** The counts of this process; `fleetMetrics` has the counts of all processes. */
  readonly metrics: ProducerMetrics;
  readonly fleetMetrics: FleetMetrics;
  readonly settings: Settings;
  readonly backend: Backend;
  readonly #parts: ProducerParts;
  readonly #serving = new Set<ServedTools>();
  #closing: Promise<void> | undefined;

  /** Opens the connections and waits until results can arrive. Throws `BACKEND_UNAVAILABLE` when Redis cannot be used. */
  static async open(options: PawlOptions): Promise<Pawl> {
    const { settings, log, environment, audit } = options;
    const backend = await openBackend({ settings, name: 'producer', mode: 'fail-fast', environment, audit, log });
    await reSignRecords(backend, log);
    const parts = composeProducer(options, backend);
    // From the first call on, an open circuit refuses without a round trip.
    await withinMs(parts.heard, CATCH_UP_MS);
    if (options.schedules === true) parts.scheduleRunner.start();
    return new Pawl(parts);
  }

  private constructor(parts: ProducerParts) {
    this.#parts = parts;
    this.calls = parts.calls;
    this.deadLetters = parts.deadLetters;
    this.batches = parts.batches;
    this.plans = parts.plans;
    this.circuits = parts.circuits;
    this.reliability = parts.reliability;
    this.shards = parts.shards;
    this.callbacks = parts.callbacks;
    this.workers = parts.workers;
    this.sessions = parts.sessions;
    this.approvals = parts.approvals;
    this.questions = parts.questions;
    this.agents = parts.agents;
    this.registry = parts.registry;
    this.skills = parts.skills;
    this.schedules = parts.schedules;
    this.toolClients = parts.toolClients;
    this.metrics = parts.core.metrics;
    this.fleetMetrics = parts.fleetMetrics;
    this.settings = parts.core.settings;
    this.backend = parts.core.backend;
    guardServices(this);
  }

  /**
   * Opens a session. Throws `CONTRACT_INVALID` for an invalid request, `UNKNOWN_SESSION` for an unknown parent, and `SESSION_CLOSED` for a
   * closed one.
   */
  async openSession(open: OpenSession = {}): Promise<Session> {
    this.#parts.core.state.check();
    return this.sessions.open(open);
  }

  /** An open session by its key. Throws `UNKNOWN_SESSION`. */
  session(sessionKey: string): Promise<Session> {
    return this.sessions.find(sessionKey);
  }

  /**
   * Submits an envelope, which may come from outside: a malformed one is answered with `CONTRACT_INVALID`. The call has the parameters as
   * they are now. Rejects with `BACKEND_UNAVAILABLE` when Redis is unavailable.
   */
  async submit(envelope: unknown, options?: SubmitOptions): Promise<Submission> {
    const { core, submitter } = this.#parts;
    core.state.check();
    return submitter.submitUnchecked(envelope, this.#guarded(options));
  }

  /** A call's record; undefined when there is none or it has expired. */
  read(callId: string): Promise<CallRecord | undefined> {
    return this.calls.read(callId);
  }

  /** The whole output of a call that succeeded, where its envelope shows only a part. Throws `UNKNOWN_CALL` when there is none. */
  output(callId: string): Promise<unknown> {
    return this.calls.output(callId);
  }

  /** The same as JSON text, part by part. Throws `UNKNOWN_CALL` and `SIGNATURE_INVALID`. */
  outputStream(callId: string): Promise<Readable> {
    return this.calls.outputStream(callId);
  }

  /** Waits for the end of a call, which may have been submitted before this process started. Undefined after `waitMs`. */
  result(
    callId: string,
    options: { readonly requestId?: string; readonly waitMs?: number } = {},
  ): Promise<ToolResultEnvelope | undefined> {
    return this.calls.result(callId, options);
  }

  /** Cancels a call wherever it is. Throws `UNKNOWN_CALL`. */
  cancel(callId: string, by?: string): Promise<Cancellation> {
    return this.calls.cancel(callId, by);
  }

  /**
   * Completes a call that waits for an outside system: `await pawl.complete(token, { status: 'success', output: { paid: true } })`. Also
   * takes an error, `{ progress }` and `{ extendMs }`. Throws `CONTRACT_INVALID`, `UNKNOWN_COMPLETION`, `COMPLETION_USED`,
   * `COMPLETION_EXPIRED` and `COMPLETION_INVALID`.
   */
  async complete(token: string, completion: Completion): Promise<CompletionAnswer> {
    checkArguments('complete', token, completion);
    return this.#parts.completions.complete(token, completion);
  }

  /** Gives a call in doubt a known outcome, or lets it run again. Throws `UNKNOWN_CALL` and `CALL_NOT_RESOLVABLE`. */
  resolve(callId: string, resolution: Resolution, by?: string): Promise<CallRecord> {
    return this.calls.resolve(callId, resolution, by);
  }

  /** Subscribes to the events of a call, optionally to those after a position. The returned function unsubscribes. */
  follow(callId: string, subscriber: CallSubscriber, after?: Position): () => void {
    checkArguments('follow', callId, subscriber);
    const { core, subscriptions } = this.#parts;
    core.state.check();
    const onFailed = (name: string) => (error: unknown) => core.listenerFailed(name, error);
    const guarded: CallSubscriber = {
      onEvents: (events) => notify((received) => subscriber.onEvents(received), events, onFailed('onEvents')),
      onEnd: () => notify(() => subscriber.onEnd(), undefined, onFailed('onEnd')),
    };
    return subscriptions.follow(callId, guarded, after);
  }

  /** The tools and workers of the fleet. For a session, only the tools that it may call. */
  async catalogue(sessionKey?: string): Promise<CatalogueContent> {
    if (sessionKey === undefined) return this.#parts.core.catalogue.all();
    const { record } = await this.session(sessionKey);
    return this.#parts.sessionTools.contentFor(record);
  }

  /** The tools that a session may call, one of each name. */
  async publishedFor(session: ToolViewer): Promise<readonly PublishedTool[]> {
    checkArguments('publishedFor', session);
    return this.#parts.sessionTools.publishedFor(session);
  }

  /** The version of a tool that a call by name would get; undefined before the catalogue was read. */
  published(namespace: string, name: string): ResolvedTool | undefined {
    checkArguments('published', namespace, name);
    return this.#parts.core.catalogue.peek(namespace, name);
  }

  /** Declares tools and runs their calls here, as an outside client does over HTTP. */
  async serveTools(tools: readonly ServedTool[], options?: ServeOptions): Promise<ServedTools> {
    checkArguments('serveTools', tools, options);
    this.#parts.core.state.check();
    const deps = {
      clients: this.toolClients,
      registry: this.registry,
      onClosed: (closed: ServedTools) => void this.#serving.delete(closed),
    };
    const guarded = defined({ ...options, onError: this.#guard('onError', options?.onError) });
    const serving = await ServedTools.start(deps, tools, guarded);
    this.#serving.add(serving);
    return serving;
  }

  /** Calls a listener when tools or workers were added or removed. The returned function removes the listener. */
  onCatalogueChange(listener: () => void): () => void {
    checkArguments('onCatalogueChange', listener);
    return this.#parts.updates.onCatalogueChange(listener);
  }

  /** Records of the audit trail that are still in Redis, the newest first. */
  async audit(query: AuditQuery = {}): Promise<readonly AuditEntry[]> {
    checkArguments('audit', query);
    this.#parts.core.audit.flush();
    return findRecords(this.backend.trail, query);
  }

  /** Runs redrives of dead processes, as front doors do. The returned function ends that. */
  watchRedrives(): () => void {
    return this.#parts.redriveRunner.watch();
  }

  /** Adds this process's counts to the fleet's counts, now. */
  publishMetrics(): Promise<void> {
    return this.#parts.publisher.publish();
  }

  /** Wraps the listeners, so that their errors are logged and do not affect the call. */
  #guarded(options: SubmitOptions | undefined): SubmitOptions | undefined {
    const { onAccepted, onApproval, onProgress } = options ?? {};
    if (onAccepted === undefined && onApproval === undefined && onProgress === undefined) return options;
    return defined({
      ...options,
      onAccepted: this.#guard('onAccepted', onAccepted),
      onApproval: this.#guard('onApproval', onApproval),
      onProgress: this.#guard('onProgress', onProgress),
    });
  }

  #guard<Event>(name: string, listener: ((event: Event) => void) | undefined): typeof listener {
    return listener && ((event) => notify(listener, event, (error) => this.#parts.core.listenerFailed(name, error)));
  }

  /** Starts no more occurrences of schedules here. Other processes start them. */
  stopSchedules(): Promise<void> {
    return this.#parts.scheduleRunner.stop();
  }

  /** From now on, this process also drives batches and plans of dead processes, as a front door does. */
  takeOverGroups(): void {
    this.#parts.core.state.check();
    this.#parts.groups.adoptAbandoned();
  }

  /** Ends the connections. Calls go on without this process; their results can be read by ID. A second call waits for the first. */
  close(): Promise<void> {
    this.#parts.core.state.close();
    this.#closing ??= this.#end();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #end(): Promise<void> {
    const { core, publisher, subscriptions, broadcasts, inbox, redriveRunner } = this.#parts;
    await redriveRunner.close();
    await Promise.all([this.stopSchedules(), ...[...this.#serving].map((serving) => serving.close().catch(() => {}))]);
    await this.#parts.groups.close();
    await publisher.close(LAST_METRICS_MS);
    subscriptions.close();
    this.agents.close();
    core.catalogue.close();
    core.results.close();
    broadcasts.close();
    inbox.close();
    core.audit.flush();
    await this.backend.close();
    await core.options.tracing?.flush();
  }
}
