/**
 * The fleet's metrics: their names and labels, and what bounds the number of their series. Exactly one process counts each event, so the
 * sum over all processes is the fleet's total: a producer counts the answers that its callers got, a worker the attempts that it ran.
 * `docs/metrics.md` has this table in words.
 */
import { toolOfCircuit } from '../circuits/circuit-key.ts';
import { FAILURES } from '../errors/failure-codes.ts';
import { DEFAULT_NAMESPACE } from '../tools/tool.ts';

export interface MetricDefinition {
  /** The name after `metricsPrefix` and an underscore. */
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  readonly labels: readonly string[];
  /** `fleet`: read from Redis by the process that is scraped, and the same in each. */
  readonly countedBy: 'producer' | 'worker' | 'both' | 'fleet';
  /** The ascending upper bounds of a histogram. */
  readonly buckets?: readonly number[];
}

const define = <const Definition extends MetricDefinition>(definition: Definition): Definition => definition;

const DURATION_BUCKETS_MS = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];
const ROUND_TRIP_BUCKETS_MS = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000];

export const METRICS = {
  calls: define({
    name: 'calls_total',
    type: 'counter',
    help: 'Calls that were answered, replays and refusals included, by tool, result status and idempotency scope.',
    labels: ['tool', 'status', 'scope'],
    countedBy: 'producer',
  }),
  duration: define({
    name: 'call_duration_ms',
    type: 'histogram',
    help: 'Milliseconds from the first attempt of a call to its end; replays do not count.',
    labels: ['tool', 'status'],
    countedBy: 'producer',
    buckets: DURATION_BUCKETS_MS,
  }),
  retries: define({
    name: 'retry_attempts_total',
    type: 'counter',
    help: 'Retries, by the failure that made them necessary.',
    labels: ['tool', 'reason'],
    countedBy: 'worker',
  }),
  hits: define({
    name: 'idempotency_hits_total',
    type: 'counter',
    help: 'Calls that met an earlier one: joined it (inflight), got its result (done, failed, cancelled) or contradicted it (conflict).',
    labels: ['tool', 'state'],
    countedBy: 'producer',
  }),
  cacheSize: define({
    name: 'dedupe_cache_size',
    type: 'gauge',
    help: 'Calls of a tool that were claimed within the time for which the ledger remembers a success, by idempotency scope.',
    labels: ['tool', 'scope'],
    countedBy: 'fleet',
  }),
  ttl: define({
    name: 'dedupe_ttl_seconds',
    type: 'gauge',
    help: 'How long the key of a settled call replays its outcome, by tool and the state it ended in.',
    labels: ['tool', 'state'],
    countedBy: 'fleet',
  }),
  circuits: define({
    name: 'circuit_breaker_state',
    type: 'gauge',
    help: 'How many circuits of a tool are in each state: one for the tool, and one for each tenant that has its own.',
    labels: ['tool', 'state'],
    countedBy: 'fleet',
  }),
  transitions: define({
    name: 'circuit_breaker_transitions_total',
    type: 'counter',
    help: 'Changes of a circuit from one state to another, counted by the process that made them.',
    labels: ['tool', 'from_state', 'to_state'],
    countedBy: 'both',
  }),
  retriesRefused: define({
    name: 'retries_refused_total',
    type: 'counter',
    help: 'Retries that were not made because the tool had used up its retry budget.',
    labels: ['tool'],
    countedBy: 'worker',
  }),
  loops: define({
    name: 'loop_guard_total',
    type: 'counter',
    help: 'Calls that a session made again and again: warned of once, then refused.',
    labels: ['tool', 'action'],
    countedBy: 'producer',
  }),
  shadow: define({
    name: 'shadow_total',
    type: 'counter',
    help: 'What shadow mode would have done with a call: refused, merged or retried.',
    labels: ['tool', 'kind'],
    countedBy: 'both',
  }),
  attempts: define({
    name: 'attempts_total',
    type: 'counter',
    help: 'Attempts that ended, by what became of them: a result status that ended the call, or retried.',
    labels: ['tool', 'status'],
    countedBy: 'worker',
  }),
  attemptDuration: define({
    name: 'attempt_duration_ms',
    type: 'histogram',
    help: 'Milliseconds for which an attempt held a slot of its worker.',
    labels: ['tier'],
    countedBy: 'worker',
    buckets: DURATION_BUCKETS_MS,
  }),
  queueWait: define({
    name: 'queue_wait_ms',
    type: 'histogram',
    help: 'Milliseconds that a call waited in its queue before its first attempt.',
    labels: ['tier'],
    countedBy: 'worker',
    buckets: DURATION_BUCKETS_MS,
  }),
  leaseLosses: define({
    name: 'lease_losses_total',
    type: 'counter',
    help: 'Attempts that were aborted because their worker lost its lease on the call.',
    labels: ['tier'],
    countedBy: 'worker',
  }),
  fencedWrites: define({
    name: 'fenced_writes_total',
    type: 'counter',
    help: 'Outcomes that were refused because a newer attempt held the call.',
    labels: ['tier'],
    countedBy: 'worker',
  }),
  inDoubtEnds: define({
    name: 'in_doubt_total',
    type: 'counter',
    help: 'Attempts that ended their call in doubt: the effect may have happened, or the call was quarantined.',
    labels: ['tool'],
    countedBy: 'worker',
  }),
  inboxLag: define({
    name: 'inbox_lag_ms',
    type: 'histogram',
    help: 'Milliseconds from the end of a call, as Redis noted it, until its producer received it.',
    labels: [],
    countedBy: 'producer',
    buckets: ROUND_TRIP_BUCKETS_MS,
  }),
  auditWriteFailures: define({
    name: 'audit_write_failures_total',
    type: 'counter',
    help: 'Times that a front door could not write the audit trail to its files: some five a second until it can again.',
    labels: [],
    countedBy: 'producer',
  }),
  completions: define({
    name: 'completions_total',
    type: 'counter',
    help: 'Completions of pending calls from outside, by what came of them. Refused: the token was wrong, used or expired, or the content did not fit.',
    labels: ['result'],
    countedBy: 'producer',
  }),
  roundTrip: define({
    name: 'redis_round_trip_ms',
    type: 'histogram',
    help: 'Milliseconds until Redis answered a PING of a process.',
    labels: ['side'],
    countedBy: 'both',
    buckets: ROUND_TRIP_BUCKETS_MS,
  }),
  ledger: define({
    name: 'ledger_calls',
    type: 'gauge',
    help: 'Calls that the ledger remembers, by tier: in flight, or settled and replayed when submitted again.',
    labels: ['tier', 'state'],
    countedBy: 'fleet',
  }),
  depth: define({
    name: 'queue_depth',
    type: 'gauge',
    help: 'Calls that no worker runs now: waiting for a worker, delayed until a retry, awaiting an approval, or delayed by their callers (starts-later).',
    labels: ['tier', 'state'],
    countedBy: 'fleet',
  }),
  oldestWait: define({
    name: 'queue_oldest_wait_seconds',
    type: 'gauge',
    help: 'How long the call that has waited longest for a worker has waited.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  attemptsInFlight: define({
    name: 'attempts_in_flight',
    type: 'gauge',
    help: 'Calls that workers hold now.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  stale: define({
    name: 'stale_inflight_calls',
    type: 'gauge',
    help: 'Calls whose record says running and whose lease has ended: their worker is gone, and no other worker has recovered them yet.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  inDoubt: define({
    name: 'in_doubt_calls',
    type: 'gauge',
    help: 'Calls in doubt that no operator has resolved.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  deadLetters: define({
    name: 'dead_letters',
    type: 'gauge',
    help: 'Calls of tools that change something which failed for good, and that no operator has redriven or discarded.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  pending: define({
    name: 'pending_calls',
    type: 'gauge',
    help: 'Calls that wait for an outside system to complete them. No worker holds them.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  callbacks: define({
    name: 'callbacks_sent_total',
    type: 'counter',
    help: 'Callbacks that were sent: delivered, failing (sent again later) or failed (given up).',
    labels: ['result'],
    countedBy: 'worker',
  }),
  callbacksFailing: define({
    name: 'callbacks_failing',
    type: 'gauge',
    help: 'Callbacks that were sent in vain, those that were given up included.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  approvals: define({
    name: 'approvals_waiting',
    type: 'gauge',
    help: 'Calls that wait for the decision of a person.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  workers: define({
    name: 'workers',
    type: 'gauge',
    help: 'Worker processes that serve a tier.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  slots: define({
    name: 'worker_slots',
    type: 'gauge',
    help: 'Attempts that the workers of a tier can run at a time.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  needed: define({
    name: 'needed_workers',
    type: 'gauge',
    help: 'Worker processes that a tier needs so that nothing waits for long: the signal to scale on.',
    labels: ['tier'],
    countedBy: 'fleet',
  }),
  tools: define({
    name: 'tier_info',
    type: 'gauge',
    help: 'Always 1: says which tier a tool is of.',
    labels: ['tool', 'tier'],
    countedBy: 'fleet',
  }),
  redisUp: define({
    name: 'redis_up',
    type: 'gauge',
    help: '1 while Redis answers the process that is scraped.',
    labels: [],
    countedBy: 'fleet',
  }),
  redisDurable: define({
    name: 'redis_durable',
    type: 'gauge',
    help: '1 while Redis writes to disk (appendonly, appendfsync everysec or always, the last write went well) and evicts nothing.',
    labels: [],
    countedBy: 'fleet',
  }),
} as const;

/** The label for values that the catalogue does not know. */
export const OTHER = 'other';
/** The most tools with series of their own; a fleet counts the rest together. */
export const MAX_TOOLS = 500;
/** The most series of counters and histograms in a fleet; further ones are counted under `other`. */
export const MAX_SERIES = 50_000;

/** Turns names that callers choose into a bounded set of label values. */
export class ToolLabels {
  readonly #known = new Set<string>();

  add(tool: { readonly namespace: string; readonly name: string }): void {
    if (this.#known.size < MAX_TOOLS) this.#known.add(labelOf(tool.namespace, tool.name));
  }

  labelFor(namespace: string, name: string): string {
    const label = labelOf(namespace, name);
    return this.#known.has(label) ? label : OTHER;
  }

  /** The label of the tool in a circuit's key. Tenants and targets are left out; dependencies and tiers count as `other`. */
  labelForCircuit(key: string): string {
    const tool = toolOfCircuit(key) ?? '';
    const dot = tool.lastIndexOf('.');
    return dot === -1 ? OTHER : this.labelFor(tool.slice(0, dot), tool.slice(dot + 1));
  }

  all(): Iterable<string> {
    return this.#known;
  }
}

function labelOf(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`;
}

/** Tools may invent error codes; only known ones and HTTP statuses become labels. */
export function reasonLabel(code: string): string {
  return Object.hasOwn(FAILURES, code) || /^HTTP_[45]\d\d$/.test(code) ? code : OTHER;
}
