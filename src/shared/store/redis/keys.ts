/**
 * The name of every Redis key. All keys of a partition (a tier, or one shard of it) share a hash tag, so that a script may touch them
 * together and partitions spread over a cluster.
 */
import type { Tier } from '../../tools/tool.ts';

export interface Partition {
  readonly tier: Tier;
  readonly shard: number;
}

/** The partition with the circuits and retry budgets that all shards of a tier share. */
export function homePartition(tier: Tier): Partition {
  return { tier, shard: 0 };
}

/** The names of keys behind a partition's base. Scripts that touch many of its keys build them from these names (`PARTITION_LUA`). */
export const PARTITION_NAMES = {
  RECORDS: ':call:',
  INBOXES: ':inbox:',
  INFLIGHT: ':inflight',
  CALLS: ':calls',
  IN_DOUBT: ':in-doubt',
  /** Calls that an outside system completes, by their expiry. They are not in flight. */
  PENDING: ':pending',
  CIRCUITS: ':circuits',
  WINDOWS: ':window:',
  RETRIES: ':retries:',
  SIZES: ':sizes:',
  /** Slots in which calls with a derived key merge. */
  MERGES: ':merge:',
  /** Counts of how often a session made the same call. */
  LOOPS: ':loop:',
  SESSIONS: ':session:',
  APPROVALS: ':approval',
  LOST_WORKERS: ':lost-workers',
  /** Numbers of the segments of moved calls, by the expiry of their last record. Absent when no call was moved. */
  SEGMENTS: ':segments',
  SEGMENT: ':segment:',
  /** Moved calls, in hashes by the end of their IDs. */
  MOVED: ':moved:',
} as const;

/** The names of a partition's dead letters behind its base: the index by time, that of one tenant, and the facts of each. */
export const DEAD_LETTER_NAMES = {
  DEAD_LETTERS: ':dead-letters',
  DEAD_LETTERS_OF: ':dead-letters-of:',
  DEAD_LETTER_FACTS: ':dead-letter-facts',
} as const;

/** The base class sets `base` before the field initializers of its subclasses use it. */
class Keys {
  readonly base: string;

  constructor(base: string) {
    this.base = base;
  }
}

export class PartitionKeys extends Keys {
  readonly partition: Partition;
  /** BullMQ's queue name: `read-only`, or `read-only.1` for a further shard. Its prefix is `base`. */
  readonly queue: string;
  readonly records = `${this.base}${PARTITION_NAMES.RECORDS}`;
  readonly inboxes = `${this.base}${PARTITION_NAMES.INBOXES}`;
  readonly inflight = `${this.base}${PARTITION_NAMES.INFLIGHT}`;
  readonly calls = `${this.base}${PARTITION_NAMES.CALLS}`;
  /** Calls in doubt, by the expiry of their records. */
  readonly inDoubt = `${this.base}${PARTITION_NAMES.IN_DOUBT}`;
  readonly pending = `${this.base}${PARTITION_NAMES.PENDING}`;
  readonly circuits = `${this.base}${PARTITION_NAMES.CIRCUITS}`;
  /** Counts of calls by tool, for each part of the retention. */
  readonly sizes = `${this.base}${PARTITION_NAMES.SIZES}`;
  /** The base of the indices of each session's calls, by time. */
  readonly sessions = `${this.base}${PARTITION_NAMES.SESSIONS}`;
  readonly record = (callId: string) => `${this.records}${callId}`;
  readonly inbox = (id: string) => `${this.inboxes}${id}`;
  readonly sessionCalls = (sessionKey: string) => `${this.sessions}${sessionKey}`;
  readonly delayedSessionCalls = (sessionKey: string) => `${this.calls}:delayed:${sessionKey}`;
  /** Workers that were lost while they ran calls, by the time of detection. `:stopped:ID` marks one that was stopped. */
  readonly lostWorkers = `${this.base}${PARTITION_NAMES.LOST_WORKERS}`;
  readonly stoppedWorker = (workerId: string) => `${this.lostWorkers}:stopped:${workerId}`;
  /**
   * The segments of moved calls. Further keys: `:last` the newest number, `:mover` a lease, `:walked` a mark of the last full scan, `:calls`
   * a count, `:lost` the segments that were found lost.
   */
  readonly segments = `${this.base}${PARTITION_NAMES.SEGMENTS}`;
  /** A segment in Redis, or the mark of one in another store. */
  readonly segment = (number: string) => `${this.base}${PARTITION_NAMES.SEGMENT}${number}`;
  /** Prefix of approvals: `:ID` for each, `s` for the index of all, `s:pending` for that of pending ones. */
  readonly approvals = `${this.base}${PARTITION_NAMES.APPROVALS}`;
  /** Failed calls of mutating tools, by their end; with a tenant, only its calls. */
  readonly deadLetters = (tenantId?: string) =>
    tenantId === undefined
      ? `${this.base}${DEAD_LETTER_NAMES.DEAD_LETTERS}`
      : `${this.base}${DEAD_LETTER_NAMES.DEAD_LETTERS_OF}${tenantId}`;
  readonly deadLetterFacts = `${this.base}${DEAD_LETTER_NAMES.DEAD_LETTER_FACTS}`;
  /** The history of circuits, the newest change first. */
  readonly circuitHistory = `${this.base}:circuit-history`;
  readonly window = (circuit: string) => `${this.base}${PARTITION_NAMES.WINDOWS}${circuit}`;
  readonly retries = (bucket: string) => `${this.base}${PARTITION_NAMES.RETRIES}${bucket}`;
  /** An outcome too large for its record: one of those that attempts wrote for a call. */
  readonly outcome = (callId: string, textId: string) => `${this.base}:outcome:${callId}:${textId}`;
  /** Parameters too large for their request: one of those that producers wrote for a call. */
  readonly params = (callId: string, textId: string) => `${this.base}:params:${callId}:${textId}`;
  readonly progress = (callId: string) => `${this.base}:progress:${callId}`;
  readonly job = (jobId: string) => `${this.base}:${this.queue}:${jobId}`;

  constructor(prefix: string, partition: Partition) {
    const queue = partition.shard === 0 ? partition.tier : `${partition.tier}.${partition.shard}`;
    super(`${prefix}:{${queue}}`);
    this.partition = partition;
    this.queue = queue;
  }
}

export class FleetKeys extends Keys {
  readonly prefix = this.base;
  readonly #fleet = `${this.base}:{fleet}`;
  readonly #schedules = `${this.base}:{schedules}`;
  readonly workers = `${this.#fleet}:workers`;
  readonly workerLoads = `${this.#fleet}:worker-records`;
  readonly tools = `${this.#fleet}:tools`;
  /** The registry's records, by tool. */
  readonly specs = `${this.#fleet}:specs`;
  readonly skills = `${this.#fleet}:skills`;
  /** The last change of each record of the registry, as a number of `declaredToolSequence`. */
  readonly declaredToolChanges = `${this.#fleet}:spec-changes`;
  readonly declaredToolSequence = `${this.#fleet}:spec-sequence`;
  /** All sessions, by their opening. */
  readonly sessions = `${this.#fleet}:sessions`;
  readonly switches = `${this.#fleet}:switches`;
  /** Kind of the channel of sessions that name none. */
  readonly defaultChannel = `${this.#fleet}:default-channel`;
  /** The number of shards of each tier, and the most that it ever had. */
  readonly shards = `${this.#fleet}:shards`;
  /** Counts of what would have happened without shadow mode. */
  readonly shadows = `${this.#fleet}:shadows`;
  /** Questions that wait for a person, by expiry. */
  readonly questions = `${this.#fleet}:questions`;
  /** Written to wait for the disk. */
  readonly disk = `${this.#fleet}:disk`;
  /** Written to test whether Redis accepts writes. */
  readonly trial = `${this.#fleet}:trial`;
  /** Prefix of resource locks, which calls of all tiers share. */
  readonly locks = `${this.base}:{turns}:`;
  /** Prefix of clients that run tools, and of their calls. */
  readonly clients = `${this.base}:{clients}:`;
  /** Records of schedules and their progress, by ID, and their due times. */
  readonly schedules = `${this.#schedules}:records`;
  readonly scheduleProgress = `${this.#schedules}:progress`;
  readonly schedulesDue = `${this.#schedules}:due`;
  /** The totals of all processes' metrics. */
  readonly metrics = `${this.#fleet}:metrics`;
  readonly metricsOf = (processId: string) => `${this.metrics}:${processId}`;
  readonly session = (sessionKey: string) => `${this.#fleet}:session:${sessionKey}`;
  readonly sessionsOf = (tenantId: string) => `${this.sessions}:${tenantId}`;
  readonly sessionChildren = (sessionKey: string) => `${this.#fleet}:session-children:${sessionKey}`;
  /** The channel of a producer's events. `shared.lua` derives it from an inbox's key. */
  readonly inbox = (id: string) => `${this.base}:inbox:${id}`;
  /** Messages of tools to the people of a session. */
  readonly messages = (sessionKey: string) => `${this.#fleet}:messages:${sessionKey}`;
  /** The newest revisions of a tool's record. */
  readonly declaredToolHistory = (tool: string) => `${this.#fleet}:spec-history:${tool}`;
  readonly standingApprovals = (sessionKey: string) => `${this.#fleet}:grants:${sessionKey}`;
  readonly question = (id: string) => `${this.#fleet}:question:${id}`;
  readonly turn = (callId: string) => `${this.locks}call:${callId}`;
  /** The newest name of a model's call whose ID was repeated. */
  readonly repeatedCall = (call: string) => `${this.#fleet}:repeated-call:${call}`;
  /** A sub-agent, and the messages that it receives. */
  readonly agent = (agentId: string) => `${this.#fleet}:agent:${agentId}`;
  readonly agentMail = (agentId: string) => `${this.agent(agentId)}:mail`;
  /** Jobs of calls that wait for an agent's answer. */
  readonly agentAwaited = (agentId: string) => `${this.agent(agentId)}:awaited`;
  readonly agentsOf = (sessionKey: string) => `${this.#fleet}:agents:${sessionKey}`;
  readonly mail = (workerId: string) => `${this.#fleet}:mail:${workerId}`;
  /** The worker that has a terminal. */
  readonly terminal = (terminalId: string) => `${this.#fleet}:terminal:${terminalId}`;
  readonly budget = (name: string) => `${this.base}:{budget}:${name}`;
  readonly task = (taskId: string) => `${this.#fleet}:task:${taskId}`;

  /** The holders of a concurrency limit, the newest starts, and the jobs that wait for either. */
  limit(name: string) {
    const base = `${this.base}:{limit:${name}}`;
    return {
      holders: `${base}:holders`,
      waiters: `${base}:waiters`,
      starts: `${base}:starts`,
      asking: `${base}:asking`,
      sessionPositions: `${base}:places`,
      promotedPositions: `${base}:woken`,
    };
  }
}

/** The keys of the audit trail. They share one hash tag: chaining touches waiting records and the trail in one step. */
export class AuditKeys extends Keys {
  /** Records that are not chained yet. */
  readonly pending = `${this.base}:pending`;
  readonly head = `${this.base}:head`;
  /** The lease of the process that chains records. */
  readonly writer = `${this.base}:writer`;
  readonly sinks = `${this.base}:sinks`;
  /** The chained records of a trail, under their numbers. */
  readonly chain = (trail: string) => `${this.base}:chain:${trail}`;
  readonly sinkLease = (name: string) => `${this.base}:sink:${name}`;

  constructor(prefix: string) {
    super(`${prefix}:{audit}`);
  }
}

/** The keys of batches and plans. They share one hash tag: a step writes a group's record and the index of open ones together. */
export class GroupKeys extends Keys {
  /** Open groups, by the end of their driver's lease. */
  readonly open = `${this.base}:open`;
  readonly group = (id: string) => `${this.base}:group:${id}`;

  constructor(prefix: string) {
    super(`${prefix}:{groups}`);
  }

  /** All groups of a kind, or those of one tenant, by their creation. */
  all(kind: string, tenantId?: string): string {
    return tenantId === undefined ? `${this.base}:${kind}` : `${this.base}:${kind}:tenant:${tenantId}`;
  }
}

/** The keys of a dedupe store. They share one hash tag: a script touches a record and its indexes in one step. */
export class DedupeKeys extends Keys {
  /** Index of all records, by expiry. */
  readonly all = `${this.base}:all`;
  /** Index of finished records, by last use. */
  readonly finished = `${this.base}:finished`;
  readonly record = (key: string) => `${this.base}:record:${key}`;

  constructor(prefix: string) {
    super(`${prefix}:{dedupe}`);
  }
}
