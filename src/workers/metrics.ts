/**
 * What one worker counts (R28): the attempts that it ran and how they ended, as its events tell them. The ledger and the circuits
 * as a whole are shown by producers. Has its own registry.
 */
import { Counter, Histogram, Registry } from 'prom-client';
import type { Settings } from '../shared/config.ts';
import type { ToolCallEnvelope } from '../shared/envelope.ts';
import {
  DURATION_BUCKETS_MS,
  METRICS,
  type MetricDefinition,
  reasonLabel,
  scopeLabel,
  ToolLabels,
} from '../shared/metrics.ts';
import type { AnyTool } from '../shared/tool.ts';
import type { ExecuteEvent } from './execute.ts';

export class WorkerMetrics {
  readonly #settings: Settings;
  readonly #registry = new Registry();
  readonly #tools = new ToolLabels();
  readonly #offered: ReadonlyMap<string, AnyTool>;
  readonly #calls: Counter;
  readonly #duration: Histogram;
  readonly #retries: Counter;
  readonly #transitions: Counter;
  readonly #retriesRefused: Counter;
  readonly #shadow: Counter;

  constructor(settings: Settings, tools: readonly AnyTool[]) {
    this.#settings = settings;
    this.#offered = new Map(tools.map((tool) => [`${tool.namespace}.${tool.name}`, tool]));
    for (const tool of tools) this.#tools.learn(tool);
    const options = ({ name, help, labels }: MetricDefinition) => ({
      name: `${settings.metricsPrefix}_${name}`,
      help,
      labelNames: labels,
      registers: [this.#registry],
    });
    this.#calls = new Counter(options(METRICS.calls));
    this.#duration = new Histogram({ ...options(METRICS.duration), buckets: DURATION_BUCKETS_MS });
    this.#retries = new Counter(options(METRICS.retries));
    this.#transitions = new Counter(options(METRICS.transitions));
    this.#retriesRefused = new Counter(options(METRICS.retriesRefused));
    this.#shadow = new Counter(options(METRICS.shadow));
  }

  /** Counts an event; give it to the worker as `onEvent`. */
  observe(event: ExecuteEvent): void {
    switch (event.type) {
      case 'tool_call_end': {
        const { status, durationMs } = event.outcome;
        const tool = this.#labelOf(event.envelope);
        this.#calls.inc({ tool, status, scope: this.#scopeOf(event.envelope) });
        this.#duration.observe({ tool, status }, durationMs);
        return;
      }
      case 'tool_call_retry':
        this.#retries.inc({ tool: this.#labelOf(event.envelope), reason: reasonLabel(event.errorCode) });
        return;
      case 'tool_call_circuit_state':
        this.#transitions.inc({
          tool: this.#tools.ofCircuit(event.circuit),
          from_state: event.from,
          to_state: event.to,
        });
        return;
      case 'tool_call_blocked':
        this.#calls.inc({
          tool: this.#labelOf(event.envelope),
          status: event.errorCode === 'CIRCUIT_OPEN' ? 'circuit_open' : 'error',
          scope: this.#scopeOf(event.envelope),
        });
        return;
      case 'tool_call_retry_refused':
        this.#retriesRefused.inc({ tool: this.#labelOf(event.envelope) });
        return;
      case 'tool_call_shadow':
        this.#shadow.inc({ tool: this.#labelOf(event.envelope), kind: event.kind });
        return;
      case 'tool_call_start':
        return;
    }
  }

  #labelOf({ toolNamespace, toolName }: ToolCallEnvelope): string {
    return this.#tools.of(toolNamespace, toolName);
  }

  #scopeOf({ toolNamespace, toolName }: ToolCallEnvelope): string {
    const offered = this.#offered.get(`${toolNamespace}.${toolName}`);
    return scopeLabel(this.#settings, offered ?? { namespace: toolNamespace, name: toolName });
  }

  /** Prometheus' text format. */
  async text(): Promise<{ readonly contentType: string; readonly text: string }> {
    return { contentType: this.#registry.contentType, text: await this.#registry.metrics() };
  }
}
