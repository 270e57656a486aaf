import { serverFaults, unfitServer } from '../shared/config/durability.ts';
import { invalidInput, PawlError } from '../shared/errors/failure.ts';
import { loadAjv } from '../shared/schema/schema.ts';
import { AuditService } from '../shared/store/audit-service.ts';
import { type Backend, openBackend } from '../shared/store/backend.ts';
import { HEARTBEAT_MS, publishedToolId, RENEWAL_MS } from '../shared/store/fleet/catalogue.ts';
import { receiveBroadcasts } from '../shared/store/redis/broadcasts.ts';
import type { Subscription } from '../shared/store/redis/subscription.ts';
import { EXPOSITION_TYPE, exposition } from '../shared/telemetry/metric-set.ts';
import { quoteValue } from '../shared/util/text/quote-value.ts';
import { withinMs } from '../shared/util/wait.ts';
import { containUncaughtErrors } from './attempt/uncaught-errors.ts';
import { composeWorker, type WorkerParts } from './compose-worker.ts';
import { isSandboxMissing } from './context/processes.ts';
import { WorkerFleetUpdates } from './fleet-updates.ts';
import { OrphanSweep } from './queue/orphan-sweep.ts';
import { SegmentSweep } from './queue/segment-sweep.ts';
import { servedTools, type WorkerOptions } from './worker-options.ts';

export type { WorkerOptions };

const NO_SANDBOX = {
  preferred:
    'no sandbox works here: each call that runs a program waits for a person, unless PAWL_SANDBOX=off says that none is needed; pawl doctor says more',
  required:
    'no sandbox works here: each call that runs a program is refused (PAWL_SANDBOX=required); pawl doctor says more',
};
const SANDBOX_OFF =
  'PAWL_SANDBOX=off: programs of tools run without a sandbox, and reach all that this process reaches';

/** A closing worker publishes its last metrics, if Redis accepts them within this time. */
const LAST_METRICS_MS = 500;
/** The longest drain when nothing runs: only Redis is left to wait for, and it may be unavailable. */
const IDLE_MS = 5_000;
/** After a drain's grace period, interrupted attempts have this long to be written. */
const INTERRUPT_MS = 5_000;

export class ToolWorker implements AsyncDisposable {
  readonly id: string;
  /** `namespace.name@version` of the tools that this worker runs. */
  readonly tools: readonly string[];
  readonly #options: WorkerOptions;
  readonly #backend: Backend;
  readonly #parts: WorkerParts;
  readonly #updates: WorkerFleetUpdates;
  readonly #broadcasts: Subscription;
  readonly #auditService: AuditService;
  readonly #releaseUncaught: () => void;
  #timers: NodeJS.Timeout[] = [];
  #closing: Promise<void> | undefined;

  /** Connects, publishes the tools and starts to fetch jobs. Throws `CONFIGURATION` for tools that cannot be published together. */
  static async start(options: WorkerOptions): Promise<ToolWorker> {
    const { settings, log, tiers, environment, audit } = options;
    // The check starts a program, so it runs while the worker connects. It is skipped if no tool runs programs.
    const runsPrograms = servedTools(options).some(({ needs }) => needs.includes('processes'));
    const sandboxMissing = runsPrograms ? isSandboxMissing(settings.sandbox) : Promise.resolve(false);
    sandboxMissing.catch(() => {});
    const backend = await openBackend({ settings, name: 'worker', mode: 'patient', tiers, environment, audit, log });
    let worker: ToolWorker | undefined;
    try {
      const faults = serverFaults(backend.server, servedTools(options), settings);
      if (faults.length > 0) throw unfitServer(faults);
      const isMissing = await sandboxMissing;
      if (settings.sandbox === 'off') log.warn({ event: 'sandbox_off' }, SANDBOX_OFF);
      else if (isMissing) log.warn({ event: 'no_sandbox', sandbox: settings.sandbox }, NO_SANDBOX[settings.sandbox]);
      const unconfined = isMissing && settings.sandbox === 'preferred';
      worker = new ToolWorker(options, backend, await backend.ledger.now(), unconfined);
      await worker.#begin();
      return worker;
    } catch (error) {
      // Open connections would keep the process alive, so that it would not end with this error.
      await (worker?.close(0) ?? backend.close()).catch(() => {});
      throw error;
    }
  }

  private constructor(options: WorkerOptions, backend: Backend, nowMs: number, unconfined: boolean) {
    const { settings, log, tiers } = options;
    this.#options = options;
    this.#backend = backend;
    const onError = (error: Error) => this.#onError(error);
    const isClosing = () => this.draining;
    this.#parts = composeWorker({ options, backend, nowMs, unconfined, isClosing, onError });
    this.id = this.#parts.workerId;
    this.tools = this.#parts.published.map(publishedToolId);
    const { onDrainAsked = () => void this.close().catch(onError) } = options;
    this.#updates = new WorkerFleetUpdates({ backend, tiers, parts: this.#parts, onDrainAsked, onError });
    this.#broadcasts = receiveBroadcasts({
      url: backend.url,
      redis: backend.redis,
      prefix: settings.prefix,
      name: 'worker',
      onBroadcast: (broadcast) => this.#updates.receive(broadcast),
      onLost: () => this.#updates.suspend(),
      onSubscribed: () => void this.#updates.catchUp().catch(onError),
      onError,
    });
    this.#releaseUncaught = containUncaughtErrors(log);
    this.#auditService = AuditService.open(backend, settings, { files: false, log });
  }

  async #begin(): Promise<void> {
    const { declared, heartbeat, queues } = this.#parts;
    await Promise.all([this.#updates.updateSwitches(), declared.catchUp()]);
    await heartbeat.publish();
    this.#startTimers();
    await queues.refresh();
    setImmediate(loadAjv).unref();
  }

  get running(): number {
    return this.#parts.running.size;
  }

  get draining(): boolean {
    return this.#closing !== undefined;
  }

  metrics(): { readonly contentType: string; readonly text: string } {
    const text = exposition(this.#options.settings.metricsPrefix, this.#parts.metrics.series());
    return { contentType: EXPOSITION_TYPE, text };
  }

  /** The connection to Redis, on which the worker's readiness depends. */
  get redis(): Backend['redis'] {
    return this.#backend.redis;
  }

  #startTimers(): void {
    const { heartbeat, declared } = this.#parts;
    const { settings, log, tiers } = this.#options;
    const every = (intervalMs: number, task: () => Promise<void>) => {
      const timer = setInterval(() => task().catch((error: Error) => this.#onError(error)), intervalMs).unref();
      this.#timers.push(timer);
    };
    every(HEARTBEAT_MS, () => heartbeat.beat());
    every(HEARTBEAT_MS, () => declared.catchUp());
    every(HEARTBEAT_MS, () => this.#updates.refreshQueues());
    every(RENEWAL_MS, () => heartbeat.renewPublished());
    const sweep = new OrphanSweep(this.#backend.ledger, log);
    const mover = new SegmentSweep(this.#backend, settings, log);
    const sweepMs = Math.max(1_000, settings.stalledIntervalMs);
    every(sweepMs, () => sweep.run(this.#backend.shards.partitions(tiers)));
    every(sweepMs, () =>
      mover.run(this.#backend.shards.partitions(tiers)).catch((error: Error) => {
        if (this.#closing === undefined) mover.warn(error);
      }),
    );
  }

  #onError(error: Error): void {
    // Attempts log their lost leases, and connections reconnect by themselves.
    if (this.#closing === undefined) this.#options.log.debug({ error: error.message }, 'queue');
  }

  /**
   * Fetches no further jobs, waits `graceMs` for the running ones, then interrupts those. Jobs that have done nothing yet are released
   * without consuming an attempt. A second call waits for the first. Throws `CONTRACT_INVALID` for a time that is no number, such as the
   * signal that a listener of the process is called with: no call would be waited for.
   */
  async close(graceMs: number = this.#options.settings.drainMs): Promise<void> {
    if (typeof graceMs !== 'number' || Number.isNaN(graceMs))
      throw invalidInput(
        'The arguments of worker.close are not usable',
        [{ path: 'graceMs', message: `must be a number of milliseconds; got ${quoteValue(graceMs)}` }],
        'the arguments',
      );
    this.#closing ??= this.#drain(graceMs);
    return this.#closing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Ends the grace period of a running drain. */
  interrupt(): void {
    this.#parts.running.abortAll(new PawlError('DRAINED'));
  }

  async #drain(graceMs: number): Promise<void> {
    for (const timer of this.#timers) clearInterval(timer);
    const { queues, running, heartbeat } = this.#parts;
    const { shards, ledger, catalogue } = this.#backend;
    // Nothing is fetched from here on. Jobs that arrive now are returned.
    const fetchingStopped = queues.stopFetching().catch((error: Error) => this.#onError(error));
    // A worker that was stopped on purpose must not make its calls suspects.
    const marked = ledger.markStopped(shards.partitions(this.#options.tiers), this.id).catch(() => {});
    const listed = heartbeat.drain().catch(() => false);
    const beats = setInterval(() => void heartbeat.beat().catch(() => {}), HEARTBEAT_MS).unref();
    const finished = Promise.all([marked, listed, fetchingStopped.then(() => queues.close())]);
    const endsWithin = async (limitMs: number) => (await withinMs(finished, limitMs)) !== undefined;
    const isFinished =
      (await endsWithin(Math.min(graceMs, IDLE_MS))) || (running.size > 0 && (await endsWithin(graceMs - IDLE_MS)));
    if (!isFinished) {
      this.interrupt();
      if (!(await endsWithin(INTERRUPT_MS))) await queues.close(true);
    }
    clearInterval(beats);
    const left = listed.then((isListed) => (isListed ? catalogue.leave(this.id) : undefined)).catch(() => {});
    await withinMs(left, LAST_METRICS_MS);
    await this.#release();
  }

  async #release(): Promise<void> {
    const { queues, terminals, disk, running, nodeCircuits, mcp, publisher, callbacks, leaveProcess } = this.#parts;
    leaveProcess();
    await callbacks.close();
    await terminals.close();
    queues.closeLocks();
    disk?.close();
    running.close();
    nodeCircuits.close();
    await mcp.close();
    this.#broadcasts.close();
    this.#releaseUncaught();
    await publisher.close(LAST_METRICS_MS);
    await this.#auditService.close();
    await this.#backend.close();
    await this.#options.tracing?.flush();
  }
}
