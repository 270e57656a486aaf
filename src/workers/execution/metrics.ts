/** The metrics of one worker: the attempts that it ran, how they ended, and what it lost. */
import type { ToolCallEnvelope } from '../../shared/calls/envelope.ts';
import { isUnresolved } from '../../shared/calls/outcome.ts';
import type { WorkerEvent } from '../../shared/telemetry/call-events.ts';
import { MetricSet } from '../../shared/telemetry/metric-set.ts';
import { METRICS, reasonLabel, ToolLabels } from '../../shared/telemetry/metrics.ts';
import { type AnyTool, TIERS, type Tier } from '../../shared/tools/tool.ts';

export class WorkerMetrics {
  readonly #set = new MetricSet();
  readonly #tools = new ToolLabels();
  readonly #tiers: ReadonlyMap<string, Tier>;
  readonly #declaredTier: (namespace: string, name: string) => Tier | undefined;

  /** `tools` are those of this worker's code. `declaredTier` knows those of the registry, which are learnt with their first call. */
  constructor(
    tools: readonly AnyTool[],
    declaredTier: (namespace: string, name: string) => Tier | undefined = () => undefined,
  ) {
    this.#declaredTier = declaredTier;
    this.#tiers = new Map(tools.map((tool) => [`${tool.namespace}.${tool.name}`, tool.tier]));
    for (const tool of tools) this.#tools.add(tool);
    // Counters start at 0. To Prometheus a series that begins with 30 has not increased, so no alert would fire.
    for (const tier of TIERS) {
      this.#set.counter(METRICS.leaseLosses, { tier });
      this.#set.counter(METRICS.fencedWrites, { tier });
    }
  }

  observe(event: WorkerEvent): void {
    const set = this.#set;
    switch (event.type) {
      case 'tool_call_start': {
        const { toolNamespace, toolName } = event.envelope;
        const tier = this.#tierOf(toolNamespace, toolName);
        if (tier !== undefined && event.waitedMs !== undefined)
          set.observe(METRICS.queueWait, { tier }, event.waitedMs);
        return;
      }
      case 'tool_call_end': {
        const tool = this.#labelOf(event.envelope);
        set.count(METRICS.attempts, { tool, status: event.outcome.status });
        if (isUnresolved(event.outcome)) set.count(METRICS.inDoubtEnds, { tool });
        return;
      }
      case 'tool_call_retry': {
        const tool = this.#labelOf(event.envelope);
        set.count(METRICS.attempts, { tool, status: 'retried' });
        set.count(METRICS.retries, { tool, reason: reasonLabel(event.errorCode) });
        return;
      }
      case 'tool_call_circuit_state': {
        const tool = this.#tools.labelForCircuit(event.circuit);
        set.count(METRICS.transitions, { tool, from_state: event.from, to_state: event.to });
        return;
      }
      case 'tool_call_retry_refused':
        set.count(METRICS.retriesRefused, { tool: this.#labelOf(event.envelope) });
        return;
      case 'tool_call_shadow':
        set.count(METRICS.shadow, { tool: this.#labelOf(event.envelope), kind: event.kind });
        return;
      case 'tool_call_blocked':
        return;
    }
  }

  /** An attempt no longer holds its slot. */
  attemptEnded(tier: Tier, ms: number, { leaseLost }: { readonly leaseLost: boolean }): void {
    this.#set.observe(METRICS.attemptDuration, { tier }, ms);
    if (leaseLost) this.#set.count(METRICS.leaseLosses, { tier });
  }

  callbackSent(result: string): void {
    this.#set.count(METRICS.callbacks, { result });
  }

  /** An outcome was refused: a newer attempt holds the call. */
  writeFenced(tier: Tier): void {
    this.#set.count(METRICS.fencedWrites, { tier });
  }

  roundTrip(ms: number): void {
    this.#set.observe(METRICS.roundTrip, { side: 'worker' }, ms);
  }

  series(): Map<string, number> {
    return this.#set.series();
  }

  #tierOf(namespace: string, name: string): Tier | undefined {
    const ownTier = this.#tiers.get(`${namespace}.${name}`);
    if (ownTier !== undefined) return ownTier;
    // The tier is not cached: a declaration may come back with another one.
    const tier = this.#declaredTier(namespace, name);
    if (tier !== undefined) this.#tools.add({ namespace, name });
    return tier;
  }

  #labelOf({ toolNamespace, toolName }: ToolCallEnvelope): string {
    return this.#tools.labelFor(toolNamespace, toolName);
  }
}
