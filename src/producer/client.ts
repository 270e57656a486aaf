/**
 * A producer: one per process that enqueues calls. Holds the connections, knows the fleet's tools and circuits, and brings
 * results back to whoever asked.
 */
import { resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { ApprovalHooks } from '../shared/approvals/approval-hooks.ts';
import type { RecordAudit } from '../shared/audit/audit-event.ts';
import type { ToolResultEnvelope } from '../shared/calls/envelope.ts';
import { type Hook, Hooks } from '../shared/calls/hooks.ts';
import { envelopeOf } from '../shared/calls/outcome.ts';
import { type Settings, toolPolicy } from '../shared/config/config.ts';
import { Switches } from '../shared/config/switches.ts';
import { PawlError } from '../shared/errors/failure.ts';
import { isOutOfReach } from '../shared/policy/policy.ts';
import { tenantRoot } from '../shared/policy/workspace-root.ts';
import {
  newSession,
  type OpenSession,
  parseOpenSession,
  parseSessionState,
  SESSION_CAPABILITIES,
  type SessionRecord,
  sessionTaken,
} from '../shared/sessions/session.ts';
import { skillRule } from '../shared/sessions/skill-rule.ts';
import type { AuditEntry } from '../shared/store/audit/audit-trail.ts';
import { type Backend, openBackend } from '../shared/store/backend.ts';
import type { Flushed } from '../shared/store/calls/call-index.ts';
import type { CallRecord } from '../shared/store/calls/call-record.ts';
import type { CircuitChange } from '../shared/store/circuits/circuits.ts';
import type { PublishedTool } from '../shared/store/fleet/catalogue.ts';
import { InboxReader } from '../shared/store/queues/result-inbox.ts';
import { type Broadcast, BroadcastListener, publishBroadcast } from '../shared/store/redis/broadcasts.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import { followAbove } from '../shared/store/sessions/sessions.ts';
import { signRecordsAnew } from '../shared/store/signing/re-sign.ts';
import { FleetMetrics, MetricsPublisher } from '../shared/store/telemetry/fleet-metrics.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import type { Tracing } from '../shared/telemetry/tracing.ts';
import { qualifiedName, TIERS, type Tier } from '../shared/tools/tool.ts';
import { resolveToolsets, type Toolset } from '../shared/tools/toolset.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { backgroundSchedule, type Clock, MAX_TIMER_MS, uuidv7 } from '../shared/util/time.ts';
import { ApprovalService } from './approvals/approvals.ts';
import { QuestionService } from './approvals/questions.ts';
import { type AuditQuery, CallAudit, findRecords } from './calls/audit.ts';
import { type CallSubscriber, CallSubscriptions } from './calls/call-events.ts';
import { afterCall, hookedTool } from './calls/call-hooks.ts';
import type { Cancellation } from './calls/cancel.ts';
import { composeSubmitter } from './calls/compose-submitter.ts';
import { type CallFilter, findCalls } from './calls/find-calls.ts';
import { readOutput, streamOutput } from './calls/outputs.ts';
import type { Resolution } from './calls/resolution.ts';
import { Results } from './calls/result-waiters.ts';
import type { DispatchEvent, Submission, SubmitOptions } from './calls/submission.ts';
import type { CallSubmitter } from './calls/submit-call.ts';
import type { Position } from './calls/timeline.ts';
import type { CallTraces } from './calls/traces.ts';
import { CircuitAdmin, type CircuitListing, type CircuitSelection } from './circuits/circuit-admin.ts';
import { CircuitView } from './circuits/circuit-cache.ts';
import type { EnforcedCircuit } from './circuits/circuit-effects.ts';
import { CallAdminService } from './operations/call-admin.ts';
import { ProducerMetrics } from './operations/metrics.ts';
import {
  type FlushSelection,
  OperatorService,
  type Reliability,
  type ReliabilityWord,
} from './operations/operator-actions.ts';
import { type ShardView, viewShards } from './operations/shards.ts';
import { closeSessions } from './sessions/close-sessions.ts';
import { logListenerFailure, tell } from './sessions/listeners.ts';
import { ListeningSessions } from './sessions/listening-sessions.ts';
import { Session, type SessionHost } from './sessions/session.ts';
import { ProducerSessions } from './sessions/session-cache.ts';
import type { InvalidParams } from './sessions/session-events.ts';
import { changeState } from './sessions/session-states.ts';
import { checkRequired, Skills } from './sessions/skills.ts';
import { SubAgentService } from './sessions/sub-agents.ts';
import { Registry } from './tools/registry.ts';
import { type ServedTool, ServedTools, type ServeOptions } from './tools/served-tools.ts';
import { type ResolvedTool, ToolCatalogue } from './tools/tool-catalogue.ts';
import { ToolClients } from './tools/tool-clients.ts';

/** A client that ends says what it counted last, if Redis takes it by then. */
const LAST_METRICS_MS = 500;
/** How long a new client waits for its first news; without them circuits are asked in the worker. */
const NEWS_MS = 3_000;

export interface PawlOptions {
  readonly settings: Settings;
  readonly log: Logger;
  /** Told of decisions and of refused attempts, beside the log. */
  readonly audit?: RecordAudit;
  /** Whose word an override is when whoever says it does not name themselves. Default: `library`. */
  readonly operator?: string;
  /** Where implicit sessions work when `workspaceRoot` is not configured. */
  readonly defaultWorkspaceRoot: string;
  readonly clock?: Clock;
  readonly hooks?: readonly Hook[];
  /** What sessions see of the fleet's tools; without any, all that they may call. */
  readonly toolsets?: readonly Toolset<PublishedTool>[];
  readonly onEvent?: (event: DispatchEvent) => void;
  readonly tracing?: Tracing<CallTraces>;
}

export type { Cancellation };

/** For whom tools are listed: a session, or any of a kind. */
type ElicitationState = SessionRecord | (Pick<SessionRecord, 'kind'> & Partial<Omit<SessionRecord, 'sessionKey'>>);

export class Pawl implements AsyncDisposable {
  /** Calls that wait for a person, and their decisions. */
  readonly approvals: ApprovalService;
  /** What sub-agents are told, for sessions that listen. */
  readonly agents: SubAgentService<Session>;
  /** Tools that are declared while the system runs. */
  readonly registry: Registry;
  /** Instructions, and the tools that go with them. */
  readonly skills: Skills;
  /** Clients that run declared tools themselves. */
  readonly toolClients: ToolClients;
  readonly questions: QuestionService;
  /** What this process counts; `fleetMetrics` adds it up with what others do. */
  readonly metrics: ProducerMetrics;
  readonly fleetMetrics: FleetMetrics;
  readonly #options: PawlOptions;
  readonly #backend: Backend;
  readonly #inbox: InboxReader;
  readonly #broadcast: BroadcastListener;
  readonly #results: Results;
  readonly #follows: CallSubscriptions;
  readonly #catalogue: ToolCatalogue;
  readonly #circuits: CircuitView;
  readonly #switches: Switches;
  readonly #circuitAdmin: CircuitAdmin;
  readonly #operators: OperatorService;
  readonly #calls: CallAdminService;
  readonly #submitter: CallSubmitter;
  readonly #publisher: MetricsPublisher;
  readonly #traces: CallTraces | undefined;
  readonly #hooks: Hooks;
  readonly #audit: CallAudit;
  readonly #sessions: ProducerSessions;
  readonly #serving = new Set<ServedTools>();
  readonly #catalogueListeners = new Set<() => void>();
  readonly #inboxId: string;
  /** Resolved once the news are heard and the circuits known. */
  readonly listening = new ListeningSessions();
  readonly #heard = Promise.withResolvers<void>();
  /** What session objects need of this producer. */
  readonly sessionHost: SessionHost;
  #closing: Promise<void> | undefined;

  /** Opens the connections and waits until results can arrive. Throws `BACKEND_UNAVAILABLE` when Redis cannot be used. */
  static async open(options: PawlOptions): Promise<Pawl> {
    const { settings, log } = options;
    const backend = await openBackend({
      settings,
      name: 'producer',
      mode: 'fail-fast',
      ...(options.audit === undefined ? {} : { audit: options.audit }),
      log: (level, message, fields) => log[level](fields ?? {}, message),
    });
    await signRecordsAnew(backend, log);
    const pawl = new Pawl(options, backend);
    // From the first call on, an open circuit refuses without a round trip.
    await within(pawl.#heard.promise, NEWS_MS);
    return pawl;
  }

  private constructor(options: PawlOptions, backend: Backend) {
    const { settings, log } = options;
    const clock = options.clock ?? backend.clock;
    const onError = (error: Error) => {
      if (this.#closing === undefined) log.debug({ error: error.message }, 'Redis connection');
    };
    this.#options = options;
    this.#backend = backend;
    // The dot: see `inbox.ts`.
    this.#inboxId = (backend.clustered ? '.' : '') + uuidv7(clock).slice(-12) + Math.random().toString(36).slice(2, 8);
    this.#sessions = new ProducerSessions({
      sessions: backend.sessions,
      clock: backend.clock,
      workspaceRoot: (tenantId) => this.workspaceRoot(tenantId),
      now: () => backend.ledger.now(),
    });
    // It may come back without them: what is asked from then on is asked of it.
    backend.redis.on('close', () => this.#sessions.clear());
    this.#results = new Results(backend.ledger, this.#inboxId, onError);
    this.#follows = new CallSubscriptions({
      ledger: backend.ledger,
      results: this.#results,
      inboxId: this.#inboxId,
      onError,
    });
    this.#catalogue = new ToolCatalogue(backend.catalogue, backend.specs, onError);
    this.#circuits = new CircuitView(clock);
    this.#switches = new Switches(settings.reliability);
    this.metrics = new ProducerMetrics(settings);
    this.fleetMetrics = new FleetMetrics(backend.redis, settings.prefix);
    this.#publisher = new MetricsPublisher({
      metrics: this.fleetMetrics,
      processId: this.#inboxId,
      series: () => this.metrics.series(),
      measure: () => this.#measure(),
      onError,
    });
    this.#circuitAdmin = new CircuitAdmin(
      { breakers: backend.breakers, ledger: backend.ledger, tools: async () => (await this.#catalogue.all()).tools },
      TIERS.map(homePartition),
      (change) => this.#told({ type: 'tool_call_circuit_state', ...change }),
    );
    this.#operators = new OperatorService({
      backend,
      settings,
      catalogue: this.#catalogue,
      circuits: this.#circuitAdmin,
      switches: this.#switches,
      metrics: this.metrics,
      operator: options.operator ?? 'library',
      onCircuits: (changed, nowMs) => this.#learnCircuits(changed, nowMs),
    });
    this.#inbox = InboxReader.open({
      url: backend.url,
      redis: backend.redis,
      prefix: settings.prefix,
      id: this.#inboxId,
      partitions: () => backend.shards.partitions(),
      onEvent: (event) => {
        if (event.type === 'settled' && event.atMs !== undefined) this.metrics.heard(backend.clock.now() - event.atMs);
        this.#results.deliver(backend.ledger.verified(event));
      },
      onGap: () => {
        void this.#results.checkAll();
        this.#follows.check();
      },
      onError,
    });
    backend.shards.onChange(() => this.#inbox.follow());
    this.#broadcast = BroadcastListener.open({
      url: backend.url,
      redis: backend.redis,
      prefix: settings.prefix,
      name: 'producer',
      onBroadcast: (broadcast) => this.#hear(broadcast),
      onSubscribed: () => void this.#catchUp().catch(onError).finally(this.#heard.resolve),
      onError,
    });
    this.#hooks = new Hooks(options.hooks ?? [], {
      schedule: backgroundSchedule,
      onFailure: (hook, kind, message) =>
        log.warn({ event: 'hook_failed', hook, kind, error: message }, 'a hook failed'),
    });
    this.approvals = new ApprovalService({
      settings,
      approvals: backend.approvals,
      standingApprovals: backend.standingApprovals,
      catalogue: this.#catalogue,
      partitions: (tier) => backend.shards.partitions(tier),
      audit: backend.audit,
      hooks: new ApprovalHooks(
        this.#hooks,
        async (callId) => (await backend.ledger.glance(callId))?.request.envelope.requestId,
      ),
      sessionOf: (key) => this.#sessions.find(key),
      now: () => backend.ledger.now(),
    });
    this.#calls = new CallAdminService({
      ledger: backend.ledger,
      ttl: settings.ttl,
      results: this.#results,
      inboxId: this.#inboxId,
      approvals: this.approvals,
      operators: this.#operators,
    });
    this.registry = new Registry({
      specs: backend.specs,
      copy: this.#catalogue.specs,
      audit: backend.audit,
      now: () => backend.ledger.now(),
      isCode: async (namespace, name) =>
        (await this.#catalogue.code()).some(
          (published) => published.namespace === namespace && published.name === name,
        ),
    });
    const { clientCalls, audit } = backend;
    this.#audit = new CallAudit({
      record: audit,
      writer: backend.records,
      ...defined({ listener: options.audit }),
      publishedTool: (namespace, name) => this.#catalogue.peek(namespace, name),
    });
    const now = () => backend.ledger.now();
    this.skills = new Skills({ records: backend.skills, folders: settings.skillFolders, audit, now });
    this.toolClients = new ToolClients({ clientCalls, registry: this.registry, audit });
    this.questions = new QuestionService(backend.questions, backend.audit);
    this.agents = new SubAgentService({
      agents: backend.agents,
      session: (key) => this.session(key),
      closeSession: (key) => this.closeSession(key),
      onError,
    });
    this.#traces = options.tracing?.traces;
    this.#submitter = composeSubmitter({
      settings,
      approvals: this.approvals,
      ledger: backend.ledger,
      catalogue: this.#catalogue,
      circuits: this.#circuits,
      hooks: this.#hooks,
      switches: this.#switches,
      results: this.#results,
      inboxId: this.#inboxId,
      clock,
      shards: backend.shards,
      audit: this.#audit,
      ...defined({ traces: this.#traces }),
      sessions: this.#sessions,
      taint: (sessionKey, source) => this.#sessions.taint(sessionKey, source),
      onEvent: (event) => this.#told(event),
    });
    this.sessionHost = this.#makeSessionHost();
  }

  get settings(): Settings {
    return this.#options.settings;
  }

  get backend(): Backend {
    return this.#backend;
  }

  // Calls

  /**
   * Submits an envelope, which may come from outside: a malformed one is answered with `CONTRACT_INVALID`. The call has the parameters as
   * they are now. Rejects with `BACKEND_UNAVAILABLE` when Redis is unavailable.
   */
  async submit(envelope: unknown, options?: SubmitOptions): Promise<Submission> {
    this.#checkOpen();
    return this.#submitter.submitUnchecked(envelope, this.#guarded(options));
  }

  /** The same, with listeners that keep no call from going on, whatever they throw. A session's own are so already. */
  #guarded(options: SubmitOptions | undefined): SubmitOptions | undefined {
    const { onAccepted, onApproval, onProgress } = options ?? {};
    if (onAccepted === undefined && onApproval === undefined && onProgress === undefined) return options;
    return defined<SubmitOptions>({
      ...options,
      onAccepted: this.#guard('onAccepted', onAccepted),
      onApproval: this.#guard('onApproval', onApproval),
      onProgress: this.#guard('onProgress', onProgress),
    });
  }

  #guard<Event>(name: string, listener: ((event: Event) => void) | undefined): typeof listener {
    return listener && ((event) => tell(listener, event, (error) => this.listenerFailed(name, error)));
  }

  /** Code of this program's that was told of something has thrown, or its promise was rejected. */
  listenerFailed(name: string, error: unknown): void {
    logListenerFailure(this.#options.log, name, error);
  }

  /** A call's record; undefined when there is none or it has expired. */
  read(callId: string): Promise<CallRecord | undefined> {
    return this.#backend.ledger.read(callId);
  }

  /** The same, for a session whose call is undone: with the parameters that ran. */
  callOf(callId: string): Promise<CallRecord | undefined> {
    return this.#backend.approvals.callAsItRan(callId);
  }

  /** The whole output of a call that succeeded, where its envelope shows only a part. Throws `UNKNOWN_CALL` when there is none. */
  output(callId: string): Promise<unknown> {
    return readOutput(this.#backend.ledger, callId);
  }

  /**
   * The same as JSON text, part by part as it comes from Redis: never all of it at once. Throws `UNKNOWN_CALL` when there is none, and
   * `SIGNATURE_INVALID` for what nobody of the fleet wrote; the stream may still break with either of them.
   */
  outputStream(callId: string): Promise<Readable> {
    return streamOutput(this.#backend.ledger, callId);
  }

  /** Waits for the end of a call that somebody handed in, maybe before this process started. */
  async result(
    callId: string,
    options: { readonly requestId?: string; readonly waitMs?: number } = {},
  ): Promise<ToolResultEnvelope | undefined> {
    const waiting = this.#results.wait(callId);
    try {
      const record = await this.#backend.ledger.read(callId, this.#inboxId);
      if (record === undefined) throw new PawlError('UNKNOWN_CALL');
      const { requestId, toolName } = record.request.envelope;
      const asked = { requestId: options.requestId ?? requestId, toolName, callId: record.callId };
      if (record.outcome !== undefined && record.state !== 'inflight') return envelopeOf(record.outcome, asked);
      const outcome = await within(waiting.outcome, options.waitMs);
      return outcome === undefined ? undefined : envelopeOf(outcome, asked);
    } finally {
      waiting.stop();
    }
  }

  /**
   * A result that was read under the call's ID, as `afterCall` hooks leave it: for front doors that answer their callers so. Throws
   * `UNKNOWN_CALL`.
   */
  async hooked(result: ToolResultEnvelope): Promise<ToolResultEnvelope> {
    const { callId } = result;
    if (callId === undefined || !this.#hooks.has('afterCall')) return result;
    const record = await this.read(callId);
    if (record === undefined) throw new PawlError('UNKNOWN_CALL');
    return afterCall(this.#hooks, hookedTool(record, this.#catalogue), record.request.envelope, result);
  }

  /** Tells of everything that becomes of a call, from after an event when its position is given. The answer ends that. */
  follow(callId: string, subscriber: CallSubscriber, after?: Position): () => void {
    this.#checkOpen();
    const failed = (name: string) => (error: unknown) => this.listenerFailed(name, error);
    const guarded: CallSubscriber = {
      onEvents: (events) => tell((told) => subscriber.onEvents(told), events, failed('onEvents')),
      onEnd: () => tell(() => subscriber.onEnd(), undefined, failed('onEnd')),
    };
    return this.#follows.follow(callId, guarded, after);
  }

  /** Cancels a call wherever it is. Throws `UNKNOWN_CALL`. */
  cancel(callId: string, by?: string): Promise<Cancellation> {
    return this.#calls.cancel(callId, by);
  }

  /** Asks for a call's end and does not wait for it. Throws `UNKNOWN_CALL`. */
  requestCancel(callId: string, by?: string): Promise<void> {
    return this.#calls.requestCancel(callId, by);
  }

  /** Gives a call in doubt a known outcome, or lets it run again. Throws `UNKNOWN_CALL` and `CALL_NOT_RESOLVABLE`. */
  resolve(callId: string, resolution: Resolution, by?: string): Promise<CallRecord> {
    return this.#calls.resolve(callId, resolution, by);
  }

  /** Calls of all tiers, the newest first. Outcomes that are stored apart, because they are large, are left out. */
  async calls(
    options: CallFilter & { readonly limit?: number; readonly sessionKey?: string } = {},
  ): Promise<CallRecord[]> {
    const { ledger, shards } = this.#backend;
    const search = { ...options, limit: options.limit ?? 50, isSeen: () => true };
    const { records } = await findCalls(shards.partitions(), ledger, search);
    return [...records];
  }

  /** How many calls wait or run in the whole fleet. */
  async backlog(): Promise<number> {
    const { ledger, shards } = this.#backend;
    const counts = await Promise.all(shards.partitions().map((partition) => ledger.counts(partition)));
    return counts.reduce((sum, { inflight }) => sum + inflight, 0);
  }

  // Sessions

  /** The names of models' calls whose IDs came again. */
  get repeatedCalls() {
    return this.#backend.repeatedCalls;
  }

  /**
   * Opens a session. Throws `CONTRACT_INVALID` for what cannot be one, `UNKNOWN_SESSION` for an unknown parent, and `SESSION_CLOSED` for
   * a closed one.
   */
  async openSession(open: OpenSession = {}): Promise<Session> {
    this.#checkOpen();
    const asked = parseOpenSession(open);
    const above = asked.parent === undefined ? undefined : await this.session(asked.parent);
    const skills = await this.skills.named(asked.skills ?? []);
    const channel = asked.channel ?? (await this.#defaultChannel(asked));
    const tenantId = asked.tenantId ?? above?.record.tenantId;
    // Below a session of no tenant, one of a tenant does not work where that one does.
    const isOfOwn = tenantId !== above?.record.tenantId && asked.workspaceRoot === undefined;
    const record = newSession(
      {
        ...asked,
        ...(channel === undefined ? {} : { channel }),
        ...(isOfOwn ? { workspaceRoot: this.workspaceRoot(tenantId) } : {}),
      },
      above?.record,
      {
        sessionKey: uuidv7(),
        workspaceRoot: this.workspaceRoot(tenantId),
        createdAtMs: await this.#backend.ledger.now(),
      },
      skillRule(skills),
    );
    if (skills.some(({ requiredTools }) => requiredTools.length > 0))
      checkRequired(skills, await this.publishedFor(record));
    const opened = await this.#backend.sessions.create(record, asked.sessionKey === undefined ? 'fresh' : undefined);
    if (opened === undefined) throw sessionTaken(record.sessionKey);
    const placed = await followAbove(this.#backend.sessions, opened, asked.state === undefined);
    this.#sessions.remember(placed);
    return this.#sessionOf(placed);
  }

  /** A session below another reaches people through that one, and a worker session reaches none. */
  async #defaultChannel({ parent, kind }: ReturnType<typeof parseOpenSession>): Promise<SessionRecord['channel']> {
    const reachesPeople = parent === undefined && SESSION_CAPABILITIES[kind].includes('channel');
    return reachesPeople ? this.#backend.sessions.defaultChannel() : undefined;
  }

  /** An open session by its key. Throws `UNKNOWN_SESSION`. */
  async session(sessionKey: string): Promise<Session> {
    const record = await this.#sessions.find(sessionKey);
    if (record === undefined)
      throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
    return this.#sessionOf(record);
  }

  #sessionOf(record: SessionRecord): Session {
    return new Session(this.sessionHost, record, this.#options.clock ?? this.#backend.clock);
  }

  #makeSessionHost(): SessionHost {
    const submitter = this.#submitter;
    return {
      refuseNow: (envelope) => {
        this.#checkOpen();
        return submitter.refuseNow(envelope);
      },
      submit: async (envelope, options) => {
        this.#checkOpen();
        return submitter.submit(envelope, options);
      },
      cancel: (callId) => this.cancel(callId),
      callOf: (callId) => this.callOf(callId),
      openSession: (open) => this.openSession(open),
      closeSession: (key) => this.closeSession(key),
      setSessionState: (key, state) => this.setSessionState(key, state),
      agents: this.agents,
      repeatedCalls: this.#backend.repeatedCalls,
      listening: this.listening,
      listenerFailed: (name, error) => this.listenerFailed(name, error),
      emitInvalidParams: (key, event) => this.emitInvalidParams(key, event),
      publishedFor: (session) => this.publishedFor(session),
    };
  }

  /** The newest first, of all or of one tenant. */
  sessions(limit = 100, tenantId?: string): Promise<SessionRecord[]> {
    return this.#backend.sessions.list(limit, tenantId);
  }

  /**
   * Says what a session, and all below it, are doing from now on: policy may bind tools to states. Calls that were accepted go on.
   * Throws `UNKNOWN_SESSION`, `SESSION_CLOSED`, and `CONTRACT_INVALID` for a state that a session cannot have.
   */
  async setSessionState(sessionKey: string, state: string, by?: string): Promise<SessionRecord> {
    return changeState(
      {
        sessions: this.#backend.sessions,
        onChanged: (changed) => {
          this.#sessions.remember(changed);
          const { sessionKey: key, tenantId } = changed;
          return this.#operators.overridden('session-state', state, by, { sessionKey: key, tenantId });
        },
      },
      sessionKey,
      parseSessionState(state),
    );
  }

  /** Closes a session and those below it: nothing new is accepted, what runs is cancelled. */
  async closeSession(sessionKey: string, by?: string): Promise<void> {
    if ((await this.#backend.sessions.read(sessionKey)) === undefined)
      throw new PawlError('UNKNOWN_SESSION', `There is no session ${JSON.stringify(sessionKey)}.`);
    await closeSessions(
      {
        backend: this.#backend,
        outcomesKeptMs: this.settings.ttl.doneMs,
        cancel: (callId) => this.cancel(callId, by),
        onClosed: (closed) => {
          this.#sessions.remember(closed);
          const { sessionKey: key, tenantId } = closed;
          return this.#operators.overridden('session-closed', 'close', by, { sessionKey: key, tenantId });
        },
      },
      sessionKey,
    );
  }

  /** Where sessions work that name no root. A tenant has one of its own. */
  workspaceRoot(tenantId: string | undefined): string {
    if (tenantId !== undefined) return tenantRoot(this.settings, tenantId);
    return resolve(this.settings.workspaceRoot ?? this.#options.defaultWorkspaceRoot);
  }

  // The fleet

  /** Tools that the fleet offers, and its workers; for one session, what it may call. */
  async catalogue(sessionKey?: string) {
    if (sessionKey === undefined) return this.#catalogue.all();
    const content = await this.#catalogue.all(this.settings.toolWaitMs);
    const { record } = await this.session(sessionKey);
    const tools = content.tools.filter((tool) => this.#isFor(record, tool));
    return { ...content, tools: await this.#shown(tools, record) };
  }

  /** Whether policy leaves the session any call of the tool. A closed session shows what it had. */
  #isFor({ state: now, ...asking }: ElicitationState, tool: PublishedTool): boolean {
    const { settings } = this;
    const session = now === undefined || now === 'closed' ? asking : { ...asking, state: now };
    return !isOutOfReach({
      tool,
      session,
      toolPolicy: toolPolicy(settings, tool),
      policy: settings.policy,
      registry: this.#catalogue.toolPolicyFor(tool),
    });
  }

  /** The tools that a session may call, one of each name. */
  async publishedFor(session: ElicitationState): Promise<readonly PublishedTool[]> {
    const catalogue = await this.#catalogue.current(this.settings.toolWaitMs);
    const published = catalogue.filter((published) => this.#isFor(session, published));
    return this.#shown(published, 'sessionKey' in session ? session : undefined);
  }

  /** What toolsets show of it, in their order (D10). */
  async #shown<Tool extends PublishedTool>(
    published: readonly Tool[],
    session?: SessionRecord,
  ): Promise<readonly Tool[]> {
    const { toolsets } = this.#options;
    if (toolsets === undefined) return published;
    // A toolset sees one of each name, and may have been asked a while ago: what the fleet does not offer to the session now is not there.
    const known = Map.groupBy(published, qualifiedName);
    const request = { published: [...known.values()].flatMap(([first]) => first ?? []) };
    const shown = await resolveToolsets(toolsets, session === undefined ? request : { ...request, session });
    return shown.flatMap((tool) => known.get(qualifiedName(tool)) ?? []);
  }

  /** Declares tools, and runs their calls here, as an outside client does over HTTP (C21). */
  async serveTools(tools: readonly ServedTool[], options?: ServeOptions): Promise<ServedTools> {
    this.#checkOpen();
    const parts = {
      clients: this.toolClients,
      registry: this.registry,
      onClosed: (closed: ServedTools) => void this.#serving.delete(closed),
    };
    const guarded = defined<ServeOptions>({ ...options, onError: this.#guard('onError', options?.onError) });
    const serving = await ServedTools.start(parts, tools, guarded);
    this.#serving.add(serving);
    return serving;
  }

  /** Calls back whenever tools or workers have come or gone. The answer ends that. */
  onCatalogueChange(listener: () => void): () => void {
    this.#catalogueListeners.add(listener);
    return () => void this.#catalogueListeners.delete(listener);
  }

  /** The version of a tool that a call by name would get; undefined before the catalogue was read. */
  published(namespace: string, name: string): ResolvedTool | undefined {
    return this.#catalogue.peek(namespace, name);
  }

  /** Circuits that ever left CLOSED, those that configuration forces open, and what each does to calls. */
  circuits(): Promise<EnforcedCircuit[]> {
    return this.#operators.circuits();
  }

  /** What became of circuits, the newest first. */
  circuitHistory(limit = 100): Promise<CircuitChange[]> {
    return this.#operators.circuitHistory(limit);
  }

  /** Forces circuits open, or resets them to closed (R25). Returns them as they are now. */
  setCircuit(
    action: 'force_open' | 'reset',
    select: CircuitSelection,
    reason?: string,
    by?: string,
  ): Promise<EnforcedCircuit[]> {
    return this.#operators.setCircuit(action, select, reason, by);
  }

  /** How the shards of all tiers stand. */
  shards(): Promise<ShardView[]> {
    return viewShards(this.#backend);
  }

  /** Spreads the sessions that are opened from now on among so many shards (1 to 64) of a tier; all others stay where they are. */
  setShards(tier: Tier, shards: number, by?: string): Promise<void> {
    return this.#operators.setShards(tier, shards, by);
  }

  /** Asks a worker to finish what it runs, and end. Throws `NOT_FOUND`. */
  drainWorker(workerId: string, by?: string): Promise<void> {
    return this.#operators.drainWorker(workerId, by);
  }

  /**
   * The kill switch (R33): says to all processes that the reliability layer is off, or on again, for one tool or for all.
   * Throws `UNKNOWN_TOOL`.
   */
  setReliability(enabled: boolean, about: ReliabilityWord = {}): Promise<void> {
    return this.#operators.setReliability(enabled, about);
  }

  /** What operators said of the reliability layer, what works for each tool here, and what shadow mode would have done. */
  reliability(): Promise<Reliability> {
    return this.#operators.reliability();
  }

  /**
   * Forgets calls that have ended, of a session, a tool or all: asked for again, they run again (R25). Never one in flight, nor
   * one whose outcome is unknown. Throws `UNKNOWN_TOOL`.
   */
  flush(select: FlushSelection = {}): Promise<Flushed> {
    return this.#operators.flush(select);
  }

  async emitInvalidParams(sessionKey: string, event: InvalidParams): Promise<void> {
    this.listening.emit(sessionKey, event);
    const { redis, prefix } = this.#backend;
    await publishBroadcast(redis, prefix, { type: 'invalid-params', sessionKey, from: this.#inboxId, event });
  }

  #hear(broadcast: Broadcast): void {
    if (broadcast.type === 'circuit') this.#circuits.learn(broadcast);
    else if (broadcast.type === 'catalogue') {
      this.#catalogue.refresh();
      for (const listener of this.#catalogueListeners) listener();
    } else if (broadcast.type === 'agent') this.agents.hear(broadcast.sessionKey, broadcast.agentId);
    else if (broadcast.type === 'session' || broadcast.type === 'taint') this.#sessions.forget(broadcast.sessionKey);
    else if (broadcast.type === 'switches') this.#operators.learnSwitches().catch(() => {});
    else if (broadcast.type === 'shards') this.#backend.shards.learn().catch(() => {});
    else if (broadcast.type === 'specs') this.#learnDeclaredTools();
    else if (broadcast.type === 'offered') this.toolClients.hear(broadcast.tool);
    else if (broadcast.type === 'invalid-params' && broadcast.from !== this.#inboxId)
      this.listening.emit(broadcast.sessionKey, broadcast.event as InvalidParams);
  }

  /** Records of the audit trail, the newest first, as far as Redis keeps them (I4). */
  audit(query: AuditQuery = {}): Promise<readonly AuditEntry[]> {
    this.#audit.flush();
    return findRecords(this.#backend.trail, query);
  }

  #told(event: DispatchEvent): void {
    this.#traces?.observe(event);
    if (event.type === 'refused' && event.envelope !== undefined && event.published === undefined) {
      const { toolNamespace, toolName } = event.envelope;
      const published = this.#catalogue.peek(toolNamespace, toolName);
      if (published !== undefined) this.metrics.tools.learn(published);
    }
    // A worker did not find what is known here: Redis has lost it, and the next call opens it anew.
    if (event.type === 'ended' && event.result.error?.code === 'UNKNOWN_SESSION')
      this.#sessions.forget(event.envelope.target.sessionKey);
    this.metrics.observe(event);
    this.#audit.observe(event);
    tell(this.#options.onEvent, event, (error) => this.listenerFailed('onEvent', error));
    if (event.type !== 'shadow') return;
    const { toolNamespace, toolName } = event.envelope;
    this.#backend.switches.countShadow(event.kind, `${toolNamespace}.${toolName}`).catch(() => {});
  }

  #learnDeclaredTools(): void {
    this.#catalogue.specs.catchUp().then(
      () => {
        for (const listener of this.#catalogueListeners) listener();
      },
      () => {},
    );
  }

  /** Adds what was counted here to the fleet's counts, now. */
  publishMetrics(): Promise<void> {
    return this.#publisher.publish();
  }

  async #measure(): Promise<void> {
    const askedAtMs = performance.now();
    await this.#backend.redis.ping();
    this.metrics.roundTrip(performance.now() - askedAtMs);
  }

  /** Reads what the channel cannot repeat. */
  async #catchUp(): Promise<void> {
    const { shards } = this.#backend;
    await Promise.all([
      this.#operators.learnSwitches(),
      this.#readCircuits(),
      this.#catalogue.specs.catchUp(),
      shards.learn(),
    ]);
    this.agents.catchUp();
  }

  async #readCircuits(): Promise<void> {
    this.#circuits.clear();
    this.#sessions.clear();
    const listings = await this.#circuitAdmin.list();
    this.#learnCircuits(listings, await this.#backend.ledger.now());
  }

  #learnCircuits(listings: readonly CircuitListing[], nowMs: number): void {
    for (const { key, partition, circuit } of listings) {
      const retryAfterMs = circuit.state === 'OPEN' ? circuit.openedAtMs + circuit.cooldownMs - nowMs : 0;
      this.#circuits.learn({ partition, key, circuit, retryAfterMs });
    }
  }

  #checkOpen(): void {
    if (this.#closing !== undefined) throw new PawlError('BACKEND_UNAVAILABLE', 'This client is closed.');
  }

  /** Ends the connections. Calls go on without this process; their results can be read by ID. A second call waits for the first. */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #end(): Promise<void> {
    await Promise.all([...this.#serving].map((serving) => serving.close().catch(() => {})));
    await this.#publisher.close(LAST_METRICS_MS);
    this.#follows.close();
    this.agents.close();
    this.#catalogue.close();
    this.#results.close();
    this.#broadcast.close();
    this.#inbox.close();
    this.#audit.flush();
    await this.#backend.close();
    await this.#options.tracing?.flush();
  }
}

async function within<T>(promise: Promise<T>, waitMs: number | undefined): Promise<T | undefined> {
  if (waitMs === undefined) return promise;
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<undefined>((end) => {
    timer = setTimeout(() => end(undefined), Math.min(waitMs, MAX_TIMER_MS));
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}
