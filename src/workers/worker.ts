/**
 * A worker: takes jobs of its tiers from their queues, executes them, and tells BullMQ what became of each. Publishes its tools,
 * renews leases, recovers what others lost, and drains when asked to stop.
 */
import { hostname } from 'node:os';
import {
  Worker as BullWorker,
  type WorkerOptions as BullWorkerOptions,
  type ConnectionOptions,
  DelayedError,
  type Job,
  UnrecoverableError,
  WaitingError,
} from 'bullmq';
import { ApprovalHooks } from '../shared/approval-hooks.ts';
import type { RecordAudit } from '../shared/audit.ts';
import type { Settings } from '../shared/config.ts';
import { durabilityOf, serverFaults, unfitServer } from '../shared/durability.ts';
import { PawlError, stackOf } from '../shared/failure.ts';
import { type Hook, Hooks } from '../shared/hooks.ts';
import type { Logger } from '../shared/log.ts';
import { EXPOSITION_TYPE, exposition } from '../shared/metric-set.ts';
import type { SessionRecord } from '../shared/session.ts';
import { AuditKeeper } from '../shared/store/audit-keeper.ts';
import { type Backend, openBackend } from '../shared/store/backend.ts';
import type { BeginAnswer } from '../shared/store/begin.ts';
import { HEARTBEAT_MS, offerId, offerOf, type ToolOffer, type WorkerRecord } from '../shared/store/catalogue.ts';
import type { Finished } from '../shared/store/deliveries.ts';
import { DiskBarrier } from '../shared/store/disk-barrier.ts';
import { FleetMetrics, MetricsPublisher } from '../shared/store/fleet-metrics.ts';
import { PlaceKeys } from '../shared/store/keys.ts';
import { type News, NewsListener } from '../shared/store/news.ts';
import { type CallJob, fetchAtEveryMarker, KEPT_EVENTS, scriptsOnRedisTime } from '../shared/store/queues.ts';
import { redisOptions } from '../shared/store/redis.ts';
import { Switches } from '../shared/switches.ts';
import type { WorkerEvent } from '../shared/telemetry.ts';
import { type Clock, type Random, systemClock, systemSchedule, uuidv7 } from '../shared/time.ts';
import { type AnyTool, type Channels, type MemoryStore, qualifiedName, type Tier } from '../shared/tool.ts';
import { takesTurns } from '../shared/turn.ts';
import type { Tracing } from '../tracing.ts';
import { WorkerAgents } from './agents.ts';
import { ApprovalGate } from './approval-gate.ts';
import { type RegisteredTool, register } from './begun.ts';
import { WorkerChannels } from './channels.ts';
import { compiledIn } from './connectors/index.ts';
import { McpConnections } from './connectors/mcp/tools.ts';
import { DeclaredTools, type ToolMakers } from './declared-tools.ts';
import { Deliveries } from './deliveries.ts';
import { Executor } from './execute.ts';
import { LockRenewal } from './lock-renewal.ts';
import { WorkerMetrics } from './metrics.ts';
import { lastOffered } from './misfit.ts';
import { NodeCircuits } from './node-circuit.ts';
import { Pace } from './pace.ts';
import { type RunningAttempt, RunningAttempts } from './running.ts';
import { patiently, type Verdict } from './settlement.ts';
import { containStrayErrors } from './stray.ts';
import { TerminalLink } from './terminal-link.ts';
import { TerminalHost } from './terminals.ts';
import { AttemptTraces } from './traces.ts';
import { AttemptTurns } from './turns.ts';
import { UsedApprovals } from './used-approvals.ts';

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
  readonly tracing?: Tracing;
  /** An operator asks this worker to finish what it runs, and end. Default: `close()`. */
  readonly onDrainAsked?: () => void;
}

/** A tool that fails on this node alone is left to others for this long at a time. */
const HAND_BACK_MS = 500;
/** A worker that ends says what it counted last, if Redis takes it by then. */
const LAST_METRICS_MS = 500;
const SESSION_CACHE = 5_000;
/** Calls in flight that are older than this are looked at: their job may have been lost. */
const SWEEP_AFTER_MS = 60_000;
const SWEEP_BATCH = 200;
/** After a drain's grace period, interrupted attempts have this long to be written. */
const INTERRUPT_MS = 5_000;

function servedTools({ tools, tiers }: WorkerOptions): AnyTool[] {
  return tools.filter((tool) => tiers.includes(tool.tier));
}

export class ToolWorker {
  readonly id: string;
  readonly #options: WorkerOptions;
  readonly #backend: Backend;
  readonly #clock: Clock;
  readonly #tools: ReadonlyMap<string, RegisteredTool>;
  readonly #offers: readonly ToolOffer[];
  readonly #running: RunningAttempts;
  readonly #nodeCircuits = new NodeCircuits();
  readonly #metrics: WorkerMetrics;
  readonly #publisher: MetricsPublisher;
  readonly #channels: WorkerChannels;
  readonly #terminals: TerminalHost;
  readonly #agents: WorkerAgents;
  readonly #executor: Executor;
  readonly #switches: Switches;
  readonly #declared: DeclaredTools;
  readonly #mcp: McpConnections;
  readonly #news: NewsListener;
  readonly #queues: readonly BullWorker<CallJob>[];
  readonly #deliveries: Deliveries[] = [];
  readonly #locks: LockRenewal[] = [];
  readonly #disk: DiskBarrier | undefined;
  readonly #auditKeeper: AuditKeeper;
  readonly #sessions = new Map<string, SessionRecord>();
  readonly #startedAtMs: number;
  readonly #releaseStray: () => void;
  #timers: NodeJS.Timeout[] = [];
  /** Tools that other living workers offer too. */
  #sharedTools: ReadonlySet<string> = new Set();
  /** How many living workers take from a tier's queue, this one included. */
  readonly #workersOf = new Map<Tier, number>();
  #closing: Promise<void> | undefined;

  /** Connects, publishes the tools and takes the first jobs. Throws `CONFIGURATION` for tools that cannot be offered together. */
  static async start(options: WorkerOptions): Promise<ToolWorker> {
    const { settings, log } = options;
    const backend = await openBackend({
      settings,
      name: 'worker',
      mode: 'patient',
      ...(options.audit === undefined ? {} : { audit: options.audit }),
      log: (level, message, fields) => log[level](fields ?? {}, message),
    });
    try {
      const faults = serverFaults(backend.server, servedTools(options), settings);
      if (faults.length > 0) throw unfitServer(faults);
      const worker = new ToolWorker(options, backend, await backend.ledger.now());
      await Promise.all([worker.#learnSwitches(), worker.#declared.catchUp()]);
      await worker.#publish();
      worker.#startTimers();
      for (const queue of worker.#queues) queue.run().catch((error: Error) => worker.#onError(error));
      await Promise.all(worker.#queues.map((queue) => queue.waitUntilReady()));
      return worker;
    } catch (error) {
      await backend.close();
      throw error;
    }
  }

  private constructor(options: WorkerOptions, backend: Backend, nowMs: number) {
    const { settings, log } = options;
    this.#options = options;
    this.#backend = backend;
    this.#clock = options.clock ?? systemClock;
    this.#startedAtMs = nowMs;
    this.id = `${hostname()}:${process.pid}:${uuidv7(this.#clock).slice(-6)}`;
    const served = servedTools(options);
    const onError = (error: Error) => this.#onError(error);
    if (served.some((tool) => durabilityOf(settings, tool) === 'waitaof'))
      this.#disk = DiskBarrier.open(backend, onError);
    const disk = this.#disk;
    this.#offers = served.map((tool) => offerOf(tool, nowMs));
    this.#tools = register(served);
    this.#metrics = new WorkerMetrics(served);
    this.#publisher = new MetricsPublisher({
      metrics: new FleetMetrics(backend.redis, settings.prefix),
      processId: this.id,
      series: () => this.#metrics.series(),
      measure: () => this.#measure(),
      onError,
    });
    this.#running = new RunningAttempts(this.#clock, settings.lockDurationMs, this.id);
    this.#switches = new Switches(settings.reliability);
    this.#mcp = new McpConnections(options);
    this.#declared = new DeclaredTools(backend.specs, {
      ...compiledIn({ settings, environment: options.environment, limits: backend.limits }),
      mcp: (record) => this.#mcp.executable(record),
      ...options.declared,
    });
    const { seals, messages, questions, ledger } = backend;
    this.#channels = new WorkerChannels({
      settings,
      seals,
      messages,
      questions,
      log,
      sessionOf: (sessionKey) => this.#sessionOf(sessionKey),
      now: () => ledger.now(),
    });
    this.#agents = new WorkerAgents(backend);
    this.#terminals = new TerminalHost({
      env: options.environment,
      sandbox: settings.sandbox,
      network: settings.sandboxNetwork === 'on',
      link: new TerminalLink({ backend, workerId: this.id, onError }),
    });
    const hooks = new Hooks(options.hooks ?? [], {
      schedule: systemSchedule,
      onFailure: (hook, kind, message) =>
        log.warn({ event: 'hook_failed', hook, kind, error: message }, 'a hook failed'),
    });
    this.#executor = new Executor({
      settings,
      backend,
      workerId: this.id,
      clock: this.#clock,
      random: options.random ?? Math.random,
      log,
      environment: options.environment,
      hooks,
      ...(options.memory === undefined ? {} : { memory: options.memory }),
      channels: options.channels ?? this.#channels,
      terminals: this.#terminals,
      agents: this.#agents,
      ...(disk === undefined ? {} : { onDisk: () => disk.passed() }),
      gate: this.#gate(hooks),
      audit: backend.audit,
      nodeCircuits: this.#nodeCircuits,
      ...(options.tracing === undefined ? {} : { traces: new AttemptTraces(options.tracing.tracer) }),
      ...(served.some(takesTurns) ? { turns: new AttemptTurns(backend.turns, log) } : {}),
      switches: this.#switches,
      pace: new Pace(backend.limits, onError),
      endsWithJob: true,
      toolNamed: (namespace, name) =>
        this.#tools.get(`${namespace}.${name}`) ?? this.#declared.toolNamed(namespace, name),
      toolOf: (request) => this.#declared.toolOf(request),
      ruleFor: (tool) => this.#declared.ruleFor(tool),
      sessionOf: (sessionKey) => this.#sessionOf(sessionKey),
      taint: (sessionKey, source, atMs) => this.#taint(sessionKey, source, atMs),
      lastOffered: async (request) => lastOffered(request, await backend.catalogue.read()),
      onEvent: (event) => this.#told(event),
    });
    this.#queues = options.tiers.map((tier) => this.#queue(tier));
    this.#news = NewsListener.open({
      url: backend.url,
      prefix: settings.prefix,
      name: 'worker',
      onNews: (news) => this.#hear(news),
      onSubscribed: () => void this.#renewAll().catch((error: Error) => this.#onError(error)),
      onError: (error) => this.#onError(error),
    });
    this.#releaseStray = containStrayErrors(log);
    this.#auditKeeper = AuditKeeper.open(backend, settings, { files: false, log });
  }

  /** `namespace.name@version` of the tools that this worker runs. */
  get tools(): readonly string[] {
    return this.#offers.map(offerId);
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

  #gate(hooks: Hooks): ApprovalGate {
    const { settings, log } = this.#options;
    const { approvals, grants, ledger, audit } = this.#backend;
    const used = new UsedApprovals(settings.dataDir);
    return new ApprovalGate({
      settings,
      approvals,
      grants,
      ledger,
      used,
      audit,
      hooks: new ApprovalHooks(hooks, async (callId) => (await ledger.glance(callId))?.request.envelope.requestId),
      log,
      announce: (record) => this.#channels.announce(record),
    });
  }

  // Jobs

  #queue(tier: Tier): BullWorker<CallJob> {
    const { settings, concurrency } = this.#options;
    const place = { tier, shard: 0 };
    const keys = new PlaceKeys(settings.prefix, place);
    const deliveries = new Deliveries({
      ledger: this.#backend.ledger,
      place,
      workerId: this.id,
      leaseMs: settings.lockDurationMs,
      clock: this.#clock,
      nextToken: () => this.#running.nextToken(),
      freeLanes: () => concurrency - lanesOf(queue),
      workers: () => this.#workersOf.get(tier) ?? 1,
    });
    this.#deliveries.push(deliveries);
    const process = (job: Job<CallJob>, token = '') => this.#process(tier, job, token, deliveries, locks);
    const connection = redisOptions({
      url: this.#backend.url,
      name: `${settings.prefix}:worker:${tier}`,
      mode: 'patient',
    });
    const options: BullWorkerOptions = {
      connection: { ...connection, scripts: scriptsOnRedisTime() } as ConnectionOptions,
      prefix: keys.base,
      concurrency,
      autorun: false,
      lockDuration: settings.lockDurationMs,
      stalledInterval: settings.stalledIntervalMs,
      skipLockRenewal: true,
      // The ledger counts lost attempts; BullMQ must never give a call up by itself.
      maxStalledCount: Number.MAX_SAFE_INTEGER,
      runRetryDelay: 1_000,
    };
    const queue = new BullWorker(keys.queue, process, options, deliveries.backend);
    queue.on('error', (error) => this.#onError(error));
    fetchAtEveryMarker(queue);
    const locks = new LockRenewal({
      running: this.#running,
      clock: this.#clock,
      leaseMs: settings.lockDurationMs,
      extend: (jobIds, tokens, leaseMs) => queue.extendJobLocks(jobIds, tokens, leaseMs),
      onRenewed: (attempt) => void this.#renew(attempt).catch((error: Error) => this.#onError(error)),
      onLost: (attempt) => attempt.abort(new PawlError('LEASE_LOST')),
      onError: (error) => this.#onError(error),
    });
    this.#locks.push(locks);
    return queue;
  }

  async #process(
    tier: Tier,
    job: Job<CallJob>,
    laneToken: string,
    deliveries: Deliveries,
    locks: LockRenewal,
  ): Promise<object> {
    const { id: jobId, data, name } = job;
    const taken = deliveries.taken(jobId ?? '');
    const token = taken?.lockToken ?? laneToken;
    job.token = token;
    if (jobId === undefined || typeof data?.callId !== 'string' || typeof data.generation !== 'string')
      throw new UnrecoverableError('This is not a job of Pawl.');
    const begun = taken?.attempt;
    const unwanted = this.#unwanted(name);
    if (unwanted !== undefined && begun?.answer.kind !== 'started') return this.#conclude(job, token, unwanted);
    const running = this.#running.add(data.callId, jobId, begun);
    // It has begun already, and goes back as an attempt that did nothing yet.
    if (unwanted !== undefined) running.abort(new PawlError('DRAINED'));
    locks.hold(jobId, token);
    const end = () => {
      this.#running.remove(running);
      locks.release(jobId, token);
    };
    const startedAtMs = this.#clock.monotonic();
    const verdict = await this.#execute(data, running, begun?.answer);
    if (running.fence > 0) this.#metrics.attemptEnded(tier, this.#clock.monotonic() - startedAtMs, running);
    if (verdict.kind === 'abandoned' && verdict.fenced === true) this.#metrics.writeFenced(tier);
    if (verdict.kind === 'finished' && verdict.unwritten !== undefined) {
      const write = async (attempt: () => Promise<Finished>) => {
        const written = await patiently(attempt, running, this.#options.log).finally(end);
        if (written?.code === 'fenced') this.#metrics.writeFenced(tier);
        return written;
      };
      deliveries.endWith(jobId, { settle: verdict.unwritten, write });
      return this.#conclude(job, token, verdict);
    }
    end();
    return this.#conclude(job, token, verdict.kind === 'handed-back' ? (unwanted ?? verdict) : verdict);
  }

  async #execute(data: CallJob, running: RunningAttempt, begun: BeginAnswer | undefined): Promise<Verdict> {
    try {
      return await this.#executor.execute(data, running, begun);
    } catch (error) {
      // The call is recovered by its lease, not lost with this job.
      const { log } = this.#options;
      const { callId } = data;
      if (error instanceof PawlError && error.code === 'BACKEND_UNAVAILABLE')
        log.warn({ callId, error: error.message }, 'a call cannot be begun or written now');
      else
        log.error({ event: 'worker_defect', callId, stack: stackOf(error) }, 'a call could not be executed: a defect');
      return { kind: 'abandoned' };
    }
  }

  /** What to do with a job that this worker should not start. */
  #unwanted(toolName: string): Extract<Verdict, { kind: 'handed-back' | 'later' }> | undefined {
    if (this.#closing !== undefined) return { kind: 'handed-back' };
    return this.#leaveToOthers(toolName) ? { kind: 'later', delayMs: HAND_BACK_MS } : undefined;
  }

  /** Tells BullMQ, in its own terms, what became of a job. */
  async #conclude(job: Job<CallJob>, token: string, verdict: Verdict): Promise<object> {
    switch (verdict.kind) {
      case 'finished': {
        const { status, attempts, durationMs, error } = verdict.outcome;
        if (error !== undefined) throw new UnrecoverableError(`${error.code}: ${error.message.slice(0, 200)}`);
        return { status, attempts, durationMs };
      }
      case 'dropped':
        return { status: 'dropped' };
      case 'later':
        await job.moveToDelayed(Date.now() + verdict.delayMs, token);
        throw new DelayedError();
      case 'turn':
        await job.moveToDelayed(Date.now() + verdict.delayMs, token);
        await this.#backend.turns.parked(job.data);
        throw new DelayedError();
      case 'handed-back':
        await job.moveToWait(token);
        throw new WaitingError();
      case 'abandoned':
        // Without a move the job stays active until its lock runs out, and another worker takes it over.
        throw new DelayedError();
    }
  }

  /** The node's own circuit is open for the tool, and somebody else can run it. */
  #leaveToOthers(toolName: string): boolean {
    for (const { tool } of this.#tools.values()) {
      if (tool.name !== toolName || !this.#switches.modes(tool).enabled) continue;
      if (this.#nodeCircuits.isOpen(qualifiedName(tool))) return this.#sharedTools.has(offerId(tool));
    }
    return false;
  }

  async #sessionOf(sessionKey: string): Promise<SessionRecord | undefined> {
    const known = this.#sessions.get(sessionKey);
    if (known !== undefined) return known;
    const record = await this.#backend.sessions.read(sessionKey);
    if (record === undefined) return undefined;
    this.#sessions.set(sessionKey, record);
    const oldest = this.#sessions.keys().next().value;
    if (this.#sessions.size > SESSION_CACHE && oldest !== undefined) this.#sessions.delete(oldest);
    return record;
  }

  async #taint(sessionKey: string, source: string, atMs: number): Promise<void> {
    const known = await this.#sessionOf(sessionKey);
    if (known === undefined || known.taint?.some((seen) => seen.source === source) === true) return;
    await this.#backend.sessions.taint(sessionKey, [source], atMs);
    this.#sessions.delete(sessionKey);
  }

  // Leases and cancellation

  /** Renews the record's lease; learns on the way whether the call was cancelled or taken over. */
  async #renew(attempt: RunningAttempt): Promise<void> {
    if (attempt.fence === 0) return;
    const { held, cancelRequested } = await this.#backend.ledger.tell(
      attempt.callId,
      attempt.fence,
      this.#options.settings.lockDurationMs,
    );
    const mine = !attempt.hasTurn || (await this.#backend.turns.renew(attempt.callId, attempt.fence));
    if (!mine) attempt.abort(new PawlError('LEASE_LOST', 'Another call has had its turn at the resource.'));
    else if (!held) attempt.abort(new PawlError('LEASE_LOST', 'Another attempt holds the call.'));
    else if (cancelRequested) attempt.abort(new PawlError('CANCELLED'));
  }

  /** News may have been missed while the subscription was away. */
  async #renewAll(): Promise<void> {
    this.#sessions.clear();
    await Promise.all([this.#learnSwitches(), this.#declared.catchUp()]);
    await Promise.all([...this.#running.all()].map((attempt) => this.#renew(attempt)));
  }

  #hear(news: News): void {
    if (news.type === 'cancel' && news.because === 'cancelled')
      this.#running.ofCall(news.callId)?.abort(new PawlError('CANCELLED'));
    else if (news.type === 'circuit') this.#nodeCircuits.learn(news.key, news.circuit.state);
    else if (news.type === 'session') {
      this.#sessions.delete(news.sessionKey);
      this.#terminals.endSession(news.sessionKey);
    } else if (news.type === 'taint') this.#sessions.delete(news.sessionKey);
    else if (news.type === 'switches') this.#learnSwitches().catch((error: Error) => this.#onError(error));
    else if (news.type === 'specs') this.#declared.catchUp().catch((error: Error) => this.#onError(error));
    else if (news.type === 'agent') this.#agents.heard(news.agentId);
    else if (news.type === 'question') this.#channels.heard(news.id);
    else if (news.type === 'drain' && news.workerId === this.id) this.#drainAsked();
    else if (news.type === 'catalogue') this.#learnPeers().catch((error: Error) => this.#onError(error));
  }

  #drainAsked(): void {
    const { onDrainAsked = () => void this.close().catch((error: Error) => this.#onError(error)) } = this.#options;
    onDrainAsked();
  }

  async #learnSwitches(): Promise<void> {
    this.#switches.learn(await this.#backend.switches.read());
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

  async #publish(): Promise<void> {
    const { log, tiers, settings } = this.#options;
    const drifted = await this.#backend.catalogue.publish(this.#offers);
    for (const offer of drifted) {
      const told = {
        tool: qualifiedName(offer),
        kind: 'worker',
        action: 'redefined',
        definition: offer.definition,
      } as const;
      void this.#backend.audit({ type: 'registry-changed', ...told, by: `worker ${this.id}` });
      log.warn(
        { event: 'definition_drift', tool: offerId(offer) },
        'another worker published this tool and version with a different definition; the latest one is offered',
      );
    }
    for (const tier of tiers) {
      const keys = new PlaceKeys(settings.prefix, { tier, shard: 0 });
      await this.#backend.redis.hset(keys.job('meta'), 'opts.maxLenEvents', KEPT_EVENTS);
    }
    await this.#beat();
    await this.#learnPeers();
  }

  async #beat(): Promise<void> {
    const { tiers, concurrency, pawlVersion } = this.#options;
    const record: WorkerRecord = {
      id: this.id,
      host: hostname(),
      pid: process.pid,
      tiers,
      concurrency,
      running: this.#running.size,
      tools: this.tools,
      kinds: this.#declared.kinds,
      startedAtMs: this.#startedAtMs,
      pawlVersion,
      signing: this.#backend.seals.fingerprints,
      clockAheadMs: this.#backend.clock.ownAheadMs,
    };
    await this.#backend.catalogue.beat(record);
  }

  async #learnPeers(): Promise<void> {
    const { workers } = await this.#backend.catalogue.read();
    for (const tier of this.#options.tiers)
      this.#workersOf.set(tier, Math.max(1, workers.filter(({ tiers }) => tiers.includes(tier)).length));
    this.#sharedTools = new Set(workers.filter((worker) => worker.id !== this.id).flatMap((worker) => worker.tools));
  }

  #startTimers(): void {
    const every = (intervalMs: number, task: () => Promise<void>) => {
      const timer = setInterval(() => task().catch((error: Error) => this.#onError(error)), intervalMs);
      timer.unref();
      this.#timers.push(timer);
    };
    every(HEARTBEAT_MS, () => this.#beat());
    every(HEARTBEAT_MS, () => this.#declared.catchUp());
    every(60_000, () => this.#republish());
    every(Math.max(1_000, this.#options.settings.stalledIntervalMs), () => this.#sweep());
  }

  /** Keeps the offers from being forgotten. */
  async #republish(): Promise<void> {
    const nowMs = await this.#backend.ledger.now();
    await this.#backend.catalogue.publish(this.#offers.map((offer) => ({ ...offer, seenAtMs: nowMs })));
  }

  /** Forgets what has expired, and queues again what is in flight without a job: somebody removed it, or Redis lost it. */
  async #sweep(): Promise<void> {
    const { ledger } = this.#backend;
    const nowMs = await ledger.now();
    for (const tier of this.#options.tiers) {
      await ledger.prune({ tier, shard: 0 }, nowMs);
      const old = await ledger.inflightBefore({ tier, shard: 0 }, nowMs - SWEEP_AFTER_MS, SWEEP_BATCH);
      for (const callId of old) {
        const record = await ledger.read(callId);
        if (record === undefined || (await ledger.requeue(record, 'missing', String(nowMs))) !== 'queued') continue;
        this.#options.log.warn({ event: 'call_requeued', callId }, 'a call in flight had no job and was queued again');
      }
    }
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

  /** Ends the grace period of a running drain. */
  interrupt(): void {
    this.#running.abortAll(new PawlError('DRAINED'));
  }

  async #drain(graceMs: number): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    // From here on nothing is fetched; what was fetched in this moment goes back (`#process`).
    const putBack = this.#deliveries.map((deliveries) =>
      deliveries.close().catch((error: Error) => this.#onError(error)),
    );
    const finished = Promise.all(putBack).then(() => Promise.all(this.#queues.map((queue) => queue.close())));
    await this.#backend.catalogue.leave(this.id).catch(() => {});
    if (!(await endsWithin(finished, graceMs))) {
      this.interrupt();
      if (!(await endsWithin(finished, INTERRUPT_MS)))
        await Promise.all(this.#queues.map((queue) => queue.close(true)));
    }
    await this.#terminals.close();
    for (const locks of this.#locks) locks.close();
    this.#disk?.close();
    this.#running.close();
    this.#nodeCircuits.close();
    await this.#mcp.close();
    this.#news.close();
    this.#releaseStray();
    await this.#publisher.close(LAST_METRICS_MS);
    await this.#auditKeeper.close();
    await this.#backend.close();
    await this.#options.tracing?.flush();
  }
}

/** How many jobs the worker has taken or is taking. Unknown before it runs: then all lanes but one are free. */
function lanesOf(queue: BullWorker): number {
  return (queue as unknown as { readonly mainLoopQueue?: { numTotal(): number } }).mainLoopQueue?.numTotal() ?? 1;
}

async function endsWithin(promise: Promise<unknown>, limitMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), limitMs);
  });
  const ended = await Promise.race([promise.then(() => true as const), limit]);
  clearTimeout(timer);
  return ended;
}
