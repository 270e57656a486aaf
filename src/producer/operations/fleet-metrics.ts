/**
 * The fleet's metrics in Prometheus' text format: the counts of all processes, summed in Redis, and the state of queues, ledger, circuits
 * and workers at the time of a scrape.
 */
import type { CircuitState } from '../../shared/circuits/circuit-breaker.ts';
import type { Settings } from '../../shared/config/config.ts';
import { isDurable } from '../../shared/config/durability.ts';
import { scopeOf, ttlsOf } from '../../shared/config/tool-settings.ts';
import { neededWorkers } from '../../shared/queues/scaling.ts';
import type { Backend } from '../../shared/store/backend.ts';
import type { CatalogueContent } from '../../shared/store/fleet/catalogue.ts';
import { inspectServer } from '../../shared/store/inspect-server.ts';
import { readTierStates, type ShardState } from '../../shared/store/queues/shard-state.ts';
import type { FleetMetrics } from '../../shared/store/telemetry/fleet-metrics.ts';
import { EXPOSITION_TYPE, exposition, MetricSet } from '../../shared/telemetry/metric-set.ts';
import { METRICS } from '../../shared/telemetry/metrics.ts';
import { TIERS, type Tier } from '../../shared/tools/tool.ts';
import { Remembered } from '../../shared/util/remembered.ts';
import { systemClock } from '../../shared/util/time.ts';
import { withinMs } from '../../shared/util/wait.ts';
import type { EnforcedCircuit } from '../circuits/circuit-effects.ts';
import type { ProducerMetrics } from './metrics.ts';
import { tierCounts, tierDeadLetters, tierSegments, tierSizes } from './tier-counts.ts';

/** All scrapes within this time share one read. */
const CACHE_MS = 2_000;
/** After this time without an answer, the last readings are returned. */
const READ_LIMIT_MS = 2_000;
/** The configuration of Redis changes rarely. */
const INSPECT_EVERY_MS = 10_000;
/** A schedule counts as overdue after this time. */
const OVERDUE_MS = 10_000;
const CIRCUIT_STATES: readonly CircuitState[] = ['CLOSED', 'OPEN', 'HALF_OPEN', 'FORCED_OPEN'];

/** The parts of the producer that the fleet's metrics are read from. */
interface FleetSource {
  readonly backend: Backend;
  readonly settings: Settings;
  readonly metrics: ProducerMetrics;
  readonly fleetMetrics: FleetMetrics;
  publishMetrics(): Promise<void>;
  catalogue(): Promise<CatalogueContent>;
  readonly circuits: { list(): Promise<readonly EnforcedCircuit[]> };
}

interface Readings {
  readonly totals: ReadonlyMap<string, number>;
  readonly gauges: ReadonlyMap<string, number>;
}

export class FleetView {
  readonly #source: FleetSource;
  readonly #cacheMs: number;
  #readings: Readings = { totals: new Map(), gauges: new Map() };
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  #up = false;
  readonly #durable: Remembered<boolean>;
  /** The total time and number of attempts at the last scrape, by tier: the differences give the current mean. */
  readonly #paces = new Map<
    Tier,
    { readonly sumMs: number; readonly count: number; readonly meanMs: number | undefined }
  >();

  constructor(source: FleetSource, { cacheMs = CACHE_MS }: { readonly cacheMs?: number } = {}) {
    this.#source = source;
    this.#cacheMs = cacheMs;
    const { redis, prefix } = source.backend;
    const inspect = async () => isDurable(await inspectServer(redis, prefix));
    this.#durable = new Remembered(inspect, INSPECT_EVERY_MS, systemClock);
  }

  /**
   * The fleet's counts (`fleet`), or those of this process (`own`). A scraper of every process sums up the own counts; a scraper of one
   * front door uses the fleet's. The answer is never late and never fails because of Redis.
   */
  async text(counts: 'fleet' | 'own'): Promise<{ readonly contentType: string; readonly text: string }> {
    if (performance.now() - this.#readAtMs > this.#cacheMs) await this.#readInTime();
    const { metrics, settings } = this.#source;
    const up = new MetricSet();
    up.set(METRICS.redisUp, {}, this.#up ? 1 : 0);
    const counted = counts === 'own' ? metrics.series() : this.#readings.totals;
    const text = exposition(settings.metricsPrefix, [...counted, ...this.#readings.gauges, ...up.series()]);
    return { contentType: EXPOSITION_TYPE, text };
  }

  async #readInTime(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    const read = this.#reading.then(
      () => true,
      () => false,
    );
    if ((await withinMs(read, READ_LIMIT_MS)) !== true) this.#up = false;
  }

  async #readNow(): Promise<void> {
    const source = this.#source;
    const { redis, prefix, shards } = source.backend;
    // This process's counts are part of the fleet's.
    await source.publishMetrics();
    const [content, circuits, states, counts, sizes, deadLetters, totals, isDurable, failing, segments, open, overdue] =
      await Promise.all([
        // The list includes declared tools.
        source.catalogue(),
        source.circuits.list(),
        readTierStates(redis, prefix, shards),
        tierCounts(source.backend),
        tierSizes(source.backend),
        tierDeadLetters(source.backend),
        source.fleetMetrics.read(),
        this.#durable.get(),
        failingCallbacks(source.backend),
        tierSegments(source.backend),
        source.backend.groups.openCount(),
        source.backend.schedules.overdue(source.backend.clock.now() - OVERDUE_MS),
      ]);
    for (const tool of content.tools) source.metrics.tools.add(tool);
    const set = new MetricSet();
    this.#showCircuits(set, circuits);
    this.#showTools(set, content.tools, sizes);
    for (const [index, tier] of TIERS.entries()) {
      const { inflight = 0, delayed = 0, pending = 0, calls = 0 } = counts[index] ?? {};
      set.set(METRICS.ledger, { tier, state: 'inflight' }, inflight + pending);
      set.set(METRICS.ledger, { tier, state: 'settled' }, Math.max(0, calls - inflight - delayed - pending));
      set.set(METRICS.deadLetters, { tier }, deadLetters[index] ?? 0);
      set.set(METRICS.movedCalls, { tier }, segments[index]?.calls ?? 0);
      set.set(METRICS.segmentsLost, { tier }, segments[index]?.lost ?? 0);
      set.set(METRICS.callbacksFailing, { tier }, failing[index] ?? 0);
      const state = states[index];
      if (state !== undefined) this.#showTier(set, tier, state, { workers: content.workers, totals });
    }
    set.set(METRICS.schedulesOverdue, {}, overdue);
    set.set(METRICS.redisDurable, {}, isDurable ? 1 : 0);
    set.set(METRICS.groupsOpen, {}, open);
    this.#readings = { totals, gauges: set.series() };
    this.#up = true;
    this.#readAtMs = performance.now();
  }

  #showTier(
    set: MetricSet,
    tier: Tier,
    state: ShardState,
    fleet: Pick<CatalogueContent, 'workers'> & Pick<Readings, 'totals'>,
  ): void {
    const serving = fleet.workers.filter(({ tiers }) => tiers.includes(tier));
    const slots = serving.reduce((sum, { concurrency }) => sum + concurrency, 0);
    const { waiting, running, oldestWaitMs } = state;
    const load = { waiting, running, oldestWaitMs, workers: serving.length, slots };
    const { delayed, starting, awaitingApproval } = state;
    const depths = { waiting, delayed, 'starts-later': starting, 'awaiting-approval': awaitingApproval };
    for (const [name, depth] of Object.entries(depths)) set.set(METRICS.depth, { tier, state: name }, depth);
    set.set(METRICS.oldestWait, { tier }, oldestWaitMs / 1_000);
    set.set(METRICS.attemptsInFlight, { tier }, running);
    set.set(METRICS.stale, { tier }, state.stale);
    set.set(METRICS.inDoubt, { tier }, state.inDoubt);
    set.set(METRICS.pending, { tier }, state.pending);
    set.set(METRICS.approvals, { tier }, state.awaitingApproval);
    set.set(METRICS.workers, { tier }, serving.length);
    set.set(METRICS.slots, { tier }, slots);
    set.set(METRICS.needed, { tier }, neededWorkers({ ...load, meanAttemptMs: this.#paceOf(tier, fleet.totals) }));
  }

  /** The mean duration of attempts since the last scrape; the earlier mean when none has ended since. */
  #paceOf(tier: Tier, totals: ReadonlyMap<string, number>): number | undefined {
    const total = (part: string) => totals.get(`${METRICS.attemptDuration.name}_${part}{tier="${tier}"}`) ?? 0;
    const [sumMs, count] = [total('sum'), total('count')];
    const previous = this.#paces.get(tier) ?? { sumMs: 0, count: 0, meanMs: undefined };
    const meanMs = count > previous.count ? (sumMs - previous.sumMs) / (count - previous.count) : previous.meanMs;
    this.#paces.set(tier, { sumMs, count, meanMs });
    return meanMs;
  }

  #showCircuits(set: MetricSet, listed: readonly EnforcedCircuit[]): void {
    const { tools } = this.#source.metrics;
    const counts = new Map<string, Map<CircuitState, number>>();
    const count = (tool: string, state: CircuitState) => {
      const states = counts.get(tool) ?? new Map<CircuitState, number>();
      counts.set(tool, states.set(state, (states.get(state) ?? 0) + 1));
    };
    for (const { key, circuit } of listed) count(tools.labelForCircuit(key), circuit.state);
    // A circuit that never left CLOSED is not stored.
    for (const tool of tools.all()) if (!counts.has(tool)) count(tool, 'CLOSED');
    for (const [tool, states] of counts)
      for (const state of CIRCUIT_STATES) set.set(METRICS.circuits, { tool, state }, states.get(state) ?? 0);
  }

  #showTools(
    set: MetricSet,
    catalogue: CatalogueContent['tools'],
    sizes: readonly ReadonlyMap<string, number>[],
  ): void {
    const { metrics, settings } = this.#source;
    const counted = new Set<string>();
    for (const published of catalogue) {
      const tool = metrics.tools.labelFor(published.namespace, published.name);
      const ttls = ttlsOf(settings, published);
      for (const state of ['done', 'failed', 'cancelled'] as const)
        set.set(METRICS.ttl, { tool, state }, ttls[`${state}Ms`] / 1_000);
      set.set(METRICS.tools, { tool, tier: published.tier }, 1);
      // The ledger counts all versions of a tool together.
      const name = `${published.namespace}.${published.name}`;
      const size = counted.has(name) ? 0 : (sizes[TIERS.indexOf(published.tier)]?.get(name) ?? 0);
      counted.add(name);
      set.count(METRICS.cacheSize, { tool, scope: scopeOf(settings, published) }, Math.max(0, size));
    }
  }
}

/** By tier. */
function failingCallbacks({ callbacks, shards }: Pick<Backend, 'callbacks' | 'shards'>): Promise<number[]> {
  return Promise.all(TIERS.map((tier) => callbacks.countFailing(shards.partitions([tier]))));
}
