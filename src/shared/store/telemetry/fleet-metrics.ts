/** Metrics of all processes, added up in Redis: the totals survive every process, and every API process shows the same. */
import { withoutTool } from '../../telemetry/metric-set.ts';
import { MAX_SERIES, OTHER } from '../../telemetry/metrics.ts';
import { withinMs } from '../../util/wait.ts';
import type { Redis } from '../redis/connection.ts';
import { FleetRecords } from '../redis/fleet-records.ts';
import { Script } from '../redis/script.ts';

/** How often a process says what it has counted since. */
const PUBLISH_MS = 2_000;
/** How long the counts of a silent process are remembered. One that comes back later starts from what was acknowledged to it. */
const REMEMBERED_MS = 3_600_000;
/** As many series as one script adds: Redis does nothing else meanwhile. */
const BATCH = 500;

const publishScript = new Script(new URL('./publish-metrics.lua', import.meta.url));

export class FleetMetrics extends FleetRecords {
  readonly #maxSeries: number;

  constructor(redis: Redis, prefix: string, maxSeries = MAX_SERIES) {
    super(redis, prefix);
    this.#maxSeries = maxSeries;
  }

  /** Adds what a process has counted since `acknowledged`. */
  async add(
    processId: string,
    series: readonly (readonly [name: string, value: number])[],
    acknowledged: ReadonlyMap<string, number>,
  ): Promise<void> {
    const keys = [this.keys.metrics, this.keys.metricsOf(processId)];
    const fields = series.flatMap(([name, value]) => [
      name,
      withoutTool(name, OTHER),
      value,
      acknowledged.get(name) ?? 0,
    ]);
    await publishScript.run(this.redis, keys, [this.#maxSeries, REMEMBERED_MS, ...fields]);
  }

  /** Measures a round trip to Redis, in milliseconds. */
  async roundTripMs(): Promise<number> {
    const sentAtMs = performance.now();
    await this.redis.ping();
    return performance.now() - sentAtMs;
  }

  async read(): Promise<Map<string, number>> {
    const totals = await this.redis.hgetall(this.keys.metrics);
    return new Map(Object.entries(totals).map(([series, value]) => [series, Number(value)]));
  }
}

interface PublisherOptions {
  readonly fleet: FleetMetrics;
  readonly processId: string;
  /** The counts of this process so far. A round trip is measured before each publication. */
  readonly own: { series(): ReadonlyMap<string, number>; roundTrip(ms: number): void };
  onError(error: Error): void;
}

/** Says every now and then, and at the end, what one process has counted. */
export class MetricsPublisher {
  readonly #options: PublisherOptions;
  readonly #acknowledged = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;
  #running: Promise<void> = Promise.resolve();

  constructor(options: PublisherOptions) {
    this.#options = options;
    this.#timer = setInterval(() => {
      this.publish().catch(options.onError);
    }, PUBLISH_MS).unref();
  }

  /** One at a time: each says what has changed since the one before. */
  publish(): Promise<void> {
    this.#running = this.#running.catch(() => {}).then(() => this.#publish());
    return this.#running;
  }

  async #publish(): Promise<void> {
    const { fleet, processId, own } = this.#options;
    own.roundTrip(await fleet.roundTripMs());
    const changed = [...own.series()].filter(([name, value]) => this.#acknowledged.get(name) !== value);
    for (let from = 0; from < changed.length; from += BATCH) {
      const batch = changed.slice(from, from + BATCH);
      await fleet.add(processId, batch, this.#acknowledged);
      for (const [name, value] of batch) this.#acknowledged.set(name, value);
    }
  }

  /** Says the last, if Redis takes it soon. */
  async close(limitMs: number): Promise<void> {
    clearInterval(this.#timer);
    await withinMs(
      this.publish().catch(() => {}),
      limitMs,
    );
  }
}
