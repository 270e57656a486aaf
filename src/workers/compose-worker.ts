/** Composes the parts of a worker. `worker.ts` starts and stops them. */
import { hostname } from 'node:os';
import { durabilityOf } from '../shared/config/durability.ts';
import { SwitchCache } from '../shared/config/switches.ts';
import { loadOptional } from '../shared/errors/optional-packages.ts';
import type { Backend } from '../shared/store/backend.ts';
import { callbackSecrets } from '../shared/store/callbacks/secrets.ts';
import { publishedTool, publishedToolId } from '../shared/store/fleet/catalogue.ts';
import { boundDelays } from '../shared/store/queues/promote.ts';
import { DiskBarrier } from '../shared/store/redis/fsync-barrier.ts';
import { FleetMetrics, MetricsPublisher } from '../shared/store/telemetry/fleet-metrics.ts';
import type { WorkerEvent } from '../shared/telemetry/call-events.ts';
import { logListenerFailure, notify } from '../shared/telemetry/listeners.ts';
import { systemClock, uuidv7 } from '../shared/util/time.ts';
import { WorkerChannels } from './approvals/channels.ts';
import { type RegisteredTool, register } from './attempt/attempt-state.ts';
import { type RunningAttempt, RunningAttempts } from './attempt/running-attempts.ts';
import { CallbackSender } from './callbacks/callback-sender.ts';
import { ForcedCircuits } from './circuits/forced-circuits.ts';
import { NodeCircuits } from './circuits/node-circuit.ts';
import { composeExecutor } from './compose-executor.ts';
import { ClientToolCalls } from './connectors/client.ts';
import { DeclaredTools } from './connectors/declared-tools.ts';
import { builtInMakers } from './connectors/index.ts';
import type { McpConnections } from './connectors/mcp/tools.ts';
import { openNetwork } from './context/network.ts';
import { TerminalLink } from './context/remote-terminal.ts';
import { TerminalHost } from './context/terminal-host.ts';
import { LimitAcquirer } from './execution/acquire-limits.ts';
import { renewLeases } from './execution/attempt-leases.ts';
import { WorkerMetrics } from './execution/metrics.ts';
import { processSolitude as solitude } from './execution/run-alone.ts';
import { WorkerSessions } from './execution/session-cache.ts';
import { JobQueue } from './queue/job-queue.ts';
import { ServedQueues } from './queue/served-queues.ts';
import { UnwantedJobs } from './queue/unwanted-jobs.ts';
import { WorkerHeartbeat } from './worker-heartbeat.ts';
import { servedTools, type WorkerOptions } from './worker-options.ts';

interface WorkerHost {
  readonly options: WorkerOptions;
  readonly backend: Backend;
  /** The start of the worker, by Redis' clock. */
  readonly nowMs: number;
  /** The configured sandbox does not work in this process. */
  readonly unconfined: boolean;
  /** Whether the worker drains: it starts no further jobs. */
  isClosing(): boolean;
  onError(error: Error): void;
}

/** The MCP connections of a worker. Their modules are a tenth of all that a worker loads, so the first call loads them. */
class LazyMcp {
  readonly #options: WorkerOptions;
  #connections: Promise<McpConnections> | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
  }

  connections(): Promise<McpConnections> {
    this.#connections ??= loadOptional('mcpServers', () => import('./connectors/mcp/tools.ts')).then(
      (mcp) => new mcp.McpConnections(this.#options),
    );
    return this.#connections;
  }

  async close(): Promise<void> {
    await (await this.#connections?.catch(() => undefined))?.close();
  }
}

type Identity = ReturnType<typeof identify>;
type State = ReturnType<typeof composeState>;
type Services = ReturnType<typeof composeServices>;
type Jobs = ReturnType<typeof composeJobs>;

export type WorkerParts = Identity & State & Services & Jobs;

/** Throws `CONFIGURATION` for tools that cannot be published together. */
export function composeWorker(host: WorkerHost): WorkerParts {
  const identity = identify(host);
  const state = composeState(host, identity);
  const services = composeServices(host, identity, state);
  return { ...identity, ...state, ...services, ...composeJobs(host, { ...identity, ...state, ...services }) };
}

function identify({ options, nowMs }: WorkerHost) {
  const served = servedTools(options);
  return {
    clock: systemClock,
    workerId: `${hostname()}:${process.pid}:${uuidv7().slice(-6)}`,
    served,
    published: served.map((tool) => publishedTool(tool, nowMs)),
    tools: register(served) as ReadonlyMap<string, RegisteredTool>,
  };
}

/** The worker's view of calls, circuits, switches and sessions. */
function composeState({ options, backend, onError }: WorkerHost, { clock, workerId }: Identity) {
  const { settings } = options;
  // Without an excuse, the worker that recovers the call blames it for the loss of this one.
  const excuse = ({ callId, fence }: RunningAttempt) =>
    void backend.ledger.excuse(callId, fence, workerId).catch(onError);
  return {
    running: new RunningAttempts(clock, settings.lockDurationMs, workerId, excuse),
    nodeCircuits: new NodeCircuits(),
    forced: new ForcedCircuits(backend.breakers),
    switches: new SwitchCache(settings.reliability),
    sessions: new WorkerSessions(backend.sessions),
  };
}

/** Composes the services that tools use, and the metrics of their calls. */
function composeServices(host: WorkerHost, { served, workerId }: Identity, { sessions }: State) {
  const { options, backend, onError } = host;
  const { settings, log, environment } = options;
  const { signatures, messages, questions, audit, ledger, limits } = backend;
  const mcp = new LazyMcp(options);
  const dynamic = new ClientToolCalls(backend.clientCalls);
  const declared = new DeclaredTools(backend.specs, {
    ...builtInMakers({ settings, environment, limits }),
    mcp: (record) => ({ run: async (params, ctx) => (await mcp.connections()).executable(record).run(params, ctx) }),
    dynamic: (record) => dynamic.executable(record),
    ...options.declared,
  });
  const sessionOf = (sessionKey: string) => sessions.find(sessionKey);
  const now = () => ledger.now();
  const needsDisk = served.some((tool) => durabilityOf(settings, tool) === 'waitaof');
  const metrics = new WorkerMetrics(served, (namespace, name) => declared.tierOf(namespace, name));
  return {
    mcp,
    dynamic,
    declared,
    channels: new WorkerChannels({
      ...{ settings, signatures, messages, questions, audit, log, sessionOf, now },
      defaultChannel: (session) => backend.sessions.defaultChannel(session),
    }),
    terminals: new TerminalHost({
      env: environment,
      sandbox: settings.sandbox,
      network: settings.sandboxNetwork === 'on',
      link: new TerminalLink({ backend, workerId, onError }),
    }),
    limits: new LimitAcquirer({ limits, leaseMs: settings.lockDurationMs, tenants: settings.tenants, log, onError }),
    callbacks: composeCallbacks(host, metrics),
    disk: needsDisk ? DiskBarrier.open(backend, onError) : undefined,
    metrics,
    publisher: new MetricsPublisher({
      fleet: new FleetMetrics(backend.redis, settings.prefix),
      processId: workerId,
      own: metrics,
      onError,
    }),
  };
}

/** Every worker sends callbacks, whatever the tier of their calls. */
function composeCallbacks({ options, backend, onError }: WorkerHost, metrics: WorkerMetrics): CallbackSender {
  const { settings, log } = options;
  const { signatures, callbacks, ledger, shards } = backend;
  return new CallbackSender({
    callbacks,
    signatures,
    fetch: openNetwork({ signal: new AbortController().signal, allowedHosts: settings.allowedHosts }),
    log,
    random: options.random ?? Math.random,
    partitions: () => shards.partitions(),
    secretsOf: (tenantId) => callbackSecrets({ settings, signatures, callbacks }, tenantId),
    now: () => ledger.now(),
    onSent: (result) => metrics.callbackSent(result),
    onError,
  });
}

function composeJobs(host: WorkerHost, parts: Identity & State & Services) {
  const { options, backend, unconfined } = host;
  const { running, limits } = parts;
  const heartbeat = composeHeartbeat(host, parts);
  const executor = composeExecutor({
    options,
    backend,
    ...parts,
    solitude,
    unconfined,
    heartbeat,
    onEvent: (event) => observe(host, parts.metrics, event),
  });
  const { lockDurationMs: leaseMs } = options.settings;
  const leases = { ledger: backend.ledger, locks: backend.locks, limits, leaseMs };
  const renew = (attempt: RunningAttempt) => renewLeases(leases, attempt);
  const unwanted = new UnwantedJobs({
    ...parts,
    othersWith: (published) => heartbeat.othersWith(published),
    isPaused: () => host.isClosing() || solitude.isReserved,
  });
  const queues = composeQueues(host, { ...parts, executor, renew, heartbeat, unwanted });
  const leaveProcess = solitude.join({ running, pause: () => queues.pause(), resume: () => queues.resume() });
  return { executor, renew, unwanted, heartbeat, queues, leaveProcess };
}

function composeHeartbeat({ options, backend, nowMs, unconfined }: WorkerHost, parts: Identity & State & Services) {
  const { workerId, served, published, running, declared } = parts;
  const { tiers, concurrency, log } = options;
  const runsPrograms = served.filter(({ needs }) => needs.includes('processes'));
  return new WorkerHeartbeat({
    backend,
    workerId,
    tiers,
    concurrency,
    log,
    published,
    startedAtMs: nowMs,
    running: () => running.size,
    kinds: () => declared.kinds,
    boundDelays: async () => {
      const { redis, prefix, shards } = backend;
      await Promise.all(shards.partitions(tiers).map((partition) => boundDelays(redis, prefix, partition)));
    },
    unconfined: unconfined ? runsPrograms.map(publishedToolId) : [],
  });
}

function composeQueues(
  { options, backend, onError }: WorkerHost,
  parts: Identity & State & Services & Pick<Jobs, 'executor' | 'renew' | 'heartbeat' | 'unwanted'>,
): ServedQueues {
  const { settings, log, tiers, concurrency } = options;
  const { heartbeat, unwanted } = parts;
  return new ServedQueues({
    shards: backend.shards,
    tiers,
    concurrency,
    recordCount: async (partition) => (await backend.ledger.index.counts(partition)).calls,
    open: (partition, slots) =>
      new JobQueue({
        ...parts,
        backend,
        settings,
        partition,
        slots,
        log,
        workers: () => heartbeat.workersOf(partition.tier),
        isOnlyQueue: () => backend.shards.layout[partition.tier].highest === 1,
        unwanted: (toolName, namespace) => unwanted.outcomeOf(toolName, namespace),
        onError,
      }),
  });
}

function observe({ options, backend, onError }: WorkerHost, metrics: WorkerMetrics, event: WorkerEvent): void {
  metrics.observe(event);
  notify(options.onEvent, event, (error) => logListenerFailure(options.log, 'onEvent', error));
  if (event.type !== 'tool_call_shadow') return;
  const { toolNamespace, toolName } = event.envelope;
  backend.switches.countShadow(event.kind, `${toolNamespace}.${toolName}`).catch(onError);
}
