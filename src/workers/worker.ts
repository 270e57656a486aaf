/**
 * A worker: puts its parts together, takes jobs of its tiers from their queues, renews leases, hears the fleet's news, and drains
 * when asked to stop.
 */
import { hostname } from 'node:os';
import { ApprovalHooks } from '../shared/approvals/approval-hooks.ts';
import type { RecordAudit } from '../shared/audit/audit-event.ts';
import { type Hook, Hooks } from '../shared/calls/hooks.ts';
import type { Settings } from '../shared/config/config.ts';
import { durabilityOf, serverFaults, unfitServer } from '../shared/config/durability.ts';
import { Switches } from '../shared/config/switches.ts';
import { PawlError } from '../shared/errors/failure.ts';
import { needsResourceLock } from '../shared/limits/resource-lock.ts';
import { AuditService } from '../shared/store/audit-service.ts';
import { type Backend, openBackend } from '../shared/store/backend.ts';
import { HEARTBEAT_MS, type PublishedTool, publishedTool, publishedToolId } from '../shared/store/fleet/catalogue.ts';
import { type Broadcast, BroadcastListener } from '../shared/store/redis/broadcasts.ts';
import { DiskBarrier } from '../shared/store/redis/fsync-barrier.ts';
import type { Partition } from '../shared/store/redis/keys.ts';
import { FleetMetrics, MetricsPublisher } from '../shared/store/telemetry/fleet-metrics.ts';
import type { Logger } from '../shared/telemetry/log.ts';
import type { WorkerEvent } from '../shared/telemetry/log-events.ts';
import { EXPOSITION_TYPE, exposition } from '../shared/telemetry/metric-set.ts';
import type { Tracing } from '../shared/telemetry/tracing.ts';
import { type AnyTool, type Channels, type MemoryStore, qualifiedName, type Tier } from '../shared/tools/tool.ts';
import { type Clock, MAX_TIMER_MS, type Random, systemClock, systemSchedule, uuidv7 } from '../shared/util/time.ts';
import { ApprovalGate } from './approvals/approval-gate.ts';
import { WorkerChannels } from './approvals/channels.ts';
import { UsedApprovals } from './approvals/used-approvals.ts';
import { type RegisteredTool, register } from './attempt/attempt-state.ts';
import { type RunningAttempt, RunningAttempts } from './attempt/running-attempts.ts';
import type { AttemptTraces } from './attempt/traces.ts';
import { containUncaughtErrors } from './attempt/uncaught-errors.ts';
import { ForcedCircuits } from './circuits/forced-circuits.ts';
import { NodeCircuits } from './circuits/node-circuit.ts';
import { DynamicCalls } from './connectors/client.ts';
import { DeclaredTools, type ToolMakers } from './connectors/declared-tools.ts';
import { compiledIn } from './connectors/index.ts';
import type { McpConnections } from './connectors/mcp/tools.ts';
import { agentTools } from './context/agent-tools.ts';
import { lacksSandbox } from './context/processes.ts';
import { TerminalLink } from './context/remote-terminal.ts';
import { WorkerAgents } from './context/sub-agents.ts';
import { TerminalHost } from './context/terminal-host.ts';
import { LimitAcquirer } from './execution/acquire-limits.ts';
import { AttemptLocks } from './execution/acquire-resource.ts';
import { Executor } from './execution/execute-job.ts';
import { WorkerMetrics } from './execution/metrics.ts';
import { Solitude } from './execution/run-alone.ts';
import { WorkerSessions } from './execution/session-cache.ts';
import { lastPublished } from './execution/version-check.ts';
import type { ConcurrencyLimiter } from './queue/concurrency-slots.ts';
import { JobQueue, type Unwanted } from './queue/job-queue.ts';
import { OrphanSweep } from './queue/orphan-sweep.ts';
import { ServedQueues } from './queue/served-queues.ts';
import { WorkerHeartbeat } from './worker-heartbeat.ts';

export interface WorkerOptions {
  readonly settings: Settings;
  readonly tools: readonly AnyTool[];
  readonly tiers: readonly Tier[];
  /** Attempts at a time, for each tier. */
  readonly concurrency: number;
  readonly log: Logger;
  /** Told of decisions and of refused attempts, beside the log. */
  readonly audit?: RecordAudit;
  /** What programs started by tools may see a part of. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly pawlVersion: string;
  /** What runs the tools that the registry declares, by kind, in the place of what is compiled in. */
  readonly declared?: ToolMakers;
  readonly hooks?: readonly Hook[];
  /** Without one, no tool has memory. Closed by whoever made it. */
  readonly memory?: MemoryStore;
  /** Without them, no tool reaches people. */
  readonly channels?: Channels;
  readonly clock?: Clock;
  readonly random?: Random;
  readonly onEvent?: (event: WorkerEvent) => void;
  readonly tracing?: Tracing<AttemptTraces>;
  /** An operator asks this worker to finish what it runs, and end. Default: `close()`. */
  readonly onDrainAsked?: () => void;
}

const NO_SANDBOX =
  'no sandbox works here: each call that runs a program waits for a person, unless PAWL_SANDBOX=off says that none is needed; pawl doctor says more';
const SANDBOX_OFF =
  'PAWL_SANDBOX=off: programs of tools run without a sandbox, and reach all that this process reaches';

/** A worker that ends says what it counted last, if Redis takes it by then. */
const LAST_METRICS_MS = 500;
/** A drain waits for no longer where nothing runs: what is left then is Redis, which may be away. */
const IDLE_MS = 5_000;
/** After a drain's grace period, interrupted attempts have this long to be written. */
const INTERRUPT_MS = 5_000;

function servedTools({ tools, tiers }: WorkerOptions): AnyTool[] {
  return tools.filter((tool) => tiers.includes(tool.tier));
}

export class ToolWorker implements AsyncDisposable {
  readonly id: string;
  /** `namespace.name@version` of the tools that this worker runs. */
  readonly tools: readonly string[];
  readonly #options: WorkerOptions;
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #tools: ReadonlyMap<string, RegisteredTool>;
  readonly #running: RunningAttempts;
  readonly #nodeCircuits = new NodeCircuits();
  readonly #metrics: WorkerMetrics;
  readonly #publisher: MetricsPublisher;
  readonly #channels: WorkerChannels;
  readonly #terminals: TerminalHost;
  readonly #limits: LimitAcquirer;
  readonly #solitude: Solitude;
  readonly #executor: Executor;
  readonly #switches: Switches;
  readonly #forced: ForcedCircuits;
  readonly #declared: DeclaredTools;
  readonly #dynamic: DynamicCalls;
  readonly #broadcast: BroadcastListener;
  readonly #queues: ServedQueues;
  readonly #heartbeat: WorkerHeartbeat;
  readonly #sessions: WorkerSessions;
  readonly #disk: DiskBarrier | undefined;
  readonly #auditService: AuditService;
  readonly #releaseUncaught: () => void;
  /** No sandbox works here, and one should. */
  readonly #unconfined: boolean;
  #mcp: Promise<McpConnections> | undefined;
  #timers: NodeJS.Timeout[] = [];
  #closing: Promise<void> | undefined;

  /** Connects, publishes the tools and takes the first jobs. Throws `CONFIGURATION` for tools that cannot be offered together. */
  static async start(options: WorkerOptions): Promise<ToolWorker> {
    const { settings, log } = options;
    const backend = await openBackend({
      settings,
      name: 'worker',
      mode: 'patient',
      tiers: options.tiers,
      ...(options.audit === undefined ? {} : { audit: options.audit }),
      log: (level, message, fields) => log[level](fields ?? {}, message),
    });
    let worker: ToolWorker | undefined;
    try {
      const faults = serverFaults(backend.server, servedTools(options), settings);
      if (faults.length > 0) throw unfitServer(faults);
      const unconfined = await lacksSandbox(settings.sandbox);
      if (unconfined) log.warn({ event: 'no_sandbox', sandbox: settings.sandbox }, NO_SANDBOX);
      if (settings.sandbox === 'off') log.warn({ event: 'sandbox_off' }, SANDBOX_OFF);
      worker = new ToolWorker(options, backend, await backend.ledger.now(), unconfined);
      await Promise.all([worker.#learnSwitches(), worker.#declared.catchUp()]);
      await worker.#heartbeat.publish();
      worker.#startTimers();
      await worker.#queues.follow();
      return worker;
    } catch (error) {
      // What is open already would keep the process, and contain the very error that it should end with.
      await (worker?.close(0) ?? backend.close()).catch(() => {});
      throw error;
    }
  }

  private constructor(options: WorkerOptions, backend: Backend, nowMs: number, unconfined: boolean) {
    this.#unconfined = unconfined;
    const { settings, log } = options;
    this.#options = options;
    this.#backend = backend;
    this.#clock = options.clock ?? systemClock;
    this.#sessions = new WorkerSessions(backend.sessions);
    this.id = `${hostname()}:${process.pid}:${uuidv7(this.#clock).slice(-6)}`;
    const served = servedTools(options);
    const onError = (error: Error) => this.#onError(error);
    const offers = served.map((tool) => publishedTool(tool, nowMs));
    this.tools = offers.map(publishedToolId);
    this.#tools = register(served);
    if (served.some((tool) => durabilityOf(settings, tool) === 'waitaof'))
      this.#disk = DiskBarrier.open(backend, onError);
    this.#metrics = new WorkerMetrics(served, (namespace, name) => this.#declared.tierOf(namespace, name));
    this.#publisher = new MetricsPublisher({
      metrics: new FleetMetrics(backend.redis, settings.prefix),
      processId: this.id,
      series: () => this.#metrics.series(),
      measure: () => this.#measure(),
      onError,
    });
    this.#running = new RunningAttempts(this.#clock, settings.lockDurationMs, this.id);
    this.#switches = new Switches(settings.reliability);
    this.#forced = new ForcedCircuits(backend.breakers);
    this.#dynamic = new DynamicCalls(backend.clientCalls);
    this.#declared = new DeclaredTools(backend.specs, {
      ...compiledIn({ settings, environment: options.environment, limits: backend.limits }),
      mcp: (record) => ({
        run: async (params, ctx) => (await this.#mcpConnections()).executable(record).run(params, ctx),
      }),
      dynamic: (record) => this.#dynamic.executable(record),
      ...options.declared,
    });
    const { signatures, messages, questions, audit, ledger } = backend;
    this.#channels = new WorkerChannels({
      settings,
      signatures,
      messages,
      questions,
      audit,
      log,
      sessionOf: (sessionKey) => this.#sessions.of(sessionKey),
      now: () => ledger.now(),
    });
    this.#terminals = new TerminalHost({
      env: options.environment,
      sandbox: settings.sandbox,
      network: settings.sandboxNetwork === 'on',
      link: new TerminalLink({ backend, workerId: this.id, onError }),
    });
    this.#solitude = new Solitude({
      running: this.#running,
      pause: () => this.#queues.pause(),
      resume: () => this.#queues.resume(),
    });
    this.#limits = new LimitAcquirer({
      limits: backend.limits,
      leaseMs: settings.lockDurationMs,
      tenants: settings.tenants,
      log,
      onError,
    });
    this.#executor = this.#newExecutor(served);
    this.#heartbeat = new WorkerHeartbeat({
      backend,
      workerId: this.id,
      tiers: options.tiers,
      concurrency: options.concurrency,
      pawlVersion: options.pawlVersion,
      log,
      offers,
      startedAtMs: nowMs,
      running: () => this.#running.size,
      kinds: () => this.#declared.kinds,
      unconfined: unconfined ? served.filter(({ needs }) => needs.includes('processes')).map(publishedToolId) : [],
    });
    this.#queues = new ServedQueues({
      shards: backend.shards,
      tiers: options.tiers,
      kept: async (partition) => (await ledger.index.counts(partition)).calls,
      open: (partition, slots) => this.#queue(partition, slots),
      concurrency: options.concurrency,
    });
    this.#broadcast = BroadcastListener.open({
      url: backend.url,
      redis: backend.redis,
      prefix: settings.prefix,
      name: 'worker',
      onBroadcast: (broadcast) => this.#hear(broadcast),
      onSubscribed: () => void this.#renewAll().catch((error: Error) => this.#onError(error)),
      onError: (error) => this.#onError(error),
    });
    this.#releaseUncaught = containUncaughtErrors(log);
    this.#auditService = AuditService.open(backend, settings, { files: false, log });
  }

  #newExecutor(served: readonly AnyTool[]): Executor {
    const options = this.#options;
    const { settings, log } = options;
    const backend = this.#backend;
    const disk = this.#disk;
    const hooks = new Hooks(options.hooks ?? [], {
      schedule: systemSchedule,
      onFailure: (hook, kind, message) =>
        log.warn({ event: 'hook_failed', hook, kind, error: message }, 'a hook failed'),
    });
    return new Executor({
      settings,
      backend,
      workerId: this.id,
      clock: this.#clock,
      random: options.random ?? Math.random,
      log,
      environment: options.environment,
      unconfined: this.#unconfined,
      hooks,
      ...(options.memory === undefined ? {} : { memory: options.memory }),
      channels: options.channels ?? this.#channels,
      terminals: this.#terminals,
      agents: new WorkerAgents(backend),
      ...(disk === undefined ? {} : { onDisk: (callId: string) => disk.passed(callId) }),
      gate: this.#gate(hooks),
      audit: backend.audit,
      nodeCircuits: this.#nodeCircuits,
      othersWith: (tool) => this.#heartbeat.othersWith(publishedToolId(tool)),
      ...(options.tracing === undefined ? {} : { traces: options.tracing.traces }),
      ...(served.some(needsResourceLock) ? { locks: new AttemptLocks(backend.locks, log) } : {}),
      switches: this.#switches,
      forced: this.#forced,
      limits: this.#limits,
      solitude: this.#solitude,
      endsWithJob: true,
      toolNamed: (namespace, name) =>
        this.#tools.get(`${namespace}.${name}`) ?? this.#declared.toolNamed(namespace, name),
      toolOf: (request) => this.#declared.toolOf(request),
      toolPolicyFor: (tool) => this.#declared.toolPolicyFor(tool),
      callOf: (callId) => backend.approvals.callAsItRan(callId),
      sessionOf: (sessionKey) => this.#sessions.of(sessionKey),
      toolsOf: async (session) => {
        const { tools } = await backend.catalogue.read();
        const toolPolicyFor = (tool: PublishedTool) => this.#declared.toolPolicyFor(tool);
        return agentTools(session, [...tools, ...this.#declared.offers()], { settings, toolPolicyFor });
      },
      taint: (sessionKey, source, atMs) => this.#sessions.taint(sessionKey, source, atMs),
      lastPublished: async (request) => lastPublished(request, await backend.catalogue.read()),
      onEvent: (event) => this.#told(event),
    });
  }

  #gate(hooks: Hooks): ApprovalGate {
    const { settings, log } = this.#options;
    const { approvals, standingApprovals, ledger, audit } = this.#backend;
    const used = new UsedApprovals(settings.dataDir);
    return new ApprovalGate({
      settings,
      approvals,
      standingApprovals,
      ledger,
      used,
      audit,
      hooks: new ApprovalHooks(hooks, async (callId) => (await ledger.glance(callId))?.request.envelope.requestId),
      log,
      announce: (record) => this.#channels.announce(record),
    });
  }

  #queue(partition: Partition, slots: ConcurrencyLimiter): JobQueue {
    const { settings, log } = this.#options;
    return new JobQueue({
      backend: this.#backend,
      settings,
      partition,
      slots,
      workerId: this.id,
      clock: this.#clock,
      log,
      running: this.#running,
      executor: this.#executor,
      metrics: this.#metrics,
      workers: () => this.#heartbeat.workersOf(partition.tier),
      isAlone: () => this.#backend.shards.layout[partition.tier].made === 1,
      unwanted: (toolName, namespace) => this.#unwanted(toolName, namespace),
      renew: (attempt) => this.#renew(attempt),
      onError: (error) => this.#onError(error),
    });
  }

  get running(): number {
    return this.#running.size;
  }

  get draining(): boolean {
    return this.#closing !== undefined;
  }

  /** What this worker has counted (R28), in Prometheus' text format. */
  metrics(): { readonly contentType: string; readonly text: string } {
    const text = exposition(this.#options.settings.metricsPrefix, this.#metrics.series());
    return { contentType: EXPOSITION_TYPE, text };
  }

  async #measure(): Promise<void> {
    const askedAtMs = this.#clock.monotonic();
    await this.#backend.redis.ping();
    this.#metrics.roundTrip(this.#clock.monotonic() - askedAtMs);
  }

  /** Whether Redis answers is what this worker's readiness depends on. */
  get redis(): Backend['redis'] {
    return this.#backend.redis;
  }

  // Jobs

  /** What to do with a job that this worker should not start. Before its attempt has begun, no namespace is known. */
  #unwanted(toolName: string, namespace?: string): Unwanted | undefined {
    if (this.#closing !== undefined || this.#solitude.isTaken) return { kind: 'handed-back' };
    for (const { tool } of this.#tools.values()) {
      if (tool.name !== toolName || !this.#switches.modes(tool).enabled) continue;
      if (namespace === undefined ? this.#hasNamesake(tool) : tool.namespace !== namespace) continue;
      if (!this.#nodeCircuits.isOpen(qualifiedName(tool))) continue;
      const others = this.#heartbeat.othersWith(publishedToolId(tool));
      if (others.length > 0 && !this.#nodeCircuits.mayTry(qualifiedName(tool), this.#clock.monotonic()))
        return { kind: 'passed-on', need: publishedToolId(tool), others };
    }
    return undefined;
  }

  #hasNamesake({ name, namespace }: AnyTool): boolean {
    for (const { tool } of this.#tools.values()) if (tool.name === name && tool.namespace !== namespace) return true;
    return false;
  }

  // Leases and cancellation

  /** Renews the record's lease; learns on the way whether the call was cancelled or taken over. */
  async #renew(attempt: RunningAttempt): Promise<void> {
    if (attempt.fence === 0) return;
    const { held, cancelRequested } = await this.#backend.ledger.renewLease(
      attempt.callId,
      attempt.fence,
      this.#options.settings.lockDurationMs,
    );
    const mine = !attempt.holdsLock || (await this.#backend.locks.renew(attempt.callId, attempt.fence));
    if (!mine) attempt.abort(new PawlError('LEASE_LOST', 'Another call has had its turn at the resource.'));
    else if (!held) attempt.abort(new PawlError('LEASE_LOST', 'Another attempt holds the call.'));
    else if (cancelRequested) attempt.abort(new PawlError('CANCELLED'));
    if (held) await this.#limits.renew(attempt);
  }

  /** News may have been missed while the subscription was away. */
  async #renewAll(): Promise<void> {
    this.#sessions.clear();
    await Promise.all([
      this.#learnSwitches(),
      this.#forced.catchUp(this.#options.tiers).then((circuits) => this.#nodeCircuits.relearn(circuits)),
      this.#declared.catchUp(),
      this.#followShards(),
      this.#heartbeat.publishAgain(),
    ]);
    await Promise.all([...this.#running.all()].map((attempt) => this.#renew(attempt)));
  }

  #hear(broadcast: Broadcast): void {
    if (broadcast.type === 'cancel' && broadcast.because === 'cancelled')
      this.#running.ofCall(broadcast.callId)?.abort(new PawlError('CANCELLED'));
    else if (broadcast.type === 'circuit') {
      this.#nodeCircuits.learn(broadcast.key, broadcast.circuit.state);
      this.#forced.learn(broadcast.circuit);
    } else if (broadcast.type === 'session') {
      this.#sessions.forget(broadcast.sessionKey);
      this.#terminals.endSession(broadcast.sessionKey);
    } else if (broadcast.type === 'taint') this.#sessions.forget(broadcast.sessionKey);
    else if (broadcast.type === 'switches') this.#learnSwitches().catch((error: Error) => this.#onError(error));
    else if (broadcast.type === 'specs') this.#declared.catchUp().catch((error: Error) => this.#onError(error));
    else if (broadcast.type === 'shards') this.#followShards().catch((error: Error) => this.#onError(error));
    else if (broadcast.type === 'question') this.#channels.heard(broadcast.id);
    else if (broadcast.type === 'handover') this.#dynamic.heard(broadcast.callId);
    else if (broadcast.type === 'drain' && broadcast.workerId === this.id) this.#drainAsked();
    else if (broadcast.type === 'catalogue') this.#heartbeat.learnPeers().catch((error: Error) => this.#onError(error));
  }

  #drainAsked(): void {
    const { onDrainAsked = () => void this.close().catch((error: Error) => this.#onError(error)) } = this.#options;
    onDrainAsked();
  }

  /** Loaded with the first call of an MCP server's tool: what MCP needs is a tenth of what a worker would load at its start. */
  #mcpConnections(): Promise<McpConnections> {
    this.#mcp ??= import('./connectors/mcp/tools.ts').then((mcp) => new mcp.McpConnections(this.#options));
    return this.#mcp;
  }

  async #learnSwitches(): Promise<void> {
    this.#switches.learn(await this.#backend.switches.read());
  }

  async #followShards(): Promise<void> {
    await this.#backend.shards.learn();
    await this.#queues.follow();
  }

  #told(event: WorkerEvent): void {
    this.#metrics.observe(event);
    this.#options.onEvent?.(event);
    if (event.type !== 'tool_call_shadow') return;
    const { toolNamespace, toolName } = event.envelope;
    this.#backend.switches
      .countShadow(event.kind, `${toolNamespace}.${toolName}`)
      .catch((error: Error) => this.#onError(error));
  }

  // Housekeeping

  #startTimers(): void {
    const every = (intervalMs: number, task: () => Promise<void>) => {
      const timer = setInterval(() => task().catch((error: Error) => this.#onError(error)), intervalMs);
      timer.unref();
      this.#timers.push(timer);
    };
    every(HEARTBEAT_MS, () => this.#heartbeat.beat());
    every(HEARTBEAT_MS, () => this.#declared.catchUp());
    every(HEARTBEAT_MS, () => this.#followShards());
    every(60_000, () => this.#heartbeat.renewPublished());
    const sweep = new OrphanSweep(this.#backend.ledger, this.#options.log);
    every(Math.max(1_000, this.#options.settings.stalledIntervalMs), () =>
      sweep.run(this.#backend.shards.partitions(this.#options.tiers)),
    );
  }

  #onError(error: Error): void {
    // Lost locks are told by the attempts themselves; connection errors are mended by reconnecting.
    if (this.#closing === undefined) this.#options.log.debug({ error: error.message }, 'queue');
  }

  /**
   * Takes no further jobs, waits `graceMs` for the running ones, then interrupts those: what has done nothing yet goes back to
   * the queue unspent. A second call waits for the first.
   */
  close(graceMs: number = this.#options.settings.drainMs): Promise<void> {
    this.#closing ??= this.#drain(graceMs);
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Ends the grace period of a running drain. */
  interrupt(): void {
    this.#running.abortAll(new PawlError('DRAINED'));
  }

  async #drain(graceMs: number): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    // From here on nothing is fetched; what was fetched in this moment goes back (`#unwanted`).
    const putBack = this.#queues.putBack().catch((error: Error) => this.#onError(error));
    // A call that is lost with a process that was stopped is not to blame for that.
    const partitions = this.#backend.shards.partitions(this.#options.tiers);
    const marked = this.#backend.ledger.markStopped(partitions, this.id).catch(() => {});
    const left = this.#backend.catalogue.leave(this.id).catch(() => {});
    const finished = Promise.all([marked, left, putBack.then(() => this.#queues.close())]);
    const isFinished =
      (await endsWithin(finished, Math.min(graceMs, IDLE_MS))) ||
      (this.#running.size > 0 && (await endsWithin(finished, graceMs - IDLE_MS)));
    if (!isFinished) {
      this.interrupt();
      if (!(await endsWithin(finished, INTERRUPT_MS))) await this.#queues.close(true);
    }
    await this.#terminals.close();
    this.#queues.closeLocks();
    this.#disk?.close();
    this.#running.close();
    this.#nodeCircuits.close();
    await (await this.#mcp)?.close();
    this.#broadcast.close();
    this.#releaseUncaught();
    await this.#publisher.close(LAST_METRICS_MS);
    await this.#auditService.close();
    await this.#backend.close();
    await this.#options.tracing?.flush();
  }
}

async function endsWithin(promise: Promise<unknown>, limitMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), Math.min(Math.max(0, limitMs), MAX_TIMER_MS));
  });
  const ended = await Promise.race([promise.then(() => true as const), limit]);
  clearTimeout(timer);
  return ended;
}
