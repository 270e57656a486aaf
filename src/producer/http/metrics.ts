/**
 * What this producer counts (R28): the answers that its callers got, as events tell them, and the ledger and the circuits, as they
 * stand when somebody looks. Has its own registry: two servers in one process do not meet.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { CircuitState } from '../../shared/breaker.ts';
import { type Settings, toolPolicy } from '../../shared/config.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/envelope.ts';
import {
  DURATION_BUCKETS_MS,
  METRICS,
  type MetricDefinition,
  reasonLabel,
  scopeLabel,
  ToolLabels,
} from '../../shared/metrics.ts';
import { RETRY_BUDGET_EXHAUSTED } from '../../shared/retry-budget.ts';
import { NewsListener } from '../../shared/store/news.ts';
import { TIERS } from '../../shared/tool.ts';
import { type Pawl, PLACES } from '../client.ts';
import type { DispatchEvent } from '../dispatch.ts';
import { type Route, route } from './routes.ts';

/** What was read for one look serves the next ones for this long. */
const CACHE_MS = 5_000;
/** Without an answer by then, the last readings are shown again. */
const READ_LIMIT_MS = 2_000;
const CIRCUIT_STATES: readonly CircuitState[] = ['CLOSED', 'OPEN', 'HALF_OPEN', 'FORCED_OPEN'];

type Watched = Pick<Pawl, 'catalogue' | 'circuits' | 'backend'>;

export class ProducerMetrics {
  readonly #settings: Settings;
  readonly #registry = new Registry();
  readonly #tools = new ToolLabels();
  readonly #calls: Counter;
  readonly #duration: Histogram;
  readonly #retries: Counter;
  readonly #hits: Counter;
  readonly #cacheSize: Gauge;
  readonly #ledger: Gauge;
  readonly #ttl: Gauge;
  readonly #circuits: Gauge;
  readonly #transitions: Counter;
  readonly #retriesRefused: Counter;
  readonly #loops: Counter;
  readonly #shadow: Counter;
  /** State of every circuit as last heard of, by place and key. */
  readonly #states = new Map<string, CircuitState>();
  #news: NewsListener | undefined;
  #pawl: Watched | undefined;
  #readAtMs = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;

  readonly #cacheMs: number;

  constructor(settings: Settings, { cacheMs = CACHE_MS }: { readonly cacheMs?: number } = {}) {
    this.#settings = settings;
    this.#cacheMs = cacheMs;
    const options = ({ name, help, labels }: MetricDefinition) => ({
      name: `${settings.metricsPrefix}_${name}`,
      help,
      labelNames: labels,
      registers: [this.#registry],
    });
    this.#calls = new Counter(options(METRICS.calls));
    this.#duration = new Histogram({ ...options(METRICS.duration), buckets: DURATION_BUCKETS_MS });
    this.#retries = new Counter(options(METRICS.retries));
    this.#hits = new Counter(options(METRICS.hits));
    this.#cacheSize = new Gauge(options(METRICS.cacheSize));
    this.#ledger = new Gauge(options(METRICS.ledger));
    this.#ttl = new Gauge(options(METRICS.ttl));
    this.#circuits = new Gauge(options(METRICS.circuits));
    this.#transitions = new Counter(options(METRICS.transitions));
    this.#retriesRefused = new Counter(options(METRICS.retriesRefused));
    this.#loops = new Counter(options(METRICS.loops));
    this.#shadow = new Counter(options(METRICS.shadow));
  }

  /** Counts an event; give it to `Pawl.open` as `onEvent`. */
  observe(event: DispatchEvent): void {
    switch (event.type) {
      case 'ended':
        this.#tools.learn(event.offer);
        this.#ended(event);
        return;
      case 'refused':
        this.#refused(event);
        return;
      case 'loop':
        this.#loops.inc({ tool: this.#labelOf(event.envelope), action: event.action });
        return;
      case 'shadow':
        this.#shadow.inc({ tool: this.#labelOf(event.envelope), kind: event.kind });
        return;
      case 'accepted':
        if (event.answer === 'inflight' || event.answer === 'conflict')
          this.#hits.inc({ tool: this.#labelOf(event.envelope), state: event.answer });
    }
  }

  #labelOf({ toolNamespace, toolName }: ToolCallEnvelope): string {
    return this.#tools.of(toolNamespace, toolName);
  }

  #ended({ offer, result }: Extract<DispatchEvent, { readonly type: 'ended' }>): void {
    const tool = this.#tools.of(offer.namespace, offer.name);
    const { status } = result;
    this.#calls.inc({ tool, status, scope: scopeLabel(this.#settings, offer) });
    if (result.cache?.matchedOn === 'completed') this.#hits.inc({ tool, state: endState(result) });
    if (result.fromCache) return;
    if (result.attempts > 0) this.#duration.observe({ tool, status }, result.durationMs);
    if (result.error?.message.includes(RETRY_BUDGET_EXHAUSTED) === true) this.#retriesRefused.inc({ tool });
    for (const { reasonCode } of result.retriedBy ?? []) this.#retries.inc({ tool, reason: reasonLabel(reasonCode) });
  }

  #refused({ envelope, code }: Extract<DispatchEvent, { readonly type: 'refused' }>): void {
    const named = { namespace: envelope?.toolNamespace ?? '', name: envelope?.toolName ?? '' };
    this.#calls.inc({
      tool: this.#tools.of(named.namespace, named.name),
      status: code === 'CIRCUIT_OPEN' ? 'circuit_open' : 'error',
      scope: scopeLabel(this.#settings, named),
    });
  }

  /** From now on knows the fleet's tools, and hears of every change of a circuit. */
  watch(pawl: Watched): void {
    this.#pawl = pawl;
    this.#news ??= NewsListener.open({
      url: pawl.backend.url,
      prefix: this.#settings.prefix,
      name: 'metrics',
      onNews: (news) => {
        if (news.type !== 'circuit') return;
        const name = `${news.place.tier}.${news.place.shard} ${news.key}`;
        this.#changed(name, news.key, news.circuit.state);
      },
      onSubscribed: () => void this.#learnStates(pawl).catch(() => {}),
      onError: () => {},
    });
  }

  /** Where the circuits stand before the next change is heard; what changed while nobody listened is not counted. */
  async #learnStates(pawl: Watched): Promise<void> {
    for (const { key, place, circuit } of await pawl.circuits())
      this.#states.set(`${place.tier}.${place.shard} ${key}`, circuit.state);
    await this.#read();
  }

  #changed(name: string, key: string, to: CircuitState): void {
    const from = this.#states.get(name) ?? 'CLOSED';
    if (from === to) return;
    this.#states.set(name, to);
    this.#transitions.inc({ tool: this.#tools.ofCircuit(key), from_state: from, to_state: to });
  }

  /** Prometheus' text format. Never waits long, and never fails because Redis does. */
  async text(): Promise<{ readonly contentType: string; readonly text: string }> {
    if (performance.now() - this.#readAtMs > this.#cacheMs) await this.#readInTime();
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }

  async #readInTime(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, READ_LIMIT_MS);
    });
    await Promise.race([this.#read().catch(() => {}), late]);
    clearTimeout(timer);
  }

  #read(): Promise<void> {
    this.#reading ??= this.#readNow().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #readNow(): Promise<void> {
    const pawl = this.#pawl;
    if (pawl === undefined) return;
    const [{ tools }, circuits, counts, sizes] = await Promise.all([
      pawl.catalogue(),
      pawl.circuits(),
      Promise.all(PLACES.map((place) => pawl.backend.ledger.counts(place))),
      Promise.all(PLACES.map((place) => pawl.backend.ledger.sizes(place))),
    ]);
    for (const tool of tools) this.#tools.learn(tool);
    this.#showCircuits(circuits);
    this.#showTtls(tools);
    this.#showSizes(tools, sizes);
    for (const [index, tier] of TIERS.entries()) {
      const { inflight = 0, calls = 0 } = counts[index] ?? {};
      this.#ledger.set({ tier, state: 'inflight' }, inflight);
      this.#ledger.set({ tier, state: 'settled' }, Math.max(0, calls - inflight));
    }
    this.#readAtMs = performance.now();
  }

  #showCircuits(listed: Awaited<ReturnType<Pawl['circuits']>>): void {
    const counts = new Map<string, Map<CircuitState, number>>();
    const count = (tool: string, state: CircuitState) => {
      const states = counts.get(tool) ?? new Map<CircuitState, number>();
      counts.set(tool, states.set(state, (states.get(state) ?? 0) + 1));
    };
    for (const { key, circuit } of listed) count(this.#tools.ofCircuit(key), circuit.state);
    // A circuit that never left CLOSED is nowhere stored.
    for (const tool of this.#tools.all()) if (!counts.has(tool)) count(tool, 'CLOSED');
    this.#circuits.reset();
    for (const [tool, states] of counts)
      for (const state of CIRCUIT_STATES) this.#circuits.set({ tool, state }, states.get(state) ?? 0);
  }

  #showTtls(tools: readonly { readonly namespace: string; readonly name: string }[]): void {
    const { ttl } = this.#settings;
    for (const offer of tools) {
      const tool = this.#tools.of(offer.namespace, offer.name);
      const own = toolPolicy(this.#settings, offer).ttl;
      this.#ttl.set({ tool, state: 'done' }, (own?.doneMs ?? ttl.doneMs) / 1_000);
      this.#ttl.set({ tool, state: 'failed' }, (own?.failedMs ?? ttl.failedMs) / 1_000);
      this.#ttl.set({ tool, state: 'cancelled' }, ttl.cancelledMs / 1_000);
    }
  }

  #showSizes(
    tools: Awaited<ReturnType<Pawl['catalogue']>>['tools'],
    sizes: readonly ReadonlyMap<string, number>[],
  ): void {
    this.#cacheSize.reset();
    for (const offer of tools) {
      const size = sizes[TIERS.indexOf(offer.tier)]?.get(`${offer.namespace}.${offer.name}`) ?? 0;
      const labels = { tool: this.#tools.of(offer.namespace, offer.name), scope: scopeLabel(this.#settings, offer) };
      this.#cacheSize.inc(labels, Math.max(0, size));
    }
  }

  close(): void {
    this.#news?.close();
    this.#news = undefined;
    this.#pawl = undefined;
  }
}

function endState(result: ToolResultEnvelope): 'done' | 'failed' | 'cancelled' {
  if (result.status === 'success') return 'done';
  return result.error.code === 'CANCELLED' ? 'cancelled' : 'failed';
}

export function metricsRoute(metrics: ProducerMetrics): Route {
  return route({
    method: 'get',
    path: '/metrics',
    permission: 'oversee',
    summary: "This process's metrics, in Prometheus' text format.",
    answers: { 200: 'Metrics' },
    async handle() {
      const { contentType, text } = await metrics.text();
      return { status: 200, body: text, headers: { 'Content-Type': contentType } };
    },
  });
}
