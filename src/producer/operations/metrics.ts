/** The counts of one producer: its callers' results, its refusals, and the delays of result events. */
import type { CompletionResult } from '../../shared/calls/completion.ts';
import type { ToolCallEnvelope, ToolResultEnvelope } from '../../shared/calls/envelope.ts';
import type { Settings } from '../../shared/config/config.ts';
import { scopeOf } from '../../shared/config/tool-settings.ts';
import type { OccurrenceCounts } from '../../shared/schedules/progress.ts';
import { type Counter, type Histogram, MetricSet } from '../../shared/telemetry/metric-set.ts';
import { METRICS, ToolLabels } from '../../shared/telemetry/metrics.ts';
import { getOrInsert } from '../../shared/util/get-or-insert.ts';
import type { DispatchEvent } from '../calls/submission.ts';
import type { ResolvedTool } from '../tools/tool-catalogue.ts';

/** The counters of a tool's calls that ended with one status. */
interface EndCounts {
  readonly calls: Counter;
  /** The histogram of calls that ran. */
  duration?: Histogram;
}

export class ProducerMetrics {
  /** The tools of the fleet that this process knows. */
  readonly tools = new ToolLabels();
  readonly #settings: Pick<Settings, 'tools'>;
  readonly #set = new MetricSet();
  readonly #ends = new WeakMap<ResolvedTool, Map<string, EndCounts>>();
  readonly #inboxLag = this.#set.histogram(METRICS.inboxLag, {});
  /** The counter of conflicts of a front door's copy of the audit trail; it exists with 0 before the first conflict. */
  readonly auditWriteFailures = this.#set.counter(METRICS.auditWriteFailures, {});

  constructor(settings: Pick<Settings, 'tools'>) {
    this.#settings = settings;
  }

  /** Counts the result of a completion from outside. */
  completion(result: CompletionResult): void {
    this.#set.count(METRICS.completions, { result });
  }

  /** Counts a batch or a plan that has ended. */
  group(kind: string, state: string): void {
    this.#set.count(METRICS.groups, { kind, state });
  }

  occurrences(result: keyof OccurrenceCounts, times: number): void {
    this.#set.count(METRICS.occurrences, { result }, times);
  }

  observe(event: DispatchEvent): void {
    switch (event.type) {
      case 'ended':
        this.#ended(event);
        return;
      case 'refused':
        this.#refused(event);
        return;
      case 'loop':
        this.#set.count(METRICS.loops, { tool: this.#labelOf(event.envelope), action: event.action });
        return;
      case 'shadow':
        this.#set.count(METRICS.shadow, { tool: this.#labelOf(event.envelope), kind: event.kind });
        return;
      case 'tool_call_circuit_state':
        this.#set.count(METRICS.transitions, {
          tool: this.tools.labelForCircuit(event.circuit),
          from_state: event.from,
          to_state: event.to,
        });
        return;
      case 'accepted':
        if (event.answer === 'inflight' || event.answer === 'conflict')
          this.#set.count(METRICS.hits, { tool: this.#labelOf(event.envelope), state: event.answer });
    }
  }

  #labelOf({ toolNamespace, toolName }: ToolCallEnvelope): string {
    return this.tools.labelFor(toolNamespace, toolName);
  }

  #ended({ published, result }: Extract<DispatchEvent, { readonly type: 'ended' }>): void {
    const counts = this.#endsOf(published, result.status);
    counts.calls.value += 1;
    const label = () => this.tools.labelFor(published.namespace, published.name);
    if (result.cache?.matchedOn === 'completed')
      this.#set.count(METRICS.hits, { tool: label(), state: endState(result) });
    if (result.fromCache || result.attempts === 0) return;
    counts.duration ??= this.#set.histogram(METRICS.duration, { tool: label(), status: result.status });
    counts.duration.observe(result.durationMs);
  }

  #endsOf(published: ResolvedTool, status: string): EndCounts {
    const ends = getOrInsert(this.#ends, published, () => new Map<string, EndCounts>());
    return getOrInsert(ends, status, () => {
      this.tools.add(published);
      const tool = this.tools.labelFor(published.namespace, published.name);
      return { calls: this.#set.counter(METRICS.calls, { tool, status, scope: scopeOf(this.#settings, published) }) };
    });
  }

  #refused({ envelope, published, code }: Extract<DispatchEvent, { readonly type: 'refused' }>): void {
    const status = code === 'CIRCUIT_OPEN' ? 'circuit_open' : 'error';
    if (published !== undefined) {
      this.#endsOf(published, status).calls.value += 1;
      return;
    }
    const toolName = { namespace: envelope?.toolNamespace ?? '', name: envelope?.toolName ?? '' };
    const tool = this.tools.labelFor(toolName.namespace, toolName.name);
    this.#set.count(METRICS.calls, { tool, status, scope: scopeOf(this.#settings, toolName) });
  }

  inboxEvent(lagMs: number): void {
    this.#inboxLag.observe(Math.max(0, lagMs));
  }

  roundTrip(ms: number): void {
    this.#set.observe(METRICS.roundTrip, { side: 'producer' }, ms);
  }

  series(): Map<string, number> {
    // Series start at 0: to Prometheus, a series that begins with 1 has not increased, so no alert would fire.
    for (const tool of this.tools.all()) this.#set.counter(METRICS.hits, { tool, state: 'conflict' });
    return this.#set.series();
  }
}

function endState(result: ToolResultEnvelope): 'done' | 'failed' | 'cancelled' {
  if (result.status === 'success') return 'done';
  return result.error.code === 'CANCELLED' ? 'cancelled' : 'failed';
}
