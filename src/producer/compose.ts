/** Composes a producer: one function for each concept, which takes the parts of the functions before it. */
import { ApprovalHooks } from '../shared/approvals/approval-hooks.ts';
import type { RecordAudit } from '../shared/audit/audit-event.ts';
import type { Hook } from '../shared/calls/define-hook.ts';
import type { Settings } from '../shared/config/config.ts';
import { SwitchCache } from '../shared/config/switches.ts';
import { PawlError } from '../shared/errors/failure.ts';
import type { Backend } from '../shared/store/backend.ts';
import { verifiedEvent } from '../shared/store/calls/records/signed-records.ts';
import type { PublishedTool } from '../shared/store/fleet/catalogue.ts';
import { InboxReader } from '../shared/store/queues/result-inbox.ts';
import { publishBroadcast, receiveBroadcasts } from '../shared/store/redis/broadcasts.ts';
import { homePartition } from '../shared/store/redis/keys.ts';
import { signedMessage } from '../shared/store/signing/signed-text.ts';
import { FleetMetrics, MetricsPublisher } from '../shared/store/telemetry/fleet-metrics.ts';
import { logListenerFailure } from '../shared/telemetry/listeners.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import { loggedHooks } from '../shared/telemetry/logged-hooks.ts';
import type { Tracing } from '../shared/telemetry/tracing.ts';
import { TIERS } from '../shared/tools/tool.ts';
import type { Toolset } from '../shared/tools/toolset.ts';
import { defined } from '../shared/util/json/omit-undefined.ts';
import { backgroundSchedule, uuidv7 } from '../shared/util/time.ts';
import { ApprovalService } from './approvals/approvals.ts';
import { QuestionService } from './approvals/questions.ts';
import { CallbackService } from './callbacks/callback-service.ts';
import { CallAudit, overrideRecorder } from './calls/audit.ts';
import { CallSubscriptions } from './calls/call-events.ts';
import { composeSubmitter } from './calls/compose-submitter.ts';
import { ResultWaiters } from './calls/result-waiters.ts';
import type { DispatchEvent } from './calls/submission.ts';
import type { CallSubmitter } from './calls/submit-call.ts';
import type { CallTraces } from './calls/traces.ts';
import { CircuitAdmin } from './circuits/circuit-admin.ts';
import { CircuitView } from './circuits/circuit-cache.ts';
import { composeCompletions } from './completions/compose-completions.ts';
import { composeDeadLetters } from './dead-letters/compose-dead-letters.ts';
import { eventObserver } from './event-observer.ts';
import { FleetUpdates } from './fleet-updates.ts';
import { composeGroups } from './groups/compose-groups.ts';
import { CallService } from './operations/call-service.ts';
import { CircuitService } from './operations/circuit-service.ts';
import { ShardService, WorkerService } from './operations/fleet-services.ts';
import { ProducerMetrics } from './operations/metrics.ts';
import { ReliabilityService } from './operations/reliability-service.ts';
import { ScheduleRunner } from './schedules/schedule-runner.ts';
import { ScheduleService } from './schedules/schedule-service.ts';
import { ListeningSessions } from './sessions/listening-sessions.ts';
import type { Session } from './sessions/session.ts';
import { ProducerSessions } from './sessions/session-cache.ts';
import { SessionService, workspaceRootOf } from './sessions/session-service.ts';
import { Skills } from './sessions/skills.ts';
import { SubAgentService } from './sessions/sub-agents.ts';
import { Registry } from './tools/registry.ts';
import { SessionTools } from './tools/session-tools.ts';
import { ToolCatalogue } from './tools/tool-catalogue.ts';
import { ToolClients } from './tools/tool-clients.ts';

export interface PawlOptions {
  readonly settings: Settings;
  readonly log: Logger;
  /** The environment of the programs that start an embedded Redis. Default: that of this process. */
  readonly environment?: NodeJS.ProcessEnv;
  /** Receives decisions and refused attempts, beside the log. */
  readonly audit?: RecordAudit;
  /** The operator in the audit trail who cancels, resolves and switches here. Default: `library`. */
  readonly operator?: string;
  /** The workspace root of sessions that a call opens by naming them, when `workspaceRoot` is not configured. */
  readonly defaultWorkspaceRoot: string;
  /** Hooks of the kinds beforeCall, onShortCircuit, onApproval and afterCall. */
  readonly hooks?: readonly Hook[];
  /** Chooses the tools that sessions see, for each request of tools. Default: all that they may call. */
  readonly toolsets?: readonly Toolset<PublishedTool>[];
  /** Receives the events of the calls that are submitted here. */
  readonly onEvent?: (event: DispatchEvent) => void;
  readonly tracing?: Tracing<CallTraces>;
  /** Starts the occurrences of the fleet's schedules here. Default: only front doors do (`pawl up`, `pawl serve`). */
  readonly schedules?: boolean;
}

/** Whether the client is open. A closed one accepts no calls, and the end of its connections is no error. */
class OpenState {
  #isOpen = true;

  get isOpen(): boolean {
    return this.#isOpen;
  }

  close(): void {
    this.#isOpen = false;
  }

  /** Throws `BACKEND_UNAVAILABLE` once the client was closed. */
  check(): void {
    if (!this.#isOpen) throw new PawlError('BACKEND_UNAVAILABLE', 'This client is closed.');
  }
}

type Core = ReturnType<typeof composeCore>;

/** The parts that all concepts share: the clock, the copies of the fleet's state, counts and records. */
function composeCore(options: PawlOptions, backend: Backend) {
  const { settings, log, operator = 'library' } = options;
  const { clock } = backend;
  const state = new OpenState();
  const onError = (error: Error) => {
    if (state.isOpen) log.debug({ error: error.message }, 'Redis connection');
  };
  const now = () => backend.ledger.now();
  // The dot keeps the inbox in one slot of a cluster: see `result-inbox.ts`.
  const inboxId = (backend.clustered ? '.' : '') + uuidv7(clock).slice(-12) + Math.random().toString(36).slice(2, 8);
  const sessionCache = new ProducerSessions({
    sessions: backend.sessions,
    clock,
    workspaceRoot: (tenantId) => workspaceRootOf(options, tenantId),
    now,
  });
  // After a reconnect each session is read again, because Redis may have lost it.
  backend.redis.on('close', () => sessionCache.clear());
  const catalogue = new ToolCatalogue(backend.catalogue, backend.specs, onError);
  return {
    options,
    settings,
    backend,
    clock,
    state,
    onError,
    now,
    inboxId,
    sessionCache,
    catalogue,
    results: new ResultWaiters(backend.ledger, inboxId, onError),
    view: new CircuitView(clock),
    switches: new SwitchCache(settings.reliability),
    metrics: new ProducerMetrics(settings),
    traces: options.tracing?.traces,
    hooks: loggedHooks(options.hooks, log, backgroundSchedule),
    audit: new CallAudit({
      record: backend.audit,
      writer: backend.records,
      ...defined({ listener: options.audit }),
      publishedTool: (namespace, name) => catalogue.peek(namespace, name),
    }),
    operator,
    recordOverride: overrideRecorder(backend.audit, operator),
    listenerFailed: (name: string, error: unknown) => logListenerFailure(log, name, error),
  };
}

function observerOf(core: Core): (event: DispatchEvent) => void {
  return eventObserver({
    ...core,
    switches: core.backend.switches,
    sessions: core.sessionCache,
    onEvent: core.options.onEvent,
    onListenerFailed: (error) => core.listenerFailed('onEvent', error),
  });
}

function composeApprovals({ settings, backend, catalogue, hooks, sessionCache, now }: Core) {
  const requestIdOf = async (callId: string) => (await backend.ledger.readBrief(callId))?.request.envelope.requestId;
  return {
    approvals: new ApprovalService({
      settings,
      approvals: backend.approvals,
      standingApprovals: backend.standingApprovals,
      catalogue,
      partitions: (tier) => backend.shards.partitions(tier),
      audit: backend.audit,
      hooks: new ApprovalHooks(hooks, requestIdOf),
      sessionOf: (key) => sessionCache.find(key),
      defaultChannel: (session) => backend.sessions.defaultChannel(session),
      now,
    }),
    questions: new QuestionService(backend.questions, backend.audit),
  };
}

function composeTools({ settings, options, backend, catalogue, now }: Core) {
  const { audit } = backend;
  const registry = new Registry({
    specs: backend.specs,
    copy: catalogue.specs,
    audit,
    now,
    isCode: async (namespace, name) =>
      (await catalogue.code()).some((tool) => tool.namespace === namespace && tool.name === name),
  });
  return {
    registry,
    toolClients: new ToolClients({ clientCalls: backend.clientCalls, registry, audit }),
    sessionTools: new SessionTools({ settings, catalogue, ...defined({ toolsets: options.toolsets }) }),
  };
}

function composeOperations(core: Core, approvals: ApprovalService, onEvent: (event: DispatchEvent) => void) {
  const { backend, catalogue, switches, recordOverride } = core;
  const tools = async () => (await catalogue.all()).tools;
  const admin = new CircuitAdmin(
    { breakers: backend.breakers, ledger: backend.ledger, tools },
    TIERS.map(homePartition),
    (change) => onEvent({ type: 'tool_call_circuit_state', ...change }),
  );
  return {
    calls: new CallService({ ...core, approvals }),
    circuits: new CircuitService({ ...core, admin }),
    reliability: new ReliabilityService({ records: backend.switches, switches, catalogue, recordOverride }),
    shards: new ShardService(backend, recordOverride),
    callbacks: new CallbackService(backend, core.settings, recordOverride),
    workers: new WorkerService(backend, recordOverride),
  };
}

function submitterOf(core: Core, approvals: ApprovalService, onEvent: (event: DispatchEvent) => void): CallSubmitter {
  const { backend, view, sessionCache } = core;
  return composeSubmitter({
    ...core,
    approvals,
    ledger: backend.ledger,
    circuits: view,
    shards: backend.shards,
    sessions: sessionCache,
    taint: (sessionKey, source) => sessionCache.taint(sessionKey, source),
    onEvent,
  });
}

function composeSessions(
  core: Core,
  submitter: CallSubmitter,
  {
    calls,
    sessionTools,
    groupParts: { batches, plans },
  }: {
    readonly calls: CallService;
    readonly sessionTools: SessionTools;
    readonly groupParts: Pick<ReturnType<typeof composeGroups>, 'batches' | 'plans'>;
  },
) {
  const { backend, options, settings, state, inboxId, now, onError } = core;
  const listening = new ListeningSessions();
  const agents: SubAgentService<Session> = new SubAgentService({
    agents: backend.agents,
    session: (key) => sessions.find(key),
    closeSession: (key) => sessions.close(key),
    onError,
  });
  const skills = new Skills({ records: backend.skills, folders: settings.skillFolders, audit: backend.audit, now });
  const sessions = new SessionService({
    ...core,
    cache: core.sessionCache,
    skills,
    defaultWorkspaceRoot: options.defaultWorkspaceRoot,
    cancel: (callId, by) => calls.cancel(callId, by),
    host: {
      refuseNow(envelope) {
        state.check();
        return submitter.refuseNow(envelope);
      },
      async submit(envelope, submitOptions) {
        state.check();
        return submitter.submit(envelope, submitOptions);
      },
      callOf: (callId) => calls.readAsItRan(callId),
      agents,
      batches,
      plans,
      repeatedCalls: backend.repeatedCalls,
      listening,
      listenerFailed: core.listenerFailed,
      async emitInvalidParams(sessionKey, event) {
        listening.emit(sessionKey, event);
        const { redis, prefix, signatures } = backend;
        const signed = signedMessage(signatures, sessionKey, event);
        await publishBroadcast(redis, prefix, { type: 'invalid-params', sessionKey, from: inboxId, event: signed });
      },
      publishedFor: (session) => sessionTools.publishedFor(session),
    },
  });
  return { agents, skills, sessions, listening };
}

function composeSchedules(
  core: Core,
  submitter: CallSubmitter,
  { calls, sessions }: { readonly calls: CallService; readonly sessions: SessionService },
) {
  const { backend, onError } = core;
  const deps = { ...core, submitter, sessions, calls };
  return {
    schedules: new ScheduleService({ ...deps, records: backend.schedules, audit: backend.audit }),
    scheduleRunner: new ScheduleRunner({ ...deps, log: core.options.log, onError }),
  };
}

/** Opens the producer's inbox and its subscription to the fleet's broadcasts. */
function composeConnections(core: Core, updates: FleetUpdates) {
  const { settings, backend, inboxId, metrics, results, onError } = core;
  const { url, redis, shards, ledger, clock } = backend;
  const { prefix } = settings;
  const subscriptions = new CallSubscriptions({ ledger, results, inboxId, onError });
  const caughtUp = Promise.withResolvers<void>();
  const inbox = InboxReader.open({
    url,
    redis,
    prefix,
    id: inboxId,
    partitions: () => shards.partitions(),
    onEvent: (event) => {
      if (event.type === 'settled' && event.atMs !== undefined) metrics.inboxEvent(clock.now() - event.atMs);
      results.deliver(verifiedEvent(backend.signatures, event));
    },
    onGap: () => {
      void results.checkAll();
      subscriptions.check();
    },
    onError,
  });
  shards.onChange(() => inbox.follow());
  const broadcasts = receiveBroadcasts({
    url,
    redis,
    prefix,
    name: 'producer',
    onBroadcast: (broadcast) => updates.apply(broadcast),
    onLost: () => updates.suspend(),
    onSubscribed: () => void updates.catchUp().catch(onError).finally(caughtUp.resolve),
    onError,
  });
  return { subscriptions, inbox, broadcasts, heard: caughtUp.promise };
}

function composeMetrics({ settings, backend, metrics, inboxId, onError }: Core) {
  const fleetMetrics = new FleetMetrics(backend.redis, settings.prefix);
  return {
    fleetMetrics,
    publisher: new MetricsPublisher({ fleet: fleetMetrics, processId: inboxId, own: metrics, onError }),
  };
}

export type ProducerParts = ReturnType<typeof composeProducer>;

export function composeProducer(options: PawlOptions, backend: Backend) {
  const core = composeCore(options, backend);
  const onEvent = observerOf(core);
  const approvalParts = composeApprovals(core);
  const tools = composeTools(core);
  const operations = composeOperations(core, approvalParts.approvals, onEvent);
  const submitter = submitterOf(core, approvalParts.approvals, onEvent);
  const groupParts = composeGroups({ ...core, approvals: approvalParts.approvals }, submitter, operations.calls);
  const { sessions, agents, skills, listening } = composeSessions(core, submitter, {
    calls: operations.calls,
    sessionTools: tools.sessionTools,
    groupParts,
  });
  const updates = new FleetUpdates({
    ...core,
    ...operations,
    ...groupParts,
    agents,
    listening,
    sessions: core.sessionCache,
    toolClients: tools.toolClients,
    shards: backend.shards,
  });
  const connections = composeConnections(core, updates);
  return {
    core,
    submitter,
    updates,
    sessions,
    agents,
    skills,
    ...approvalParts,
    ...tools,
    ...operations,
    ...composeDeadLetters({ ...core, approvals: approvalParts.approvals }),
    ...groupParts,
    ...connections,
    ...composeSchedules(core, submitter, { ...operations, sessions }),
    completions: composeCompletions(core),
    ...composeMetrics(core),
  };
}
