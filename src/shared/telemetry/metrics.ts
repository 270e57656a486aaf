/**
 * The fleet's metrics: their names and labels, and the bounds for the number of their series. Exactly one process counts each event, so the
 * sum over all processes is the fleet's total: a producer counts the answers that its callers got, a worker the attempts that it ran.
 * `docs/metrics.md` has this table in words.
 */
import { toolOfCircuit } from '../circuits/circuit-key.ts';
import { FAILURES } from '../errors/failure-codes.ts';
import { DEFAULT_NAMESPACE, type ToolReference } from '../tools/tool.ts';

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

type CountedBy = MetricDefinition['countedBy'];

const counter = <const Labels extends readonly string[]>(name: string, labels: Labels, countedBy: CountedBy) =>
  ({ name, type: 'counter', labels, countedBy }) as const;

const gauge = <const Labels extends readonly string[]>(name: string, labels: Labels, countedBy: CountedBy) =>
  ({ name, type: 'gauge', labels, countedBy }) as const;

const histogram = <const Labels extends readonly string[]>(
  name: string,
  labels: Labels,
  countedBy: CountedBy,
  buckets: readonly number[],
) => ({ name, type: 'histogram', labels, countedBy, buckets }) as const;

const DURATION_BUCKETS_MS = [5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000];
const ROUND_TRIP_BUCKETS_MS = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000];

export const METRICS = {
  calls: {
    ...counter('calls_total', ['tool', 'status', 'scope'], 'producer'),
    help: 'Calls that were answered, replays and refusals included, by tool, result status and idempotency scope.',
  },
  duration: {
    ...histogram('call_duration_ms', ['tool', 'status'], 'producer', DURATION_BUCKETS_MS),
    help: 'Milliseconds from the first attempt of a call to its end; replays do not count.',
  },
  retries: {
    ...counter('retry_attempts_total', ['tool', 'reason'], 'worker'),
    help: 'Retries, by the failure that made them necessary.',
  },
  hits: {
    ...counter('idempotency_hits_total', ['tool', 'state'], 'producer'),
    help: 'Calls that met an earlier one: joined it (inflight), got its result (done, failed, cancelled) or contradicted it (conflict).',
  },
  cacheSize: {
    ...gauge('dedupe_cache_size', ['tool', 'scope'], 'fleet'),
    help: 'Calls of a tool that were claimed within the time for which the ledger remembers a success, by idempotency scope.',
  },
  ttl: {
    ...gauge('dedupe_ttl_seconds', ['tool', 'state'], 'fleet'),
    help: 'How long the key of a settled call replays its outcome, by tool and the state it ended in.',
  },
  circuits: {
    ...gauge('circuit_breaker_state', ['tool', 'state'], 'fleet'),
    help: 'How many circuits of a tool are in each state: one for the tool, and one for each tenant that has its own.',
  },
  transitions: {
    ...counter('circuit_breaker_transitions_total', ['tool', 'from_state', 'to_state'], 'both'),
    help: 'Changes of a circuit from one state to another, counted by the process that made them.',
  },
  retriesRefused: {
    ...counter('retries_refused_total', ['tool'], 'worker'),
    help: 'Retries that were not made because the tool had used up its retry budget.',
  },
  loops: {
    ...counter('loop_guard_total', ['tool', 'action'], 'producer'),
    help: 'Calls that a session made again and again: warned of once, then refused.',
  },
  shadow: {
    ...counter('shadow_total', ['tool', 'kind'], 'both'),
    help: 'What shadow mode would have done with a call: refused, merged or retried.',
  },
  attempts: {
    ...counter('attempts_total', ['tool', 'status'], 'worker'),
    help: 'Attempts that ended, by what became of them: a result status that ended the call, or retried.',
  },
  attemptDuration: {
    ...histogram('attempt_duration_ms', ['tier'], 'worker', DURATION_BUCKETS_MS),
    help: 'Milliseconds for which an attempt held a slot of its worker.',
  },
  queueWait: {
    ...histogram('queue_wait_ms', ['tier'], 'worker', DURATION_BUCKETS_MS),
    help: 'Milliseconds that a call waited in its queue before its first attempt.',
  },
  leaseLosses: {
    ...counter('lease_losses_total', ['tier'], 'worker'),
    help: 'Attempts that were aborted because their worker lost its lease on the call.',
  },
  fencedWrites: {
    ...counter('fenced_writes_total', ['tier'], 'worker'),
    help: 'Outcomes that were refused because a newer attempt held the call.',
  },
  inDoubtEnds: {
    ...counter('in_doubt_total', ['tool'], 'worker'),
    help: 'Attempts that ended their call in doubt: the effect may have happened, or the call was quarantined.',
  },
  inboxLag: {
    ...histogram('inbox_lag_ms', [], 'producer', ROUND_TRIP_BUCKETS_MS),
    help: 'Milliseconds from the end of a call, as Redis noted it, until its producer received it.',
  },
  auditWriteFailures: {
    ...counter('audit_write_failures_total', [], 'producer'),
    help: 'Times that a front door could not write the audit trail to its files: some five a second until it can again.',
  },
  completions: {
    ...counter('completions_total', ['result'], 'producer'),
    help: 'Completions of pending calls from outside, by what came of them. Refused: the token was wrong, used or expired, or the content did not fit.',
  },
  groups: {
    ...counter('groups_total', ['kind', 'state'], 'producer'),
    help: 'Batches and plans that are over, by the state in which they ended.',
  },
  groupsOpen: {
    ...gauge('groups_open', [], 'fleet'),
    help: 'Batches and plans that are not over.',
  },
  roundTrip: {
    ...histogram('redis_round_trip_ms', ['side'], 'both', ROUND_TRIP_BUCKETS_MS),
    help: 'Milliseconds until Redis answered a PING of a process.',
  },
  ledger: {
    ...gauge('ledger_calls', ['tier', 'state'], 'fleet'),
    help: 'Calls that the ledger remembers, by tier: in flight, or settled and replayed when submitted again.',
  },
  depth: {
    ...gauge('queue_depth', ['tier', 'state'], 'fleet'),
    help: 'Calls that no worker runs now: waiting for a worker, delayed until a retry, awaiting an approval, or delayed by their callers (starts-later).',
  },
  oldestWait: {
    ...gauge('queue_oldest_wait_seconds', ['tier'], 'fleet'),
    help: 'How long the call that has waited longest for a worker has waited.',
  },
  attemptsInFlight: {
    ...gauge('attempts_in_flight', ['tier'], 'fleet'),
    help: 'Calls that workers hold now.',
  },
  stale: {
    ...gauge('stale_inflight_calls', ['tier'], 'fleet'),
    help: 'Calls whose record says running and whose lease has ended: their worker is gone, and no other worker has recovered them yet.',
  },
  inDoubt: {
    ...gauge('in_doubt_calls', ['tier'], 'fleet'),
    help: 'Calls in doubt that no operator has resolved.',
  },
  deadLetters: {
    ...gauge('dead_letters', ['tier'], 'fleet'),
    help: 'Calls of tools that change something which failed for good, and that no operator has redriven or discarded.',
  },
  movedCalls: {
    ...gauge('moved_calls', ['tier'], 'fleet'),
    help: 'Calls whose records have left Redis for segments.',
  },
  segmentsLost: {
    ...gauge('segments_lost', ['tier'], 'fleet'),
    help: 'Segments of moved calls that a process could not read: the results of their calls are lost, and none runs again.',
  },
  pending: {
    ...gauge('pending_calls', ['tier'], 'fleet'),
    help: 'Calls that wait for an outside system to complete them. No worker holds them.',
  },
  callbacks: {
    ...counter('callbacks_sent_total', ['result'], 'worker'),
    help: 'Callbacks that were sent: delivered, failing (sent again later) or failed (given up).',
  },
  callbacksFailing: {
    ...gauge('callbacks_failing', ['tier'], 'fleet'),
    help: 'Callbacks that were sent in vain, those that were given up included.',
  },
  occurrences: {
    ...counter('schedule_occurrences_total', ['result'], 'producer'),
    help: 'Occurrences of schedules: started, skipped by their overlap rule, missed and left out, refused, or unknown because a front door died as it started one.',
  },
  schedulesOverdue: {
    ...gauge('schedules_overdue', [], 'fleet'),
    help: 'Schedules that have been due for more than 10 s, and that no front door has taken.',
  },
  approvals: {
    ...gauge('approvals_waiting', ['tier'], 'fleet'),
    help: 'Calls that wait for the decision of a person.',
  },
  workers: {
    ...gauge('workers', ['tier'], 'fleet'),
    help: 'Worker processes that serve a tier.',
  },
  slots: {
    ...gauge('worker_slots', ['tier'], 'fleet'),
    help: 'Attempts that the workers of a tier can run at a time.',
  },
  needed: {
    ...gauge('needed_workers', ['tier'], 'fleet'),
    help: 'Worker processes that a tier needs so that nothing waits for long: the signal to scale on.',
  },
  tools: {
    ...gauge('tier_info', ['tool', 'tier'], 'fleet'),
    help: 'Always 1: says which tier a tool is of.',
  },
  redisUp: {
    ...gauge('redis_up', [], 'fleet'),
    help: '1 while Redis answers the process that is scraped.',
  },
  redisDurable: {
    ...gauge('redis_durable', [], 'fleet'),
    help: '1 while Redis writes to disk (appendonly, appendfsync everysec or always, the last write went well) and evicts nothing.',
  },
} as const satisfies Readonly<Record<string, MetricDefinition>>;

/** The label for values that the catalogue does not know. */
export const OTHER = 'other';
/** The most tools with series of their own; a fleet counts the rest together. */
export const MAX_TOOLS = 500;
/** The most series of counters and histograms in a fleet; further ones are counted under `other`. */
export const MAX_SERIES = 50_000;

/** Turns names that callers choose into a bounded set of label values. */
export class ToolLabels {
  readonly #labels = new Set<string>();

  add(tool: ToolReference): void {
    if (this.#labels.size < MAX_TOOLS) this.#labels.add(labelOf(tool.namespace, tool.name));
  }

  labelFor(namespace: string, name: string): string {
    const label = labelOf(namespace, name);
    return this.#labels.has(label) ? label : OTHER;
  }

  /** The label of the tool in a circuit's key. Tenants and targets are left out; dependencies and tiers count as `other`. */
  labelForCircuit(key: string): string {
    const tool = toolOfCircuit(key) ?? '';
    const dot = tool.lastIndexOf('.');
    return dot === -1 ? OTHER : this.labelFor(tool.slice(0, dot), tool.slice(dot + 1));
  }

  all(): Iterable<string> {
    return this.#labels;
  }
}

function labelOf(namespace: string, name: string): string {
  return namespace === DEFAULT_NAMESPACE ? name : `${namespace}.${name}`;
}

/** Tools may invent error codes; only known ones and HTTP statuses become labels. */
export function reasonLabel(code: string): string {
  return Object.hasOwn(FAILURES, code) || /^HTTP_[45]\d\d$/.test(code) ? code : OTHER;
}
