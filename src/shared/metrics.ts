/**
 * The seeds' eight metrics (R28), and those of what the seeds name without a metric: names, labels, and what keeps the number of their series bounded. Each process counts what it
 * sees itself: a producer the answers that its callers got, a worker the attempts that it ran.
 */
import { type Settings, toolPolicy } from './config.ts';
import { FAILURES } from './failure.ts';
import { DEFAULT_NAMESPACE, type Effects } from './tool.ts';

export interface MetricDefinition {
  /** After `metricsPrefix` and an underscore. */
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
}

const define = <const Definition extends MetricDefinition>(definition: Definition): Definition => definition;

export const METRICS = {
  calls: define({
    name: 'calls_total',
    type: 'counter',
    help: 'Calls that were answered, replays and refusals included, by tool, result status and idempotency scope.',
    labels: ['tool', 'status', 'scope'],
  }),
  duration: define({
    name: 'call_duration_ms',
    type: 'histogram',
    help: 'Milliseconds from the first attempt of a call to its end; replays do not count.',
    labels: ['tool', 'status'],
  }),
  retries: define({
    name: 'retry_attempts_total',
    type: 'counter',
    help: 'Attempts that were made again, by the failure that made them necessary.',
    labels: ['tool', 'reason'],
  }),
  hits: define({
    name: 'idempotency_hits_total',
    type: 'counter',
    help: 'Calls that met an earlier one: joined it (inflight), got its result (done, failed, cancelled) or contradicted it (conflict).',
    labels: ['tool', 'state'],
  }),
  cacheSize: define({
    name: 'dedupe_cache_size',
    type: 'gauge',
    help: 'Calls of a tool that were claimed within the time for which the ledger remembers a success, by idempotency scope.',
    labels: ['tool', 'scope'],
  }),
  ledger: define({
    name: 'ledger_calls',
    type: 'gauge',
    help: 'Calls that the ledger remembers, by tier: in flight, or settled and replayed to whoever asks again.',
    labels: ['tier', 'state'],
  }),
  ttl: define({
    name: 'dedupe_ttl_seconds',
    type: 'gauge',
    help: 'How long the ledger remembers a settled call of a tool, by the state it ended in.',
    labels: ['tool', 'state'],
  }),
  circuits: define({
    name: 'circuit_breaker_state',
    type: 'gauge',
    help: 'How many circuits of a tool are in each state: one for the tool, and one for each tenant that has its own.',
    labels: ['tool', 'state'],
  }),
  transitions: define({
    name: 'circuit_breaker_transitions_total',
    type: 'counter',
    help: 'Changes of a circuit from one state to another.',
    labels: ['tool', 'from_state', 'to_state'],
  }),
  retriesRefused: define({
    name: 'retries_refused_total',
    type: 'counter',
    help: 'Retries that were not made because the tool had used up its retry budget.',
    labels: ['tool'],
  }),
  loops: define({
    name: 'loop_guard_total',
    type: 'counter',
    help: 'Calls that a session made again and again: warned of once, then refused.',
    labels: ['tool', 'action'],
  }),
  shadow: define({
    name: 'shadow_total',
    type: 'counter',
    help: 'What shadow mode would have done with a call: refused, merged or retried.',
    labels: ['tool', 'kind'],
  }),
} as const;

export const DURATION_BUCKETS_MS = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];

/** Label values beyond what the catalogue knows. */
export const OTHER = 'other';
/** Tools that get series of their own; a fleet with more of them counts the rest together. */
const MAX_TOOLS = 500;

/** Turns names that callers choose into a bounded set of label values. */
export class ToolLabels {
  readonly #known = new Set<string>();

  /** Learns a tool of the catalogue. */
  learn(tool: { readonly namespace: string; readonly name: string }): void {
    if (this.#known.size < MAX_TOOLS) this.#known.add(labelOf(tool.namespace, tool.name));
  }

  of(namespace: string, name: string): string {
    const label = labelOf(namespace, name);
    return this.#known.has(label) ? label : OTHER;
  }

  /** The label of the tool that a circuit's key names; tenants are left out, dependencies and tiers count as `other`. */
  ofCircuit(key: string): string {
    const name = /^tool:(?<namespace>[^@]+)\.(?<name>[^.@]+)(?:@|$)/.exec(key)?.groups;
    return name === undefined ? OTHER : this.of(name['namespace'] ?? '', name['name'] ?? '');
  }

  all(): Iterable<string> {
    return this.#known;
  }
}

function labelOf(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`;
}

/** Tools may invent error codes; only the catalogue's and HTTP statuses become labels. */
export function reasonLabel(code: string): string {
  return Object.hasOwn(FAILURES, code) || /^HTTP_[45]\d\d$/.test(code) ? code : OTHER;
}

/** Whether calls of a tool are named over all sessions or within one (R10). */
export function scopeLabel(
  settings: Pick<Settings, 'tools'>,
  tool: { readonly namespace: string; readonly name: string; readonly effects?: Effects },
): 'session' | 'global' {
  return toolPolicy(settings, tool).scope === 'global' && tool.effects === 'none' ? 'global' : 'session';
}
